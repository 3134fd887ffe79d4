"""The pages: traces to find, read and label; sessions; statistics. All that a browser loads is rendered or shipped here.

`routes` gives them to a server: their addresses, and how each is answered. What checks a token is `layout.Guard`.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from journeyman.core.errors import InputError, JourneymanError, StoreError
from journeyman.core.reward import Reward
from journeyman.core.trace import AgentCall, Message, ModelCall, Reasoning, Step, ToolCall, Trace, total, walk
from journeyman.io.http_server import BodyRejected, ClientDisconnected, named_host, read_body
from journeyman.serving.dashboard.alerts import AlertPages
from journeyman.serving.dashboard.experiments import ExperimentPages, ProjectStores
from journeyman.serving.dashboard.figures import NO_DAY, Counted, SharedCache, of_step, over_time
from journeyman.serving.dashboard.layout import (
    COOKIE,
    FIELDS,
    HEADERS,
    QUICK,
    UNNAMED,
    Guard,
    PageRefused,
    PageRenderer,
    decoded,
    encoded,
    filters_of,
    graph,
    id_of,
    local,
    name,
    one_line,
    query_of,
    static,
)
from journeyman.serving.dashboard.overview import OverviewPage
from journeyman.serving.dashboard.releases import ReleasePages
from journeyman.stores.traces.base import (
    Given,
    Page,
    Query,
    Statistics,
    TraceSession,
    TraceStore,
    TraceSummary,
)
from journeyman.stores.traces.labels import said as words_of
from journeyman.tracing.base import NO_TIME
from journeyman.tracing.importers import jsonl

if TYPE_CHECKING:
    from journeyman.stores.traces.labels import LabelAgreement

# A trace as it is read: what was said and done in its order, and when.

SHALLOW = 8
"""Levels of the tree that are set in; deeper ones stand below each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """When a step ran, in per cent of the trace's time."""

    left: float
    width: float
    known: bool
    """Whether it is known how long it took; else the bar is a mark where it began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step as the page shows it."""

    number: int
    """Its place in `Trace.steps`, from 1."""
    depth: int
    kind: str
    """"model", "tool", "reasoning" or "agent"."""
    name: str
    step: Step
    said: tuple[Message, ...]
    """Of a model call, what was new to the model and is not shown elsewhere on the page."""
    failed: bool
    gist: str
    """TracePage line for where the step is folded."""
    bar: Bar | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """A reward, and who gave it."""

    reward: Reward
    by: str | None
    """`None` is the recorder."""
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceView:
    """A trace, laid out."""

    trace: Trace
    blocks: tuple[StepView, ...]
    left_out: int
    """Steps past those that were asked for."""
    asked: str | None
    """What was asked, where no message says it."""
    answered: str | None
    """What was answered, where no reply says it."""
    seconds: float | None
    tool_failures: int


def read(trace: Trace, *, most: int) -> TraceView:
    """Lay out a trace, of its steps the first `most`."""
    order = list(walk(trace.steps))
    places = {id(step): place for place, step in enumerate(trace.steps, start=1)}
    axis = _axis(trace)
    answers = frozenset(step.id for step in trace.tool_calls if step.id)
    blocks = [_block(step, depth, places[id(step)], answers, axis) for depth, step in order[:most]]
    said = {message.text.strip() for call in trace.calls for message in call.messages}
    prompts = {call.prompt.strip() for call in trace.calls if not call.messages}
    replies = {call.reply.strip() for call in trace.calls}
    asked, answered = (trace.input or "").strip(), (trace.output or "").strip()
    return TraceView(
        trace=trace,
        blocks=tuple(blocks),
        left_out=max(0, len(order) - most),
        asked=trace.input if asked and asked not in said | prompts else None,
        answered=trace.output if answered and answered not in replies else None,
        seconds=trace.seconds if trace.seconds is not None else axis[1] if axis else None,
        tool_failures=sum(not call.ok for call in trace.tool_calls),
    )


def worth(trace: Trace, given: Sequence[Given]) -> list[Worth]:
    """The trace's rewards, each with who gave it last."""
    by_name: Mapping[str, Given] = {each.reward.name: each for each in given}
    return [
        Worth(reward=reward, by=found.by, at=found.at)
        if (found := by_name.get(reward.name)) and found.reward == reward
        else Worth(reward=reward, by=None, at=None)
        for reward in trace.rewards
    ]


