"""The pages: traces to find, read and label; sessions; statistics. All that a browser loads is rendered or shipped here.

`routes` gives them to a server: their addresses, and how each is answered. What checks a token is `layout.Guard`.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from journeyman.core.errors import InputError, JourneymanError
from journeyman.core.trace import total
from journeyman.io.atomic import write_json
from journeyman.io.files import locked, read_object
from journeyman.io.http_server import BodyRejected, ClientDisconnected, named_host, read_body
from journeyman.serving.dashboard.experiments import ExperimentPages, ProjectStores
from journeyman.serving.dashboard.figures import NO_DAY, Counted, SharedCache, of_step, over_time, table_parts
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
    id_of,
    local,
    query_of,
    static,
)
from journeyman.serving.dashboard.overview import AlertPages, OverviewPage
from journeyman.serving.dashboard.releases import PlaygroundPage, ReleasePages
from journeyman.serving.dashboard.tasks import DatasetPages, TaskPages
from journeyman.serving.dashboard.trace_page import LabelRules, TracePage, rater_of
from journeyman.stores.documents import DocumentQuery
from journeyman.stores.traces.base import (
    Page,
    Query,
    Statistics,
    TraceSession,
    TraceStore,
    TraceSummary,
)
from journeyman.tracing.importers import jsonl

if TYPE_CHECKING:
    from journeyman.experiments.playground import ReplayServers
    from journeyman.stores.traces.agreement import LabelAgreement

# Pages of many traces: the list, sessions, statistics, and the list as a file.

LINES = 50
"""Traces of one page of the list."""
OF_A_SESSION = 500
"""Traces that the page of a session shows."""
AT_ONCE = 50
"""Traces that are read and sent together in an export."""
COUNTED = 1_000
"""Where counting stops: past it the page says "1,000+"."""


MOST_VIEWS = 50
_LONGEST_NAME = 60


class SavedViews:
    """Filters that somebody gave a name: in a file of the project, so for all who look at its pages."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def all(self) -> Mapping[str, Mapping[str, str]]:
        """The filters of each, as they are typed, by name.

        Raises:
            InputError: The file is there and cannot be read.
        """
        if not self._file.exists():
            return {}
        found = read_object(self._file)
        if not all(map(_is_typed, found.values())):
            raise InputError(f"{self._file}: not the filters of views by name; mend it, or delete it")
        return dict(sorted(found.items()))

    def save(self, name: str, typed: Mapping[str, str]) -> None:
        """Keep filters under a name, in the place of those that had it."""
        said = " ".join(name.split())
        if not 0 < len(said) <= _LONGEST_NAME:
            raise InputError(f"name: a view has a name of 1 to {_LONGEST_NAME} characters")
        if not typed:
            raise InputError("a view is kept of filters: set one first")
        query_of(typed, datetime.now(UTC))
        with self._alone():
            views = {**self.all(), said: dict(typed)}
            if len(views) > MOST_VIEWS:
                raise InputError(f"there are {MOST_VIEWS} views already: delete one first")
            write_json(self._file, views)

    def delete(self, name: str) -> None:
        """Forget a view; nothing happens where there is none."""
        with self._alone():
            write_json(self._file, {each: typed for each, typed in self.all().items() if each != name})

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._file):
            yield


def _is_typed(filters: object) -> bool:
    is_text = isinstance(filters, dict) and all(isinstance(each, str) for each in filters.values())
    return is_text and filters == filters_of(cast(dict[str, str], filters))


