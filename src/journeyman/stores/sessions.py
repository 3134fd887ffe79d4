"""What came of the sessions that a rollout put on its arms: the calls that were served to them, and what was said of these."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import NamedTuple, TypeVar

import sqlalchemy as sa

from journeyman.core.feedback import TargetKind, standing
from journeyman.core.reward import RECORDER, Reward, label
from journeyman.core.rollout import PRODUCTION
from journeyman.core.rollout_decision import Mirrored
from journeyman.stores.base import utc
from journeyman.stores.tables import FEEDBACK, MIRRORED_CALLS, SERVED_CALLS
from journeyman.stores.traces.labels import all_given, key_of, own_rewards, reward_of, takes_back, word_of
from journeyman.stores.traces.tables import TRACE_CANDIDATES, TRACE_LABELS, TRACES

_T = TypeVar("_T")
_AT_ONCE = 500
"""Ids that one statement may speak of."""


class ServedCall(NamedTuple):
    trace_id: str
    failed: bool
    seconds: float | None
    cost: float | None
    tokens: int | None
    at: datetime
    recorded_at: datetime | None
    """When it came into the store; `None` in rows of before that was kept."""


class TraceOpinion(NamedTuple):
    """A word on a trace."""

    reward: Reward
    at: datetime
    """When it came here, where that is known; else when it was said."""
    key: Hashable
    """Who says it of what: of the words with the same one the last counts."""
    takes_back: bool = False


class ServedSession(NamedTuple):
    calls: tuple[ServedCall, ...]
    """In the order of their time."""
    words: Mapping[str, Sequence[TraceOpinion]]
    """All that was ever said of each of its traces, by its id; those of one key in the order in which they were said."""

    def said(self, until: datetime | None = None) -> Mapping[str, Sequence[TraceOpinion]]:
        """What counted then of each trace, or counts now: what somebody took back or corrected later had counted."""
        found = dict[str, Sequence[TraceOpinion]]()
        for id, words in self.words.items():
            known = (word for word in words if until is None or word.at <= until)
            found[id] = standing(known, lambda word: word.key, lambda word: word.takes_back)
        return found


def of_units(connection: sa.Connection, rollout_id: str, units: Collection[str]) -> dict[str, ServedSession]:
    """By unit; those that no call was served to are not in it."""
    calls: dict[str, list[ServedCall]] = defaultdict(list)
    table = SERVED_CALLS
    for some in _batches(units):
        found = (
            sa.select(table).where(table.c.rollout_id == rollout_id, table.c.unit.in_(some)).order_by(table.c.at, table.c.seq)
        )
        for row in connection.execute(found):
            calls[row.unit].append(
                ServedCall(row.trace_id, row.failed, row.seconds, row.cost, row.tokens, row.at, row.recorded_at)
            )
    said = _said(connection, {call.trace_id for of_unit in calls.values() for call in of_unit})
    return {
        unit: ServedSession(tuple(of_unit), {id: said.get(id, ()) for id in dict.fromkeys(call.trace_id for call in of_unit)})
        for unit, of_unit in calls.items()
    }


class MirroredPair(NamedTuple):
    """A request that was answered twice: first production's answer, then the candidate's, of which nobody was given."""

    pair: str
    unit: str
    """Its session, as the rollout knows it."""
    production: ServedCall
    candidate: ServedCall


def mirrored_pairs(connection: sa.Connection, rollout_id: str) -> list[MirroredPair]:
    """In the order in which the candidate's answers came in."""
    one, other = MIRRORED_CALLS, MIRRORED_CALLS.alias()
    same = sa.and_(other.c.rollout_id == one.c.rollout_id, other.c.pair == one.c.pair, other.c.arm == PRODUCTION)
    told = ("trace_id", "failed", "seconds", "cost", "tokens", "at")
    columns = [one.c.pair, one.c.unit, *(other.c[name] for name in told), *(one.c[name] for name in told)]
    found = sa.select(*columns).join(other, same).where(one.c.rollout_id == rollout_id, one.c.arm != PRODUCTION)
    ends = 2 + len(told)
    return [
        MirroredPair(row[0], row[1], ServedCall._make((*row[2:ends], None)), ServedCall._make((*row[ends:], None)))
        for row in connection.execute(found.order_by(one.c.seq))
    ]


def mirrored(connection: sa.Connection, rollout_id: str) -> Mirrored:
    """What they have come to, answers without a pair included: these were paid for, too."""
    one, other = MIRRORED_CALLS, MIRRORED_CALLS.alias()
    theirs = (one.c.rollout_id == rollout_id, one.c.arm != PRODUCTION)
    unknown = sa.and_(one.c.cost.is_(None), sa.not_(one.c.failed))
    sums = sa.select(sa.func.sum(one.c.cost), sa.func.sum(sa.case((unknown, 1), else_=0))).where(*theirs)
    same = sa.and_(other.c.rollout_id == one.c.rollout_id, other.c.pair == one.c.pair, other.c.arm == PRODUCTION)
    pairs = sa.select(sa.func.count(one.c.unit.distinct())).join(other, same).where(*theirs)
    spent, unpriced = connection.execute(sums).one()
    return Mirrored(pairs=connection.scalar(pairs) or 0, spent=float(spent or 0), unpriced=int(unpriced or 0))


