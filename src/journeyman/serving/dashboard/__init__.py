"""The pages: traces to find, read and label; sessions; statistics. All that a browser loads is rendered or shipped here.

`routes` gives them to a server: their addresses, and how each is answered. What checks a token is `layout.Guard`.
"""

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from http import HTTPStatus
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from journeyman.core.errors import InputError, JourneymanError
from journeyman.core.trace import total
from journeyman.io.http_server import BodyRejected, ClientDisconnected, read_body
from journeyman.serving.dashboard import layout
from journeyman.serving.dashboard.layout import (
    COOKIE,
    FIELDS,
    HEADERS,
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
from journeyman.serving.dashboard.layout import (
    Guard as Guard,
)
from journeyman.serving.dashboard.trace_page import TracePage
from journeyman.stores.traces.base import Page, Query, Statistics, StatisticsGroup, TraceSession, TraceStore, TraceSummary
from journeyman.tracing.importers import jsonl

if TYPE_CHECKING:
    from journeyman.stores.traces.labels import LabelAgreement

# Statistics as rows of bars, drawn here as SVG: no style stands in the page, so none can be injected.

DAYS = 60
"""Shown at most, the last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartColumn:
    """TracePage day of a chart. Heights are of 100."""

    name: str
    x: float
    width: float
    height: float
    part: float
    """How much of the height, from below, is marked."""
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    title: str
    top: str
    """What the full height stands for."""
    columns: tuple[ChartColumn, ...]
    first: str
    last: str


def by_day(groups: Sequence[StatisticsGroup]) -> list[Chart]:
    """Traces with errors marked, cost, and time, a column a day. Days without traces have a place too."""
    days = _days(groups)
    if not days:
        return []
    return [
        _chart("Traces", days, lambda g: g.traces, lambda g: g.errors, layout.count, "with errors"),
        _chart("Cost", days, lambda g: g.cost, None, lambda v: layout.money(v or 0.0), ""),
        _chart("Seconds, p95", days, lambda g: g.p95_seconds, lambda g: g.median_seconds, layout.seconds, "median"),
    ]


def _days(groups: Sequence[StatisticsGroup]) -> list[tuple[str, StatisticsGroup | None]]:
    found = {group.name: group for group in groups[-DAYS:]}
    if not found:
        return []
    try:
        last = date.fromisoformat(max(found))
        first = max(date.fromisoformat(min(found)), last - timedelta(days=DAYS - 1))
    except ValueError:
        return list(found.items())
    names = [(first + timedelta(days=day)).isoformat() for day in range((last - first).days + 1)]
    return [(name, found.get(name)) for name in names]


def _chart(
    title: str,
    days: Sequence[tuple[str, StatisticsGroup | None]],
    of: Callable[[StatisticsGroup], float | None],
    part: Callable[[StatisticsGroup], float | None] | None,
    write: Callable[[float | None], str],
    part_name: str,
) -> Chart:
    values = [of(group) if group else None for _, group in days]
    top = max((value for value in values if value), default=0.0)
    step = 100 / max(len(days), 7)
    columns = []
    for place, ((name, group), value) in enumerate(zip(days, values, strict=True)):
        marked = part(group) if part and group else None
        says = f"{name}: {write(value) if group else 'no traces'}"
        if part_name and marked:
            says += f", {part_name} {write(marked)}"
        columns.append(
            ChartColumn(
                name=name,
                x=round(place * step, 3),
                width=round(step * 0.82, 3),
                height=_height(value, top),
                part=_height(marked, top),
                says=says,
            )
        )
    return Chart(title=title, top=write(top), columns=tuple(columns), first=days[0][0], last=days[-1][0])


def _height(value: float | None, top: float) -> float:
    """What is there is seen, however little."""
    return 0.0 if not value or top <= 0 else round(max(1.5, 100 * value / top), 2)


# Figures that are costly to count are counted at most a small share of the time.

Value = TypeVar("Value")
SHARE = 20
"""A value is shown for this many times as long as it took to count: counting takes a twentieth of the time at most."""
LONGEST = 60.0
"""Seconds, after which it is counted again whatever it took."""
KEPT = 64


@dataclass(frozen=True, slots=True)
class Counted(Generic[Value]):
    """A value, and how old it may get."""

    value: Value
    at: datetime
    until: float


class SharedCache(Generic[Value]):
    """Values by key, for several threads: of those who want the same one at once, one counts and the others wait."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[object, Counted[Value]] = OrderedDict()
        self._locks: dict[object, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: object, count: Callable[[], Value]) -> Counted[Value]:
        """The value of a key, counted now or a short while ago."""
        with self._lock:
            turn = self._locks.setdefault(key, threading.Lock())
        with turn:
            known = self._known.get(key)
            if known is not None and self._clock() < known.until:
                return known
            began = self._clock()
            value = count()
            now = self._clock()
            counted = Counted(value, datetime.now(UTC), now + min(LONGEST, SHARE * (now - began)))
            with self._lock:
                self._known[key] = counted
                self._known.move_to_end(key)
                while len(self._known) > KEPT:
                    self._locks.pop(self._known.popitem(last=False)[0], None)
            return counted


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
        self._store = store
        self._frame = frame
        self._statistics = SharedCache[Statistics]()
        self._agreement = SharedCache[Sequence["LabelAgreement"]]()

    def traces(self, request: Request, fields: Mapping[str, str]) -> Response:
        """The list. Asked with `have`, what the asker shows already, it answers 204 while there is nothing new."""
        typed, problem, query = self._filters(fields)
        page = Page(lines=(), next=None)
        if query is not None:
            page = self._store.page(query, limit=LINES, after=fields.get("after"))
        version = _version(page)
        if fields.get("have") == version:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        values = {"typed": typed, "page": page, "version": version}
        if "have" in fields:
            return self._frame.page("rows.html", **values)
        # Of the pages that follow only the rows are taken.
        counted = None if "after" in fields or query is None else self._store.count(query, most=COUNTED)
        status = HTTPStatus.BAD_REQUEST if problem else HTTPStatus.OK
        return self._frame.page(
            "list.html", status, title="Traces", problem=problem, counted=counted, most=COUNTED, fields=FIELDS, **values
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
        found = self._store.traces(query)
        while some := list(islice(found, AT_ONCE)):
            yield "".join(jsonl.line(trace) + "\n" for trace in some)

    def sessions(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Conversations and visits, the latest first."""
        found, after = self._store.sessions(limit=LINES, after=fields.get("after"))
        return self._frame.page("sessions.html", title="Sessions", sessions=found, next=after)

    def session(self, request: Request, fields: Mapping[str, str]) -> Response:
        """One session: its traces in the order in which they began."""
        id = id_of(request.path_params["name"])
        page = self._store.page(Query(session=id), limit=OF_A_SESSION)
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

    def statistics(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Success, cost and time, and the tools: of all traces, or of those that the filters leave."""
        typed, problem, query = self._filters(fields)
        if query is None:
            raise InputError(problem)
        counted = self._statistics.get(encoded(typed), lambda: self._store.statistics(query))
        return self._frame.page(
            "statistics.html",
            title="Statistics",
            typed=typed,
            found=counted.value,
            counted_at=counted.at,
            charts=by_day(counted.value.by_day),
            agreements=self._agreement.get("", self._agreed).value,
        )

    def _agreed(self) -> Sequence["LabelAgreement"]:
        # NumPy is for who asks for figures.
        from journeyman.stores.traces.labels import agreed

        return agreed(self._store.labels())

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

Handler = Callable[[Request, dict[str, str]], Response]
"""Gets the request, and the fields of its form, or of its address when it has no form. Runs in a thread of its own."""


def routes(store: TraceStore, *, who: str, guard: Guard | None = None) -> list[BaseRoute]:
    """The pages over a store, for a server to mount at its root: `/`, `/traces`, `/sessions`, `/statistics`, `/login` and what
    lies below, none of them under `/v1`.

    The routes keep their own door: with a guard that has tokens, who is not admitted is led to `/login`, so a server must let
    these addresses pass. Nothing that blocks runs on the event loop.

    Args:
        who: Whose word a label given on a page is.
        guard: Share it with what else asks for a token; without one, loopback names and addresses are served, to anyone.
    """
    door = guard or Guard()
    frame = PageRenderer(door, who)
    lists, one = ListPages(store, frame), TracePage(store, frame, who)

    def page(path: str, handler: Handler, method: str = "GET", *, closed: bool = True) -> Route:
        return Route(path, _endpoint(handler, frame, closed=closed), methods=[method])

    return [
        page("/", lists.traces),
        page("/traces", lists.traces),
        page("/traces.jsonl", lists.export),
        page("/traces/{name:path}", one.trace),
        page("/labels", one.label, "POST"),
        page("/sessions", lists.sessions),
        page("/sessions/{name:path}", lists.session),
        page("/statistics", lists.statistics),
        page("/login", lambda request, fields: _login_page(frame, fields), closed=False),
        page("/login", lambda request, fields: _login(frame, request, fields), "POST", closed=False),
        page("/logout", lambda request, fields: _logout(), "POST"),
        Route("/static/{name}", static),
    ]


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
    if not guard.knows(request.headers.get("host", "")):
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
