"""The trace store: SQLite in a file or in memory, or PostgreSQL by URL, from the same statements."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import sqlalchemy as sa

from journeyman.reward import Reward
from journeyman.stores.base import utc
from journeyman.stores.database import OnDatabase, starting
from journeyman.stores.traces import finding, loading, opinions, prune, spans, writing
from journeyman.stores.traces import query as queries
from journeyman.stores.traces.base import Given, Label, Line, Page, Pruned, Query, Session, SpanRow, Statistics
from journeyman.stores.traces.query import NEWEST_FIRST, OLDEST_FIRST, beyond, conditions, lines, mark, place_of, seqs
from journeyman.stores.traces.tables import TRACE_LABELS, TRACE_REWARDS, TRACES, escaped
from journeyman.trace import Trace

_AT_ONCE = 100
"""Whole traces read at a time."""


class SqlTraces(OnDatabase):
    """Keeps traces in one database. May be used by several threads and processes at once; writers take turns."""

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
            places = seqs(connection, [TRACES.c.id == trace_id], NEWEST_FIRST, 1)
            return next(iter(lines(connection, places)), None)

    def starting(self, prefix: str, *, limit: int = 2) -> Sequence[str]:
        with self._database.read() as connection:
            return starting(connection, TRACES.c.id, escaped(prefix), limit)

    def page(self, query: Query, *, limit: int = 50, after: str | None = None) -> Page:
        with self._database.read() as connection:
            begin = () if after is None else (beyond(place_of(after)),)
            places = finding.first(connection, query, limit + 1, begin)
            more = mark(places[limit - 1]) if len(places) > limit else None
            return Page(lines=lines(connection, places[:limit]), next=more)

    def count(self, query: Query, *, most: int = 10_000) -> int:
        with self._database.read() as connection:
            return finding.count(connection, query, most)

    def traces(self, query: Query = Query()) -> Iterator[Trace]:  # noqa: B008 - frozen
        last: queries.Place | None = None
        while True:
            with self._database.read() as connection:
                where = conditions(connection, query)
                if last is not None:
                    where.append(beyond(last, newer=True))
                places = seqs(connection, where, OLDEST_FIRST, _AT_ONCE)
                found = loading.load(connection, [seq for _, seq in places])
            yield from found
            if len(places) < _AT_ONCE:
                return
            last = places[-1]

    def neighbours(self, trace_id: str, query: Query) -> tuple[str | None, str | None]:
        with self._database.read() as connection:
            here = next(iter(seqs(connection, (TRACES.c.id == trace_id,), OLDEST_FIRST, 1)), None)
            if here is None:
                return None, None
            where = conditions(connection, query, lazily=True)
            ids = sa.select(TRACES.c.id).limit(1)
            newer = ids.where(*where, beyond(here, newer=True)).order_by(*OLDEST_FIRST)
            older = ids.where(*where, beyond(here)).order_by(*NEWEST_FIRST)
            return connection.scalar(newer), connection.scalar(older)

    def labels(self, trace_id: str | None = None) -> Sequence[Label]:
        told = sa.select(TRACES.c.id, TRACE_LABELS).join(TRACES, TRACES.c.seq == TRACE_LABELS.c.trace)
        if trace_id is not None:
            told = told.where(TRACES.c.id == trace_id)
        with self._database.read() as connection:
            rows = connection.execute(told.order_by(TRACE_LABELS.c.at, TRACE_LABELS.c.seq)).all()
        return [Label(trace_id=row.id, good=row.good, who=row.who, at=row.at, probability=row.probability) for row in rows]

    def rewards(self, trace_id: str) -> Sequence[Given]:
        told = sa.select(TRACE_REWARDS).join(TRACES, TRACES.c.seq == TRACE_REWARDS.c.trace).where(TRACES.c.id == trace_id)
        with self._database.read() as connection:
            rows = connection.execute(told.order_by(TRACE_REWARDS.c.at, TRACE_REWARDS.c.seq)).all()
        return [Given(reward=opinions.reward_of(row), by=row.by, at=row.at) for row in rows]

    def unlabelled(self, limit: int, query: Query = Query()) -> Sequence[Line]:  # noqa: B008 - frozen
        return self.page(replace(query, labelled=False), limit=limit).lines

    def sessions(self, *, limit: int = 50, after: str | None = None) -> tuple[Sequence[Session], str | None]:
        from journeyman.stores.traces import sessions

        with self._database.read() as connection:
            return sessions.page(connection, limit, after)

    def statistics(self, query: Query = Query()) -> Statistics:  # noqa: B008 - frozen
        # NumPy takes a tenth of a second to load, and nothing else here needs it.
        from journeyman.stores.traces import statistics

        return statistics.statistics(self._database, query)

    def prune(self, *, before: datetime, keep_labelled: bool, dry_run: bool = False) -> Pruned:
        return prune.prune(self._database, before, keep_labelled=keep_labelled, dry_run=dry_run)

    @contextmanager
    def _turn(self) -> Iterator[sa.Connection]:
        """A transaction to write in, in which nobody else writes."""
        with self._database.write() as connection:
            writing.take_turn(connection)
            yield connection


def _now() -> datetime:
    return datetime.now(UTC)
