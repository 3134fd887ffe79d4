"""Learning that never stops: looks what is due, carries it out as a command of its own, and writes down what became of it.

A turn is what a person would type: the command of its kind, and what passed the gate is begun as a rollout. Each runs as a
process of its own, which ends with this one. What a turn may spend by the next word of it is written down before that is spent,
so that one that is killed at any moment has not spent more than its journal says.

    learn/daemon.json       what is done now, for who asks while the store is away
    learn/turns/ID/…        what the commands of a turn said
"""

import logging
import os
import shlex
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import count
from math import inf, isinf
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol

from journeyman.core.errors import InputError, ReleaseError, StoreError
from journeyman.core.rollout import LiveReleases, Rollout, RolloutState, Slot, SlotKind
from journeyman.core.turn import (
    GOES_ON,
    MONTH,
    Allowance,
    LearnExperience,
    LearnRules,
    LearnSubject,
    LearnTurn,
    Situation,
    TurnEvent,
    TurnPlan,
    TurnSpent,
    TurnState,
    allowance,
    plan,
)
from journeyman.experiments import wiring
from journeyman.experiments.pipeline.runner import PROGRAM, StageProcess
from journeyman.experiments.pipeline.stages import PipelineStage, cost_of, verdict_of
from journeyman.experiments.settings import LEARN_BUDGET, LearnSettings, duration, hours
from journeyman.io.atomic import atomic_write, write_json
from journeyman.io.files import read_object
from journeyman.io.processes import is_gone, this_process
from journeyman.io.retry import RetryPolicy
from journeyman.stores.alerts import AlertStore, open_alerts
from journeyman.stores.artifacts import Artifacts
from journeyman.stores.rollouts import RolloutStore, open_rollouts
from journeyman.stores.turns import LEASE, TurnStore, open_turns

log = logging.getLogger(__name__)

FOLDER = "learn"
BY_SLOT = ("playbook",)
"""Kinds that learn for each agent and domain by itself."""
SLOTS: Mapping[str, SlotKind] = {"playbook": SlotKind.CONTEXT, "weights": SlotKind.WEIGHTS, "router": SlotKind.ROUTE}
"""Where what a kind learns would be served; what others learn is kept."""
_SLICE = 30.0
"""Seconds of CPU that are written down ahead."""
_RESERVE = 2.0
"""Seconds of CPU before a bound at which a command is told to stop; it is killed at half of that."""
_AWAY = RetryPolicy(first_wait=1.0, longest_wait=60.0)
_LOOKS_OF_A_TURN = 1


class LearnClock(Protocol):
    """Tells the time, and lets it pass."""

    def now(self) -> datetime: ...

    def wait(self, seconds: float, over: threading.Event) -> None:
        """Until so much time has passed, or `over` is set."""


class RealClock:
    """The system's. Implements `LearnClock`."""

    def now(self) -> datetime:
        return wiring.now()

    def wait(self, seconds: float, over: threading.Event) -> None:
        over.wait(seconds)


