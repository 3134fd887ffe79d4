"""What is in production where, the rollouts that bring it there, who is on which arm, and who decided what.

What belongs together is written in one transaction: an event, the slot that it moves, the candidate's own stage, and the row of
the audit. Whoever comes second with an event of the same number is told so, and nothing of theirs is kept.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from journeyman.core.candidate import BASE, Candidate, Kind, ServedModel
from journeyman.core.errors import ReleaseError, StoreError
from journeyman.core.release import NEXT, Move, Release, Stage
from journeyman.core.rollout import (
    NEXT_STATE,
    PRODUCTION,
    Arm,
    Cause,
    EventKind,
    LiveReleases,
    Rollout,
    RolloutEvent,
    RolloutState,
    Slot,
    SlotMove,
    nothing,
)
from journeyman.core.rollout_decision import Mirrored
from journeyman.core.rollout_plan import RolloutPlan
from journeyman.stores.assignments import AssignmentStore
from journeyman.stores.base import AuditRecord, EvidenceRecord, SessionScore, utc
from journeyman.stores.engine import PATIENCE
from journeyman.stores.feedback import FeedbackStore
from journeyman.stores.sessions import (
    CandidateSession,
    MirroredPair,
    ServedSession,
    mirrored,
    mirrored_pairs,
    of_candidate,
    of_units,
)
from journeyman.stores.sql import move_row
from journeyman.stores.tables import (
    ASSIGNMENTS,
    AUDIT,
    CANDIDATES,
    EVIDENCE,
    MIRRORED_CALLS,
    MOVES,
    ROLLOUT_EVENTS,
    ROLLOUTS,
    SERVED_MODELS,
    SESSION_SCORES,
    SLOT_MOVES,
)
from journeyman.stores.traces.writing import insert, take_turn
from journeyman.stores.urls import as_url

Row = sa.Row[Any]
_ENDING = sorted({kind.value for moves in NEXT_STATE.values() for kind, state in moves.items() if not NEXT_STATE[state]})
"""Events after which a rollout is over."""
CORRECT = "correct"
"""In the audit: what a rollout was decided on was corrected by what was told later."""


class RolloutStore(AssignmentStore, FeedbackStore):
    """Keeps rollouts in one database. May be used by several threads and processes at once."""

    # What is served.

    def live(self) -> LiveReleases:
        with self._database.read() as connection:
            return LiveReleases(_production(connection), tuple(_open_ones(connection)), _models(connection))

    def version(self) -> tuple[int, ...]:
        """Another one whenever something has happened to a rollout, a slot or a served model: cheap to ask for again and
        again."""
        with self._database.read() as connection:
            latest = (sa.select(sa.func.max(table.c.seq)) for table in (ROLLOUT_EVENTS, SLOT_MOVES, SERVED_MODELS))
            return tuple(int(connection.scalar(each) or 0) for each in latest)

    def serve_model(self, served: ServedModel, cause: Cause) -> None:
        """Keep where learned weights answer from now on; a URL that is empty is nowhere.

        Raises:
            ReleaseError: They would answer nowhere, or from another file, and are in production of a slot or in an open
                rollout; or the name is that of other weights.
        """
        with self._database.write() as connection:
            take_turn(connection)
            _may_serve(connection, served)
            insert(connection, SERVED_MODELS, [served.as_json() | {"at": utc(served.at)}])
            _audit(connection, "serve", served.candidate_id, cause, None, served.as_json())

    def may_serve(self, served: ServedModel) -> None:
        """Nothing where `serve_model` would take it now; nothing is kept.

        Raises:
            ReleaseError: As `serve_model` does.
        """
        with self._database.read() as connection:
            _may_serve(connection, served)

    def slot_history(self, slot: Slot) -> Sequence[SlotMove]:
        """Oldest first."""
        with self._database.read() as connection:
            return _history(connection, slot)

    def candidate(self, candidate_id: str) -> Candidate | None:
        with self._database.read() as connection:
            row = connection.execute(sa.select(CANDIDATES).where(CANDIDATES.c.id == candidate_id)).first()
        return None if row is None else Candidate(kind=Kind(row.kind), body=row.body, parents=tuple(row.parents))

    # Rollouts.

    def rollouts(self, slot: Slot | None = None) -> Sequence[Rollout]:
        """Oldest first."""
        where = [] if slot is None else [ROLLOUTS.c.slot == str(slot)]
        with self._database.read() as connection:
            return _rollouts(connection, *where)

    def rollout(self, rollout_id: str) -> Rollout | None:
        with self._database.read() as connection:
            return next(iter(_rollouts(connection, ROLLOUTS.c.id == rollout_id)), None)

    def start(self, rollout: Rollout) -> None:
        """
        Raises:
            ReleaseError: Another one is open in the slot, or something else is in production there than it was begun against.
        """
        cause = rollout.events[0].cause
        with self._database.write() as connection:
            take_turn(connection)
            _may_start(connection, rollout)
            row = {"id": rollout.id, "slot": str(rollout.slot), "body": _body(rollout), "created_at": utc(rollout.created_at)}
            if not insert(connection, ROLLOUTS, [row]):
                raise ReleaseError(f"a rollout {rollout.id} is there already")
            _keep_events(connection, rollout, 0)
            for arm in rollout.arms:
                _stage(connection, arm.candidate_id, Stage.CANARY, cause, rollout.id)

    def may_start(self, rollout: Rollout) -> None:
        """Nothing where `start` would take it now; nothing is kept.

        Raises:
            ReleaseError: As `start` does.
        """
        with self._database.read() as connection:
            _may_start(connection, rollout)

    def advance(self, rollout: Rollout) -> None:
        """Keep the events that a rollout has and the store has not, with all that follows from them.

        Raises:
            ReleaseError: Somebody else was faster; read it again and decide anew.
        """
        with self._database.write() as connection:
            take_turn(connection)
            kept = next(iter(_rollouts(connection, ROLLOUTS.c.id == rollout.id)), None)
            if kept is None:
                raise ReleaseError(f"no rollout {rollout.id!r} is in the store")
            known = len(kept.events)
            same = list(map(_event_json, kept.events)) == list(map(_event_json, rollout.events[:known]))
            if not same or known == len(rollout.events):
                raise ReleaseError(f"{rollout.id} was moved by somebody else meanwhile; read it again and decide anew")
            _keep_events(connection, rollout, known)

    def undo(self, slot: Slot, cause: Cause) -> SlotMove:
        """Bring back what was in production of a slot before.

        Raises:
            ReleaseError: Nothing was, or a rollout is open there.
        """
        with self._database.write() as connection:
            take_turn(connection)
            if other := _open_in(connection, slot):
                raise ReleaseError(f"{slot}: the rollout {other.id} is open there; roll it back or close it first")
            history = _history(connection, slot)
            if not _standing(history):
                ever = "still stands of what was" if history else "was ever"
                raise ReleaseError(f"{slot}: nothing {ever} promoted there, so there is nothing to undo")
            gone, back = history[-1], _before(history)
            move = _put(connection, slot, back, cause, None)
            _stage(connection, gone.candidate_id, Stage.ROLLED_BACK, cause, str(slot))
            _stage(connection, back.candidate_id, Stage.PRODUCTION, cause, str(slot))
            return move

    # What the test comes to.

    def served_sessions(self, rollout_id: str, units: Collection[str]) -> Mapping[str, ServedSession]:
        """What came of sessions, by unit; those that no call was served to are not in it."""
        with self._database.read() as connection:
            return of_units(connection, rollout_id, units)

    def mirrored(self, rollout_id: str) -> Mirrored:
        """What requests that were mirrored have come to."""
        with self._database.read() as connection:
            return mirrored(connection, rollout_id)

    def mirrored_of(self, rollout_id: str, pairs: Collection[str]) -> Collection[str]:
        """Those whose second answer is on record."""
        table = MIRRORED_CALLS
        theirs = (table.c.rollout_id == rollout_id, table.c.arm != PRODUCTION, table.c.pair.in_(pairs))
        with self._database.read() as connection:
            return set(connection.scalars(sa.select(table.c.pair).where(*theirs))) if pairs else set()

    def mirrored_pairs(self, rollout_id: str) -> Sequence[MirroredPair]:
        """As `stores.sessions` finds them."""
        with self._database.read() as connection:
            return mirrored_pairs(connection, rollout_id)

    def add_scores(self, rollout_id: str, scores: Iterable[SessionScore], at: datetime) -> None:
        """Keep what sessions, or pairs of answers, were worth; what is known of one stays."""
        with self._database.write() as connection:
            insert(connection, SESSION_SCORES, _score_rows(rollout_id, scores, at))

    def candidate_sessions(
        self, candidate_id: str, since: datetime, until: datetime, *, after: int = 0, limit: int = 2000
    ) -> tuple[int, Sequence[CandidateSession]]:
        """As `of_candidate` finds them."""
        with self._database.read() as connection:
            return of_candidate(connection, candidate_id, since, until, after=after, limit=limit)

    def add_evidence(self, rollout_id: str, evidence: EvidenceRecord, scores: Iterable[SessionScore] = ()) -> bool:
        """Keep what the test came to, and the scores that entered it; whether it was kept: somebody else may have come to the
        same number before, and then nothing is."""
        row = {"rollout_id": rollout_id, **evidence._asdict(), "at": utc(evidence.at)}
        rows = _score_rows(rollout_id, scores, evidence.at)
        with self._database.write() as connection:
            if not insert(connection, EVIDENCE, [row]):
                return False
            insert(connection, SESSION_SCORES, rows)
            return True

    def scores(self, rollout_id: str, metric: str) -> Mapping[str, float | None]:
        """What entered the test, by unit; `None` where nobody knew."""
        table = SESSION_SCORES
        found = sa.select(table.c.unit, table.c.value).where(table.c.rollout_id == rollout_id, table.c.metric == metric)
        with self._database.read() as connection:
            return dict(map(tuple, connection.execute(found.order_by(table.c.seq))))

    def lowest(self, rollout_id: str, metric: str, arm: str, *, limit: int) -> Sequence[tuple[float, ServedSession]]:
        """The sessions of an arm that entered the test with the lowest scores, lowest first."""
        scores, on = SESSION_SCORES, ASSIGNMENTS
        found = (
            sa.select(scores.c.unit, scores.c.value)
            .join(on, sa.and_(on.c.rollout_id == scores.c.rollout_id, on.c.unit == scores.c.unit))
            .where(scores.c.rollout_id == rollout_id, scores.c.metric == metric, scores.c.value.is_not(None), on.c.arm == arm)
            .order_by(scores.c.value, scores.c.seq.desc())
            .limit(limit)
        )
        with self._database.read() as connection:
            rows = connection.execute(found).all()
            sessions = of_units(connection, rollout_id, [row.unit for row in rows])
        return [(row.value, sessions[row.unit]) for row in rows if row.unit in sessions]

    def evidence(self, rollout_id: str) -> EvidenceRecord | None:
        """The latest."""
        table = EVIDENCE
        latest = sa.select(table).where(table.c.rollout_id == rollout_id).order_by(table.c.number.desc()).limit(1)
        with self._database.read() as connection:
            row = connection.execute(latest).first()
        return None if row is None else EvidenceRecord(row.number, row.upto, row.state, row.summary, row.at)

    def evidence_history(self, rollout_id: str, *, limit: int) -> Sequence[EvidenceRecord]:
        """What the test came to at each look, oldest first and the last `limit` of them; without the states."""
        table = EVIDENCE
        wanted = (table.c.number, table.c.upto, table.c.summary, table.c.at)
        latest = sa.select(*wanted).where(table.c.rollout_id == rollout_id).order_by(table.c.number.desc()).limit(limit)
        with self._database.read() as connection:
            rows = connection.execute(latest).all()
        return [EvidenceRecord(row.number, row.upto, {}, row.summary, row.at) for row in reversed(rows)]

    def correct(self, rollout_id: str, was: Mapping[str, Any], now: Mapping[str, Any], cause: Cause) -> bool:
        """Add to the audit that the rows say something else of a rollout by now than what it was decided on; whether they
        did not say so before."""
        table = AUDIT
        told = sa.select(table.c.after).where(table.c.action == CORRECT, table.c.target == rollout_id)
        with self._database.write() as connection:
            take_turn(connection)
            rows = connection.execute(told.order_by(table.c.seq.desc()).limit(1)).all()
            before = rows[0].after if rows else dict(was)
            if before == dict(now):
                return False
            _audit(connection, CORRECT, rollout_id, cause, before, dict(now))
            return True

    def tell(self, action: str, slot: Slot, cause: Cause) -> None:
        """Add to the audit what was found of a slot; nothing is changed there."""
        with self._database.write() as connection:
            take_turn(connection)
            _audit(connection, action, str(slot), cause, None, dict(cause.evidence))

    # The audit.

    def audit(self, *, after: int = 0, limit: int = 1000, newest: bool = False) -> Sequence[AuditRecord]:
        """Oldest first: the first so many behind a `seq`, or the newest."""
        order = AUDIT.c.seq.desc() if newest else AUDIT.c.seq
        found = sa.select(AUDIT).where(AUDIT.c.seq > after).order_by(order).limit(limit)
        with self._database.read() as connection:
            return sorted((AuditRecord(*row) for row in connection.execute(found)), key=lambda row: row.seq)

    def verify(self) -> str | None:
        """What does not hold of the audit, in one sentence; `None` where all of it does: each row carries its own hash and that
        of the row before, and every event and every move of a slot is as it was told there."""
        told: dict[str, Any] = {}
        previous, last = "", 0
        while rows := self.audit(after=last):
            for row in rows:
                if row.previous != previous:
                    return f"audit row {row.seq}: a row before it is gone, or was changed"
                if row.hash != _hash(row):
                    return f"audit row {row.seq}: {row.action} of {row.target} was changed after it was written"
                told[row.target] = row.after
                previous, last = row.hash, row.seq
        with self._database.read() as connection:
            events = connection.execute(sa.select(ROLLOUT_EVENTS).order_by(ROLLOUT_EVENTS.c.seq))
            kept = {f"{row.rollout_id}#{row.number}": _event_json(_event(row)) for row in events}
            moves = connection.execute(sa.select(SLOT_MOVES).order_by(SLOT_MOVES.c.seq))
            kept |= {f"{row.slot}#{row.number}": [row.candidate_id, row.digest] for row in moves}
        for target in sorted(kept.keys() | {each for each in told if "#" in each}):
            if kept.get(target) != told.get(target):
                return f"{target} is not as the audit tells it"
        return None


def _score_rows(rollout_id: str, scores: Iterable[SessionScore], at: datetime) -> list[dict[str, Any]]:
    told = {"rollout_id": rollout_id, "version": 1, "sources": [], "at": utc(at)}
    return [told | each._asdict() for each in scores]


def open_rollouts(url: str | Path, *, make: bool = True, patience: float = PATIENCE) -> RolloutStore:
    """The rollouts of the store at a URL or path, as `open_store` opens it.

    Args:
        patience: Seconds to wait for others who write.
    """
    return RolloutStore(as_url(url), make=make, patience=patience)


# Rows and back.


def _rollouts(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[Rollout]:
    rows = connection.execute(sa.select(ROLLOUTS).where(*where).order_by(ROLLOUTS.c.seq)).all()
    theirs = ROLLOUT_EVENTS.c.rollout_id.in_([row.id for row in rows])
    ordered = sa.select(ROLLOUT_EVENTS).where(theirs).order_by(ROLLOUT_EVENTS.c.rollout_id, ROLLOUT_EVENTS.c.number)
    events = {id: tuple(map(_event, of)) for id, of in groupby(connection.execute(ordered), key=lambda row: row.rollout_id)}
    return [_rollout(row, events[row.id]) for row in rows]


def _open_ones(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[Rollout]:
    # Every gateway reads them whenever something happens, and those that are over grow ever more.
    ended = sa.exists().where(ROLLOUT_EVENTS.c.rollout_id == ROLLOUTS.c.id, ROLLOUT_EVENTS.c.kind.in_(_ENDING))
    return _rollouts(connection, ~ended, *where)


def _open_in(connection: sa.Connection, slot: Slot) -> Rollout | None:
    return next(iter(_open_ones(connection, ROLLOUTS.c.slot == str(slot))), None)


def _may_start(connection: sa.Connection, rollout: Rollout) -> None:
    slot = rollout.slot
    if other := _open_in(connection, slot):
        raise ReleaseError(f"{slot}: the rollout {other.id} is open there; end it before another one starts")
    now = LiveReleases(_production(connection), ()).baseline(slot).candidate_id
    if now != rollout.baseline.candidate_id:
        raise ReleaseError(f"{slot}: {now} is in production there by now; start the rollout anew")
    if now in {arm.candidate_id for arm in rollout.arms}:
        raise ReleaseError(f"{slot}: {now} is in production there already")


def _rollout(row: Row, events: tuple[RolloutEvent, ...]) -> Rollout:
    body = row.body
    return Rollout(
        id=row.id,
        slot=Slot.parse(row.slot),
        arms=tuple(Arm(**arm) for arm in body["arms"]),
        baseline=Arm(**body["baseline"]),
        salt=body["salt"],
        plan=RolloutPlan.read(body["plan"], row.id),
        verdict=body["verdict"],
        created_at=row.created_at,
        events=events,
    )


def _body(rollout: Rollout) -> dict[str, Any]:
    return {
        "arms": [asdict(arm) for arm in rollout.arms],
        "baseline": asdict(rollout.baseline),
        "salt": rollout.salt,
        "plan": rollout.plan.as_json(),
        "verdict": rollout.verdict,
    }


def _event(row: Row) -> RolloutEvent:
    cause = Cause(reason=row.reason, actor=row.actor, at=row.at, evidence=row.evidence, forced=row.forced)
    return RolloutEvent(number=row.number, kind=EventKind(row.kind), shares=row.shares, cause=cause)


def _event_json(event: RolloutEvent) -> list[Any]:
    cause = event.cause
    at = utc(cause.at).isoformat()
    told = [event.kind.value, dict(event.shares), cause.reason, cause.actor, at, dict(cause.evidence), cause.forced]
    # As it comes back: a tuple in the evidence is a list there.
    plain: list[Any] = json.loads(json.dumps(told))
    return plain


# What follows from an event.


def _keep_events(connection: sa.Connection, rollout: Rollout, begin: int) -> None:
    for at in range(begin, len(rollout.events)):
        event = rollout.events[at]
        now = replace(rollout, events=rollout.events[: at + 1])
        row = {
            "rollout_id": rollout.id,
            "number": event.number,
            "kind": event.kind.value,
            "shares": dict(event.shares),
            "reason": event.cause.reason,
            "actor": event.cause.actor,
            "evidence": dict(event.cause.evidence),
            "forced": event.cause.forced,
            "at": utc(event.cause.at),
        }
        if not insert(connection, ROLLOUT_EVENTS, [row]):
            raise ReleaseError(f"{rollout.id} was moved by somebody else meanwhile; read it again and decide anew")
        _audit(connection, event.kind.value, f"{rollout.id}#{event.number}", event.cause, None, _event_json(event))
        _follow(connection, now, event)


def _follow(connection: sa.Connection, rollout: Rollout, event: RolloutEvent) -> None:
    """What an event means for the slot, and for the stages of its candidates."""
    before = replace(rollout, events=rollout.events[:-1]).state if len(rollout.events) > 1 else None
    if event.kind is EventKind.PROMOTE:
        promoted = rollout.arm(next(iter(event.shares)))
        _put(connection, rollout.slot, promoted, event.cause, rollout.id)
        _stage(connection, promoted.candidate_id, Stage.PRODUCTION, event.cause, rollout.id)
        _stage(connection, rollout.baseline.candidate_id, Stage.RETIRED, event.cause, rollout.id)
        for arm in rollout.arms:
            if arm != promoted:
                _stage(connection, arm.candidate_id, Stage.ROLLED_BACK, event.cause, rollout.id)
    elif event.kind is EventKind.DROP:
        before_it = rollout.events[-2].shares
        for arm in rollout.arms:
            if arm.name in before_it.keys() - event.shares.keys():
                _stage(connection, arm.candidate_id, Stage.ROLLED_BACK, event.cause, rollout.id)
    elif event.kind is EventKind.ROLLBACK:
        if before is RolloutState.HOLDBACK:
            # Its own from before: what a less specific slot serves comes back by itself.
            _put(connection, rollout.slot, _before(_history(connection, rollout.slot)), event.cause, rollout.id)
            _stage(connection, rollout.baseline.candidate_id, Stage.PRODUCTION, event.cause, rollout.id)
        for arm in rollout.arms:
            _stage(connection, arm.candidate_id, Stage.ROLLED_BACK, event.cause, rollout.id)


def _put(connection: sa.Connection, slot: Slot, arm: Arm, cause: Cause, rollout_id: str | None) -> SlotMove:
    last = sa.select(sa.func.coalesce(sa.func.max(SLOT_MOVES.c.number), 0)).where(SLOT_MOVES.c.slot == str(slot))
    number = connection.execute(last).scalar_one() + 1
    row = {
        "slot": str(slot),
        "number": number,
        "candidate_id": arm.candidate_id,
        "digest": arm.digest,
        "rollout_id": rollout_id,
        "reason": cause.reason,
        "actor": cause.actor,
        "at": utc(cause.at),
    }
    insert(connection, SLOT_MOVES, [row])
    _audit(connection, "put", f"{slot}#{number}", cause, None, [arm.candidate_id, arm.digest])
    return SlotMove(slot, number, arm.candidate_id, arm.digest, rollout_id, cause.reason, cause.actor, cause.at)


def _stage(connection: sa.Connection, candidate_id: str, stage: Stage, cause: Cause, where: str) -> None:
    """Tell a candidate's own story on, where it can go there: it may be in production of another slot, which goes on."""
    if candidate_id == BASE or _serves(connection, candidate_id, stage):
        return
    kept = connection.execute(sa.select(MOVES).where(MOVES.c.candidate_id == candidate_id).order_by(MOVES.c.number)).all()
    moves = tuple(Move(Stage(row.stage), row.reason, row.at, row.forced) for row in kept)
    reason, count = f"{cause.reason} ({where})", len(moves)
    release = Release(candidate_id=candidate_id, moves=moves) if moves else None
    if release is None:
        release = Release.begin(candidate_id, Stage.SHADOW, reason, utc(cause.at), forced=cause.forced)
    if stage in NEXT[release.stage]:
        release = release.to(stage, reason, utc(cause.at), forced=cause.forced)
    if rows := [move_row(release, number, release.moves[number]) for number in range(count, len(release.moves))]:
        connection.execute(sa.insert(MOVES), rows)


