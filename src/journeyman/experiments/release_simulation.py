"""A rollout before it starts: sessions are made up, and the real evidence and the real rule decide what becomes of each run."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from journeyman.core.rollout import EventKind
from journeyman.core.rollout_decision import Observed, RolloutVerdict, decide, level
from journeyman.core.rollout_plan import RolloutPlan
from journeyman.stats.live import BettingEvidence, SampleRatio, compared, evidence_for

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Runs = NDArray[np.int64]

Draw = Callable[[int, Bools, Runs], Mapping[str, Floats]]
"""From the number of a session, whether it is on the canary in each run that still goes on, and which runs these are: its score
by each metric, NaN where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Sessions as they come: what is asked, and how well it is answered."""

    baseline: float = 0.7
    """Production's success."""
    worse: float = 0.0
    """By how much the canary's is lower; below 0 it is better."""
    icc: float = 0.3
    """How much the tasks of one session go well or badly together, from 0 to 1."""
    tasks: float = 3.0
    """Of a session, on the mean: one, and a Poisson number more."""
    drift: float = 0.0
    """What is added to both arms' success from the first session to the last."""

    def successes(
        self, chance: np.random.Generator, canary: Bools, done: float = 0.0, *, worse: Floats | None = None
    ) -> tuple[Runs, Runs]:
        """How many tasks a session has in each run, and how many of them succeed; beta-binomial within a session.

        Args:
            done: How far the time has come, from 0 to 1.
            worse: In each run, where there are several candidates.
        """
        tasks = 1 + chance.poisson(self.tasks - 1, len(canary))
        lower = self.worse if worse is None else worse
        success = np.clip(self.baseline + self.drift * done - lower * canary, 0.0, 1.0)
        if 0 < self.icc < 1:
            apart = 1 / self.icc - 1
            # A beta distribution has no room at 0 and 1 themselves.
            inside = success.clip(1e-3, 1 - 1e-3)
            drawn = chance.beta(inside * apart, (1 - inside) * apart)
            success = np.where((success > 0) & (success < 1), drawn, success)
        elif self.icc >= 1:
            success = (chance.random(len(canary)) < success).astype(np.float64)
        return tasks, chance.binomial(tasks, success)


