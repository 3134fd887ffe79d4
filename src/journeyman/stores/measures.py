"""What was recorded of live work, counted in a window by the database: no trace is loaded for it.

Live are traces that the gateway, telemetry or a hook recorded; attempts of a run and files that were brought in are not. A
trace is a conversation, and counts in the window in which it began.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from journeyman.stores.base import utc
from journeyman.stores.engine import Database
from journeyman.stores.tables import AUDIT, ROLLOUT_EVENTS, ROLLOUTS, SLOT_MOVES
from journeyman.stores.traces.tables import TRACE_MODELS, TRACES

_MOST = 0.95
LIVE_SOURCES = ("gateway", "otlp", "hook")


class ErrorCount(NamedTuple):
    traces: int
    failed: int
    """In which a model call failed, or that stopped early. A tool that says no is the agent's business."""

    @property
    def share(self) -> float | None:
        return self.failed / self.traces if self.traces else None


class LatencyQuantile(NamedTuple):
    calls: int
    """Whose time is known."""
    slow: int
    """Of these, above the bound."""
    seconds: float | None
    """What 95 of 100 of them took at most."""


class ReleaseNews(NamedTuple):
    """Something that happened to what is released."""

    kind: str
    slot: str
    about: str
    """The rollout, or the slot."""
    number: int
    reason: str
    actor: str
    at: datetime


class Measures:
    """Counts of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def errors(self, since: datetime, until: datetime) -> ErrorCount:
        # The first is read from an index alone; of those that failed there are few.
        where = _live(since, until)
        every = sa.select(sa.func.count()).select_from(TRACES).where(*where)
        failed = every.where(TRACES.c.failed.is_(sa.true()), TRACES.c.error.is_not(None))
        with self._database.read() as connection:
            return ErrorCount(connection.execute(every).scalar_one(), connection.execute(failed).scalar_one())

    def latency(self, since: datetime, until: datetime, bound: float) -> LatencyQuantile:
        """Of model calls. A trace is told the sum over its calls of a model, so that each counts as their mean."""
        each = (TRACE_MODELS.c.seconds / TRACE_MODELS.c.calls).label("each")
        joined = TRACES.join(TRACE_MODELS, TRACE_MODELS.c.trace == TRACES.c.seq)
        known = (TRACE_MODELS.c.seconds.is_not(None), TRACE_MODELS.c.calls > 0)
        rows = (
            sa.select(each, TRACE_MODELS.c.calls.label("calls")).select_from(joined).where(*_live(since, until), *known).cte()
        )
        upto = sa.func.sum(rows.c.calls).over(order_by=rows.c.each)
        total = sa.select(sa.func.sum(rows.c.calls)).scalar_subquery()
        slow = sa.select(sa.func.coalesce(sa.func.sum(rows.c.calls), 0)).where(rows.c.each > bound).scalar_subquery()
        ranked = sa.select(rows.c.each, upto.label("upto"), total.label("total"), slow.label("slow")).cte()
        found = sa.select(ranked.c.each, ranked.c.total, ranked.c.slow).where(ranked.c.upto >= _MOST * ranked.c.total)
        with self._database.read() as connection:
            row = connection.execute(found.order_by(ranked.c.each).limit(1)).first()
        if row is None:
            return LatencyQuantile(0, 0, None)
        return LatencyQuantile(int(row.total), int(row.slow), float(row.each))

    def release_news(self, since: datetime) -> Sequence[ReleaseNews]:
        """Rollouts that were rolled back, and promoted candidates that declined, since then; and those that are held now.
        Oldest first."""
        events, later, news = ROLLOUT_EVENTS, ROLLOUT_EVENTS.alias(), list[ReleaseNews]()
        last = sa.select(sa.func.max(later.c.number)).where(later.c.rollout_id == events.c.rollout_id).scalar_subquery()
        told = sa.select(events, ROLLOUTS.c.slot).join(ROLLOUTS, ROLLOUTS.c.id == events.c.rollout_id)
        back = sa.and_(events.c.kind.in_(("rollback", "drop")), events.c.at >= utc(since))
        held = sa.and_(events.c.kind == "hold", events.c.number == last)
        moved = sa.exists().where(SLOT_MOVES.c.slot == AUDIT.c.target, SLOT_MOVES.c.at >= AUDIT.c.at)
        declined = sa.select(AUDIT).where(AUDIT.c.action == "decline", AUDIT.c.at >= utc(since), ~moved)
        with self._database.read() as connection:
            for row in connection.execute(told.where(sa.or_(back, held)).order_by(events.c.at, events.c.seq)):
                news.append(ReleaseNews(row.kind, row.slot, row.rollout_id, row.number, row.reason, row.actor, row.at))
            for row in connection.execute(declined.order_by(AUDIT.c.seq)):
                news.append(ReleaseNews("decline", row.target, row.target, row.seq, row.reason, row.actor, row.at))
        return news


def _live(since: datetime, until: datetime) -> list[sa.ColumnElement[bool]]:
    begun = (TRACES.c.started_at >= utc(since), TRACES.c.started_at < utc(until))
    return [*begun, TRACES.c.duplicate_of.is_(None), TRACES.c.source.in_(LIVE_SOURCES)]