def _serves(connection: sa.Connection, candidate_id: str, stage: Stage) -> bool:
    """Whether what would end here is in production of some slot."""
    return stage is not Stage.PRODUCTION and any(move.candidate_id == candidate_id for move in _production(connection).values())


def _production(connection: sa.Connection) -> Mapping[Slot, SlotMove]:
    last = sa.select(sa.func.max(SLOT_MOVES.c.number)).where(SLOT_MOVES.c.slot == (table := SLOT_MOVES.alias()).c.slot)
    found = sa.select(table).where(table.c.number == last.scalar_subquery()).order_by(table.c.seq)
    moves = map(_move, connection.execute(found))
    return {move.slot: move for move in moves}


def _models(connection: sa.Connection) -> Mapping[str, ServedModel]:
    rows = connection.execute(sa.select(SERVED_MODELS).order_by(SERVED_MODELS.c.seq))
    latest = {row.candidate_id: row for row in rows}
    return {
        id: ServedModel(
            candidate_id=id,
            url=row.url,
            model=row.model,
            digest=row.digest,
            file=row.file,
            replaces=tuple(row.replaces),
            at=row.at,
        )
        for id, row in latest.items()
        if row.url
    }


def _may_serve(connection: sa.Connection, served: ServedModel) -> None:
    id, known = served.candidate_id, _models(connection)
    if served.url:
        other = next(
            (each.candidate_id for each in known.values() if each.model == served.model and each.candidate_id != id), ""
        )
        if other:
            raise ReleaseError(f"{served.model} is what other weights ({other}) are called already; name these otherwise")
        if id in known and known[id].model != served.model:
            raise ReleaseError(f"these weights ({id}) are called {known[id].model} already; name them so")
    moves = not served.url or (id in known and known[id].digest != served.digest)
    if moves and (slot := _serving(connection, id)):
        how = "" if not served.url else ", and from another file"
        raise ReleaseError(f"{id} answers the requests of {slot}{how}; take it out of there first")


