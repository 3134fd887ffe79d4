"""What the store's slots and rollouts mean for requests: read twice a second, and served from memory.

While the store is away, what was read last holds, also after a start: it stands in a file. What cannot be loaded is not
served; then a session gets what is in production, and where that is not known the request passes as it came.
"""

import asyncio
import hashlib
import json
import logging
import queue
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from journeyman.core.candidate import BASE, Candidate, Kind, ServedModel
from journeyman.core.errors import InputError, JourneymanError, ReleaseError, StoreError
from journeyman.core.rollout import (
    PRODUCTION,
    Arm,
    Cause,
    LiveReleases,
    Rollout,
    Slot,
    SlotKind,
    drawn,
    most_specific,
    unit_of,
)
from journeyman.core.rollout_decision import Brake
from journeyman.io.atomic import atomic_write
from journeyman.serving.releases.artifacts import ModelRoute, Servable, address_of
from journeyman.serving.releases.context import FixedPlaybook, RequestBody, ServedRelease, ServedTarget, SessionArm
from journeyman.stores.base import Assignment
from journeyman.stores.urls import as_url

if TYPE_CHECKING:
    from journeyman.stores.rollouts import RolloutStore

_log = logging.getLogger(__name__)
POLL_SECONDS = 0.5
PATIENCE = 0.25
"""Seconds that the store may make a session's first request wait."""


# Which arm a session is on: drawn once, on disk before a model is asked, and the same in every gateway.
#
# The first row about a session holds, whoever wrote it. While the store does not answer, a session that nobody has drawn yet
# is served what is in production, and left out of the test for good.

CACHED = 100_000
"""Sessions whose arm is remembered; of others the store is asked."""
AT_ONCE = 500
"""Assignments in one transaction."""
DRAWN, DEGRADED = "drawn", "degraded"
"""Why a session is on its arm."""
_LONGEST_SECONDS = 2.0
"""For which what is being written is waited for."""
_FAILURES, _REST_SECONDS = 5, 5.0
"""After so many failures in a row the store is left alone for so long."""


class AssignmentWriter:
    """Writes assignments in a thread of its own, as many in one transaction as are waiting."""

    def __init__(self, open_store: "Callable[[], RolloutStore]") -> None:
        self._open = open_store
        self._waiting: queue.SimpleQueue[tuple[Assignment, Future[Assignment]] | None] = queue.SimpleQueue()
        self._over = False
        self._store: RolloutStore | None = None
        self._tried = threading.Event()
        self._thread = threading.Thread(target=self._run, name="assignments", daemon=True)
        self._thread.start()

    def put(self, wanted: Assignment) -> "Future[Assignment]":
        """What holds of the session, once it is on disk."""
        future: Future[Assignment] = Future()
        self._waiting.put((wanted, future))
        return future

    def warm(self, seconds: float) -> None:
        """Wait until the store was opened, or could not be: whoever comes first need not wait for it."""
        self._tried.wait(seconds)

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join(30)

    def _run(self) -> None:
        with suppress(StoreError):
            self._store = self._open()
        self._tried.set()
        while batch := self._batch():
            # From here on nobody can take it back: it is written, or it is said that it was not.
            going = [(wanted, future) for wanted, future in batch if future.set_running_or_notify_cancel()]
            try:
                self._store = self._store or self._open()
                kept = self._store.assign([wanted for wanted, _ in going]) if going else ()
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody waits for ever
                for _, future in going:
                    future.set_exception(StoreError(f"assignments cannot be kept: {error}"))
            else:
                for (_, future), each in zip(going, kept, strict=True):
                    future.set_result(each)
        if self._store is not None:
            self._store.close()

    def _batch(self) -> list[tuple[Assignment, "Future[Assignment]"]]:
        """What waits, at least one; nothing at the end."""
        if self._over or (first := self._waiting.get()) is None:
            return []
        batch = [first]
        with suppress(queue.Empty):
            while len(batch) < AT_ONCE and (more := self._waiting.get_nowait()) is not None:
                batch.append(more)
            self._over = len(batch) < AT_ONCE
        return batch


