"""What runs attempted, among the traces: found, read and searched like those of any other agent."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter

from journeyman.errors import StoreError, boundary
from journeyman.score import Score
from journeyman.stores.base import AttemptRecord
from journeyman.stores.tables import ATTEMPTS
from journeyman.stores.traces import writing
from journeyman.task import Split
from journeyman.trace import Trace

SOURCE = "run"
_AT_ONCE = 500
_TRACE = TypeAdapter(Trace)
_SCORE = TypeAdapter(Score)


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


def keep(connection: sa.Connection, attempts: Sequence[AttemptRecord]) -> None:
    """Add attempts that are not among the traces yet: of one id the first stays."""
    traces: dict[str, Trace] = {}
    for attempt in attempts:
        trace = as_trace(attempt)
        traces.setdefault(trace.id, trace)
    writing.take_turn(connection)
    known = writing.seqs(connection, traces)
    writing.keep(connection, writing.prepare(trace for id, trace in traces.items() if id not in known))


def batches(connection: sa.Connection, run_id: str) -> Iterator[Sequence[int]]:
    """The `seq`s of the traces of a run's attempts, so many at a time."""
    ids = [f"{run_id}:{id}" for id in connection.scalars(sa.select(ATTEMPTS.c.id).where(ATTEMPTS.c.run_id == run_id))]
    for begin in range(0, len(ids), _AT_ONCE):
        yield list(writing.seqs(connection, ids[begin : begin + _AT_ONCE]).values())


def adopt(connection: sa.Connection) -> None:
    """Add the attempts of a store that was made before attempts were among the traces, those that can be read."""
    seq = 0
    while True:
        page = sa.select(ATTEMPTS).where(ATTEMPTS.c.seq > seq).order_by(ATTEMPTS.c.seq).limit(_AT_ONCE)
        rows = connection.execute(page).all()
        if not rows:
            return
        found = []
        for row in rows:
            # Whoever lists the attempts is told of it; the store can be opened.
            with suppress(StoreError):
                found.append(read(row))
        keep(connection, found)
        seq = rows[-1].seq


def read(row: sa.Row[Any]) -> AttemptRecord:
    """
    Raises:
        StoreError: It cannot be read.
    """
    with boundary(StoreError, f"attempt {row.id} of run {row.run_id} cannot be read"):
        trace, score = _TRACE.validate_python(row.trace), _SCORE.validate_python(row.score)
    return AttemptRecord(run_id=row.run_id, split=Split(row.split), trace=trace, score=score)