class ListPages:
    """The handlers of these pages."""

    def __init__(self, store: TraceStore, frame: PageRenderer, who: str, views: SavedViews | None = None) -> None:
        self.store, self._views = store, views
        self._frame = frame
        self._who = who
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
        values = {"typed": typed, "page": page, "version": version, "rater": rater_of(request, self._who)}
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
            **self._kept_views(),
            **values,
        )

    def _kept_views(self) -> Mapping[str, object]:
        """The views, or why they cannot be shown: the list can be."""
        try:
            return {"views": None if self._views is None else self._views.all(), "no_views": ""}
        except InputError as error:
            return {"views": None, "no_views": str(error)}

    def view(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Give the filters of the list a name, or forget one; back to the list."""
        if self._views is None:
            raise PageRefused(HTTPStatus.NOT_FOUND, "There is no such page.")
        typed = filters_of(decoded(fields.get("filters", "").removeprefix("?")))
        match fields.get("what"):
            case "save":
                self._views.save(fields.get("name", ""), typed)
            case "delete":
                self._views.delete(fields.get("name", ""))
            case _:
                raise InputError("what: one of save, delete")
        return RedirectResponse("/traces" + encoded(typed), status_code=HTTPStatus.SEE_OTHER)

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
            rater=rater_of(request, self._who),
        )

    def performance(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Success, cost and time, and the tools: of all traces, or of those that the filters leave."""
        typed, problem, query = self._filters(fields)
        if query is None:
            raise InputError(problem)
        counted = self.counted(query)
        alone = fields.get("table", "")
        return self._frame.page(
            "performance.html",
            title="Performance",
            typed=typed,
            unnamed=UNNAMED,
            found=counted.value,
            parts=table_parts(counted.value, alone, fields.get("after", "")),
            alone=alone,
            counted_at=counted.at,
            charts=[] if alone else over_time(counted.value.by_time, typed, query, counted.value.every),
            of_day=lambda name: of_step(name, query),
            no_day=NO_DAY,
            agreements=self._agreement.get("", self._agreed).value,
        )

    def counted(self, query: Query) -> Counted[Statistics]:
        """The statistics of a query, counted now or a short while ago."""
        return self._statistics.get(query, lambda: self.store.statistics(query))

    def _agreed(self) -> Sequence["LabelAgreement"]:
        # NumPy is for who asks for figures.
        from journeyman.stores.traces.agreement import agreed

        return agreed(self.store.labels(by_several=True), self.store.ratings_by_people())

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


def routes(
    store: TraceStore,
    *,
    who: str,
    guard: Guard | None = None,
    project: ProjectStores | None = None,
    labels: LabelRules | None = None,
    servers: "ReplayServers | None" = None,
) -> list[BaseRoute]:
    """The pages over a store, for a server to mount at its root: `/`, `/traces`, `/sessions`, `/performance`, `/login` and what
    lies below, none of them under `/v1`.

    The routes keep their own door: with a guard that has tokens, who is not admitted is led to `/login`, so a server must let
    these addresses pass. Nothing that blocks runs on the event loop.

    Args:
        who: Whose word a label given on a page is, where nobody named themselves in that browser.
        guard: Share it with what else asks for a token; without one, loopback names and addresses are served, to anyone.
        project: What the store knows beside traces; without it there are the pages over traces alone.
        labels: What may be said beside good and bad.
        servers: Who may be asked a recorded step again; without them nobody.
    """
    door = guard or Guard()
    counts = partial(_rail_counts, SharedCache(), store, project)
    demo = project is not None and project.is_demo
    frame = PageRenderer(door, who, project=project is not None, demo=demo, counts=counts)
    lists = ListPages(store, frame, who, None if project is None else SavedViews(project.views_file))
    one = TracePage(store, frame, who, labels)

    def page(path: str, handler: Handler, method: str = "GET", *, closed: bool = True) -> Route:
        return Route(path, _endpoint(handler, frame, closed=closed), methods=[method], middleware=COMPRESSED)

    return [
        *(_project_pages(project, frame, who, page, lists, servers) if project is not None else ()),
        page("/", lists.traces),
        page("/traces", lists.traces),
        page("/views", lists.view, "POST"),
        page("/traces.jsonl", lists.export),
        page("/traces/{name:path}", one.trace),
        page("/labels", one.label, "POST"),
        page("/rater", one.rater, "POST"),
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


class DocumentPages:
    """What a team wrote, found by its words."""

    def __init__(self, project: ProjectStores, frame: PageRenderer) -> None:
        self._project, self._frame = project, frame

    def documents(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Documents as they are now, what came in last first."""
        kept = self._project.documents
        typed = {key: fields[key] for key in ("q", "kind", "source", "author") if fields.get(key)}
        query = DocumentQuery(
            text=typed.get("q"), kind=typed.get("kind"), source=typed.get("source"), author=typed.get("author")
        )
        found, after = kept.document_page(query, limit=LINES, after=fields.get("after"))
        counts = kept.document_counts()
        return self._frame.page(
            "documents.html",
            title="Documents",
            typed=typed,
            documents=found,
            next=after,
            sources=sorted({source for source, _ in counts}),
            kinds=sorted({kind for _, kind in counts}),
        )

    def document(self, request: Request, fields: Mapping[str, str]) -> Response:
        """One document, where it came from, and what stood in its place before."""
        document = self._project.documents.document(request.path_params["name"])
        if document is None:
            raise PageRefused(HTTPStatus.NOT_FOUND, "There is no such document, or it was forgotten.")
        # What reads playbooks is for who looks at one document.
        from journeyman.experiments.playbook.from_documents import KIND, drawn_from

        return self._frame.page(
            "document.html",
            title=f"{document.title or document.key} · Documents",
            document=document,
            revisions=self._project.documents.revisions(document),
            drawn=drawn_from(document.id, self._project.registry.runs(kind=KIND), self._project.playbook_file),
        )


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
    project: ProjectStores,
    frame: PageRenderer,
    who: str,
    page: Callable[..., Route],
    lists: ListPages,
    servers: "ReplayServers | None",
) -> Iterator[Route]:
    def person(request: Request) -> str:
        return rater_of(request, who)

    learned, served = ExperimentPages(project, frame, person), ReleasePages(project, lists.store, frame, person)
    yield page("/", OverviewPage(project, lists.store, frame, lambda query: lists.counted(query).value).overview)
    yield page("/runs", learned.runs)
    yield page("/runs/compare", learned.compare)
    yield page("/pipelines", learned.pipelines)
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
    tried = PlaygroundPage(project, lists.store, frame, person, servers)
    yield page("/playground", tried.playground)
    yield page("/playground", tried.send, "POST")
    written = DocumentPages(project, frame)
    yield page("/documents", written.documents)
    yield page("/documents/{name}", written.document)
    made = TaskPages(project, frame)
    yield page("/tasks", made.sets)
    yield page("/tasks/{name:path}", made.one)
    sets = DatasetPages(project, frame)
    yield page("/datasets", sets.datasets)
    yield page("/datasets/{name:path}", sets.dataset)
    watched = AlertPages(project, frame, person)
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
