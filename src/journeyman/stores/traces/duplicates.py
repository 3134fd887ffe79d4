"""The same calls, reported twice: by the gateway and by the agent's own instrumentation, say. One of the two counts.

What is told twice went on at the same time. An answer that comes back at another time, with its id, was recorded and is played
back: that is another attempt.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from journeyman.stores.traces import bulk
from journeyman.stores.traces.tables import TRACE_RESPONSES, TRACES

_SHARED = 8
"""An id that more traces than this have tells nothing: some servers, and caches, give every answer the same."""


@dataclass(frozen=True, slots=True)
class _Found:
    seq: int
    steps: int
    responses: frozenset[str]
    """Empty where not every call has an id."""
    duplicate_of: int | None
    began: datetime
    seconds: float | None


def place(connection: sa.Connection, changed: Mapping[int, frozenset[str]]) -> None:
    """Note the response ids of traces that are new or changed, and find anew which traces tell what another tells as well.

    A trace is a duplicate when another that went on at the same time has all its calls and at least as many steps; of two with
    the same calls it is the one with fewer steps, or else the later. Where it is not known when one ended, it may still go on.
    """
    before = _rows(connection, TRACE_RESPONSES.c.trace.in_(changed))
    touched = {id for ids in changed.values() for id in ids}.union(*before.values())
    if not touched:
        return
    holders = _holders(connection, touched)
    stale = [(trace, id) for trace, ids in before.items() for id in ids - changed[trace]]
    if stale:
        _forget(connection, stale)
    new = []
    for trace, ids in changed.items():
        for id in ids - before.get(trace, frozenset()):
            # One more than tells something is kept, so that the next one is known to be too many.
            if len(holders[id]) <= _SHARED:
                new.append({"trace": trace, "response_id": id})
            holders[id].add(trace)
    bulk.insert(connection, TRACE_RESPONSES, new)
    if stale or any(len(holders[id]) > 1 for id in touched):
        _mark(connection, {trace for id in touched for trace in holders[id]} | set(changed))


def _forget(connection: sa.Connection, rows: Iterable[tuple[int, str]]) -> None:
    this = sa.and_(TRACE_RESPONSES.c.trace == sa.bindparam("of"), TRACE_RESPONSES.c.response_id == sa.bindparam("id"))
    connection.execute(sa.delete(TRACE_RESPONSES).where(this), [{"of": trace, "id": id} for trace, id in rows])


def again(connection: sa.Connection, gone: Collection[int]) -> None:
    """Look again at the traces that count as duplicates of traces that are gone."""
    orphans = set(connection.scalars(sa.select(TRACES.c.seq).where(TRACES.c.duplicate_of.in_(gone))))
    if orphans:
        _mark(connection, orphans)


def _mark(connection: sa.Connection, affected: Collection[int]) -> None:
    traces = _found(connection, affected)
    holders = _holders(connection, {id for trace in traces.values() for id in trace.responses})
    others = {seq for ids in holders.values() for seq in ids} - traces.keys()
    everyone = traces | _found(connection, others)
    changes = []
    for trace in traces.values():
        keeper = _keeper(trace, holders, everyone)
        if keeper != trace.duplicate_of:
            changes.append({"of": trace.seq, "by": keeper})
    if changes:
        update = sa.update(TRACES).where(TRACES.c.seq == sa.bindparam("of")).values(duplicate_of=sa.bindparam("by"))
        connection.execute(update, changes)


def _keeper(trace: _Found, holders: Mapping[str, set[int]], everyone: Mapping[int, _Found]) -> int | None:
    if not trace.responses or any(len(holders[id]) > _SHARED for id in trace.responses):
        return None
    shared = set.intersection(*(holders[id] for id in trace.responses)) - {trace.seq}
    tellers = [other for seq in shared if (other := everyone.get(seq)) is not None and _tells(other, trace)]
    best = max(tellers, key=lambda other: (len(other.responses), other.steps, -other.seq), default=None)
    return None if best is None else best.seq


def _tells(other: _Found, trace: _Found) -> bool:
    """Whether a trace that has all calls of another makes it superfluous."""
    if not (_reaches(other, trace.began) and _reaches(trace, other.began)):
        return False
    if other.responses == trace.responses:
        return (other.steps, -other.seq) > (trace.steps, -trace.seq)
    return other.steps >= trace.steps


def _reaches(trace: _Found, at: datetime) -> bool:
    """Whether a trace had not ended before."""
    return trace.seconds is None or at <= trace.began + timedelta(seconds=trace.seconds)


def _found(connection: sa.Connection, seqs: Collection[int]) -> dict[int, _Found]:
    if not seqs:
        return {}
    ids = _rows(connection, TRACE_RESPONSES.c.trace.in_(seqs))
    columns = [TRACES.c[name] for name in ("seq", "steps", "identified", "duplicate_of", "started_at", "seconds")]
    found = {}
    for row in connection.execute(sa.select(*columns).where(TRACES.c.seq.in_(seqs))):
        # Where there are fewer than `identified`, one tells nothing.
        whole = of_trace if len(of_trace := ids.get(row.seq, frozenset())) == row.identified else frozenset()
        found[row.seq] = _Found(row.seq, row.steps, whole, row.duplicate_of, row.started_at, row.seconds)
    return found


def _holders(connection: sa.Connection, responses: Collection[str]) -> Mapping[str, set[int]]:
    holders: dict[str, set[int]] = defaultdict(set)
    if responses:
        wanted = sa.select(TRACE_RESPONSES.c.response_id, TRACE_RESPONSES.c.trace)
        for id, trace in connection.execute(wanted.where(TRACE_RESPONSES.c.response_id.in_(responses))):
            holders[id].add(trace)
    return holders


def _rows(connection: sa.Connection, where: sa.ColumnElement[bool]) -> Mapping[int, frozenset[str]]:
    found: dict[int, set[str]] = defaultdict(set)
    for trace, id in connection.execute(sa.select(TRACE_RESPONSES.c.trace, TRACE_RESPONSES.c.response_id).where(where)):
        found[trace].add(id)
    return {trace: frozenset(ids) for trace, ids in found.items()}
