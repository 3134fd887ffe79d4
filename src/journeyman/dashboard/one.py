"""The page of one trace, and what a person says of it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from journeyman.dashboard import filters
from journeyman.dashboard.frame import Frame, Refused
from journeyman.dashboard.names import id_of, local, name
from journeyman.dashboard.plan import graph
from journeyman.dashboard.reading import read, worth
from journeyman.errors import InputError, StoreError
from journeyman.stores.traces.agreement import said as words_of
from journeyman.stores.traces.base import Query, TraceStore

STEPS = 200
"""Shown at first."""
CHARACTERS = 6_000
"""Of one text, shown at first."""
GONE = "There is no such trace, or it was pruned."
_WORDS = {"yes": True, "no": False, "clear": None}


class One:
    """The handlers of these addresses."""

    def __init__(self, store: TraceStore, frame: Frame, who: str) -> None:
        self._store = store
        self._frame = frame
        self._who = who

    def trace(self, request: Request, fields: Mapping[str, str]) -> Response:
        """One trace. `show` names a text that is wanted whole, `steps=all` wants every step, and the filters say in which list
        the next and the previous one are looked up."""
        id = id_of(request.path_params["name"])
        trace, line = self._store.get(id), self._store.line(id)
        if trace is None or line is None:
            raise Refused(HTTPStatus.NOT_FOUND, GONE)
        typed = filters.typed(fields)
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
            return self._store.neighbours(id, filters.query(typed, datetime.now(UTC)))
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
                raise Refused(HTTPStatus.NOT_FOUND, GONE) from None
            raise
        if "hx-request" not in request.headers:
            return RedirectResponse(local(fields.get("back", "/traces/" + name(id))), status_code=HTTPStatus.SEE_OTHER)
        line = self._store.line(id)
        good, by = (line.label, line.labelled_by) if line is not None else (None, None)
        undo = None if "undo" in fields else {True: "yes", False: "no", None: "clear"}[before]
        return self._frame.page("labelled.html", id=id, good=good, by=by, said=_WORDS[said], undo=undo, typed={})