class CandidateSession(NamedTuple):
    """A session that was served a candidate while nobody was on an arm."""

    at: datetime
    """When it began."""
    session: ServedSession
    """Without its calls."""


def of_candidate(
    connection: sa.Connection, candidate_id: str, since: datetime, until: datetime, *, after: int, limit: int
) -> tuple[int, list[CandidateSession]]:
    """Sessions that the gateway served a candidate, in the order of their first traces, and up to which `seq` they were read.

    Args:
        since: Begun then or later.
        until: Up to the first that began later.
        after: From behind a `seq` on; a session that has a trace before it is none of them.
    """
    table = TRACES
    others = sa.select(TRACE_CANDIDATES.c.trace).where(TRACE_CANDIDATES.c.candidate_id == candidate_id)
    theirs = (
        table.c.source == "gateway",
        table.c.started_at >= utc(since),
        sa.or_(table.c.candidate_id == candidate_id, table.c.seq.in_(others)),
    )
    found = sa.select(table.c.seq, table.c.id, table.c.session, table.c.started_at).where(*theirs, table.c.seq > after)
    rows = list(takewhile(lambda row: row.started_at <= until, connection.execute(found.order_by(table.c.seq).limit(limit))))
    named = {row.session for row in rows if row.session}
    before = sa.select(table.c.session).where(*theirs, table.c.seq <= after, table.c.session.in_(named))
    known = set(connection.scalars(before)) if named and after else set()
    said = _said(connection, [row.id for row in rows])
    units: dict[str, CandidateSession] = {}
    for row in rows:
        if row.session not in known:
            unit = units.setdefault(row.session or row.id, CandidateSession(row.started_at, ServedSession((), {})))
            units[row.session or row.id] = unit._replace(
                session=ServedSession((), {**unit.session.words, row.id: said.get(row.id, ())})
            )
    return (rows[-1].seq if rows else after), list(units.values())


def _said(connection: sa.Connection, trace_ids: Collection[str]) -> Mapping[str, Sequence[TraceOpinion]]:
    ids: dict[int, str] = {}
    found: dict[str, list[TraceOpinion]] = defaultdict(list)
    meant: dict[tuple[str, str], list[str]] = defaultdict(list)
    columns = ("seq", "id", "task_id", "session", "own_label", "started_at", "seconds")
    names = [TRACES.c[name] for name in columns]
    over: dict[int, datetime] = {}
    for some in _batches(trace_ids):
        for seq, id, task, session, own, began, seconds in connection.execute(sa.select(*names).where(TRACES.c.id.in_(some))):
            ids[seq], over[seq] = id, began + timedelta(seconds=seconds or 0)
            meant[TargetKind.TASK, task].append(id)
            if session:
                meant[TargetKind.SESSION, session].append(id)
            if own is not None:
                found[id].append(TraceOpinion(label(own, RECORDER), began, RECORDER))
    for seqs in _batches(ids):
        for seq, came_with in own_rewards(connection, seqs).items():
            found[ids[seq]] += [TraceOpinion(each, over[seq], (RECORDER, at)) for at, each in enumerate(came_with)]
        _add_labels(connection, seqs, ids, found)
        for seq, rows in all_given(connection, seqs).items():
            found[ids[seq]] += [TraceOpinion(reward_of(row), row.at, key_of(row), takes_back(row)) for row in rows]
    _add_words(connection, meant, found)
    return found


def _add_labels(
    connection: sa.Connection, some: Sequence[int], ids: Mapping[int, str], found: Mapping[str, list[TraceOpinion]]
) -> None:
    rows = sa.select(TRACE_LABELS).where(TRACE_LABELS.c.trace.in_(some)).order_by(TRACE_LABELS.c.at, TRACE_LABELS.c.seq)
    for row in connection.execute(rows):
        says = label(bool(row.good), row.who)
        found[ids[row.trace]].append(TraceOpinion(says, row.at, ("label", row.who), row.good is None))


def _add_words(
    connection: sa.Connection, meant: Mapping[tuple[str, str], Sequence[str]], found: Mapping[str, list[TraceOpinion]]
) -> None:
    """What was said of a whole task or session counts for each of its traces. What was said of a trace stands with it."""
    for kind in (TargetKind.TASK, TargetKind.SESSION):
        for some in _batches([target for each, target in meant if each == kind]):
            rows = sa.select(FEEDBACK).where(FEEDBACK.c.target_kind == kind.value, FEEDBACK.c.target.in_(some))
            for row in connection.execute(rows.order_by(FEEDBACK.c.at, FEEDBACK.c.seq)):
                word = word_of(row)
                said = TraceOpinion(word.reward, row.received_at, word.key, word.is_taken_back)
                for id in meant[kind, word.target]:
                    found[id].append(said)


def _batches(ids: Iterable[_T]) -> Iterable[list[_T]]:
    known = list(ids)
    return (known[begin : begin + _AT_ONCE] for begin in range(0, len(known), _AT_ONCE))
