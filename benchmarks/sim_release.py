"""Does a rollout do what it promises? Made-up sessions through the real evidence, the real rule and the real brake.

    python benchmarks/sim_release.py            # all rows, with as many runs as the bars ask for: about ten minutes
    python benchmarks/sim_release.py --quick    # a tenth of the runs
    python benchmarks/sim_release.py --only harm equal --json

Sessions are clusters: one task and a Poisson number more, whose success is correlated (ICC 0.3). Production is right in 70 %,
the canary gets 10 % of sessions and the level of the default plan (2 % of all false rollbacks are the primary metric's), unless
a row says otherwise. A look is taken every ten sessions. Each row stands beside its bar, and the exit code is 1 when one is
missed. Quick runs are too few to tell 4 % from 6 %: there a bar allows for two standard errors.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from journeyman.core.rollout import EventKind
from journeyman.core.rollout_decision import Brake, Observed, RatioFound, decide_arms, level
from journeyman.core.rollout_plan import BrakePlan, RolloutPlan
from journeyman.experiments.release_simulation import (
    Draw,
    Simulated,
    SimulationSettings,
    Traffic,
    only_primary,
    simulate,
)
from journeyman.stats.live import HarmDetector, Scale, compared, evidence_for, top_two_shares

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Runs = NDArray[np.int64]
Scores = dict[str, Floats]
Simulate = Callable[[RolloutPlan, Draw, SimulationSettings, np.random.Generator], Simulated]
"""Carries runs out: `release_simulation.simulate`, or the same through a store."""
Spending = tuple[np.random.Generator, float, Callable[[float], float]]
ROLLBACK, PROMOTE = EventKind.ROLLBACK, EventKind.PROMOTE
NEVER = 10**9
FIXED = replace(
    only_primary(RolloutPlan()),
    steps=(0.10,),
    step_sessions=(0,),
    step_hours=(0,),
    step_worst=(1.0,),
    max_days=NEVER,
    min_sessions=100,
)
"""The canary stays at 10 %, and nothing ends by time."""
WATCHED = replace(FIXED, min_sessions=NEVER)
"""And nothing is promoted, so that all sessions are looked at for harm."""


@dataclass(frozen=True, slots=True)
class Size:
    """How many runs there are, and how many the bar asks for."""

    runs: int
    full: int

    @classmethod
    def of(cls, full: int, scale: float) -> "Size":
        return cls(max(1, int(full * scale)), full)


@dataclass(frozen=True, slots=True)
class Row:
    """One promise: a figure beside its bar, which is None where it is only to be known."""

    name: str
    value: float
    bar: float | None
    size: Size
    beside: str = ""
    least: bool = False
    """Whether the bar is a least, not a most."""

    @property
    def kept(self) -> bool:
        if self.bar is None:
            return True
        # Of fewer runs than were asked for, chance is allowed for.
        few = self.size.runs < self.size.full and 0 < self.bar < 1
        slack = 2 * math.sqrt(self.bar * (1 - self.bar) / self.size.runs) if few else 0.0
        return self.value >= self.bar - slack if self.least else self.value <= self.bar + slack

    def text(self) -> str:
        def shown(number: float) -> str:
            return f"{number:7.1%}" if self.bar is None or self.bar <= 1 else f"{number:7g}"

        bar = " " * 10 if self.bar is None else f"{'>=' if self.least else '<='} {shown(self.bar)}"
        return f"{'ok' if self.kept else 'MISSED':6} {self.name:86} {shown(self.value)} {bar}   {self.beside}"


def at_least(name: str, value: float, bar: float | None, size: Size, beside: str = "") -> Row:
    return Row(name, value, bar, size, beside, least=True)


def successes(traffic: Traffic, chance: np.random.Generator, sessions: int, naive: "Naive | None" = None) -> Draw:
    def draw(n: int, canary: Bools, ids: Runs) -> dict[str, Floats]:
        tasks, right = traffic.successes(chance, canary, n / sessions)
        if naive:
            naive.add(n, ids, canary, tasks, right)
        return {"success": right / tasks}

    return draw


@dataclass(slots=True)
class Naive:
    """What a dashboard invites to: a one-sided z-test at 5 % after every ten sessions, of tasks and of sessions."""

    runs: int
    sums: Floats = field(init=False)
    """(2 tests, 3: n, Σx, Σx²; 2 arms, runs)."""
    hit: Bools = field(init=False)

    def __post_init__(self) -> None:
        self.sums, self.hit = np.zeros((2, 3, 2, self.runs)), np.zeros((2, self.runs), bool)

    def add(self, n: int, ids: Runs, canary: Bools, tasks: Runs, right: Runs) -> None:
        score, arm = right / tasks, canary.astype(int)
        for test, (count, first, second) in enumerate(((tasks, right, right), (np.ones(len(ids)), score, score**2))):
            for at, value in enumerate((count, first, second)):
                self.sums[test, at, arm, ids] += value
        if n % 10 == 9:
            many, first, second = np.moveaxis(self.sums, 1, 0)
            of = np.maximum(many, 1)
            mean = first / of
            error = np.sqrt(((second / of - mean**2) / of).sum(axis=1)) + 1e-9
            # Not before ten sessions of the canary.
            enough = self.sums[1, 0, 1] >= 10
            self.hit |= ((mean[:, 1] - mean[:, 0]) / error < -1.645) & enough


def said(found: Simulated, event: EventKind) -> str:
    middle, most = (found.quantile(event, q) for q in (0.5, 0.95))
    return f"median {middle:,.0f}, 95 % {most:,.0f} sessions ({found.quantile(event, 0.95, found.canary):,.0f} canary)"


def harm(scale: float, simulate: Simulate = simulate) -> Iterator[Row]:
    for worse, within in ((0.30, 500), (0.20, 1000), (0.10, 3600)):
        size, chance = Size.of(200, scale), np.random.default_rng([1, int(100 * worse)])
        setting = SimulationSettings(runs=size.runs, sessions=2 * within)
        found = simulate(FIXED, successes(Traffic(worse=worse), chance, setting.sessions), setting, chance)
        name = f"-{100 * worse:.0f} points: rolled back within {within:,} sessions"
        yield at_least(name, found.share(ROLLBACK, within), 0.95, size, said(found, ROLLBACK))


def equal(scale: float, simulate: Simulate = simulate) -> Iterator[Row]:
    free = (0.0,) * 5
    ramp = replace(WATCHED, steps=(0.01, 0.05, 0.10, 0.25, 0.5), step_sessions=(0,) * 5, step_hours=free, step_worst=free)
    sixths = tuple(round(10_000 * k / 6) for k in (1, 2, 3, 4))
    drifting = Traffic(baseline=0.75, drift=-0.15)
    worlds: list[tuple[str, RolloutPlan, Traffic, tuple[int, ...], float]] = [
        ("equal", WATCHED, Traffic(), (), 0.40),
        ("equal, at a level of 5 %", replace(WATCHED, alpha=0.05), Traffic(), (), 0.40),
        ("equal, tasks independent, at 5 %", replace(WATCHED, alpha=0.05), Traffic(icc=0.0), (), 0.30),
        ("equal, ramp 1 to 50 %, production .75 to .60", ramp, drifting, sixths, 0.40),
        ("the same ramp, at 5 %", replace(ramp, alpha=0.05), drifting, sixths, 0.40),
    ]
    for name, plan, traffic, steps, naive_bar in worlds:
        size, chance = Size.of(1000, scale), np.random.default_rng(2)
        setting, naive = SimulationSettings(runs=size.runs, sessions=10_000, steps=steps), Naive(size.runs)
        found = simulate(plan, successes(traffic, chance, 10_000, naive), setting, chance)
        tasks, sessions = naive.hit.mean(axis=1)
        beside = f"level {level(plan, plan.primary):.2f}"
        yield Row(f"{name}: falsely rolled back, 1,000 looks", found.share(ROLLBACK), 0.05, size, beside)
        beside = f"of sessions {sessions:.1%}"
        yield at_least(f"{name}: by a naive z-test of tasks on the same runs", float(tasks), naive_bar, size, beside)


def promotion(scale: float, simulate: Simulate = simulate) -> Iterator[Row]:
    size, chance = Size.of(400, scale), np.random.default_rng(3)
    setting = SimulationSettings(runs=size.runs, sessions=10_000)
    found = simulate(FIXED, successes(Traffic(worse=0.05), chance, 10_000), setting, chance)
    beside = f"rolled back {found.share(ROLLBACK):.1%}, neither {found.share(None):.1%}"
    yield Row("-5 points: promoted as not worse by 5", found.share(PROMOTE), 0.05, size, beside)
    chance = np.random.default_rng(4)
    found = simulate(FIXED, successes(Traffic(worse=-0.05), chance, 10_000), replace(setting, sessions=6000), chance)
    name = "+5 points: promoted within 3,000 sessions (at least 100 of each arm)"
    yield at_least(name, found.share(PROMOTE, 3000), 0.95, size, said(found, PROMOTE))


def whole_plan(scale: float, simulate: Simulate = simulate) -> Iterator[Row]:
    """The default plan as it stands, with its steps and its 300 sessions of each arm; 1,000 sessions a day."""
    plan, most = replace(only_primary(RolloutPlan()), max_days=NEVER), 12_000
    for worse, event, bar in ((0.0, ROLLBACK, 0.05), (0.05, PROMOTE, 0.05), (0.10, ROLLBACK, 0.95), (0.20, ROLLBACK, 0.95),
                              (0.30, ROLLBACK, 0.95), (0.0, PROMOTE, 0.95), (-0.05, PROMOTE, 0.95)):  # fmt: skip
        size, chance = Size.of(200, scale), np.random.default_rng([5, int(100 * (1 + worse))])
        setting = SimulationSettings(runs=size.runs, sessions=most)
        found = simulate(plan, successes(Traffic(worse=worse), chance, most), setting, chance)
        name = f"the default plan's ramp, {-100 * worse + 0.0:+.0f} points: {event} within {most:,} sessions"
        beside = said(found, event) if bar > 0.5 else ""
        yield Row(name, found.share(event), bar, size, beside, least=bar > 0.5)


def labels(scale: float, simulate: Simulate = simulate) -> Iterator[Row]:
    """Equal quality; a failure is told at once, a success when the user comes back: in the canary after three times as long."""
    watch = next(each for each in RolloutPlan().guardrails if each.name == "labelled")
    plan = replace(WATCHED, guardrails=(watch,), primary=replace(FIXED.primary, window_seconds=86_400.0))
    for window in (600, 1500):
        size, chance = Size.of(300, scale), np.random.default_rng([6, window])

        def draw(n: int, canary: Bools, ids: Runs, chance: np.random.Generator = chance, window: int = window) -> Scores:
            right = chance.random(len(canary)) < 0.7
            seen = np.where(right, chance.exponential(np.where(canary, 600, 200)), 5.0) < window
            return {"success": np.where(seen, right, np.nan), "labelled": seen.astype(np.float64)}

        found = simulate(plan, draw, SimulationSettings(runs=size.runs, sessions=6000), chance)
        name = f"labels of the canary three times slower, window of {window:,} sessions: falsely rolled back"
        yield Row(name, found.share(ROLLBACK), 0.05, size, f"held {(found.held >= 0).mean():.1%}")


def ratio(scale: float, simulate: Simulate = simulate) -> Iterator[Row]:
    size, chance = Size.of(200, scale), np.random.default_rng(7)
    setting = SimulationSettings(runs=size.runs, sessions=10_000, fall=0.8)
    found = simulate(WATCHED, successes(Traffic(), chance, 10_000), setting, chance)
    held = float(((found.held >= 0) & (found.held <= 7000)).mean())
    beside = f"median {np.median(found.held[found.held >= 0]):,.0f} sessions"
    yield at_least("a share of 8 % where 10 is meant: held within 7,000 sessions", held, 0.95, size, beside)
    size, chance = Size.of(1000, scale), np.random.default_rng(8)
    setting = SimulationSettings(runs=size.runs, sessions=10_000)
    found = simulate(WATCHED, successes(Traffic(), chance, 10_000), setting, chance)
    yield Row("a right share: held, 1,000 looks", float((found.held >= 0).mean()), 0.005, size)


def brake(scale: float, simulate: Simulate = simulate) -> Iterator[Row]:
    def tripped(failing: float, sessions: int) -> float:
        one = Brake(BrakePlan())
        return next((n for n, bad in enumerate(chance.random(sessions) < failing, 1) if one.add(failed=bool(bad))), math.inf)

    chance, size = np.random.default_rng(9), Size.of(2000, scale)
    yield Row("the gateway's brake, all fail: on after canary sessions", tripped(1.1, 100), 5, Size(1, 1))
    half = [tripped(0.5, 400) for _ in range(size.runs)]
    false = float(np.mean([tripped(0.2, 400) < math.inf for _ in range(size.runs)]))
    beside = f"where half fail: median {np.median(half):.0f}, 95 % {np.quantile(half, 0.95):.0f}"
    yield Row("the same where 20 % fail, as it may be, within 400: on", false, 0.01, size, beside)
    plan = guarded("failed_requests")
    for failing in (1.0, 0.01):
        size = Size.of(500, scale)

        def draw(n: int, canary: Bools, ids: Runs, failing: float = failing) -> Scores:
            fine = chance.random(len(canary)) >= np.where(canary, failing, 0.01)
            return {"success": np.full(len(canary), np.nan), "failed_requests": fine.astype(np.float64)}

        setting = SimulationSettings(runs=size.runs, sessions=500 if failing == 1 else 5000)
        found = simulate(plan, draw, setting, chance)
        if failing == 1:
            six = float(np.mean((found.canary <= 6) & (found.sessions < 500)))
            name = "all of the canary fail, the rule with the default level: rolled back within 6 canary sessions"
            yield at_least(name, six, 0.95, size, said(found, ROLLBACK))
        else:
            yield Row("1 % of either fails: falsely rolled back within 5,000", found.share(ROLLBACK), 0.03, size)


def guarded(name: str, tolerance: float | None = None) -> RolloutPlan:
    """One guardrail alone, at the level and with the tolerance that it has in the default plan, or another."""
    metric = next(each for each in RolloutPlan().guardrails if each.name == name)
    alpha = level(RolloutPlan(), metric)
    metric = metric if tolerance is None else replace(metric, tolerance=tolerance)
    plan = replace(WATCHED, guardrails=(metric,))
    return replace(plan, alpha=plan.alpha * alpha / level(plan, metric))


SPENT: list[float] = []
"""By the last session of each run, before it was scaled."""


def cost(scale: float, simulate: Simulate = simulate, kinds: Sequence[str] = ("log_scaled", "capped", "over")) -> Iterator[Row]:
    def drawn(chance: np.random.Generator, count: int) -> Floats:
        tail = np.where(chance.random(count) < 0.01, chance.pareto(1.5, count) + 1, 1.0)
        return np.asarray(np.exp(chance.normal(0, 1.2, count)) * tail)

    how = Scale.of(drawn(np.random.default_rng(10), 20_000).tolist())
    usual = next(each.tolerance for each in RolloutPlan().guardrails if each.name == "cost")
    for kind in kinds:
        scored: Callable[[float], float] = getattr(how, kind)
        for times, within, tolerance in ((2.0, 1000, usual), (2.0, 1000, 0.0), (1.0, 5000, usual), (1.0, 5000, 0.0)):
            size, chance = Size.of(500, scale), np.random.default_rng([10, int(times)])

            def draw(n: int, canary: Bools, ids: Runs, by: Spending = (chance, times, scored)) -> Scores:
                spent = drawn(by[0], len(canary)) * np.where(canary, by[1], 1.0)
                SPENT[:] = spent.tolist()
                scores = np.asarray([by[2](each) for each in SPENT])
                return {"success": np.full(len(canary), np.nan), "cost": scores}

            setting = SimulationSettings(runs=size.runs, sessions=max(within, 2500))
            found = simulate(guarded("cost", tolerance=tolerance), draw, setting, chance)
            name = f"cost x{times:g}, Pareto(1.5) tails, {kind}, tolerance {tolerance:g}: rolled back within {within:,}"
            if times == 1:
                yield Row(name, found.share(ROLLBACK, within), 0.03, size)
            else:
                bar = 0.95 if kind == "log_scaled" and tolerance == usual else None
                yield at_least(name, found.share(ROLLBACK, within), bar, size, said(found, ROLLBACK))


def detector(scale: float, simulate: Simulate = simulate) -> Iterator[Row]:
    size, chance, change = Size.of(500, scale), np.random.default_rng(11), 2000
    for worse in (0.0, 0.10, 0.20):
        found, at, traffic = HarmDetector(0.7, runs=size.runs), np.full(size.runs, np.inf), Traffic(worse=worse)
        for n in range(4000 if worse else 8000):
            tasks, right = traffic.successes(chance, np.full(size.runs, n >= change))
            found.add(right / tasks)
            at = np.where(found.alarmed & np.isinf(at), n + 1, at)
        if not worse:
            yield Row("after promotion, nothing changes: alarm within 8,000 sessions", float((at < np.inf).mean()), 0.03, size)
            continue
        later = at[at > change] - change
        middle, most = (np.quantile(later, q, method="higher") for q in (0.5, 0.95))
        beside = f"median {middle:,.0f}, 95 % {most:,.0f}; before the change {np.mean(at <= change):.1%}"
        name = f"after promotion, -{100 * worse:.0f} points and nobody to compare with: alarm within 600 sessions"
        yield at_least(name, float((later <= 600).mean()), 0.95, size, beside)


class SeveralArms:
    """Runs of a rollout of several candidates at a share of a half, which `decide_arms` decides."""

    def __init__(self, plan: RolloutPlan, worse: Sequence[float], runs: int, chance: np.random.Generator) -> None:
        self.plan, self.worse, self.chance = plan, np.asarray([0.0, *worse]), chance
        self.arms = [f"canary-{number}" for number in range(1, len(worse) + 1)]
        self.evidence = [evidence_for(plan, plan.primary, runs=runs, whole=False) for _ in worse]
        self.shares = np.tile([0.5, *[0.5 / len(worse)] * len(worse)], (runs, 1))
        """Of production and each candidate, in each run."""
        self.ids, self.promoted, self.over = np.arange(runs), np.full(runs, -1), np.full(runs, NEVER)
        self.divided = np.zeros(runs, int)
        self.lost = np.zeros(runs)
        """Success that production would have had, on the sessions of its candidates."""

    def session(self, buckets: Floats | None = None) -> None:
        """One more in each run; where they fall may be handed in, as a rollout's hash gives it."""
        places = self.chance.random(len(self.ids)) if buckets is None else buckets
        number = (places[:, None] >= np.cumsum(self.shares[:, 1:], axis=1)).sum(axis=1) + 1
        arm = self.arm = np.where(number == len(self.worse), 0, number)
        worse = self.worse[arm]
        tasks, right = Traffic().successes(self.chance, np.ones(len(self.ids), bool), worse=worse)
        self.score = right / tasks
        self.lost[self.ids] += worse.clip(0)
        for at, evidence in enumerate(self.evidence, start=1):
            score = np.where((arm == 0) | (arm == at), self.score, np.nan)
            evidence.add(score, canary=arm == at, share=self.shares[:, at], production=self.shares[:, 0])

    def look(self, n: int) -> bool:
        """Whether any run goes on."""
        found = [compared(each, self.plan, self.plan.primary, arms=len(self.arms)) for each in self.evidence]
        over = np.zeros(len(self.ids), bool)
        for at, id in enumerate(self.ids):
            going = [number for number in range(1, len(self.worse)) if self.shares[at, number] > 0]
            ratio = RatioFound(e_value=1.0, canary=0, expected=0.0, sessions=n)
            seen = {
                self.arms[number - 1]: Observed(
                    step=0, sessions=n, hours=n, days=0, metrics={"success": found[number - 1][at]}, ratio=ratio
                )
                for number in going
            }
            verdict = decide_arms(self.plan, seen)
            arm = self.arms.index(verdict.arm) + 1 if verdict.arm else going[0]
            self.happened(verdict.event, arm, n)
            if verdict.event is EventKind.DROP:
                rest = [number for number in going if number != arm]
                self.divide(at, dict.fromkeys(rest, 0.5 / len(rest)))
            elif verdict.event in (PROMOTE, ROLLBACK):
                self.promoted[id], self.over[id], over[at] = arm if verdict.event is PROMOTE else -1, n, True
            elif self.plan.shares == "top_two" and len(going) > 1 and n - self.divided[id] >= 50:
                self.divided[id] = n
                self.divide(at, self.top_two(at, going, n))
        for evidence in self.evidence:
            evidence.keep(~over)
        self.ids, self.shares = self.ids[~over], self.shares[~over]
        return len(self.ids) > 0

    def happened(self, event: EventKind | None, arm: int, n: int) -> None:
        """Told of each run at each look."""

    def chance_at(self, n: int) -> np.random.Generator:
        """What the shares are drawn by after so many sessions."""
        return self.chance

    def top_two(self, at: int, going: list[int], n: int) -> dict[int, float]:
        counts = [self.evidence[number - 1].counts[at] for number in going]
        means = [np.nan_to_num(self.evidence[number - 1].means[at]) for number in going]
        many = [(counts[0][1], means[0][1]), *((each[0], mean[0]) for each, mean in zip(counts, means, strict=True))]
        scores = [(float(each * mean), float(each * (1 - mean))) for each, mean in many]
        shares = top_two_shares(scores, chance=self.chance_at(n))[1:]
        return {number: round(share, 4) for number, share in zip(going, shares, strict=True)}

    def divide(self, at: int, shares: dict[int, float]) -> None:
        """Production has the rest."""
        self.shares[at] = [1 - sum(shares.values()), *(shares.get(number, 0.0) for number in range(1, len(self.worse)))]