@dataclass(slots=True, kw_only=True)
class Simulated:
    """What became of each run."""

    event: list[EventKind | None]
    """Rollback, promotion, hold (the first, where neither followed), or none of them."""
    sessions: Runs
    """Until that, or all."""
    canary: Runs
    """Of them on the canary."""
    reason: list[str]
    held: Runs
    """At which session each was held first; -1 where never."""

    def share(self, event: EventKind | None, within: float = math.inf) -> float:
        """Of the runs, those that ended so, after so many sessions at most."""
        return float(np.mean([each is event and at <= within for each, at in zip(self.event, self.sessions, strict=True)]))

    def quantile(self, event: EventKind, q: float, counts: Runs | None = None) -> float:
        """Sessions until an event in so many of all runs, those where it never came counted as infinite."""
        found = np.where([each is event for each in self.event], self.sessions if counts is None else counts, np.inf)
        return float(np.quantile(found, q, method="higher"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings:
    """How runs are simulated, beside the plan and the traffic."""

    runs: int = 200
    sessions: int = 10_000
    """At most, of each run."""
    per_day: float = 1000.0
    look: Callable[[int], bool] = lambda n: n % 10 == 0
    """Whether something is decided after so many sessions."""
    priors: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Of metrics, what is known of production before: a mean, and how many sessions it is worth."""
    fall: float = 1.0
    """The share that the canary really gets, of the one that is meant and recorded."""
    steps: Sequence[int] = ()
    """After how many sessions each step but the first begins, whatever the plan says. Else the rule ramps."""
    checked: bool = False


class _Going:
    """The runs that still go on."""

    def __init__(self, plan: RolloutPlan, setting: SimulationSettings, chance: np.random.Generator) -> None:
        self.plan, self.setting, self.chance = plan, setting, chance
        runs, self.metrics = setting.runs, {each.name: each for each in (plan.primary, *plan.guardrails)}
        self.ids = np.arange(runs)
        self.evidence: dict[str, BettingEvidence] = {
            name: evidence_for(plan, each, prior=setting.priors.get(name, (0.5, 2.0)), runs=runs, whole=False)
            for name, each in self.metrics.items()
        }
        self.ratio = SampleRatio(runs=runs)
        self.shares = np.asarray(plan.steps)
        self.step, self.began, self.canary = np.zeros(runs, int), np.zeros(runs, int), np.zeros(runs, int)
        self.held: list[str] = [""] * runs

    def session(self, n: int, draw: Draw) -> None:
        """One session more in each run."""
        share, runs = self.shares[self.step], len(self.ids)
        drawn = self.chance.random(runs) < share * self.setting.fall
        for at in np.unique(self.step):
            part = float(self.shares[at])
            self.ratio.add(drawn, (1 - part, part), among=self.step == at)
        for name, scores in draw(n, drawn, self.ids).items():
            self.evidence[name].add(scores, canary=drawn, share=share)
        self.canary += drawn

    def decide(self, n: int) -> list[RolloutVerdict]:
        rows = {name: compared(self.evidence[name], self.plan, each) for name, each in self.metrics.items()}
        ratios, per_day = self.ratio.found(), self.setting.per_day
        return [
            decide(
                self.plan,
                Observed(
                    step=int(self.step[at]),
                    sessions=n - int(self.began[at]),
                    hours=24 * (n - int(self.began[at])) / per_day,
                    days=n / per_day,
                    metrics={name: found[at] for name, found in rows.items()},
                    ratio=ratios[at],
                    held=self.held[at],
                    checked=self.setting.checked,
                ),
            )
            for at in range(len(self.ids))
        ]

    def ramp(self, at: int, n: int) -> None:
        self.step[at], self.began[at] = self.step[at] + 1, n

    def keep(self, which: Bools) -> None:
        for evidence in self.evidence.values():
            evidence.keep(which)
        self.ratio.keep(which)
        self.held = [held for held, kept in zip(self.held, which, strict=True) if kept]
        self.ids, self.step, self.began, self.canary = (
            each[which] for each in (self.ids, self.step, self.began, self.canary)
        )  # fmt: skip


def simulate(plan: RolloutPlan, draw: Draw, setting: SimulationSettings, chance: np.random.Generator) -> Simulated:
    """Carries out runs of a plan on made-up sessions, through `BettingEvidence`, `SampleRatio` and `decide` as they are."""
    runs = setting.runs
    found = Simulated(
        event=[None] * runs,
        sessions=np.full(runs, setting.sessions),
        canary=np.zeros(runs, int),
        reason=[""] * runs,
        held=np.full(runs, -1),
    )
    going = _Going(plan, setting, chance)
    for n in range(1, setting.sessions + 1):
        if n - 1 in setting.steps:
            for at in range(len(going.ids)):
                going.ramp(at, n - 1)
        going.session(n - 1, draw)
        if setting.look(n) or n == setting.sessions:
            over = _looked(going, found, n)
            if over.all():
                break
            if over.any():
                going.keep(~over)
    return found


def _looked(going: _Going, found: Simulated, n: int) -> Bools:
    """What was decided after so many sessions is noted; which runs are over."""
    over = np.zeros(len(going.ids), bool)
    for at, verdict in enumerate(going.decide(n)):
        id = int(going.ids[at])
        if verdict.event is EventKind.RAMP and not going.setting.steps:
            going.ramp(at, n)
        first = verdict.event is EventKind.HOLD and not going.held[at]
        if first:
            going.held[at] = verdict.reason
            found.held[id] = n
        if first or verdict.event in (EventKind.ROLLBACK, EventKind.PROMOTE):
            found.event[id], found.reason[id] = verdict.event, verdict.reason
            found.sessions[id], found.canary[id] = n, going.canary[at]
        over[at] = verdict.event in (EventKind.ROLLBACK, EventKind.PROMOTE)
    return over


def only_primary(plan: RolloutPlan) -> RolloutPlan:
    """The same plan without its guardrails, at the level that the primary metric has beside them."""
    return replace(plan, guardrails=(), alpha=level(plan, plan.primary))


# Before a rollout starts: what it can find at so much traffic.

MOST_SESSIONS = 20_000
"""Of a run. Beyond it is said that it takes longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutForecast:
    """What becomes of rollouts of one kind of candidate, when they may take as long as they need."""

    worse: float
    """Its true difference: production's success less its own."""
    rolled_back: float
    """The share of rollouts that end so."""
    promoted: float
    within_plan: float
    """The share that ends, either way, before the plan's time is over."""
    sessions: tuple[float, float]
    """Until half of all, and 95 of 100, have ended as they mostly do; infinite where that is not within those simulated."""
    canary: tuple[float, float]
    """Of these sessions, those that meet the candidate."""
    days: tuple[float, float]

    @property
    def mostly(self) -> EventKind:
        return EventKind.PROMOTE if self.promoted > self.rolled_back else EventKind.ROLLBACK


def forecast(plan: RolloutPlan, traffic: Traffic, *, per_day: float, runs: int = 200, seed: int = 0) -> RolloutForecast:
    """What a plan finds of a candidate at so much traffic, by simulation; guardrails are taken to stay quiet.

    The plan's time does not end a run, so that it is known how much is missing. A session counts when its window is over.
    """
    chance = np.random.default_rng([seed, round(1000 * (1 + traffic.worse))])
    setting = SimulationSettings(
        runs=runs, sessions=MOST_SESSIONS, per_day=per_day, look=lambda n: n % (10 * (1 + n // 1000)) == 0
    )

    def draw(n: int, canary: Bools, ids: Runs) -> Mapping[str, Floats]:
        tasks, right = traffic.successes(chance, canary, n / MOST_SESSIONS)
        return {plan.primary.name: right / tasks}

    found = simulate(replace(only_primary(plan), max_days=1e9), draw, setting, chance)
    waits, ends = plan.primary.window_seconds / 86_400, (EventKind.PROMOTE, EventKind.ROLLBACK)
    mostly = max(ends, key=found.share)
    middle, most = (found.quantile(mostly, q) for q in (0.5, 0.95))
    return RolloutForecast(
        worse=traffic.worse,
        rolled_back=found.share(EventKind.ROLLBACK),
        promoted=found.share(EventKind.PROMOTE),
        within_plan=sum(found.share(event, (plan.max_days - waits) * per_day) for event in ends),
        sessions=(middle, most),
        canary=(found.quantile(mostly, 0.5, found.canary), found.quantile(mostly, 0.95, found.canary)),
        days=(middle / per_day + waits, most / per_day + waits),
    )
