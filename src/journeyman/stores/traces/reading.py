"""The reading half of the store of traces, and forgetting."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

import sqlalchemy as sa

from journeyman.reward import Reward
from journeyman.stores.database import Database, starting
from journeyman.stores.traces import finding, prune
from journeyman.stores.traces import query as queries
from journeyman.stores.traces.base import Given, Label, Line, Page, Pruned, Query, Session, Statistics
from journeyman.stores.traces.query import NEWEST_FIRST, OLDEST_FIRST, beyond, conditions, lines, mark, place_of, seqs
from journeyman.stores.traces.tables import TRACE_LABELS, TRACE_REWARDS, TRACES, escaped
from journeyman.trace import Trace

_AT_ONCE = 100
"""Whole traces read at a time."""


class _Whole(Protocol):
    """What reading stands on."""

    _database: Database

    def _traces(self, connection: sa.Connection, seqs: Sequence[int]) -> Sequence[Trace]:
        """The whole traces, in the order of the `seq`s; those that are gone are left out."""


class Reading:
    """Lists, labels and statistics. Mixed into the store, which has the database and puts traces together."""

    def starting(self: _Whole, prefix: str, *, limit: int = 2) -> Sequence[str]:
        with self._database.read() as connection:
            return starting(connection, TRACES.c.id, escaped(prefix), limit)

    def page(self: _Whole, query: Query, *, limit: int = 50, after: str | None = None) -> Page:
        with self._database.read() as connection:
            begin = () if after is None else (beyond(place_of(after)),)
            places = finding.first(connection, query, limit + 1, begin)
            more = mark(places[limit - 1]) if len(places) > limit else None
            return Page(lines=lines(connection, places[:limit]), next=more)

    def count(self: _Whole, query: Query, *, most: int = 10_000) -> int:
        with self._database.read() as connection:
            return finding.count(connection, query, most)

    def traces(self: _Whole, query: Query = Query()) -> Iterator[Trace]:  # noqa: B008 - frozen
        last: queries.Place | None = None
        while True:
            with self._database.read() as connection:
                where = conditions(connection, query)
                if last is not None:
                    where.append(beyond(last, newer=True))
                places = seqs(connection, where, OLDEST_FIRST, _AT_ONCE)
                found = self._traces(connection, [seq for _, seq in places])
            yield from found
            if len(places) < _AT_ONCE:
                return
            last = places[-1]

    def neighbours(self: _Whole, trace_id: str, query: Query) -> tuple[str | None, str | None]:
        with self._database.read() as connection:
            here = next(iter(seqs(connection, (TRACES.c.id == trace_id,), OLDEST_FIRST, 1)), None)
            if here is None:
                return None, None
            where = conditions(connection, query, lazily=True)
            ids = sa.select(TRACES.c.id).limit(1)
            newer = ids.where(*where, beyond(here, newer=True)).order_by(*OLDEST_FIRST)
            older = ids.where(*where, beyond(here)).order_by(*NEWEST_FIRST)
            return connection.scalar(newer), connection.scalar(older)

    def labels(self: _Whole, trace_id: str | None = None) -> Sequence[Label]:
        told = sa.select(TRACES.c.id, TRACE_LABELS).join(TRACES, TRACES.c.seq == TRACE_LABELS.c.trace)
        if trace_id is not None:
            told = told.where(TRACES.c.id == trace_id)
        with self._database.read() as connection:
            rows = connection.execute(told.order_by(TRACE_LABELS.c.at, TRACE_LABELS.c.seq)).all()
        return [Label(trace_id=row.id, good=row.good, who=row.who, at=row.at, probability=row.probability) for row in rows]

    def rewards(self: _Whole, trace_id: str) -> Sequence[Given]:
        told = sa.select(TRACE_REWARDS).join(TRACES, TRACES.c.seq == TRACE_REWARDS.c.trace).where(TRACES.c.id == trace_id)
        with self._database.read() as connection:
            rows = connection.execute(told.order_by(TRACE_REWARDS.c.at, TRACE_REWARDS.c.seq)).all()
        return [Given(reward=_reward(row), by=row.by, at=row.at) for row in rows]

    def unlabelled(self, limit: int, query: Query = Query()) -> Sequence[Line]:  # noqa: B008 - frozen
        return self.page(replace(query, labelled=False), limit=limit).lines  # type: ignore[misc]

    def sessions(self: _Whole, *, limit: int = 50, after: str | None = None) -> tuple[Sequence[Session], str | None]:
        from journeyman.stores.traces import sessions

        with self._database.read() as connection:
            return sessions.page(connection, limit, after)

    def statistics(self: _Whole, query: Query = Query()) -> Statistics:  # noqa: B008 - frozen
        # NumPy takes a tenth of a second to load, and nothing else here needs it.
        from journeyman.stores.traces import statistics

        return statistics.statistics(self._database, query)

    def prune(self: _Whole, *, before: datetime, keep_labelled: bool, dry_run: bool = False) -> Pruned:
        return prune.prune(self._database, before, keep_labelled=keep_labelled, dry_run=dry_run)


def _reward(row: sa.Row[Any]) -> Reward:
    return Reward(name=row.name, value=row.value, evidence=row.evidence, weight=row.weight)