class Assigner:
    """Puts sessions on arms. For one event loop."""

    def __init__(
        self,
        open_store: "Callable[[], RolloutStore]",
        *,
        timeout_seconds: float = 0.1,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """
        Args:
            open_store: Opens one that does not wait for long itself.
            timeout_seconds: For which a session's first request waits for its turn.
        """
        self._writer = AssignmentWriter(open_store)
        self._timeout = timeout_seconds
        self._clock = clock
        self._arms: OrderedDict[tuple[str, str], SessionArm] = OrderedDict()
        self._going: dict[tuple[str, str], asyncio.Future[SessionArm]] = {}
        self._unsaid: list[Assignment] = []
        self._failures, self._rests_until = 0, 0.0
        self.degraded = 0
        """Sessions that were served production as the store did not answer."""

    def warm(self, seconds: float = 10.0) -> None:
        """Wait until the store was opened, or could not be."""
        self._writer.warm(seconds)

    async def arm(self, rollout: Rollout, session: str) -> SessionArm:
        """Where a session is in a rollout; it is drawn where nobody knows it yet."""
        unit = unit_of(rollout.salt, session)
        key = (rollout.id, unit.id)
        if (known := self._arms.get(key)) is not None:
            self._arms.move_to_end(key)
            return known
        if (going := self._going.get(key)) is None:
            event = rollout.events[-1].number
            wanted = Assignment(rollout.id, unit.id, drawn(unit.bucket, rollout.shares), event, DRAWN, self._clock())
            going = self._going[key] = asyncio.ensure_future(self._found(key, wanted))
        # Requests of one session that come at once are told the same, also when the first of them hangs up.
        return await asyncio.shield(going)

    async def _found(self, key: tuple[str, str], wanted: Assignment) -> SessionArm:
        try:
            arm = self._arms[key] = await self._kept(wanted)
        finally:
            del self._going[key]
        if len(self._arms) > CACHED:
            self._arms.popitem(last=False)
        return arm

    async def _kept(self, wanted: Assignment) -> SessionArm:
        if monotonic() >= self._rests_until:
            try:
                kept = await self._written(wanted)
            except (StoreError, TimeoutError):
                self._failures += 1
                if self._failures >= _FAILURES:
                    self._failures, self._rests_until = 0, monotonic() + _REST_SECONDS
            else:
                self._failures = 0
                self._say()
                return SessionArm(kept.rollout_id, kept.unit, kept.arm, kept.event, kept.why == DRAWN)
        self.degraded += 1
        if len(self._unsaid) < CACHED:
            self._unsaid.append(wanted._replace(arm=PRODUCTION, why=DEGRADED))
        return SessionArm(wanted.rollout_id, wanted.unit, PRODUCTION, wanted.event, counts=False)

    async def _written(self, wanted: Assignment) -> Assignment:
        """
        Raises:
            StoreError: It is not written.
            TimeoutError: It was taken back before it was; or nobody knows, after long.
        """
        written = self._writer.put(wanted)
        kept = asyncio.wrap_future(written)
        try:
            return await asyncio.wait_for(asyncio.shield(kept), self._timeout)
        except TimeoutError:
            if written.cancel():
                raise
            # It is being written: whoever does not wait for what comes of it may serve the session two arms.
            return await asyncio.wait_for(kept, _LONGEST_SECONDS)

    def _say(self) -> None:
        """Tell the store, which answers again, who was served production meanwhile: they stay there, whoever asks."""
        said, self._unsaid = self._unsaid, []
        for each in said:
            self._writer.put(each)

    def close(self) -> None:
        if self._unsaid:
            self._say()
        self._writer.close()


# What is served.


@dataclass(frozen=True, slots=True)
class SlotState:
    """What is served in a slot."""

    production: Servable | None
    """`None` is nothing."""
    rollout: Rollout | None = None
    """While it puts sessions on different arms."""
    arms: Mapping[str, Servable | None] = field(default_factory=dict)
    """Of those arms that could be loaded, production among them."""

    def is_for(self, model: str) -> bool:
        """Whether any of its weights answers for a model: other requests are none of a rollout's."""
        served = (self.production, *self.arms.values())
        return any(isinstance(each, ServedModel) and each.answers_for(model) for each in served)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that decides, as of one moment."""

    slots: Mapping[Slot, SlotState] = field(default_factory=dict)
    unservable: Mapping[str, str] = field(default_factory=dict)
    """Candidates that cannot be served, and why."""
    version: tuple[int, ...] = ()
    """Of the store, when it was read."""

    def of(self, kind: SlotKind, labels: Mapping[str, str]) -> SlotState | None:
        """The most specific slot of a kind that anything was ever brought into."""
        if not self.slots:
            return None
        slot = most_specific(self.slots, kind, labels.get("agent"), labels.get("domain"))
        return None if slot is None else self.slots[slot]


_Found = Callable[..., Awaitable[Servable | None]]
"""What a kind of slot serves a request."""
_RELEASED = {"rollouts": "select 1 from rollouts limit 1", "slot_moves": "select 1 from slot_moves limit 1"}
AUTO = "auto"
"""The model that a client asks for who leaves it to a policy."""


class LiveContext:
    """Serves what is in production, and to the sessions of a rollout what their arm is served. Implements `Releases`."""

    def __init__(
        self,
        store_url: str,
        folder: Path,
        load: Callable[[Candidate, Mapping[str, ServedModel]], Servable],
        *,
        auto: str = AUTO,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """
        Args:
            folder: Where the last snapshot is kept, and brakes that are on.
            load: Makes of a candidate what serves it, as `CandidateLoader` does.
            auto: The model that a client asks for who leaves it to a policy.
        """
        self._url = as_url(store_url)
        self._folder = folder
        self._load, self._auto = load, auto
        self._poll_seconds = poll_seconds
        self._snapshot = Snapshot()
        self._known: dict[tuple[str, ServedModel | None], Servable] = {}
        self._store: RolloutStore | None = None
        self._assigner: Assigner | None = None
        self._brakes: dict[tuple[str, str], Brake] = {}
        self._on: dict[tuple[str, str], str] = self._kept_brakes()
        self._ended: set[tuple[str, str, bool]] = set()
        self._read_at: float | None = None
        self._fault = ""
        self._over = threading.Event()
        self._poll()
        if self._read_at is None:
            self._restore()
        self._thread = threading.Thread(target=self._watch, name="releases", daemon=True)
        self._thread.start()

    async def served(self, labels: Mapping[str, str], body: RequestBody, *, production: bool = False) -> ServedRelease:
        if not self._snapshot.slots:
            return ServedRelease()
        arms: list[SessionArm] = []

        async def found(kind: SlotKind, asked: str = "") -> Servable | None:
            state = self._snapshot.of(kind, labels)
            if state is None or (kind is SlotKind.WEIGHTS and not state.is_for(asked)):
                return None
            if state.rollout is None:
                return state.production
            where = await self._assigned().arm(state.rollout, session_of(labels, body))
            arms.append(where)
            arm = PRODUCTION if production else self._arm_served(where)
            return state.arms.get(arm, state.arms.get(PRODUCTION))

        target = None if body.model is None else await self._target(body.model, labels, body, found)
        playbook = await found(SlotKind.CONTEXT)
        context = await playbook.context(labels, body) if isinstance(playbook, FixedPlaybook) else None
        return ServedRelease(context, tuple(arms), target)

    async def _target(self, asked: str, labels: Mapping[str, str], body: RequestBody, found: _Found) -> ServedTarget | None:
        """Who answers: a policy says with which model, and weights may stand in for that."""
        target = None
        if asked == self._auto and isinstance(route := await found(SlotKind.ROUTE), ModelRoute):
            choice = await route.choose(session_of(labels, body), labels.get("domain"), body)
            model, url = address_of(choice.worker)
            target = ServedTarget(asked=asked, model=model, url=url, candidates=(route.candidate_id,), choice=choice)
        model = asked if target is None else target.model
        weights = await found(SlotKind.WEIGHTS, model)
        if not isinstance(weights, ServedModel) or not weights.answers_for(model):
            return target
        target = target or ServedTarget(asked=asked, model=model, candidates=())
        candidates = (*target.candidates, weights.candidate_id)
        return replace(target, model=weights.model, url=weights.url, candidates=candidates)

    def _arm_served(self, where: SessionArm) -> str:
        return PRODUCTION if (where.rollout_id, where.arm) in self._on else where.arm

    @property
    def has_rollouts(self) -> bool:
        """Whether sessions are on different arms somewhere."""
        return any(state.rollout is not None for state in self._snapshot.slots.values())

    def ended(self, where: SessionArm, *, failed: bool) -> None:
        """A request of a session is over. Of each session the first one counts, and the first that fails."""
        rollout = self._rollout(where.rollout_id)
        told = (where.rollout_id, where.unit, failed)
        if rollout is None or told in self._ended or (where.rollout_id, where.unit, True) in self._ended:
            return
        if len(self._ended) >= CACHED:
            self._ended.clear()
        self._ended.add(told)
        key = (where.rollout_id, where.arm)
        brake = self._brakes.setdefault(key, Brake(rollout.plan.brake))
        ill = self._brakes.get((where.rollout_id, PRODUCTION))
        if brake.add(failed=failed) and where.arm != PRODUCTION and key not in self._on and not (ill and ill.tripped):
            self._stop(rollout, where.arm, brake)

    def _stop(self, rollout: Rollout, arm: str, brake: Brake) -> None:
        """The brake is on: the arm is served production from now on in this process, and the story told when it can be."""
        most = f"{rollout.plan.brake.failures:.0%}"
        reason = f"the brake: more than {most} of the first {brake.sessions} sessions of {arm} failed at this gateway"
        self._on[rollout.id, arm] = reason
        _log.error("%s: %s", rollout.id, reason)
        try:
            with atomic_write(self._brake_file(rollout.id, arm)) as part:
                part.write_text(json.dumps({"rollout": rollout.id, "arm": arm, "reason": reason}))
        except InputError as error:
            _log.warning("the brake of %s will be forgotten when this process ends: %s", rollout.id, error)

    def state(self) -> Mapping[str, Any]:
        """For `/health`."""
        found = self._snapshot
        return {
            "slots": {
                str(slot): {
                    "production": BASE if state.production is None else state.production.candidate_id,
                    "rollout": None if state.rollout is None else state.rollout.id,
                    "shares": {} if state.rollout is None else dict(state.rollout.shares),
                }
                for slot, state in found.slots.items()
            },
            "unservable": dict(found.unservable),
            "brakes": {f"{id}/{arm}": reason for (id, arm), reason in self._on.items()},
            "seconds_since_read": None if self._read_at is None else round(monotonic() - self._read_at, 1),
            "degraded_sessions": 0 if self._assigner is None else self._assigner.degraded,
            "fault": self._fault,
        }

    def close(self) -> None:
        self._over.set()
        self._thread.join(10)
        if self._assigner is not None:
            self._assigner.close()
        if self._store is not None:
            self._store.close()

    # In the thread that reads.

    def _watch(self) -> None:
        while not self._over.wait(self._poll_seconds):
            self._poll()

    def _poll(self) -> None:
        try:
            if self._is_empty():
                self._read_at, self._fault = monotonic(), ""
                return
            store = self._opened()
            version = store.version()
            if version != self._snapshot.version:
                self._take(store.live(), version, store)
            if self._on:
                self._tell_brakes(store, store.live())
            self._read_at, self._fault = monotonic(), ""
        except (JourneymanError, OSError) as error:
            # What was read before goes on.
            self._fault = str(error)
        except Exception as error:  # noqa: BLE001 - the thread must go on
            self._fault = f"{type(error).__name__}: {error}"
            _log.exception("what is released could not be read")

    def _is_empty(self) -> bool:
        """Whether nothing was ever released here. A file is asked without what takes a quarter of the gateway's memory."""
        if self._store is not None or not self._url.startswith("sqlite:///"):
            return False
        path = Path(self._url.removeprefix("sqlite:///"))
        if not path.exists():
            return True
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1)) as database:
                tables = {name for (name,) in database.execute("select name from sqlite_master")}
                # Nothing can be released in a store of an earlier version yet.
                return not any(table in tables and database.execute(rows).fetchone() for table, rows in _RELEASED.items())
        except sqlite3.Error as error:
            raise StoreError(f"{path}: {error}") from error

    def _opened(self) -> "RolloutStore":
        if self._store is None:
            from journeyman.stores.rollouts import open_rollouts

            self._store = open_rollouts(self._url)
        return self._store

    def _assigned(self) -> Assigner:
        if self._assigner is None:
            from journeyman.stores.rollouts import open_rollouts

            self._assigner = Assigner(lambda: open_rollouts(self._url, patience=PATIENCE))
        return self._assigner

    def _take(self, live: LiveReleases, version: tuple[int, ...], store: "RolloutStore") -> None:
        candidates: dict[str, Candidate] = {}

        def candidate(id: str) -> Candidate:
            if id not in candidates:
                found = store.candidate(id)
                if found is None or found.id != id:
                    raise ReleaseError(f"{id} is not in the store as it was examined")
                candidates[id] = found
            return candidates[id]

        moves = {slot: move.arm for slot, move in live.production.items() if move.serves}
        made = self._made_of(moves, live.rollouts, version, candidate, live.models)
        if any(state.rollout is not None for state in made.slots.values()):
            self._assigned().warm()
        self._snapshot = made
        self._ended = {each for each in self._ended if self._rollout(each[0]) is not None}
        # Also of those that were loaded before: whoever starts without a store has nothing else.
        arms = [*moves.values(), *(arm for each in live.rollouts for arm in (*each.arms, each.baseline))]
        for arm in arms:
            if arm.candidate_id not in (BASE, *made.unservable):
                candidate(arm.candidate_id)
        told = {
            "production": {str(slot): [arm.candidate_id, arm.digest] for slot, arm in moves.items()},
            "rollouts": [each.as_json() for each in live.rollouts],
            "models": [each.as_json() for each in live.models.values()],
            "candidates": {id: [found.kind.value, found.body, list(found.parents)] for id, found in candidates.items()},
        }
        with atomic_write(self._file) as part:
            part.write_text(json.dumps(told))

    def _restore(self) -> None:
        """The last snapshot, where the store cannot be read at the start."""
        try:
            told = json.loads(self._file.read_text())
            kept = told["production"].items()
            moves = {Slot.parse(slot): Arm(name=PRODUCTION, candidate_id=id, digest=digest) for slot, (id, digest) in kept}
            rollouts = [Rollout.from_json(each) for each in told["rollouts"]]
            models = map(ServedModel.from_json, told["models"])
            candidates = {
                id: Candidate(kind=Kind(kind), body=body, parents=tuple(parents))
                for id, (kind, body, parents) in told["candidates"].items()
            }
            # Of no version: whatever the store says when it is back is newer.
            by_id = {each.candidate_id: each for each in models}
            self._snapshot = self._made_of(moves, rollouts, (), candidates.__getitem__, by_id)
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, JourneymanError) as error:
            _log.warning("%s cannot be read, so requests pass as they come until the store answers: %s", self._file, error)

    @property
    def _file(self) -> Path:
        # Of this store: another one has other releases.
        return self._folder / f"snapshot-{hashlib.sha256(self._url.encode()).hexdigest()[:12]}.json"

    def _made_of(
        self,
        moves: Mapping[Slot, Arm],
        rollouts: Sequence[Rollout],
        version: tuple[int, ...],
        candidate: Callable[[str], Candidate],
        models: Mapping[str, ServedModel],
    ) -> Snapshot:
        unservable: dict[str, str] = {}

        def loaded(arm: Arm) -> Servable | None:
            if arm.candidate_id == BASE:
                return None
            try:
                return self._loaded(arm, candidate, models)
            except (JourneymanError, KeyError) as error:
                unservable[arm.candidate_id] = str(error)
                _log.error("%s cannot be served: %s", arm.candidate_id, error)
                return None

        slots = {slot: SlotState(loaded(arm)) for slot, arm in moves.items()}
        for rollout in rollouts:
            if not rollout.is_drawing:
                continue
            arms = {arm.name: loaded(arm) for arm in rollout.arms if arm.name in rollout.going}
            served = {name: found for name, found in arms.items() if found is not None}
            production = loaded(rollout.baseline)
            before = slots.get(rollout.slot, SlotState(production))
            slots[rollout.slot] = replace(before, rollout=rollout, arms={**served, PRODUCTION: production})
        return Snapshot(slots, unservable, version)

    def _loaded(self, arm: Arm, candidate: Callable[[str], Candidate], models: Mapping[str, ServedModel]) -> Servable:
        # Where weights answer may change; what else a candidate is does not.
        key = arm.candidate_id, models.get(arm.candidate_id)
        if (known := self._known.get(key)) is not None:
            return known
        found = candidate(arm.candidate_id)
        if arm.digest and found.digest != arm.digest:
            raise ReleaseError(f"{arm.candidate_id} is not what the gate examined: its digest differs")
        self._known[key] = self._load(found, models)
        return self._known[key]

    def _rollout(self, rollout_id: str) -> Rollout | None:
        found = (state.rollout for state in self._snapshot.slots.values())
        return next((each for each in found if each is not None and each.id == rollout_id), None)

    # Brakes.

    def _brake_file(self, rollout_id: str, arm: str) -> Path:
        return self._folder / "brakes" / f"{rollout_id}.{arm}.json"

    def _kept_brakes(self) -> dict[tuple[str, str], str]:
        found = {}
        for path in sorted((self._folder / "brakes").glob("*.json")):
            try:
                told = json.loads(path.read_text())
                found[told["rollout"], told["arm"]] = told["reason"]
            except (OSError, ValueError, KeyError, TypeError):
                _log.warning("%s is no brake of this gateway", path)
        return found

    def _tell_brakes(self, store: "RolloutStore", live: LiveReleases) -> None:
        """Roll back what this gateway has stopped serving, where nobody has yet."""
        open_ones = {each.id: each for each in live.rollouts}
        for (id, arm), reason in list(self._on.items()):
            if (rollout := open_ones.get(id)) is None or not rollout.is_drawing or arm not in rollout.going:
                self._brake_file(id, arm).unlink(missing_ok=True)
                self._on.pop((id, arm), None)
                continue
            cause = Cause(reason=reason, actor="brake", at=datetime.now(UTC), evidence={"arm": arm})
            try:
                store.advance(rollout.without(arm, cause))
            except ReleaseError:
                # Somebody was faster; the next reading shows what it is now.
                continue


def session_of(labels: Mapping[str, str], body: RequestBody) -> str:
    """What a session is known by: its name, else how its conversation begins."""
    if session := labels.get("session"):
        return session_key(session)
    return f"beginning:{hashlib.blake2b(body.beginning, digest_size=16).hexdigest()}"


def session_key(session: str) -> str:
    """What a session with a name is drawn by."""
    return f"session:{session}"
