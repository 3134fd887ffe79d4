"""Compares ways to look at one candidate after every batch: what each lets pass, finds, and how many tasks it takes.

    python benchmarks/sim_sequential.py
    python benchmarks/sim_sequential.py --runs 2000 --json

All ways judge the same runs of tasks that are right or wrong, after every tenth from the 30th on; those with five looks at
every fifth of the plan. Intervals are the normal approximation to the gate's own, so that thousands of runs take seconds.
`false` is the mean over four plans. `needed` is the plan, or without one the number of tasks, at which four of five runs with
the gain have passed; `mean` is how many tasks they then took. The kept gate itself is asked at last, on runs without a gain:
the exit code is 1 when it passes more than 2.5 % of them, two standard errors allowed for.
"""

import argparse
import json
import math
from collections.abc import Callable
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from journeyman.core.evaluation import Evaluation, Pair
from journeyman.core.gate import BetterAsPlanned
from journeyman.stats import _FRACTIONS

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
FALSE, FIRST, STEP, LONGEST = 0.025, 30, 10, 1500
POWER = 0.8
FIVE_OBRIEN_FLEMING, FIVE_POCOCK = 2.040, 2.413
"""Critical values for five looks, 2.5 % one-sided: Jennison and Turnbull, "Group Sequential Methods" (2000)."""


def runs(count: int, before: float, after: float, seed: int) -> Floats:
    """(count, LONGEST), differences."""
    chance = np.random.default_rng(seed)
    shape = (count, LONGEST)
    found: Floats = (chance.random(shape) < after).astype(np.float64) - (chance.random(shape) < before)
    return found


def z_scores(found: Floats) -> Floats:
    """(count, LONGEST), after each task: the gain in standard errors, half a win and half a loss added."""
    n = np.arange(1, found.shape[1] + 1)
    mean = found.cumsum(axis=1) / (n + 1)
    spread = ((found**2).cumsum(axis=1) + 1) / (n + 1) - mean**2
    found_z: Floats = mean / np.sqrt(spread / n)
    return found_z


def bets(found: Floats) -> Floats:
    """(count, LONGEST), the logarithm of the e-value of today: the stake is spread over fixed fractions."""
    wealth = [np.log1p(fraction * found).cumsum(axis=1) for fraction in _FRACTIONS]
    return np.asarray(np.logaddexp.reduce(wealth) - math.log(len(_FRACTIONS)))


def adaptive_bets(found: Floats) -> Floats:
    """The same of one bet that follows what was seen: aGRAPA of Waudby-Smith and Ramdas (2024)."""
    n = np.arange(found.shape[1])
    sums, squares = (np.pad(each.cumsum(axis=1), ((0, 0), (1, 0)))[:, :-1] for each in (found, found**2))
    mean, second = sums / (n + 1), (squares + 0.25) / (n + 1)
    return np.log1p(np.clip(mean / second, 0.0, 0.9) * found).cumsum(axis=1)


def looks(plan: int, *, five: bool = False) -> NDArray[np.int64]:
    """After how many tasks."""
    return np.asarray([plan * part // 5 for part in range(1, 6)] if five else range(FIRST, plan + 1, STEP))


Way = Callable[[Floats, Floats, Floats, int], tuple[NDArray[np.int64], Bools]]
"""From z, both e-values and the plan: after how many tasks is looked, and which runs pass at each look."""


def planned(critical: Callable[[Floats], Floats | float], *, five: bool = False, once: bool = False) -> Way:
    def judge(z: Floats, _: Floats, __: Floats, plan: int) -> tuple[NDArray[np.int64], Bools]:
        at = np.asarray([plan]) if once else looks(plan, five=five)
        return at, z[:, at - 1] > critical(at / plan)

    return judge


def betting(which: int) -> Way:
    def judge(_: Floats, today: Floats, adaptive: Floats, plan: int) -> tuple[NDArray[np.int64], Bools]:
        at = looks(plan)
        return at, (today, adaptive)[which][:, at - 1] >= math.log(1 / FALSE)

    return judge


def z_of(level: float) -> float:
    return NormalDist().inv_cdf(1 - level)


WAYS: dict[str, Way] = {
    "one look at the end": planned(lambda share: z_of(FALSE), once=True),
    "peeking, nothing paid": planned(lambda share: z_of(FALSE)),
    "any-time, today's bets": betting(0),
    "any-time, one adaptive bet": betting(1),
    "Pocock, five looks": planned(lambda share: FIVE_POCOCK, five=True),
    "O'Brien-Fleming, five looks": planned(lambda share: FIVE_OBRIEN_FLEMING / np.sqrt(share), five=True),
    "O'Brien-Fleming, any looks": planned(lambda share: z_of(FALSE / 2) / np.sqrt(share)),
}


def line(way: Way, drawn: dict[str, tuple[Floats, Floats, Floats]]) -> dict[str, float]:
    def passed(world: str, plan: int) -> tuple[float, float]:
        at, found = way(*drawn[world], plan)
        ever = found.any(axis=1)
        return float(ever.mean()), float(np.where(ever, at[found.argmax(axis=1)], plan).mean())

    needed = next((plan for plan in range(50, LONGEST, 10) if passed("gain", plan)[0] >= POWER), LONGEST)
    return {
        "false": sum(passed("nothing", plan)[0] for plan in (100, 200, 400, 800)) / 4,
        "found in 200": passed("gain", 200)[0],
        "found in 400": passed("gain", 400)[0],
        "needed": needed,
        "mean": passed("gain", needed)[1],
    }


@cache
def _passes(gate: BetterAsPlanned, tasks: int, wins: int, losses: int) -> bool:
    scores = [(0.0, 1.0)] * wins + [(1.0, 0.0)] * losses + [(0.0, 0.0)] * (tasks - wins - losses)
    pairs = (Pair(task_id=str(n), baseline=before, candidate=after) for n, (before, after) in enumerate(scores))
    return gate.decide(Evaluation(pairs=tuple(pairs))).passed


def kept_gate(count: int, plan: int) -> float:
    """How often the gate itself lets pass what is no better."""
    gate, found = BetterAsPlanned(planned_tasks=plan), runs(count, 0.5, 0.5, seed=3)
    return float(
        np.mean(
            [any(_passes(gate, n, int((run[:n] > 0).sum()), int((run[:n] < 0).sum())) for n in looks(plan)) for run in found]
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--gate-runs", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    lines = {}
    for name, (before, after) in {"50 % to 65 %": (0.5, 0.65), "80 % to 88 %": (0.8, 0.88)}.items():
        both = {"nothing": runs(given.runs, before, before, 1), "gain": runs(given.runs, before, after, 2)}
        drawn = {world: (z_scores(found), bets(found), adaptive_bets(found)) for world, found in both.items()}
        for way, judge in WAYS.items():
            lines[f"{name}, {way}"] = found = line(judge, drawn)
            if not given.json:
                print(f"{name:13} {way:28} " + "  ".join(f"{key} {value:g}" for key, value in found.items()), flush=True)
    false = kept_gate(given.gate_runs, 200)
    kept = false <= FALSE + 2 * math.sqrt(FALSE * (1 - FALSE) / given.gate_runs)
    told = {"lines": lines, "gate": false, "kept": kept}
    print(
        json.dumps(told)
        if given.json
        else f"the gate itself, 200 tasks planned: {false:.1%} false, {'kept' if kept else 'not kept'}"
    )
    return int(not kept)


if __name__ == "__main__":
    raise SystemExit(main())
