"""Do the store and the monitor decide as the pure rule does, at the same session? Ten seeds of each row of `sim_release`.

    python -m benchmarks.sim_release_store                       # all rows; some ten minutes
    python -m benchmarks.sim_release_store --only harm labels --seeds 3

Each seed is a rollout of its own in a SQLite store of its own. The same made-up sessions go two ways: through `simulate` as in
`sim_release`; and through the real assigner, as traces and feedback into the store, and to the real monitor by a clock that is
handed to it. A look is taken after every twenty of so many sessions at most; a row is alike where holds, steps,
rollbacks and promotions came after the same sessions. Exit code 1 where one is not. A share that is not kept cannot be asked of
the assigner: there sessions are put on arms by hand. The gateway's brake, the detector and the scales of cost that are not the
monitor's have no such way.
"""

import argparse
import asyncio
import logging
import math
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import sim_release
from benchmarks.sim_release import Bools, Runs, SeveralArms
from journeyman.core.feedback import Feedback, TargetKind
from journeyman.core.reward import Source
from journeyman.core.rollout import PRODUCTION, Arm, Cause, EventKind, Rollout, RolloutEvent, Slot, SlotKind, nothing, unit_of
from journeyman.core.rollout_plan import RolloutPlan
from journeyman.core.trace import ModelCall, Trace
from journeyman.experiments.release_simulation import Draw, Simulated, SimulationSettings, simulate
from journeyman.serving.monitor import Monitor, RolloutEvidence
from journeyman.serving.releases.assignment import Assigner
from journeyman.stats.live import Scale
from journeyman.stores import TraceStore, open_traces
from journeyman.stores.base import Assignment
from journeyman.stores.rollouts import RolloutStore, open_rollouts

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)
APART = timedelta(days=1 / 1000)
"""Sessions, as `SimulationSettings.per_day` has them."""
LOOK = 20
_MEMORY = Path("/dev/shm")
"""Where a store is as it is on a disk, and need not wait for one."""
MOST = {
    **{"harm": 1000, "promotion": 1400, "several": 1000, "plan": 600, "labels": 600, "cost": 600},
    **{"brake": 400, "equal": 300, "ratio": 300},
}
"""Sessions of a run, where most rows have something to decide."""


class Came(NamedTuple):
    """A session as it was made up."""

    arm: str
    scores: Mapping[str, float]
    cost: float | None = None


Happened = tuple[tuple[int, str], ...]
"""After how many sessions what happened."""


@dataclass
class Story:
    """One run, as the pure rule saw it."""

    came: list[Came] = field(default_factory=list)
    happened: list[tuple[int, str]] = field(default_factory=list)


class Buckets:
    """Where the sessions of a rollout fall, one after the other, in place of chance."""

    def __init__(self, salt: str) -> None:
        self.salt, self.number = salt, 0

    def random(self, size: int) -> np.ndarray:
        self.number += 1
        return np.full(size, unit_of(self.salt, f"session:s{self.number}").bucket)


# The pure rule.


def pure(plan: RolloutPlan, draw: Draw, setting: SimulationSettings, salt: str) -> Story:
    """One run through `simulate`, with sessions where the rollout's hash puts them."""
    story, scales, before = Story(), dict[str, Scale](), list[float]()

    def scaled(cost: float, canary: bool) -> float:
        """As the monitor does: unknown until a hundred calls of production told what is usual."""
        if not scales:
            if not canary:
                before.append(cost)
                if len(before) == 100:
                    scales["cost"] = Scale.of(before)
            return math.nan
        return scales["cost"].log_scaled(cost)

    def drawn(n: int, canary: Bools, ids: Runs) -> dict[str, np.ndarray]:
        told, cost = dict(draw(n, canary, ids)), None
        if "cost" in told:
            cost = sim_release.SPENT[0]
            told["cost"] = np.asarray([scaled(cost, bool(canary[0]))])
        scores = {name: float(values[0]) for name, values in told.items()}
        story.came.append(Came("canary" if canary[0] else PRODUCTION, scores, cost))
        return told

    chance: np.random.Generator = Buckets(salt)  # type: ignore[assignment]
    found = simulate(plan, drawn, replace(setting, runs=1, look=lambda n: n % LOOK == 0), chance)
    story.happened = _told(found)
    return story


def _told(found: Simulated) -> list[tuple[int, str]]:
    event, n, held = found.event[0], int(found.sessions[0]), int(found.held[0])
    told = [(held, "hold")] if held >= 0 else []
    return told if event in (None, EventKind.HOLD) else [*told, (n, str(event))]