def rules_of(settings: LearnSettings) -> LearnRules:
    """When turns are due, as a file says it."""
    whole = {**LEARN_BUDGET, **settings.budget}
    if "cost_per_turn" not in settings.budget:
        # A day without a bound has turns without one: models of one's own have no price that is known.
        whole["cost_per_turn"] = inf if isinf(whole["cost_per_day"]) else min(whole["cost_per_turn"], whole["cost_per_day"])
    said = {name: None if isinf(value) else value for name, value in whole.items()}
    looks = said.pop("looks_per_month")
    return LearnRules(
        every=duration(settings.every),
        min_new=settings.min_new,
        at=hours(settings.at),
        alerts=settings.alerts,
        looks_per_month=None if looks is None else int(looks),
        **said,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig:
    """What learns where, and by which commands."""

    url: str
    """Of the store."""
    root: Path
    """Of the project: commands run there, and paths begin there."""
    folder: Path
    artifacts: Path
    settings: LearnSettings
    commands: Mapping[str, PipelineStage]
    """By kind."""
    program: Sequence[str] = PROGRAM
    every: float = 5.0
    """Seconds between two looks at what is due."""
    lease_seconds: float = 30.0
    """For which the lease holds that is renewed again and again: after so long another one goes on."""
    holder: str = field(default_factory=lambda: f"{socket.gethostname()}/{os.getpid()}")

    @property
    def rules(self) -> LearnRules:
        return rules_of(self.settings)


class Looked(NamedTuple):
    """What one look found."""

    plans: Sequence[TurnPlan] = ()
    left: Allowance = Allowance()
    turn: LearnTurn | None = None
    """That was carried out."""
    elsewhere: str = ""
    """Who else carries out turns."""
    paused: str = ""


class TurnOutcome(NamedTuple):
    """What the command of a turn came to."""

    state: TurnState
    reason: str
    candidate: str = ""
    examined: bool = False


class LearnStores(NamedTuple):
    """What a store knows that decides what is due."""

    turns: TurnStore
    rollouts: RolloutStore
    alerts: AlertStore


@contextmanager
def opened(url: str, *, make: bool = True) -> Iterator[LearnStores]:
    """
    Raises:
        StoreError: It does not answer.
    """
    with open_turns(url, make=make) as turns, open_rollouts(url, make=make) as rollouts, open_alerts(url, make=make) as alerts:
        yield LearnStores(turns, rollouts, alerts)


class LearnDaemon:
    """Carries out turns. However many run on one store, one at a time does."""

    def __init__(
        self, config: LearnerConfig, *, clock: LearnClock | None = None, said: Callable[[str], None] = log.info
    ) -> None:
        self.config, self._clock, self._said = config, clock or RealClock(), said
        self._artifacts = Artifacts(config.artifacts)
        self._known: dict[str, str] = {}

    # Looking.

    def situation(self, stores: LearnStores) -> Situation:
        """All that decides what is due."""
        now, live = self._clock.now(), stores.rollouts.live()
        found = self._subjects(stores.turns)
        return Situation(
            now=now,
            experience=found,
            turns=stores.turns.turns(since=now - MONTH),
            firing={each.rule: each.fired_at or each.at for each in stores.alerts.firing()},
            occupied={each: said for each in found if (said := _occupied(each, live))},
        )

    def _subjects(self, store: TurnStore) -> dict[LearnSubject, LearnExperience]:
        slots = store.experience()
        kinds = self.config.settings.kinds
        found = {
            LearnSubject(kind, agent or "", domain): experience
            for kind in kinds
            if kind in BY_SLOT
            for (agent, domain), experience in slots.items()
        }
        digests = " ".join(sorted(each.digest for each in slots.values()))
        everything = LearnExperience(sum(each.seen for each in slots.values()), sha256(digests.encode()).hexdigest())
        return found | {LearnSubject(kind): everything for kind in kinds if kind not in BY_SLOT}

    def planned(self, stores: LearnStores) -> Looked:
        """What would be carried out now; nothing is."""
        found = self.situation(stores)
        return Looked(plan(found, self.config.rules), allowance(found.turns, found.now, self.config.rules))

    def look(self, stores: LearnStores, over: threading.Event) -> Looked:
        """Carry out what is most due, where anything is.

        Raises:
            StoreError: The store does not answer.
        """
        now, holder = self._clock.now(), self.config.holder
        if stores.turns.lease(LEASE, holder, now, self.config.lease_seconds) is None:
            return Looked(elsewhere=stores.turns.held_by(LEASE, now) or "somebody else")
        self._bury(stores)
        order = stores.turns.last_order("pause", "resume")
        if order is not None and order.verb == "pause":
            why = f": {order.reason}" if order.reason else ""
            return Looked(paused=f"paused by {order.who} at {order.at:%Y-%m-%d %H:%M} UTC{why}")
        found = self.situation(stores)
        plans, left, turn = plan(found, self.config.rules), allowance(found.turns, now, self.config.rules), None
        if plans and plans[0].is_due and not over.is_set():
            self._tell("at work", f"{plans[0].subject}: {plans[0].trigger}")
            turn = self._carried_out(_TurnAtWork(self.config, self._clock, stores, over), plans[0], found.turns, left)
        return Looked(plans, left, turn)

    def _carried_out(self, work: "_TurnAtWork", due: TurnPlan, turns: Sequence[LearnTurn], left: Allowance) -> LearnTurn | None:
        try:
            return work.carried_out(due, turns, left)
        except ReleaseError as error:
            # Whoever has the lease now says what became of it.
            self._said(str(error))
            return None

    def _bury(self, stores: LearnStores) -> None:
        """Turns that have not ended: whoever carried them out had the lease that is ours now, so they are gone."""
        for turn in stores.turns.turns(since=self._clock.now()):
            if turn.is_over:
                continue
            now, told = self._clock.now(), f"whoever carried it out is gone ({turn.before.get('holder') or 'unknown'})"
            if (rollout := rollout_of(turn, stores.rollouts)) is not None:
                # All was done but to say so.
                report = {"release": {"rollout": rollout.told()}}
                reason = f"the rollout {rollout.id} begins; {told}"
                more = {"candidate": rollout.arms[0].candidate_id, "report": report, "reason": reason}
                ended = turn.then(TurnState.LEARNED, now, spent=turn.last.spent, **more)
            else:
                restore(self.config.root, self._artifacts, turn)
                ended = turn.then(TurnState.LOST, now, spent=turn.last.spent, reason=told)
            stores.turns.keep(ended, self.config.holder)
            self._said(f"{turn.id} ({turn.subject}): {ended.state}: {ended.last.reason}")

    # Until told to stop.

    def run(self, over: threading.Event) -> None:
        """Look and carry out until told to stop. A store that is away is waited for."""
        began, away = self._clock.now(), 0
        while not over.is_set():
            try:
                with opened(self.config.url) as stores:
                    away = 0
                    self._looking(stores, over, began)
                    with suppress(StoreError):
                        stores.turns.give_back(LEASE, self.config.holder, self._clock.now())
            except StoreError as error:
                away += 1
                wait = _AWAY.backoff(away, Random(away))
                self._tell("waiting", f"the store is away ({error}); asked again in {wait:.0f} s")
                self._clock.wait(wait, over)
        self._tell("stopped", "told to stop")

    def _looking(self, stores: LearnStores, over: threading.Event, began: datetime) -> None:
        while not over.is_set():
            found = self.look(stores, over)
            if found.elsewhere:
                self._tell("waiting", f"{found.elsewhere} carries out turns; this one goes on when that ends")
            elif found.paused:
                self._tell("paused", found.paused)
            elif found.turn is not None:
                self._said(f"{found.turn.id} ({found.turn.subject}): {found.turn.state}: {found.turn.last.reason}")
            else:
                self._tell(
                    "looking", next((f"{each.subject}: {each.why_not}" for each in found.plans), "there is no experience yet")
                )
            if (order := stores.turns.last_order("stop")) is not None and order.at > began:
                self._said(f"{order.who} says stop")
                over.set()
            elif found.turn is None:
                self._clock.wait(self.config.every, over)

    def _tell(self, state: str, says: str) -> None:
        """Keep what is done now, where it is another thing than before."""
        if self._known.get("said") != f"{state}{says}":
            if self._known.get("state") != state:
                self._said(f"{state}: {says}")
            self._known = {"said": f"{state}{says}", "state": state}
            tell_state(self.config.folder, DaemonState(state=state, says=says, at=self._clock.now().isoformat()))


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonState:
    """What the one who learns in a project did last, by its own word."""

    state: str
    """looking, at work, waiting, paused or stopped; `gone` where its process is over without a word."""
    says: str
    at: str
    process: Mapping[str, Any] = field(default_factory=this_process)

    @classmethod
    def read(cls, folder: Path) -> "DaemonState | None":
        path = folder / FOLDER / "daemon.json"
        if not path.is_file():
            return None
        found = cls(**read_object(path))
        return replace(found, state="gone") if found.state != "stopped" and is_gone(found.process) else found


def tell_state(folder: Path, state: DaemonState) -> None:
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    told = {name: getattr(state, name) for name in ("state", "says", "at", "process")}
    write_json(folder / FOLDER / "daemon.json", told)


def _occupied(subject: LearnSubject, live: LiveReleases) -> str:
    slot = slot_of(subject)
    found = next((each for each in live.rollouts if slot is not None and each.slot == slot), None)
    return "" if found is None else f"the rollout {found.id} is open there ({found.state.replace('_', ' ')})"


def slot_of(subject: LearnSubject) -> Slot | None:
    """Where what a subject learns would be served; `None` where it is not served."""
    if subject.kind not in SLOTS:
        return None
    try:
        return Slot(SLOTS[subject.kind], subject.agent or "*", subject.domain or "*")
    except InputError:
        # An agent with a slash in its name has no slot of its own.
        return None


# One turn.


class _TurnAtWork:
    """One turn: its commands, what they spend, and its journal."""

    def __init__(self, config: LearnerConfig, clock: LearnClock, stores: LearnStores, over: threading.Event) -> None:
        self.config, self.clock, self.over = config, clock, over
        self.store, self.rollouts = stores.turns, stores.rollouts
        self.artifacts = Artifacts(config.artifacts)
        self.spent = 0.0
        """Seconds of CPU of commands that have ended."""
        self.lost = False
        """Whether the lease could not be renewed."""

    def carried_out(self, due: TurnPlan, turns: Sequence[LearnTurn], left: Allowance) -> LearnTurn:
        """
        Raises:
            ReleaseError: The lease was lost meanwhile.
            StoreError: The store does not answer.
        """
        self.left, self.renewed = left, self.clock.now()
        self._without_what_was_rolled_back(due.subject, turns)
        self._begin(due, self._command(due, turns))
        outcome, result = self._learned()
        report: dict[str, Any] = {"learned": result}
        if outcome.state is TurnState.LEARNED:
            outcome, report["release"] = self._released(outcome, turns, result)
        if outcome.state is not TurnState.LEARNED:
            restore(self.config.root, self.artifacts, self.turn)
        spent = TurnSpent(cost=self._cost(result), cpu_seconds=round(self.spent, 2), looks=self._looks(outcome))
        told = {"candidate": outcome.candidate, "reason": outcome.reason, "report": report}
        ended = self.turn.then(outcome.state, self.clock.now(), spent=spent, **told)
        self._keep_end(ended)
        return ended

    def _begin(self, due: TurnPlan, command: Sequence[str]) -> None:
        now, subject = self.clock.now(), due.subject
        self.turn = LearnTurn(
            id=f"{subject.kind}-{now:%Y%m%d-%H%M%S-%f}",
            subject=subject,
            began=now,
            trigger=due.trigger,
            data_digest=due.experience.digest,
            seen=due.experience.seen,
            parent=due.parent,
            before={"command": list(command), "files": self._kept_files(subject), "holder": self.config.holder},
            events=(TurnEvent(number=0, state=TurnState.RUNNING, at=now, spent=self._ahead(0.0)),),
        )
        self.place = self.config.folder / FOLDER / "turns" / self.turn.id
        self.store.begin(self.turn, self.config.holder)

    def _keep_end(self, ended: LearnTurn) -> None:
        """While the lease holds, a store that is away is waited for: else what was done would count as lost."""
        for tries in count(1):
            try:
                self.store.keep(ended, self.config.holder)
                return
            except StoreError:
                if self.clock.now() - self.renewed > timedelta(seconds=self.config.lease_seconds):
                    raise
                self.clock.wait(_AWAY.backoff(tries, Random(tries)), self.over)

    def _without_what_was_rolled_back(self, subject: LearnSubject, turns: Sequence[LearnTurn]) -> None:
        """Begin before the last turn whose candidate live traffic has refused: what was rolled back is not gone on with."""
        learned = [turn for turn in turns if turn.subject == subject and turn.state is TurnState.LEARNED]
        rollout = rollout_of(learned[-1], self.rollouts) if learned else None
        if rollout is not None and rollout.state is RolloutState.ROLLED_BACK:
            restore(self.config.root, self.artifacts, learned[-1])

    def _command(self, due: TurnPlan, turns: Sequence[LearnTurn]) -> tuple[str, ...]:
        stage, subject = self.config.commands[due.subject.kind], due.subject
        command = (*stage.command, *stage.arguments)
        if subject.kind in BY_SLOT:
            command += ("--agent", subject.agent) if subject.agent else ()
            # Whoever runs it again later has the same traces before them.
            command += ("--domain", subject.domain, "--until", self.clock.now().isoformat())
        parent = next((turn for turn in turns if turn.id == due.parent), None)
        run = _run_of(parent) if parent is not None and stage.resumes else ""
        if run:
            command = (*stage.command, "--resume", run)
        if stage.bounded and self.left.cost_of_turn is not None:
            command += ("--max-cost", f"{self.left.cost_of_turn:g}")
        return command

    def _kept_files(self, subject: LearnSubject) -> dict[str, str | None]:
        """Files that the command goes on with, by the digests under which they are kept."""
        found: dict[str, str | None] = {}
        for name in _files_of(subject):
            path = self.config.root / name
            found[name] = self.artifacts.put_file(path) if path.is_file() else None
        return found

    # Spending.

    def _ahead(self, used: float) -> TurnSpent:
        """What may be spent by the next word."""
        bound = self.left.cpu_seconds
        cpu = used + _SLICE if bound is None else max(self.spent, min(used + _SLICE, bound))
        return TurnSpent(cost=self.left.cost_of_turn, cpu_seconds=round(cpu, 2), looks=_LOOKS_OF_A_TURN)

    def _cost(self, result: Mapping[str, Any]) -> float | None:
        """What it said that it cost; what it was allowed where it does not say so."""
        told = cost_of(result)
        return self.left.cost_of_turn if told is None else told

    def _looks(self, outcome: TurnOutcome) -> int:
        try:
            counted = self.store.looks_at([outcome.candidate], self.turn.began) if outcome.candidate else 0
        except StoreError:
            counted = _LOOKS_OF_A_TURN
        return max(counted, int(outcome.examined))

    def _over(self, process: StageProcess) -> str:
        """Why a command is to stop; renews the lease, and writes ahead what it may use."""
        used, now = self.spent + process.cpu_seconds, self.clock.now()
        with suppress(StoreError):
            if now - self.renewed > timedelta(seconds=self.config.lease_seconds / 3):
                self._renew(now)
            ahead = self._ahead(used)
            if used > self._written - 2 * _RESERVE and ahead.cpu_seconds > self._written:
                further = self.turn.then(TurnState.RUNNING, now, spent=ahead)
                self.store.keep(further, self.config.holder)
                self.turn = further
        if self.lost or now - self.renewed > timedelta(seconds=self.config.lease_seconds * 0.8):
            return "the lease could not be renewed"
        if self.left.cpu_seconds is not None and used > self.left.cpu_seconds - _RESERVE:
            return f"the budget of CPU of these 24 hours was spent after {used:.0f} s of it"
        if used > self._written - _RESERVE:
            return "the store was away, and what is not written down first is not spent"
        return "told to stop" if self.over.is_set() else ""

    @property
    def _written(self) -> float:
        """Seconds of CPU that are written down ahead."""
        return self.turn.last.spent.cpu_seconds

    def _renew(self, now: datetime) -> None:
        if self.store.lease(LEASE, self.config.holder, now, self.config.lease_seconds) is None:
            self.lost = True
        else:
            self.renewed = now
        if (order := self.store.last_order("stop")) is not None and order.at > self.turn.began:
            self.over.set()

    def _ran(self, name: str, command: Sequence[str]) -> tuple[int, str, StageProcess]:
        environment = {"JOURNEYMAN_STORE": self.config.url, "JOURNEYMAN_USER": "journeyman learn"}
        how: dict[str, Any] = {"settings": environment, "program": self.config.program, "folder": self.config.root}
        process = StageProcess(command, self.place / name, **how)
        code, reason = process.wait(
            lambda _: self._over(process),
            spare=lambda: self.spent + process.cpu_seconds < self._written - _RESERVE / 2,
        )
        self.spent += process.cpu_seconds
        return code, reason, process

    # What it comes to.

    def _learned(self) -> tuple[TurnOutcome, Mapping[str, Any]]:
        stage = self.config.commands[self.turn.subject.kind]
        code, reason, process = self._ran("learn", self.turn.before["command"])
        result = process.result()
        if reason:
            return TurnOutcome(TurnState.STOPPED, reason, examined=True), result
        if code not in {0, 1, *stage.accepts}:
            return TurnOutcome(TurnState.FAILED, process.last_line() or f"it ended with {code}", examined=True), result
        return outcome_of(self.turn.subject, result), result

    def _released(
        self, outcome: TurnOutcome, turns: Sequence[LearnTurn], learned: Mapping[str, Any]
    ) -> tuple[TurnOutcome, Mapping[str, Any]]:
        """Bring it to live traffic, as far as that is wanted and allowed."""
        slot = slot_of(self.turn.subject)
        undone = [turn for turn in turns if turn.state is TurnState.UNDONE and turn.outcome.candidate == outcome.candidate]
        if undone:
            reason = f"the same was undone on {undone[-1].last.at:%Y-%m-%d} ({undone[-1].last.reason}), and stays so"
            return outcome._replace(state=TurnState.REFUSED, reason=reason), {}
        if self.config.settings.release == "shadow" or slot is None:
            return outcome._replace(reason=f"{outcome.reason}; it is kept, and served to nobody"), {}
        if self.rollouts.live().baseline(slot).candidate_id == outcome.candidate:
            return outcome._replace(state=TurnState.NOTHING, reason="what was learned is in production already"), {}
        if why := self._deployed(outcome, str(learned.get("run_id") or "")):
            return outcome._replace(reason=f"{outcome.reason}; no rollout was begun: {why}"), {}
        plan_file = ("--plan", self.config.settings.plan) if self.config.settings.plan else ()
        where = ("--agent", slot.agent, "--domain", slot.domain)
        told = f"{_begins(self.turn)}{outcome.reason}"
        command = ("releases", "start", outcome.candidate, *where, *plan_file, "--reason", told)
        code, reason, process = self._ran("release", command)
        result = process.result()
        if reason or code:
            why = reason or str(result.get("reason") or process.last_line() or f"it ended with {code}")
            return outcome._replace(reason=f"{outcome.reason}; no rollout was begun: {why}"), result
        return outcome._replace(reason=f"{outcome.reason}; the rollout {result['rollout']['id']} begins"), result

    def _deployed(self, outcome: TurnOutcome, run: str) -> str:
        """Why weights that are to be served do not answer; empty where they do, or where nobody asked for it."""
        if self.turn.subject.kind != "weights" or not (said := self.config.settings.deploy):
            return ""
        words = [run if word == "{run}" else word for word in shlex.split(said)]
        code, reason, process = self._ran("deploy", words)
        if reason or code:
            return reason or process.last_line() or f"the deployment ended with {code}"
        served = process.result().get("served", {}).get("candidate_id")
        return "" if served == outcome.candidate else f"other weights were deployed ({served})"


def outcome_of(subject: LearnSubject, result: Mapping[str, Any]) -> TurnOutcome:
    """What the answer of a command means."""
    slots = result.get("slots")
    if isinstance(slots, list):
        ours = [each for each in slots if (each["agent"] or "", each["domain"]) == (subject.agent, subject.domain)]
        if not ours:
            return TurnOutcome(TurnState.NOTHING, "nothing was learned for it")
        said = ours[0]
        examined, candidate = said.get("examination") is not None, str(said.get("candidate") or "")
        if said["verdict"] == "checked" and candidate:
            return TurnOutcome(TurnState.LEARNED, str(said["reason"]), candidate, examined)
        state = TurnState.NOTHING if said["verdict"] == "unexamined" else TurnState.REFUSED
        return TurnOutcome(state, str(said["reason"]), candidate if state is TurnState.REFUSED else "", examined)
    said = verdict_of(result)
    candidate = str(
        next((result[name] for name in ("candidate", "candidate_id", "policy") if isinstance(result.get(name), str)), "")
    )
    if "passed" not in said:
        return TurnOutcome(TurnState.NOTHING, str(said.get("reason") or "it says of nothing that it passed"), candidate)
    state = TurnState.LEARNED if said["passed"] else TurnState.REFUSED
    return TurnOutcome(state, str(said.get("reason") or "it does not say why"), candidate, True)


def _begins(turn: LearnTurn) -> str:
    """How the reason of a rollout begins that a turn began: by that it is known also where nobody could say so."""
    return f"turn {turn.id}: "


def rollout_of(turn: LearnTurn, rollouts: RolloutStore) -> Rollout | None:
    """The rollout that a turn began; `None` where it began none."""
    slot = slot_of(turn.subject)
    found = rollouts.rollouts(slot) if slot is not None else ()
    return next((each for each in found if each.events[0].cause.reason.startswith(_begins(turn))), None)


def _run_of(turn: LearnTurn) -> str:
    """The run that a turn began, by its own word; empty where it did not come so far."""
    found = turn.outcome.report.get("learned", {}) if turn.outcome.state in GOES_ON else {}
    return str(found.get("run_id") or "")


def _files_of(subject: LearnSubject) -> Iterator[str]:
    if subject.kind not in BY_SLOT:
        return
    from journeyman.experiments.playbook.from_traces import TrafficSlot, playbook_path
    from journeyman.optimizers.playbook.edit import journal_of

    path = Path(playbook_path(TrafficSlot(subject.agent or None, subject.domain)))
    yield str(path)
    yield str(journal_of(path))


def restore(root: Path, artifacts: Artifacts, turn: LearnTurn, *, dry_run: bool = False) -> list[str]:
    """Put the files of a turn's subject back as they were before it, byte for byte; which of them are others now.

    Raises:
        StoreError: What is kept of them was changed since.
    """
    files = dict(turn.before.get("files", {}))
    kept = {name: None if digest is None else artifacts.get(digest) for name, digest in files.items()}
    changed = [name for name, content in kept.items() if _content(root / name) != content]
    for name in () if dry_run else changed:
        if (content := kept[name]) is None:
            (root / name).unlink()
        else:
            with atomic_write(root / name, private=False) as part:
                part.write_bytes(content)
    return changed


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