Axis = tuple[datetime, float]
"""When it began, and how many seconds it took."""


def _axis(trace: Trace) -> Axis | None:
    """The time that the bars are drawn in; `None` where no step has a time."""
    begun = [(step.started_at, step.seconds or 0.0) for step in trace.steps if step.started_at not in (None, NO_TIME)]
    known = [(at, seconds) for at, seconds in begun if at is not None]
    if not known:
        return None
    first = min(at for at, _ in known)
    last = max(at + timedelta(seconds=min(max(seconds, 0.0), 1e9)) for at, seconds in known)
    return first, (last - first).total_seconds()


def _bar(step: Step, axis: Axis | None) -> Bar | None:
    if axis is None or step.started_at is None:
        return None
    begun, whole = axis
    if whole <= 0:
        return Bar(left=0, width=100, known=step.seconds is not None)
    left = min(100.0, max(0.0, 100 * (step.started_at - begun).total_seconds() / whole))
    width = min(100 - left, 100 * (step.seconds or 0.0) / whole)
    # A step of a blink is still to be seen, and clicked.
    width = max(width, 0.8)
    return Bar(left=round(min(left, 100 - width), 2), width=round(width, 2), known=step.seconds is not None)


def _block(step: Step, depth: int, number: int, answers: frozenset[str], axis: Axis | None) -> StepView:
    kind, name, gist, failed = _summary(step)
    said: tuple[Message, ...] = ()
    if isinstance(step, ModelCall):
        # A tool's answer stands with the tool's call.
        said = tuple(message for message in step.messages if message.answers is None or message.answers not in answers)
    return StepView(
        number=number,
        depth=min(depth, SHALLOW),
        kind=kind,
        name=name,
        step=step,
        said=said,
        failed=failed,
        gist=gist,
        bar=_bar(step, axis),
    )


def _summary(step: Step) -> tuple[str, str, str, bool]:
    match step:
        case ModelCall():
            return "model", step.model or "a model", one_line(step.reply), step.error is not None
        case ToolCall():
            return "tool", step.tool or "a tool", one_line(step.arguments, 90), not step.ok or step.error is not None
        case Reasoning():
            return "reasoning", "reasoning", one_line(step.text), False
        case AgentCall():
            return "agent", step.agent or "an agent", one_line(step.input), step.error is not None


# Its page, and what a person says of it.

STEPS = 200
"""Shown at first."""
CHARACTERS = 6_000
"""Of one text, shown at first."""
GONE = "There is no such trace, or it was pruned."
_WORDS = {"yes": True, "no": False, "clear": None}


