"""What the store's slots and rollouts mean for requests: read twice a second, and served from memory.

While the store is away, what was read last holds, also after a start: it stands in a file. What cannot be loaded is not
served; then a session gets what is in production, and where that is not known the request passes as it came.
"""

import asyncio
import hashlib
import json
import logging
import math
import random
import sqlite3
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from journeyman.agents.splice import RequestBody
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
    most_specific,
    unit_of,
)
from journeyman.core.rollout_decision import Brake, mirrored_out
from journeyman.io.atomic import atomic_write
from journeyman.serving.releases.artifacts import ModelRoute, Servable, address_of
from journeyman.serving.releases.assignment import CACHED, Assigner, Beginning, session_of
from journeyman.serving.releases.beside import CandidateSessions, GatewayName
from journeyman.serving.releases.context import FixedPlaybook, MirrorTarget, ServedRelease, ServedTarget, SessionArm
from journeyman.stores.urls import as_url

if TYPE_CHECKING:
    from journeyman.stores.base import Assignment
    from journeyman.stores.rollouts import RolloutStore

_log = logging.getLogger(__name__)
POLL_SECONDS = 0.5
PATIENCE = 0.1
"""Seconds after which a store that others have locked is tried anew: whoever waits longer looks ever more seldom."""
_SERVERS_PATIENCE = 0.5
"""The same of a server, where nobody locks all others out."""
FOLLOWED = 20_000
"""Sessions that a gateway knows when it starts."""
_START_SECONDS = 3.0
"""For which a start waits for the store."""
_AGAIN_SECONDS = 3.0
"""For which what was read is read again: of two who write at once, the first may end last."""
_PROMISE_SECONDS = 0.25
"""After which a gateway that shares a database alone promises anew that it serves nobody without asking."""
_BREATH_SECONDS = 0.03
"""After a call of other gateways, in which more of them come together."""


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
    shadows: Mapping[Slot, tuple[Rollout, Servable]] = field(default_factory=dict)
    """Rollouts whose requests are mirrored, and what the second request is served."""

    def shadow(self, labels: Mapping[str, str], model: str | None, auto: str) -> tuple[Rollout, Servable] | None:
        """The one that a request is of: of the slot that would serve it, and of the model that it asks for."""
        for slot, (rollout, found) in self.shadows.items():
            known = self.slots.keys() | self.shadows.keys()
            if most_specific(known, slot.kind, labels.get("agent"), labels.get("domain")) != slot:
                continue
            if isinstance(found, ServedModel) and not (model and found.answers_for(model)):
                continue
            if not isinstance(found, ModelRoute) or model == auto:
                return rollout, found
        return None

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
        kinds: Collection[SlotKind] = tuple(SlotKind),
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """
        Args:
            folder: Where the last snapshot is kept, and brakes that are on.
            load: Makes of a candidate what serves it, as `CandidateLoader` does.
            auto: The model that a client asks for who leaves it to a policy.
            kinds: Of slots that are served from; nothing is loaded for others.
        """
        self._url = as_url(store_url)
        self._folder = folder
        self._load, self._auto, self._kinds = load, auto, frozenset(kinds)
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
        self._chance, self._mirrored_out = random.Random(), set[str]()
        self._over, self._reading, self._tried = threading.Event(), threading.Lock(), threading.Event()
        self._making = threading.Lock()
        self._followed: dict[str, deque[tuple[float, int]]] = {}
        self._whole_at = -math.inf
        self._sessions = None if self._database else CandidateSessions(self._file.with_suffix(".sessions"))
        self._name: GatewayName | None = None
        self._thread = threading.Thread(target=self._watch, name="releases", daemon=True)
        self._thread.start()
        # A server that takes connections and does not answer holds up a reading, and nothing else.
        self._tried.wait(_START_SECONDS)
        self.is_known = self._read_at is not None or self._restored()
        """Whether it was known at the start what is served: the store could be read, or had been read before."""

    async def served(self, labels: Mapping[str, str], body: RequestBody, *, production: bool = False) -> ServedRelease:
        if not self._snapshot.slots and not self._snapshot.shadows:
            return ServedRelease()
        arms: list[SessionArm] = []

        async def found(kind: SlotKind, asked: str = "") -> Servable | None:
            serves, where = await self.serves(kind, labels, body, asked, production=production)
            arms.extend([where] if where is not None else ())
            return serves

        served = (await self._composed(labels, body, found))._replace(arms=tuple(arms))
        # Whom a candidate answers is compared with nobody.
        alone = not production and all(arm.arm == PRODUCTION for arm in arms)
        return served._replace(mirror=self._mirror(labels, body)) if alone and self._snapshot.shadows else served

    async def _composed(self, labels: Mapping[str, str], body: RequestBody, found: _Found) -> ServedRelease:
        """What is served, by what each kind of slot serves."""
        target = None if body.model is None else await self._target(body.model, labels, body, found)
        playbook = await found(SlotKind.CONTEXT)
        context = await playbook.context(labels, body) if isinstance(playbook, FixedPlaybook) else None
        return ServedRelease(context, (), target)

    def _mirror(self, labels: Mapping[str, str], body: RequestBody) -> MirrorTarget | None:
        """Whether a request is asked a second time, and of whom."""
        shadow = self._snapshot.shadow(labels, body.model, self._auto)
        if shadow is None or body.has_effects or shadow[0].id in self._mirrored_out:
            return None
        rollout, candidate = shadow
        if self._chance.random() >= rollout.plan.shadow_share:
            return None

        async def found(kind: SlotKind, asked: str = "") -> Servable | None:
            return candidate if kind is rollout.slot.kind else self.production(kind, labels)

        unit = unit_of(rollout.salt, session_of(labels, body)).id
        serve = partial(self._composed, labels, body, found)
        return MirrorTarget(
            rollout.id, rollout.arms[0].name, unit, serve, lambda asked: asyncio.to_thread(self._may_go, rollout, asked)
        )

    def _may_go(self, rollout: Rollout, asked: set[str]) -> bool:
        """As `MirrorTarget.may_go`."""
        try:
            asked.difference_update(self._opened().mirrored_of(rollout.id, asked))
            if mirrored_out(rollout.plan, self._opened().mirrored(rollout.id)):
                self._mirrored_out.add(rollout.id)
        except JourneymanError:
            # What was spent is not known.
            return False
        going = {each.id for each, _ in self._snapshot.shadows.values()}
        return rollout.id in going - self._mirrored_out and len(asked) <= 1

    async def _target(self, asked: str, labels: Mapping[str, str], body: RequestBody, found: _Found) -> ServedTarget | None:
        """Who answers: a policy says with which model, and weights may stand in for that."""
        target = None
        if asked == self._auto and isinstance(route := await found(SlotKind.ROUTE), ModelRoute):
            choice = await route.choose(session_of(labels, body), labels.get("domain"), body)
            model, url = address_of(choice.worker)
            target = ServedTarget(
                asked=asked, model=model, url=url, candidates=(route.candidate_id,), choice=choice, is_chosen=True
            )
        model = asked if target is None else target.model
        weights = await found(SlotKind.WEIGHTS, model)
        if not isinstance(weights, ServedModel) or not weights.answers_for(model):
            return target
        target = target or ServedTarget(asked=asked, model=model, candidates=())
        candidates = (*target.candidates, weights.candidate_id)
        return replace(target, model=weights.model, url=weights.url, candidates=candidates, is_chosen=False)

    async def serves(
        self, kind: SlotKind, labels: Mapping[str, str], body: Beginning, asked: str = "", *, production: bool = False
    ) -> tuple[Servable | None, SessionArm | None]:
        """What a kind of slot serves a session, and on which arm that is: the one rule, for gateways and in an agent's process.

        Args:
            asked: The model, where weights may stand in for it.
            production: As `served` takes it.
        """
        state = self._snapshot.of(kind, labels)
        if state is None or (kind is SlotKind.WEIGHTS and not state.is_for(asked)):
            return None, None
        if state.rollout is None:
            return state.production, None
        where = await self._assigned().arm(state.rollout, session_of(labels, body))
        arm = PRODUCTION if production else self._arm_served(where)
        return state.arms.get(arm, state.arms.get(PRODUCTION)), where

    def production(self, kind: SlotKind, labels: Mapping[str, str]) -> Servable | None:
        """What is in production for such requests; `None` is nothing."""
        state = self._snapshot.of(kind, labels)
        return None if state is None else state.production

    def _arm_served(self, where: SessionArm) -> str:
        return PRODUCTION if (where.rollout_id, where.arm) in self._on else where.arm

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
            "mirrored": {str(slot): rollout.id for slot, (rollout, _) in found.shadows.items()},
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
        if self._name is not None:
            self._name.close()
        if self._store is not None:
            self._store.close()

    def refresh(self) -> None:
        """Read what is released now, and serve it."""
        with self._reading:
            self._poll()

    # In the thread that reads, or that wants it read.

    def _watch(self) -> None:
        self.refresh()
        self._tried.set()
        while not self._over.is_set():
            self._rest()
            if not self._over.is_set():
                self.refresh()

    def _rest(self) -> None:
        """Until all is to be read anew. Whom gateways elsewhere put on arms meanwhile is known at once."""
        until = monotonic() + self._poll_seconds
        while (left := until - monotonic()) > 0 and not self._over.is_set():
            store = self._store
            if store is None or store.in_order or self._fault or not self._followed:
                self._over.wait(left)
                continue
            try:
                store.listen(min(left, _PROMISE_SECONDS))
                with self._reading:
                    self._follow(store, self._snapshot.slots, whole=monotonic() > self._whole_at + _PROMISE_SECONDS)
            except Exception as error:  # noqa: BLE001 - the thread must go on
                # What it is shows at the next reading.
                self._fault = str(error)
            self._over.wait(_BREATH_SECONDS)

    def _poll(self) -> None:
        try:
            if self._is_empty():
                self._read_at, self._fault = monotonic(), ""
                return
            store = self._opened()
            version = store.version()
            if version != self._snapshot.version:
                self._take(store.live(), version, store)
            for rollout, _ in self._snapshot.shadows.values():
                self._may_go(rollout, set())
            self._follow(store, self._snapshot.slots)
            if self._on:
                self._tell_brakes(store, store.live())
            self._read_at, self._fault = monotonic(), ""
        except (JourneymanError, OSError) as error:
            # What was read before goes on.
            self._fault = str(error)
        except Exception as error:  # noqa: BLE001 - the thread must go on
            self._fault = f"{type(error).__name__}: {error}"
            _log.exception("what is released could not be read")

    def _follow(self, store: "RolloutStore", slots: Mapping[Slot, SlotState], *, whole: bool = True) -> None:
        """Hear of the sessions that other gateways have put on arms; with all that is known then, promise them something.

        Args:
            whole: Also of those that were written before others, and came after them.
        """
        ids = [state.rollout.id for state in slots.values() if state.rollout is not None]
        self._followed = {id: self._followed.get(id) or deque() for id in ids}
        now, read_at = (store.clock() if ids and whole and not store.in_order else 0), monotonic()
        for id, marks in self._followed.items():
            while len(marks) > 1 and marks[1][0] < read_at - _AGAIN_SECONDS:
                marks.popleft()
            found = self._new_ones(store, id, marks[0 if whole and not store.in_order else -1][1] if marks else None)
            if self._sessions is not None:
                seen = marks[-1][1] if marks else 0
                self._sessions.add(id, (each for each in found if each.seq > seen), anew=not marks)
            self._assigned().follow(found)
            marks.append((read_at, max((each.seq for each in found), default=marks[-1][1] if marks else 0)))
        if now:
            self._whole_at = read_at
            self._assigned().promise(store, now, read_at)

    def _new_ones(self, store: "RolloutStore", id: str, after: int | None) -> "Sequence[Assignment]":
        if after is None:
            return store.assignments(id, limit=FOLLOWED, newest=True)
        found: list[Assignment] = []
        while more := store.assignments(id, after=found[-1].seq if found else after, limit=FOLLOWED):
            found += more
            if len(more) < FOLLOWED:
                break
        return found

    def _is_empty(self) -> bool:
        """Whether nothing was ever released here. A file is asked without what takes a quarter of the gateway's memory."""
        path = self._database
        if self._store is not None or path is None:
            return False
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
        # The thread that reads may want it at the same moment, and of two one would go on to promise nothing.
        with self._making:
            if self._assigner is None:
                self._assigner = self._made_assigner()
            return self._assigner

    def _made_assigner(self) -> Assigner:
        from journeyman.stores.rollouts import open_rollouts

        if self._database is not None:
            # All gateways on a file are on its machine, and share what stands beside it.
            opened = partial(open_rollouts, self._url, patience=PATIENCE)
            return Assigner(opened, kept=Path(f"{self._database}-degraded"))
        self._name = GatewayName(self._file.with_suffix(".gateway"))
        opened = partial(open_rollouts, self._url, patience=_SERVERS_PATIENCE)
        return Assigner(opened, kept=self._file.with_suffix(".degraded"), name=self._name.name)

    @property
    def _database(self) -> Path | None:
        """The file of SQLite that the store is."""
        return Path(self._url.removeprefix("sqlite:///")) if self._url.startswith("sqlite:///") else None

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
            # Nobody is served from it before it is promised how.
            self._follow(store, made.slots)
        if self._sessions is not None:
            self._sessions.forget_all_but([each.id for each in live.rollouts])
        self._snapshot = made
        self._ended = {each for each in self._ended.copy() if self._rollout(each[0]) is not None}
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

    def _restored(self) -> bool:
        """The last snapshot, where the store cannot be read at the start; whether there was one."""
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
            if self._sessions is not None:
                for each in rollouts:
                    self._assigned().follow(self._sessions.of(each.id))
        except FileNotFoundError:
            return False
        except (OSError, ValueError, KeyError, TypeError, JourneymanError) as error:
            _log.warning("%s cannot be read, so requests pass as they come until the store answers: %s", self._file, error)
            return False
        return True

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

        slots = {slot: SlotState(loaded(arm)) for slot, arm in moves.items() if slot.kind in self._kinds}
        shadows: dict[Slot, tuple[Rollout, Servable]] = {}
        for rollout in rollouts:
            if rollout.is_mirroring and rollout.slot.kind in self._kinds and (found := loaded(rollout.arms[0])) is not None:
                shadows[rollout.slot] = rollout, found
            if not rollout.is_drawing or rollout.slot.kind not in self._kinds:
                continue
            arms = {arm.name: loaded(arm) for arm in rollout.arms if arm.name in rollout.going}
            served = {name: found for name, found in arms.items() if found is not None}
            production = loaded(rollout.baseline)
            before = slots.get(rollout.slot, SlotState(production))
            slots[rollout.slot] = replace(before, rollout=rollout, arms={**served, PRODUCTION: production})
        # What somebody resumes is looked at anew.
        self._mirrored_out.clear()
        return Snapshot(slots, unservable, version, shadows)

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
