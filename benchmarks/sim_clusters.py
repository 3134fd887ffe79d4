"""Simulates how often a gate lets pass what is no better on the whole, where families of tasks are touched differently.

    python benchmarks/sim_clusters.py
    python benchmarks/sim_clusters.py --trials 500 --json

A candidate helps some families and harms others, and is no better over all families that there are. Each line draws families
and tasks of them anew in every trial, and asks the gate with the tasks' clusters and without. With them at most 2.5 % may pass,
two standard errors allowed for; the exit code is 1 when a line is beyond that. The last lines say what a real gain costs, and
what is beyond the promise: tasks of which 80 % are right, and a fifth of the families wholly lost so that the rest gain.
"""

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from journeyman.core.evaluation import Evaluation, Pair
from journeyman.core.gate import BetterOnHeldOut

Floats = NDArray[np.float64]
FALSE = 0.025
EFFECTS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "none": lambda chance, families: np.zeros(families),
    "normal, 0.2": lambda chance, families: np.clip(chance.normal(0.0, 0.2, families), -0.44, 0.44),
    "a quarter up or down": lambda chance, families: chance.choice([-0.25, 0.25], families),
    "one in ten lost": lambda chance, families: np.where(chance.random(families) < 0.1, -0.45, 0.05),
    "a fifth wholly lost": lambda chance, families: np.where(chance.random(families) < 0.2, -0.8, 0.2),
    "one in twenty lost": lambda chance, families: np.where(chance.random(families) < 0.05, -0.38, 0.02),
}
BEYOND = "a fifth wholly lost"
FAMILIES = ((10, 20), (10, 60), (20, 10), (20, 30), (40, 5), (40, 20))
"""How many, and how many tasks each has on the mean."""


def sizes(families: int, tasks: int, *, alike: bool) -> NDArray[np.int64]:
    """All of one size, or the n-th largest an n-th of the largest."""
    shares = np.ones(families) if alike else 1 / np.arange(1, families + 1)
    found: NDArray[np.int64] = np.maximum(1, np.rint(families * tasks * shares / shares.sum())).astype(np.int64)
    return found


def evaluation(chance: np.random.Generator, effects: Floats, of: Sequence[int], *, right: float, clusters: bool) -> Evaluation:
    which = np.repeat(np.arange(len(of)), of)
    before = chance.random(len(which)) < right
    after = chance.random(len(which)) < right + effects[which]
    pairs = (
        Pair(task_id=str(n), baseline=float(b), candidate=float(a), cluster=f"family {family}" if clusters else "")
        for n, (family, b, a) in enumerate(zip(which, before, after, strict=True))
    )
    return Evaluation(pairs=tuple(pairs))


@dataclass(frozen=True, kw_only=True)
class World:
    families: int
    tasks: int
    """Of each, on the mean."""
    effect: str = "none"
    alike: bool = True
    """All families are of one size."""
    gain: float = 0.0
    right: float = 0.45

    def passed(self, trials: int) -> dict[str, Any]:
        """How often the gate lets it pass, with the column and without."""
        of, gate, draw = sizes(self.families, self.tasks, alike=self.alike).tolist(), BetterOnHeldOut(), EFFECTS[self.effect]
        told: dict[str, Any] = {**asdict(self), "tasks": sum(of)}
        for name, clusters in (("with", True), ("without", False)):
            chance = np.random.default_rng([self.families, self.tasks, len(self.effect), self.alike, round(100 * self.gain)])
            drawn = (draw(chance, self.families) + self.gain for _ in range(trials))
            found = (evaluation(chance, effects, of, right=self.right, clusters=clusters) for effects in drawn)
            told[name] = float(np.mean([gate.decide(each).passed for each in found]))
        return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    named = [name for name in EFFECTS if name != BEYOND]
    lines = [
        World(families=families, tasks=tasks, effect=effect, alike=alike).passed(given.trials)
        for families, tasks in FAMILIES
        for effect in named
        for alike in (True, False)
    ]
    most = FALSE + 2 * math.sqrt(FALSE * (1 - FALSE) / given.trials)
    kept = all(each["with"] <= most for each in lines)
    more = [
        World(families=families, tasks=tasks, effect=effect, gain=gain).passed(given.trials)
        for families, tasks in ((10, 20), (20, 20), (40, 10), (40, 20))
        for effect in ("none", "normal, 0.2")
        for gain in (0.1, 0.2)
    ]
    more += [World(families=f, tasks=20, effect=BEYOND, right=0.8).passed(given.trials) for f in (10, 20, 40)]
    if given.json:
        print(json.dumps({"lines": lines, "more": more, "kept": kept}))
        return int(not kept)
    for each in (*lines, *more):
        print("  ".join(f"{name} {value}" for name, value in each.items()))
    print(f"at most {most:.1%} may pass without a gain: {'kept' if kept else 'not kept'}")
    return int(not kept)


if __name__ == "__main__":
    raise SystemExit(main())
