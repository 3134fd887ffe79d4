"""Pages of many traces: the list, sessions, statistics, and the list as a file."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from journeyman.capture import jsonl
from journeyman.dashboard import charts, filters
from journeyman.dashboard.frame import Frame, Refused
from journeyman.dashboard.names import encoded, id_of
from journeyman.dashboard.remembered import Remembered
from journeyman.errors import InputError
from journeyman.stores.traces.base import Line, Page, Query, Session, Statistics, TraceStore
from journeyman.trace import total

if TYPE_CHECKING:
    from journeyman.stores.traces.agreement import Agreement

LINES = 50
"""Traces of one page of the list."""
OF_A_SESSION = 500
"""Traces that the page of a session shows."""
AT_ONCE = 50
"""Traces that are read and sent together in an export."""
COUNTED = 1_000
"""Where counting stops: past it the page says "1,000+"."""


class Lists:
    """The handlers of these pages."""

    def __init__(self, store: TraceStore, frame: Frame) -> None:
        self._store = store
        self._frame = frame
        self._statistics = Remembered[Statistics]()
        self._agreement = Remembered[Sequence["Agreement"]]()

    def traces(self, request: Request, fields: Mapping[str, str]) -> Response:
        """The list. Asked with `have`, what the asker shows already, it answers 204 while there is nothing new."""
        typed, problem, query = self._asked(fields)
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
            "list.html", status, title="Traces", problem=problem, counted=counted, most=COUNTED, fields=filters.FIELDS, **values
        )

    def export(self, request: Request, fields: Mapping[str, str]) -> Response:
        """The traces of the list, oldest first, a line of JSON each."""
        _, problem, query = self._asked(fields)
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
            raise Refused(HTTPStatus.NOT_FOUND, "There is no such session, or no trace of it is left.")
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
        typed, problem, query = self._asked(fields)
        if query is None:
            raise InputError(problem)
        counted = self._statistics.get(encoded(typed), lambda: self._store.statistics(query))
        return self._frame.page(
            "statistics.html",
            title="Statistics",
            typed=typed,
            found=counted.value,
            counted_at=counted.at,
            charts=charts.by_day(counted.value.by_day),
            agreements=self._agreement.get("", self._agreed).value,
        )

    def _agreed(self) -> Sequence["Agreement"]:
        # NumPy is for who asks for figures.
        from journeyman.stores.traces.agreement import agreed

        return agreed(self._store.labels())

    def _asked(self, fields: Mapping[str, str]) -> tuple[dict[str, str], str, Query | None]:
        """The filters as typed; then why they mean nothing, or what they mean."""
        typed = filters.typed(fields)
        try:
            return typed, "", filters.query(typed, datetime.now(UTC))
        except InputError as error:
            return typed, str(error), None


def _version(page: Page) -> str:
    return hashlib.blake2b(repr(page).encode(errors="backslashreplace"), digest_size=8).hexdigest()


def _together(id: str, lines: tuple[Line, ...]) -> Session:
    """The session that these traces are."""
    return Session(
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
