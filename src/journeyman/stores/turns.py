"""The journal of turns that nobody asked for: what there is to learn from, what each turn was of, and what became of it.

Whoever carries out turns holds a lease, and only with it can a turn be begun or gone on with, in the same transaction: of two
who begin the same turn one does, and one whose lease was over writes nothing any more.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import sqlalchemy as sa

from journeyman.core.errors import ReleaseError
from journeyman.core.trace import OWN, OWN_AGENT
from journeyman.core.turn import LearnExperience, LearnSubject, LearnTurn, TurnEvent, TurnSpent, TurnState
from journeyman.stores.assignments import LeaseStore
from journeyman.stores.base import utc, whole_id
from journeyman.stores.engine import PATIENCE, starting
from journeyman.stores.tables import LEARN_ORDERS, LEASES, LOOKS, TURN_EVENTS, TURNS
from journeyman.stores.traces.tables import TRACES
from journeyman.stores.traces.writing import insert, take_turn
from journeyman.stores.urls import as_url

LEASE = "learn"
Verb = Literal["stop", "pause", "resume"]


class LearnOrder(NamedTuple):
    """What somebody told whoever carries out turns."""

    verb: Verb
    who: str
    reason: str
    at: datetime


class TurnStore(LeaseStore):
    """Keeps turns in one database. May be used by several threads and processes at once."""

    # What there is to learn from.

    def experience(self) -> Mapping[tuple[str | None, str], LearnExperience]:
        """Traces that others made, by agent and domain; Journeyman's own attempts are none."""
        table = TRACES
        theirs = (table.c.source != OWN, table.c.duplicate_of.is_(None))
        others = sa.or_(table.c.agent.is_(None), table.c.agent != OWN_AGENT)
        told = [
            sa.func.count(),
            sa.func.max(table.c.seq),
            *(sa.func.sum(table.c[name]) for name in ("steps", "failed_tool_calls")),
            *(sa.func.count(table.c[name]) for name in ("label", "reward")),
            sa.func.sum(sa.case((table.c.label, 1), else_=0)),
        ]
        found = sa.select(table.c.agent, table.c.domain, *told).where(*theirs, others).group_by(table.c.agent, table.c.domain)
        with self._database.read() as connection:
            rows = connection.execute(found).all()
        return {
            (agent, domain): LearnExperience(
                int(figures[0]), hashlib.sha256(repr([int(each or 0) for each in figures]).encode()).hexdigest()
            )
            for agent, domain, *figures in rows
        }

    def looks_at(self, candidates: Iterable[str], since: datetime) -> int:
        """How often candidates were examined on held-out tasks since then; several landmarks of one are one look."""
        table = LOOKS
        found = sa.select(table.c.candidate_id, table.c.evaluation_id).distinct()
        found = found.where(table.c.candidate_id.in_(list(candidates)), table.c.at >= utc(since))
        with self._database.read() as connection:
            return len(connection.execute(found).all())

    # Turns.

    def begin(self, turn: LearnTurn, holder: str) -> None:
        """Keep that a turn began, with its first event.

        Raises:
            ReleaseError: Somebody else holds the lease.
        """
        with self._database.write() as connection:
            take_turn(connection)
            _fence(connection, holder, turn.began)
            row = {name: getattr(turn, name) for name in ("id", "parent", "trigger", "data_digest", "seen")}
            insert(
                connection, TURNS, [{**row, **turn.subject._asdict(), "began": utc(turn.began), "before": dict(turn.before)}]
            )
            insert(connection, TURN_EVENTS, [_row(turn)])

    def keep(self, turn: LearnTurn, holder: str = "") -> None:
        """Keep the last event of a turn.

        Args:
            holder: Who carries it out, and must hold the lease; without one it is a person's word.

        Raises:
            ReleaseError: Somebody else holds the lease, or has kept another event of that number.
        """
        with self._database.write() as connection:
            take_turn(connection)
            if holder:
                _fence(connection, holder, turn.last.at)
            if not insert(connection, TURN_EVENTS, [_row(turn)]):
                raise ReleaseError(f"something else happened to the turn {turn.id} meanwhile; look at it again")

    def turns(self, *, since: datetime | None = None, limit: int | None = None) -> Sequence[LearnTurn]:
        """Oldest first: all, or those that ended since then, have not ended, or are the last of their subject; of these the
        newest `limit`."""
        last = sa.select(sa.func.max(TURNS.c.seq)).group_by(TURNS.c.kind, TURNS.c.agent, TURNS.c.domain)
        found = sa.select(TURNS).order_by(TURNS.c.seq.desc())
        if since is not None:
            young = sa.select(TURN_EVENTS.c.turn_id).where(TURN_EVENTS.c.at >= utc(since))
            over = sa.select(TURN_EVENTS.c.turn_id).where(TURN_EVENTS.c.state != TurnState.RUNNING.value)
            found = found.where(sa.or_(TURNS.c.id.in_(young), TURNS.c.id.not_in(over), TURNS.c.seq.in_(last)))
        with self._database.read() as connection:
            rows = connection.execute(found.limit(limit)).all()[::-1]
            events = _events(connection, [row.id for row in rows])
        return [_turn(row, events[row.id]) for row in rows]

    def turn(self, prefix: str) -> LearnTurn:
        """The one whose id begins so.

        Raises:
            InputError: There is none, or there are several.
        """
        with self._database.read() as connection:
            near = partial(starting, connection, TURNS.c.id)
            id = whole_id(prefix, near, one="turn", many="learn history")
            row = connection.execute(sa.select(TURNS).where(TURNS.c.id == id)).one()
            return _turn(row, _events(connection, [id])[id])

    # Orders.

    def order(self, order: LearnOrder) -> None:
        with self._database.write() as connection:
            insert(connection, LEARN_ORDERS, [{**order._asdict(), "at": utc(order.at)}])

    def last_order(self, *verbs: Verb) -> LearnOrder | None:
        """The last one of some kinds."""
        found = sa.select(LEARN_ORDERS).where(LEARN_ORDERS.c.verb.in_(verbs)).order_by(LEARN_ORDERS.c.seq.desc()).limit(1)
        with self._database.read() as connection:
            row = connection.execute(found).first()
        return None if row is None else LearnOrder(row.verb, row.who, row.reason, row.at)


