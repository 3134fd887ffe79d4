"""What runs attempted: traces like those of any other agent, found, read and searched with them, and kept once.

A row of the attempts points to its trace, and holds what of it had to be changed on the way there.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from journeyman.errors import StoreError, boundary
from journeyman.score import Score
from journeyman.stores.base import AttemptRecord, utc
from journeyman.stores.tables import ATTEMPTS
from journeyman.stores.traces import bulk, loading, writing
from journeyman.task import Split
from journeyman.trace import Trace

SOURCE = "run"
_OF_RUN = ("run_id", "split")
"""What the `raw` of a trace says of the run that it is of."""
_OTHERWISE = " (as attempted)"
"""Ends the id of an attempt's trace where somebody else has put another one under its id."""
_AT_ONCE = 500
_TRACE = TypeAdapter(Trace)
_SCORE = TypeAdapter(Score)
_BEFORE = sa.table("attempts", *(sa.column(name) for name in ("seq", "run_id", "id", "split", "told", "score")))
"""The attempts before step 0003, which held their traces themselves."""
_TOLD, _SCORED = (sa.cast(_BEFORE.c[name], sa.Text).label(name) for name in ("told", "score"))

Row = dict[str, Any]


def as_trace(attempt: AttemptRecord) -> Trace:
    """The attempt as a trace of the run, with its rewards. What was tried on held-out tasks says so in `raw["split"]`."""
    trace = attempt.trace
    return replace(
        trace,
        id=f"{attempt.run_id}:{trace.id}",
        source=SOURCE,
        rewards=(*trace.rewards, *attempt.score.rewards),
        raw={**trace.raw, "run_id": attempt.run_id, "split": attempt.split.value},
    )


def _changed(trace: Trace) -> Row | None:
    """What `as_trace` says in other words; `None` where there was nothing."""
    raw = {name: to_jsonable_python(trace.raw[name], fallback=str) for name in _OF_RUN if name in trace.raw}
    return ({"source": trace.source} if trace.source else {}) | ({"raw": raw} if raw else {}) or None


def _as_attempted(trace: Trace, row: sa.Row[Any], score: Score) -> Trace:
    """`as_trace`, undone."""
    changed: Mapping[str, Any] = row.changed or {}
    raw = {name: value for name, value in trace.raw.items() if name not in _OF_RUN} | changed.get("raw", {})
    own = trace.rewards[: len(trace.rewards) - len(score.rewards)]
    return replace(trace, id=row.id, source=changed.get("source", ""), rewards=own, raw=raw)


def add(connection: sa.Connection, attempts: Sequence[AttemptRecord]) -> None:
    """Add attempts that are not there yet: of one id the first stays. Whoever calls has taken their turn."""
    wanted = {(attempt.run_id, attempt.id): attempt for attempt in reversed(attempts)}
    keys = sa.select(ATTEMPTS.c.run_id, ATTEMPTS.c.id).where(
        ATTEMPTS.c.run_id.in_({run_id for run_id, _ in wanted}), ATTEMPTS.c.id.in_({id for _, id in wanted})
    )
    for run_id, id in connection.execute(keys).all():
        wanted.pop((run_id, id), None)
    new = list(wanted.values())[::-1]
    bulk.insert(connection, ATTEMPTS, [_row(each, seq) for each, seq in zip(new, _place(connection, new), strict=True)])


def _row(attempt: AttemptRecord, seq: int) -> Row:
    trace = attempt.trace
    return {
        "run_id": attempt.run_id,
        "id": attempt.id,
        "task_id": trace.task_id,
        "candidate_id": trace.candidate_id,
        "domain": trace.domain,
        "split": attempt.split.value,
        "total": attempt.score.total,
        "tokens": attempt.tokens,
        "cost": trace.cost,
        "started_at": utc(trace.started_at),
        "trace": seq,
        "changed": _changed(trace),
        "score": _SCORE.dump_python(attempt.score, mode="json"),
    }


def _place(connection: sa.Connection, attempts: Sequence[AttemptRecord]) -> list[int]:
    """The `seq` of the trace of each attempt; those that are not among the traces yet are added."""
    traces = [as_trace(attempt) for attempt in attempts]
    known = writing.seqs(connection, [trace.id for trace in traces])
    there = loading.pieces(connection, list(known.values()))
    for place, trace in enumerate(traces):
        if trace.id in known and there.trace(known[trace.id]) != trace:
            traces[place] = replace(trace, id=trace.id + _OTHERWISE)
    writing.keep(connection, writing.prepare(trace for trace in traces if trace.id not in known))
    placed = writing.seqs(connection, [trace.id for trace in traces])
    return [placed[trace.id] for trace in traces]


def read(connection: sa.Connection, rows: Sequence[sa.Row[Any]]) -> Iterator[AttemptRecord]:
    """The attempts of these rows. What is needed of the database is read when the first is asked for.

    Raises:
        StoreError: One cannot be read.
    """
    found = loading.pieces(connection, [row.trace for row in rows if row.trace is not None])
    return (_read(row, found) for row in rows)


def _read(row: sa.Row[Any], found: loading.Pieces) -> AttemptRecord:
    with boundary(StoreError, f"attempt {row.id} of run {row.run_id} cannot be read"):
        score = _SCORE.validate_python(row.score)
        trace = _TRACE.validate_python(row.unread) if row.trace is None else found.trace(row.trace)
        whole = trace if row.trace is None else _as_attempted(trace, row, score)
    return AttemptRecord(run_id=row.run_id, split=Split(row.split), trace=whole, score=score)


def move(connection: sa.Connection) -> None:
    """Put the traces of attempts among the traces, in a store of before each trace was kept once; what cannot be read stays."""
    seq = 0
    while True:
        columns = (_BEFORE.c.seq, _BEFORE.c.run_id, _BEFORE.c.split, _TOLD, _SCORED)
        page = sa.select(*columns).where(_BEFORE.c.seq > seq).order_by(_BEFORE.c.seq).limit(_AT_ONCE)
        rows = connection.execute(page).all()
        if not rows:
            break
        _move(connection, rows)
        seq = rows[-1].seq
    connection.execute(sa.text("alter table attempts drop column told"))


def _json(text: str) -> object:
    """What a text says, or the text itself where it is no JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _move(connection: sa.Connection, rows: Sequence[sa.Row[Any]]) -> None:
    found: dict[int, AttemptRecord] = {}
    for row in rows:
        try:
            trace = _TRACE.validate_python(json.loads(row.told))
            score = _SCORE.validate_python(json.loads(row.score))
        except ValueError:
            # Whoever lists the attempts is told of it; the store can be opened.
            continue
        found[row.seq] = AttemptRecord(run_id=row.run_id, split=Split(row.split), trace=trace, score=score)
    placed = dict(zip(found, _place(connection, list(found.values())), strict=True))
    update = sa.update(ATTEMPTS).where(ATTEMPTS.c.seq == sa.bindparam("of"))
    values: Row = {name: sa.bindparam(f"new_{name}") for name in ("trace", "changed", "unread")}
    moved: list[Row] = []
    for row in rows:
        changed = _changed(found[row.seq].trace) if row.seq in found else None
        unread = None if row.seq in found else _json(row.told)
        moved.append({"of": row.seq, "new_trace": placed.get(row.seq), "new_changed": changed, "new_unread": unread})
    connection.execute(update.values(values), moved)
