"""The trace store: SQLite in a file or in memory, or PostgreSQL by URL, from the same statements."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import sqlalchemy as sa

from journeyman.reward import Reward
from journeyman.stores.base import utc
from journeyman.stores.database import Database
from journeyman.stores.traces import loading, opinions, query, spans, writing
from journeyman.stores.traces.base import Line, SpanRow
from journeyman.stores.traces.reading import Reading
from journeyman.stores.traces.tables import TRACES
from journeyman.trace import Trace


class SqlTraces(Reading):
    """Keeps traces in one database. May be used by several threads and processes at once; writers take turns."""

    def __init__(self, url: str, *, make: bool = True) -> None:
        """As `Database` is opened."""
        self._database = Database(url, make=make)

    def add(self, traces: Iterable[Trace]) -> int:
        prepared = writing.prepare(traces)
        with self._turn() as connection:
            return writing.keep(connection, prepared)

    def add_spans(self, spans_: Sequence[SpanRow]) -> None:
        prepared = spans.prepare(spans_)
        if prepared:
            with self._turn() as connection:
                spans.keep(connection, prepared, _now())

    def pending(self, limit: int = 100) -> Sequence[str]:
        with self._database.read() as connection:
            return spans.pending(connection, limit)

    def spans(self, trace_ids: Sequence[str]) -> Mapping[str, Sequence[SpanRow]]:
        with self._database.read() as connection:
            return spans.of_traces(connection, trace_ids)

    def settle(self, read: Mapping[str, int], traces: Iterable[Trace]) -> None:
        prepared = writing.prepare(traces)
        with self._turn() as connection:
            writing.keep(connection, prepared)
            spans.settle(connection, read)

    def rebuild(self) -> int:
        with self._turn() as connection:
            return spans.rebuild(connection, _now())

    def label(self, trace_id: str, good: bool | None, *, who: str, at: datetime, probability: float | None = None) -> None:
        said = {"good": good, "who": who, "at": utc(at), "probability": probability}
        with self._turn() as connection:
            opinions.add_label(connection, trace_id, said)

    def reward(self, trace_id: str, rewards: Iterable[Reward], *, by: str, at: datetime) -> None:
        with self._turn() as connection:
            opinions.add_rewards(connection, trace_id, rewards, by=by, at=at)

    def get(self, trace_id: str) -> Trace | None:
        with self._database.read() as connection:
            known = writing.seqs(connection, [trace_id])
            return next(iter(loading.load(connection, list(known.values()))), None)

    def line(self, trace_id: str) -> Line | None:
        with self._database.read() as connection:
            places = query.seqs(connection, [TRACES.c.id == trace_id], query.NEWEST_FIRST, 1)
            return next(iter(query.lines(connection, places)), None)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _traces(self, connection: sa.Connection, seqs: Sequence[int]) -> Sequence[Trace]:
        return loading.load(connection, seqs)

    @contextmanager
    def _turn(self) -> Iterator[sa.Connection]:
        """A transaction to write in, in which nobody else writes."""
        with self._database.write() as connection:
            writing.take_turn(connection)
            yield connection


def _now() -> datetime:
    return datetime.now(UTC)