class OneOfSeveral(SeveralArms):
    """One run of several candidates, with shares drawn as the monitor draws them."""

    def __init__(self, plan: RolloutPlan, rollout: Rollout) -> None:
        super().__init__(plan, sim_release.WORSE, 1, np.random.default_rng(int(rollout.salt[:8], 16)))
        self.story, self.rollout, self.buckets = Story(), rollout, Buckets(rollout.salt)

    def happened(self, event: EventKind | None, arm: int, n: int) -> None:
        if event is not None:
            self.story.happened.append((n, f"{event} {self.arms[arm - 1]}"))

    def chance_at(self, n: int) -> np.random.Generator:
        return RolloutEvidence(self.rollout, None).chance(n)

    def run(self, most: int) -> Story:
        for n in range(1, most + 1):
            self.session(self.buckets.random(1))
            arm = int(self.arm[0])
            self.story.came.append(Came(self.arms[arm - 1] if arm else PRODUCTION, {"success": float(self.score[0])}))
            if n % LOOK == 0 and not self.look(n):
                break
        return self.story


# The store, the assigner and the monitor.


@dataclass(kw_only=True)
class Store:
    rollouts: RolloutStore
    traces: TraceStore
    rollout: Rollout
    offset: timedelta
    """Until a session enters the test."""
    n: int = 0
    recorded_at: datetime = NOON

    def at(self, n: int) -> datetime:
        return NOON + n * APART

    async def replay(self, story: Story, setting: SimulationSettings | None) -> list[tuple[int, str]]:
        """The same sessions once more; what happened."""
        assigner, happened = Assigner(lambda: self.rollouts, timeout_seconds=60, clock=lambda: self.at(self.n)), []
        steps = () if setting is None else setting.steps
        by_hand = setting is not None and setting.fall != 1
        batch: list[tuple[int, Came]] = []
        for n, came in enumerate(story.came, start=1):
            if n - 1 in steps:
                await self.keep(assigner, batch, by_hand=by_hand)
                batch = []
                self.advance(EventKind.RAMP, n - 1)
            batch.append((n, came))
            if n % LOOK == 0 or n == len(story.came):
                await self.keep(assigner, batch, by_hand=by_hand)
                batch = []
                happened += self.look(n)
        return happened

    async def unit(self, assigner: Assigner, n: int, came: Came) -> str:
        # It takes the time when it is asked.
        self.n = n
        where = await assigner.arm(self.rollout, f"session:s{n}")
        if where.arm != came.arm or not where.counts:
            raise AssertionError(f"session {n} is on {where.arm}, and was to be on {came.arm}")
        return where.unit

    def put(self, n: int, came: Came) -> Assignment:
        unit = unit_of(self.rollout.salt, f"session:s{n}").id
        return Assignment(self.rollout.id, unit, came.arm, len(self.rollout.events), "drawn", self.at(n))

    async def keep(self, assigner: Assigner, batch: list[tuple[int, Came]], *, by_hand: bool) -> None:
        """Sessions come, are served and judged."""
        if by_hand:
            units = [self.rollouts.assign([self.put(n, came)])[0].unit for n, came in batch]
        else:
            # One by one: of those that come at once, the order is that of their hashes.
            units = [await self.unit(assigner, n, came) for n, came in batch]
        self.judge([(n, came, unit) for (n, came), unit in zip(batch, units, strict=True)])

    def judge(self, batch: list[tuple[int, Came, str]]) -> None:
        """What was served to sessions, and what was said of it in time, or too late."""
        traces: list[Trace] = []
        words: dict[bool, list[Feedback]] = {}
        for n, came, unit in batch:
            score, at = came.scores["success"], self.at(n)
            late = came.scores.get("labelled") == 0
            # As many tasks as the share of them that went well needs.
            right, tasks = (1, 1) if math.isnan(score) else Fraction(score).limit_denominator(60).as_integer_ratio()
            for task in range(tasks):
                id = f"s{n}-{task}"
                traces.append(self.trace(id, unit, came, at))
                if late or not math.isnan(score):
                    told = at + (2 * self.offset if late else timedelta(seconds=1))
                    value = float(task < right)
                    word = Feedback(id=id, target_kind=TargetKind.TRACE, target=id, value=value, source=Source.TRUTH, at=told)
                    words.setdefault(late, []).append(word)
        self.recorded_at = self.at(batch[0][0])
        self.traces.add(traces)
        for some in words.values():
            self.rollouts.add_feedback(some, now=some[-1].at)

    def trace(self, id: str, unit: str, came: Came, at: datetime) -> Trace:
        failed = came.scores.get("failed_requests") == 0
        raw = {"release": [{"rollout": self.rollout.id, "unit": unit, "arm": came.arm}]}
        call = ModelCall(
            model="m", prompt="p", reply="r", id=id, raw=raw, started_at=at, cost=came.cost, error="500" if failed else None
        )
        return Trace(id=id, task_id=id, candidate_id="c", started_at=at, steps=(call,), session=id, source="gateway")

    def look(self, n: int) -> list[tuple[int, str]]:
        found = Monitor(self.rollouts, clock=lambda: self.at(n) + self.offset, holder="one").once()
        self.rollout = self.rollouts.rollout(self.rollout.id) or self.rollout
        acted = [each for each in found or () if each.acted]
        several = len(self.rollout.arms) > 1
        return [(n, f"{each.verdict.event} {each.verdict.arm}" if several else str(each.verdict.event)) for each in acted]

    def advance(self, kind: EventKind, n: int) -> None:
        cause = Cause(reason="the next step", actor="person:ann", at=self.at(n) + self.offset)
        self.rollout = self.rollout.then(kind, cause, self.rollout.next_shares())
        self.rollouts.advance(self.rollout)