def open_turns(url: str | Path, *, make: bool = True, patience: float = PATIENCE) -> TurnStore:
    """The turns of the store at a URL or path, as `open_store` opens it."""
    return TurnStore(as_url(url), make=make, patience=patience)


def _fence(connection: sa.Connection, holder: str, at: datetime) -> None:
    ours = (LEASES.c.name == LEASE, LEASES.c.holder == holder, LEASES.c.until > utc(at))
    if connection.execute(sa.select(LEASES.c.seq).where(*ours)).first() is None:
        raise ReleaseError(f"{holder} does not carry out turns any more: its lease is over")


def _row(turn: LearnTurn) -> dict[str, object]:
    event = turn.last
    told = {name: getattr(event, name) for name in ("number", "candidate", "reason")}
    return {
        **told,
        **asdict(event.spent),
        "turn_id": turn.id,
        "state": event.state.value,
        "at": utc(event.at),
        "report": dict(event.report),
    }


def _events(connection: sa.Connection, ids: Sequence[str]) -> Mapping[str, tuple[TurnEvent, ...]]:
    found: defaultdict[str, tuple[TurnEvent, ...]] = defaultdict(tuple)
    wanted = sa.select(TURN_EVENTS).where(TURN_EVENTS.c.turn_id.in_(ids)).order_by(TURN_EVENTS.c.turn_id, TURN_EVENTS.c.number)
    for row in connection.execute(wanted):
        spent = TurnSpent(cost=row.cost, cpu_seconds=row.cpu_seconds, looks=row.looks)
        told = {name: getattr(row, name) for name in ("number", "at", "candidate", "reason", "report")}
        found[row.turn_id] += (TurnEvent(**told, state=TurnState(row.state), spent=spent),)
    return found


def _turn(row: sa.Row[tuple[object, ...]], events: tuple[TurnEvent, ...]) -> LearnTurn:
    told = {name: getattr(row, name) for name in ("id", "began", "trigger", "data_digest", "seen", "parent", "before")}
    return LearnTurn(**told, subject=LearnSubject(row.kind, row.agent, row.domain), events=events)