_HALF = replace(FIXED, steps=(0.5,), alpha=0.05, min_sessions=100)
_BETTER = replace(_HALF, primary=replace(_HALF.primary, require="better"))
SEVERAL: dict[str, dict[str, RolloutPlan]] = {
    require: {"equal": plan, "top two": replace(plan, shares="top_two")}
    for require, plan in (("not worse", _HALF), ("better", _BETTER))
}
WORSE = (0.0, 0.1, -0.1)


def several(scale: float, simulate: Simulate = simulate) -> Iterator[Row]:
    """Three candidates at .70, .60 and .80 beside production at .70."""
    size = Size.of(200, scale)
    for require, plans in SEVERAL.items():
        for name, plan in plans.items():
            arms = SeveralArms(plan, WORSE, size.runs, np.random.default_rng(12))
            for n in range(1, 10_001):
                arms.session()
                if n % 10 == 0 and not arms.look(n):
                    break
            over = arms.over[arms.promoted == 3]
            middle, most = (np.quantile(over, q, method="higher") for q in (0.5, 0.95))
            beside = f"median {middle:,.0f}, 95 % {most:,.0f} sessions; {arms.lost.mean():.0f} successes lost on worse ones"
            what = f"three candidates, the best is 10 points better, {name} shares, promoted as {require}"
            yield at_least(f"{what}: the best", float(np.mean(arms.promoted == 3)), 0.95, size, beside)
            wrong = float(np.mean((arms.promoted > 0) & (arms.promoted != 3)))
            yield Row(f"{what}: another", wrong, 0.05, size, f"the one that is worse {np.mean(arms.promoted == 2):.1%}")


PARTS: dict[str, Callable[..., Iterator[Row]]] = {
    "harm": harm, "equal": equal, "promotion": promotion, "plan": whole_plan, "labels": labels, "ratio": ratio, "brake": brake,
    "cost": cost, "detector": detector, "several": several,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = []
    for part in given.only:
        begun = time.perf_counter()
        for row in PARTS[part](0.1 if given.quick else 1.0):
            rows.append(row)
            if not given.json:
                print(row.text(), flush=True)
        if not given.json:
            print(f"       {part}: {time.perf_counter() - begun:.0f} s", flush=True)
    missed = [row.name for row in rows if not row.kept]
    if given.json:
        print(json.dumps([{"name": r.name, "value": r.value, "bar": r.bar, "kept": r.kept, "beside": r.beside} for r in rows]))
    else:
        print(f"{len(rows) - len(missed)} of {len(rows)} bars are kept")
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