class TracePage:
    """The handlers of these addresses."""

    def __init__(self, store: TraceStore, frame: PageRenderer, who: str) -> None:
        self._store = store
        self._frame = frame
        self._who = who

    def trace(self, request: Request, fields: Mapping[str, str]) -> Response:
        """One trace. `show` names a text that is wanted whole, `steps=all` wants every step, and the filters say in which list
        the next and the previous one are looked up."""
        id = id_of(request.path_params["name"])
        trace, line = self._store.get(id), self._store.line(id)
        if trace is None or line is None:
            raise PageRefused(HTTPStatus.NOT_FOUND, GONE)
        typed = filters_of(fields)
        newer, older = self._neighbours(id, typed)
        every = fields.get("steps") == "all"
        return self._frame.page(
            "trace.html",
            title=trace.query[:80] or "Trace",
            trace=trace,
            reading=read(trace, most=len(trace.steps) if every else STEPS),
            worth=worth(trace, self._store.rewards(id)),
            plan=graph(trace),
            labels=self._store.labels(id),
            good=line.label,
            by=line.labelled_by,
            newer=newer,
            older=older,
            typed=typed,
            every=every,
            show=fields.get("show", ""),
            most=CHARACTERS,
        )

    def _neighbours(self, id: str, typed: Mapping[str, str]) -> tuple[str | None, str | None]:
        try:
            return self._store.neighbours(id, query_of(typed, datetime.now(UTC)))
        except InputError:
            return self._store.neighbours(id, Query())

    def label(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Add this person's word, or with `undo` the one from before. A script gets the new buttons and a note with a way back;
        without one, the browser goes back to where the form was."""
        id = id_of(fields.get("trace", ""))
        said = fields.get("good", fields.get("undo", ""))
        if said not in _WORDS:
            raise InputError("good: a label is yes, no or clear")
        before = words_of(self._store.labels(id)).get(self._who, {}).get(id)
        try:
            self._store.label(id, _WORDS[said], who=self._who, at=datetime.now(UTC))
        except StoreError:
            if self._store.get(id) is None:
                raise PageRefused(HTTPStatus.NOT_FOUND, GONE) from None
            raise
        if "hx-request" not in request.headers:
            return RedirectResponse(local(fields.get("back", "/traces/" + name(id))), status_code=HTTPStatus.SEE_OTHER)
        line = self._store.line(id)
        good, by = (line.label, line.labelled_by) if line is not None else (None, None)
        undo = None if "undo" in fields else {True: "yes", False: "no", None: "clear"}[before]
        return self._frame.page("labelled.html", id=id, good=good, by=by, said=_WORDS[said], undo=undo, typed={})


# Pages of many traces: the list, sessions, statistics, and the list as a file.

LINES = 50
"""Traces of one page of the list."""
OF_A_SESSION = 500
"""Traces that the page of a session shows."""
AT_ONCE = 50
"""Traces that are read and sent together in an export."""
COUNTED = 1_000
"""Where counting stops: past it the page says "1,000+"."""


class ListPages:
    """The handlers of these pages."""

    def __init__(self, store: TraceStore, frame: PageRenderer) -> None:
        self.store = store
        self._frame = frame
        self._statistics = SharedCache[Statistics]()
        self._agreement = SharedCache[Sequence["LabelAgreement"]]()

    def traces(self, request: Request, fields: Mapping[str, str]) -> Response:
        """The list. Asked with `have`, what the asker shows already, it answers 204 while there is nothing new."""
        typed, problem, query = self._filters(fields)
        page = Page(lines=(), next=None)
        if query is not None:
            page = self.store.page(query, limit=LINES, after=fields.get("after"))
        version = _version(page)
        if fields.get("have") == version:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        values = {"typed": typed, "page": page, "version": version}
        if "have" in fields:
            return self._frame.page("rows.html", **values)
        # Of the pages that follow only the rows are taken.
        counted = None if "after" in fields or query is None else self.store.count(query, most=COUNTED)
        status = HTTPStatus.BAD_REQUEST if problem else HTTPStatus.OK
        return self._frame.page(
            "list.html",
            status,
            title="Traces",
            problem=problem,
            counted=counted,
            most=COUNTED,
            fields=FIELDS,
            quick=QUICK,
            **values,
        )

    def export(self, request: Request, fields: Mapping[str, str]) -> Response:
        """The traces of the list, oldest first, a line of JSON each."""
        _, problem, query = self._filters(fields)
        if query is None:
            raise InputError(problem)
        return StreamingResponse(
            self._lines(query),
            media_type="application/x-ndjson",
            headers={"Content-Disposition": 'attachment; filename="traces.jsonl"'},
        )

    def _lines(self, query: Query) -> Iterator[str]:
        found = self.store.traces(query)
        while some := list(islice(found, AT_ONCE)):
            yield "".join(jsonl.line(trace) + "\n" for trace in some)

    def sessions(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Conversations and visits, the latest first."""
        found, after = self.store.sessions(limit=LINES, after=fields.get("after"))
        return self._frame.page("sessions.html", title="Sessions", sessions=found, next=after)

    def session(self, request: Request, fields: Mapping[str, str]) -> Response:
        """One session: its traces in the order in which they began."""
        id = id_of(request.path_params["name"])
        page = self.store.page(Query(session=id), limit=OF_A_SESSION)
        if not page.lines:
            raise PageRefused(HTTPStatus.NOT_FOUND, "There is no such session, or no trace of it is left.")
        lines = tuple(reversed(page.lines))
        return self._frame.page(
            "session.html",
            title="Session",
            session=_together(id, lines),
            lines=lines,
            more=page.next is not None,
            typed={"session": id},
        )

    def performance(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Success, cost and time, and the tools: of all traces, or of those that the filters leave."""
        typed, problem, query = self._filters(fields)
        if query is None:
            raise InputError(problem)
        counted = self.counted(query)
        return self._frame.page(
            "performance.html",
            title="Performance",
            typed=typed,
            unnamed=UNNAMED,
            found=counted.value,
            counted_at=counted.at,
            charts=over_time(counted.value.by_time, typed, query, counted.value.every),
            of_day=lambda name: of_step(name, query),
            no_day=NO_DAY,
            agreements=self._agreement.get("", self._agreed).value,
        )

    def counted(self, query: Query) -> Counted[Statistics]:
        """The statistics of a query, counted now or a short while ago."""
        return self._statistics.get(query, lambda: self.store.statistics(query))

    def _agreed(self) -> Sequence["LabelAgreement"]:
        # NumPy is for who asks for figures.
        from journeyman.stores.traces.labels import agreed

        return agreed(self.store.labels())

    def _filters(self, fields: Mapping[str, str]) -> tuple[dict[str, str], str, Query | None]:
        """The filters as typed; then why they mean nothing, or what they mean."""
        typed = filters_of(fields)
        try:
            return typed, "", query_of(typed, datetime.now(UTC))
        except InputError as error:
            return typed, str(error), None


def _version(page: Page) -> str:
    return hashlib.blake2b(repr(page).encode(errors="backslashreplace"), digest_size=8).hexdigest()


def _together(id: str, lines: tuple[TraceSummary, ...]) -> TraceSession:
    """The session that these traces are."""
    return TraceSession(
        id=id,
        title=lines[0].title,
        traces=len(lines),
        agents=tuple(dict.fromkeys(line.agent for line in lines if line.agent)),
        started_at=lines[0].started_at,
        last_at=lines[-1].started_at,
        input_tokens=total(line.input_tokens for line in lines),
        output_tokens=total(line.output_tokens for line in lines),
        cost=total(line.cost for line in lines),
        errors=sum(line.error is not None for line in lines),
    )


log = logging.getLogger(__name__)
LARGEST_FORM = 100_000
"""Bytes."""
FORM_SECONDS = 30.0
"""In which it must have come."""
MONTH = 30 * 24 * 3600

COMPRESSED = (Middleware(GZipMiddleware, compresslevel=6),)

Handler = Callable[[Request, dict[str, str]], Response]
"""Gets the request, and the fields of its form, or of its address when it has no form. Runs in a thread of its own."""


def routes(store: TraceStore, *, who: str, guard: Guard | None = None, project: ProjectStores | None = None) -> list[BaseRoute]:
    """The pages over a store, for a server to mount at its root: `/`, `/traces`, `/sessions`, `/performance`, `/login` and what
    lies below, none of them under `/v1`.

    The routes keep their own door: with a guard that has tokens, who is not admitted is led to `/login`, so a server must let
    these addresses pass. Nothing that blocks runs on the event loop.

    Args:
        who: Whose word a label given on a page is.
        guard: Share it with what else asks for a token; without one, loopback names and addresses are served, to anyone.
        project: What the store knows beside traces; without it there are the pages over traces alone.
    """
    door = guard or Guard()
    frame = PageRenderer(door, who, project=project is not None, counts=partial(_rail_counts, SharedCache(), store, project))
    lists, one = ListPages(store, frame), TracePage(store, frame, who)

    def page(path: str, handler: Handler, method: str = "GET", *, closed: bool = True) -> Route:
        return Route(path, _endpoint(handler, frame, closed=closed), methods=[method], middleware=COMPRESSED)

    return [
        *(_project_pages(project, frame, who, page, lists) if project is not None else ()),
        page("/", lists.traces),
        page("/traces", lists.traces),
        page("/traces.jsonl", lists.export),
        page("/traces/{name:path}", one.trace),
        page("/labels", one.label, "POST"),
        page("/sessions", lists.sessions),
        page("/sessions/{name:path}", lists.session),
        page("/performance", lists.performance),
        page(
            "/statistics",
            lambda request, fields: RedirectResponse("/performance" + encoded(fields), HTTPStatus.PERMANENT_REDIRECT),
        ),
        page("/login", lambda request, fields: _login_page(frame, fields), closed=False),
        page("/login", lambda request, fields: _login(frame, request, fields), "POST", closed=False),
        page("/logout", lambda request, fields: _logout(), "POST"),
        Route("/static/{name}", static, middleware=COMPRESSED),
        page("/{path:path}", _no_page),
    ]


MOST_COUNTED = 1_000_000


def _rail_counts(known: SharedCache[Mapping[str, int]], store: TraceStore, project: ProjectStores | None) -> Mapping[str, int]:
    """How many there are behind each address of the rail; nothing while a store is away, as pages that can be shown are."""

    def counted() -> Mapping[str, int]:
        try:
            traces = {"/traces": store.count(Query(), most=MOST_COUNTED)}
            return traces if project is None else {**traces, **project.counts()}
        except JourneymanError:
            return {}

    return known.get("", counted).value


def _project_pages(
    project: ProjectStores, frame: PageRenderer, who: str, page: Callable[..., Route], lists: ListPages
) -> Iterator[Route]:
    learned, served = ExperimentPages(project, frame, who), ReleasePages(project, lists.store, frame, who)
    yield page("/", OverviewPage(project, frame, lambda query: lists.counted(query).value).overview)
    yield page("/runs", learned.runs)
    yield page("/runs/compare", learned.compare)
    yield page("/runs/{name:path}", learned.run)
    yield page("/learn", learned.learn)
    yield page("/evaluations", learned.evaluations)
    yield page("/evaluations/{name:path}", learned.evaluation)
    yield page("/playbooks", learned.playbooks)
    yield page("/playbooks/decide", learned.decide, "POST")
    yield page("/playbooks/{name:path}", learned.playbook)
    yield page("/releases", served.releases)
    yield page("/releases/move", served.act, "POST")
    yield page("/releases/{name:path}", served.rollout)
    yield page("/audit", served.audit)
    watched = AlertPages(project, frame, who)
    yield page("/alerts", watched.alerts)
    yield page("/alerts", watched.act, "POST")
    yield page("/system", watched.system)


def _no_page(request: Request, fields: Mapping[str, str]) -> Response:
    raise PageRefused(HTTPStatus.NOT_FOUND, "There is no such page.")


def _endpoint(handler: Handler, frame: PageRenderer, *, closed: bool) -> Callable[..., object]:
    async def answer(request: Request) -> Response:
        try:
            fields = decoded(request.scope["query_string"])
            _enter(request, frame.guard, closed=closed)
            if request.method == "POST":
                fields = decoded(await _form(request))
                if wrong := frame.guard.wrong_form(request.headers, fields.get("token", "")):
                    raise PageRefused(HTTPStatus.FORBIDDEN, wrong)
            response = await run_in_threadpool(handler, request, fields)
        except PageRefused as refused:
            response = frame.refused(request, refused.status, str(refused))
        except InputError as error:
            response = frame.refused(request, HTTPStatus.BAD_REQUEST, str(error))
        except JourneymanError as error:
            log.warning("%s: %s", request.url.path, error)
            response = frame.refused(request, HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        response.headers.update(HEADERS)
        return response

    return answer


def _enter(request: Request, guard: Guard, *, closed: bool) -> None:
    if not guard.knows(named_host(request.scope["headers"])):
        raise PageRefused(
            HTTPStatus.MISDIRECTED_REQUEST, "Without a token this server is asked for as localhost, or by its address."
        )
    if not closed or not guard.demands:
        return
    if not guard.admits(authorization=request.headers.get("authorization", ""), cookie=request.cookies.get(COOKIE, "")):
        raise PageRefused(HTTPStatus.UNAUTHORIZED, "This page needs the server's token.")


async def _form(request: Request) -> bytes:
    try:
        return await read_body(request.receive, LARGEST_FORM, FORM_SECONDS)
    except BodyRejected as rejected:
        sentence = "No form of ours is that long." if rejected.status == 413 else "The form did not come."
        raise PageRefused(HTTPStatus(rejected.status), sentence) from None
    except ClientDisconnected:
        raise ClientDisconnect from None


def _login_page(frame: PageRenderer, fields: dict[str, str], *, wrong: bool = False) -> Response:
    status = HTTPStatus.UNAUTHORIZED if wrong else HTTPStatus.OK
    return frame.page("login.html", status, title="Sign in", to=local(fields.get("to", "/")), wrong=wrong)


def _login(frame: PageRenderer, request: Request, fields: dict[str, str]) -> Response:
    cookie = frame.guard.cookie(fields.get("key", "").strip())
    if cookie is None:
        return _login_page(frame, fields, wrong=True)
    response = RedirectResponse(local(fields.get("to", "/")), status_code=HTTPStatus.SEE_OTHER)
    response.set_cookie(
        COOKIE, cookie, max_age=MONTH, httponly=True, samesite="strict", secure=request.url.scheme == "https", path="/"
    )
    return response


def _logout() -> Response:
    response = RedirectResponse("/login", status_code=HTTPStatus.SEE_OTHER)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response