def begun(plan: RolloutPlan, seed: int, candidates: int = 1) -> Rollout:
    names = ["canary"] if candidates == 1 else [f"canary-{number}" for number in range(1, candidates + 1)]
    cause = Cause(reason="simulated", actor="person:ann", at=NOON)
    return Rollout(
        id="r1",
        slot=Slot(SlotKind.CONTEXT),
        arms=tuple(Arm(name=name, candidate_id=name) for name in names),
        baseline=nothing(),
        salt=f"{seed:032x}"[::-1],
        plan=plan,
        verdict="passed",
        created_at=NOON,
        events=(RolloutEvent(number=1, kind=EventKind.START, shares={}, cause=cause),),
    )


@contextmanager
def stored(rollout: Rollout) -> Iterator[Store]:
    plan = rollout.plan
    offset = timedelta(seconds=6 + max(plan.settle_seconds, *(m.window_seconds for m in (plan.primary, *plan.guardrails))))
    rollout = replace(rollout, created_at=NOON + offset)
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        path = Path(folder) / "journeyman.db"
        with open_rollouts(path) as rollouts, open_traces(path, clock=lambda: made.recorded_at) as traces:
            rollouts.start(rollout)
            made = Store(rollouts=rollouts, traces=traces, rollout=rollout, offset=offset)
            made.advance(EventKind.RAMP, 0)
            yield made


# Row by row.


@dataclass
class Compared:
    """How many seeds of a row came out alike."""

    seeds: int
    most: int = 0
    """Sessions of a run."""
    alike: list[bool] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def simulate(self, plan: RolloutPlan, draw: Draw, setting: SimulationSettings, chance: np.random.Generator) -> Simulated:
        """In place of `simulate`: each seed both ways."""
        self.alike, self.said = [], []
        setting = replace(setting, sessions=min(setting.sessions, self.most))
        for seed in range(self.seeds):
            rollout = begun(plan, seed)
            story = pure(plan, draw, setting, rollout.salt)
            with stored(rollout) as store:
                self.compare(story.happened, asyncio.run(store.replay(story, setting)), steps=True)
        return simulate(plan, draw, replace(setting, runs=1, sessions=1), chance)

    def compare(self, expected: list[tuple[int, str]], found: list[tuple[int, str]], *, steps: bool = False) -> None:
        # Of steps `simulate` says nothing: a wrong one puts sessions on other arms, which ends the comparison.
        kept = [each for each in found if not (steps and each[1] == EventKind.RAMP)]
        self.alike.append(expected == kept)
        self.said.append(_said(expected) if expected == kept else f"pure {_said(expected)}, store {_said(kept)}")


def _said(happened: list[tuple[int, str]]) -> str:
    return ", ".join(f"{what} {n}" for n, what in happened) or "-"


def rows(only: list[str], found: Compared, most: int | None) -> Iterator[tuple[str, float]]:
    """The name of each row as its seeds are done, and the seconds that took."""
    began = time.perf_counter()
    for part in only:
        found.most = most or MOST[part]
        if part == "several":
            for require, plans in sim_release.SEVERAL.items():
                for name, plan in plans.items():
                    found.alike, found.said = [], []
                    for seed in range(found.seeds):
                        rollout = begun(plan, seed, 3)
                        story = OneOfSeveral(plan, rollout).run(found.most)
                        with stored(rollout) as store:
                            happened = asyncio.run(store.replay(story, None))
                        found.compare(story.happened, [each for each in happened if not each[1].startswith("rebalance")])
                    yield f"three candidates, {name} shares, {require}", time.perf_counter() - began
                    began = time.perf_counter()
            continue
        # The monitor's own scale of cost is the only one that is compared live.
        more = {"kinds": ("log_scaled",)} if part == "cost" else {}
        for row in sim_release.PARTS[part](0.0, found.simulate, **more):
            # Rows of one run come one after the other, and what is compared stands once.
            if found.alike:
                yield row.name, time.perf_counter() - began
                began, found.alike = time.perf_counter(), []


def main() -> int:
    parts = [each for each in sim_release.PARTS if each != "detector"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sessions", type=int, help="of a run, at most; without it what suits a row")
    given = parser.parse_args()
    logging.getLogger("journeyman").setLevel(logging.ERROR)
    found, other = Compared(given.seeds), 0
    for name, seconds in rows(given.only, found, given.sessions):
        alike, other = sum(found.alike), other + found.alike.count(False)
        mark = "ok" if alike == given.seeds else "OTHER"
        print(f"{mark:6} {alike} of {given.seeds} alike  {name} ({seconds:.0f} s)\n       {'; '.join(found.said)}", flush=True)
    print("all alike" if not other else f"{other} are not")
    return int(bool(other))


if __name__ == "__main__":
    raise SystemExit(main())