def _serving(connection: sa.Connection, candidate_id: str) -> Slot | None:
    """A slot that a candidate is needed in: it is in production there, or a rollout that is open has it."""
    drawn = [(each.slot, arm.candidate_id) for each in _open_ones(connection) for arm in (*each.arms, each.baseline)]
    produced = [(move.slot, move.candidate_id) for move in _production(connection).values()]
    return next((slot for slot, id in (*produced, *drawn) if id == candidate_id), None)


def _history(connection: sa.Connection, slot: Slot) -> Sequence[SlotMove]:
    rows = connection.execute(sa.select(SLOT_MOVES).where(SLOT_MOVES.c.slot == str(slot)).order_by(SLOT_MOVES.c.number))
    return [_move(row) for row in rows]


def _standing(history: Sequence[SlotMove]) -> Sequence[Arm]:
    """What came into production of a slot and was not taken back, oldest first."""
    standing: list[Arm] = []
    promoted: set[str] = set()
    for move in history:
        if move.rollout_id is None or move.rollout_id in promoted:
            # An undo, or the rollback of what was promoted before.
            del standing[-1:]
        else:
            promoted.add(move.rollout_id)
            standing.append(move.arm)
    return standing


def _before(history: Sequence[SlotMove]) -> Arm:
    """What was in production of a slot before what is there. What was taken back does not come again by it."""
    standing = _standing(history)
    return standing[-2] if len(standing) > 1 else nothing()


def _move(row: Row) -> SlotMove:
    return SlotMove(
        Slot.parse(row.slot), row.number, row.candidate_id, row.digest, row.rollout_id, row.reason, row.actor, row.at
    )


def _audit(connection: sa.Connection, action: str, target: str, cause: Cause, before: Any, after: Any) -> None:
    """Add a row to the chain. Whoever calls has taken their turn."""
    last = connection.scalar(sa.select(AUDIT.c.hash).order_by(AUDIT.c.seq.desc()).limit(1)) or ""
    at = utc(cause.at)
    row = AuditRecord(0, cause.actor, action, target, before, after, cause.reason, at, last, "")
    told = row._replace(hash=_hash(row))._asdict()
    del told["seq"]
    if not insert(connection, AUDIT, [told]):
        raise StoreError("the audit could not be written; try again")


def _hash(row: AuditRecord) -> str:
    told = [row.previous, row.actor, row.action, row.target, row.before, row.after, row.reason, row.at.isoformat()]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
