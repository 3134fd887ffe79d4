"""Simulates what the gate promises: how often nothing passes, how often something does, and what the interval covers.

    python benchmarks/sim_gate.py
    python benchmarks/sim_gate.py --trials 2000 --json

Tasks are pass/fail, and the two sides' attempts independent of each other, unless a line says otherwise. Every line states its
bound; the exit code is 1 when one is broken. `standard error` says how far chance alone may carry a line.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from journeyman.core.evaluation import Evaluation, Pair
from journeyman.core.gate import BetterAtAnyTime, BetterOnHeldOut, Gate
from journeyman.stats import bootstrap_interval

Floats = NDArray[np.float64]
Chance = np.random.Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One promise and what came out."""

    what: str
    share: float
    at_most: float = 1.0
    at_least: float = 0.0
    trials: int

    @property
    def error(self) -> float:
        return math.sqrt(max(self.share * (1 - self.share), 1e-4) / self.trials)

    @property
    def kept(self) -> bool:
        """Within two standard errors, so that a promise just kept is not called broken every other time."""
        return self.at_least - 2 * self.error <= self.share <= self.at_most + 2 * self.error


def answers(chance: Chance, tasks: int, right: float) -> Floats:
    return (chance.random(tasks) < right).astype(np.float64)


def passes(gate: BetterOnHeldOut | BetterAtAnyTime, baseline: Floats, candidate: Floats, looks: int = 0) -> bool:
    wins, losses = int(np.sum(candidate > baseline)), int(np.sum(candidate < baseline))
    return _passes(gate, len(baseline), wins, losses, looks)


@cache
def _passes(gate: Gate, tasks: int, wins: int, losses: int, looks: int) -> bool:
    """Of pass/fail tasks only these numbers matter to the gate: the same ones are decided once."""
    scores = [(0.0, 1.0)] * wins + [(1.0, 0.0)] * losses + [(0.0, 0.0)] * (tasks - wins - losses)
    pairs = (Pair(task_id=str(n), baseline=before, candidate=after) for n, (before, after) in enumerate(scores))
    return gate.decide(Evaluation(pairs=tuple(pairs), looks=looks)).passed


def of(trials: int, seed: int, trial: Callable[[Chance], bool]) -> float:
    """The share of trials that come out true."""
    chance = np.random.default_rng(seed)
    return sum(trial(chance) for _ in range(trials)) / trials


def nothing(trials: int) -> Iterator[Line]:
    """Candidates that are no better."""
    once, peeking = BetterOnHeldOut(), BetterAtAnyTime()
    for tasks, right in ((30, 0.9), (60, 0.5), (60, 0.9), (200, 0.5), (200, 0.97)):

        def one_look(chance: Chance, tasks: int = tasks, right: float = right) -> bool:
            return passes(once, answers(chance, tasks, right), answers(chance, tasks, right))

        share = of(trials, tasks, one_look)
        yield Line(what=f"no better, {tasks} tasks at {right:.0%}, one look", share=share, at_most=0.05, trials=trials)

    def after_every_batch(chance: Chance, gate: BetterOnHeldOut | BetterAtAnyTime) -> bool:
        before, after = answers(chance, 200, 0.5), answers(chance, 200, 0.5)
        return any(passes(gate, before[:n], after[:n]) for n in range(30, 201, 10))

    share = of(trials, 2, lambda chance: after_every_batch(chance, peeking))
    yield Line(what="no better, looked at after every 10 of 200, any-time gate", share=share, at_most=0.05, trials=trials)
    share = of(trials, 3, lambda chance: after_every_batch(chance, once))
    yield Line(what="  the same with the gate for one look, to show why", share=share, trials=trials)

    def twenty_candidates(chance: Chance, *, counted: bool) -> bool:
        before = answers(chance, 60, 0.5)
        return any(passes(once, before, answers(chance, 60, 0.5), looks=look if counted else 0) for look in range(20))

    share = of(trials, 4, lambda chance: twenty_candidates(chance, counted=True))
    yield Line(what="any of 20 no-better candidates, looks counted", share=share, at_most=0.05, trials=trials)
    share = of(trials, 4, lambda chance: twenty_candidates(chance, counted=False))
    yield Line(what="  the same with looks not counted, to show why", share=share, trials=trials)


def something(trials: int) -> Iterator[Line]:
    """Candidates that are better, or worse."""
    once, peeking = BetterOnHeldOut(), BetterAtAnyTime()
    for tasks, least in ((100, 0.45), (200, 0.8), (400, 0.97)):

        def gain(chance: Chance, gate: BetterOnHeldOut | BetterAtAnyTime, tasks: int = tasks) -> bool:
            return passes(gate, answers(chance, tasks, 0.5), answers(chance, tasks, 0.65))

        share = of(trials, tasks, lambda chance, gain=gain: gain(chance, once))  # type: ignore[misc]
        yield Line(what=f"gain from 50 % to 65 %, {tasks} tasks", share=share, at_least=least, trials=trials)
        share = of(trials, tasks, lambda chance, gain=gain: gain(chance, peeking))  # type: ignore[misc]
        yield Line(what="  the same, any-time gate", share=share, trials=trials)

    share = of(trials, 5, lambda chance: passes(once, answers(chance, 200, 0.65), answers(chance, 200, 0.5)))
    yield Line(what="harm from 65 % to 50 %, 200 tasks", share=share, at_most=0.0, trials=trials)


def coverage(trials: int) -> Iterator[Line]:
    """How often the 95 % interval holds the truth."""
    for tasks, wins, losses in (
        (10, 0.3, 0.15),
        (30, 0.05, 0.05),
        (30, 0.25, 0.25),
        (60, 0.1, 0.1),
        (200, 0.1, 0.02),
        (1000, 0.3, 0.1),
    ):

        def passfail(chance: Chance, tasks: int = tasks, wins: float = wins, losses: float = losses) -> bool:
            drawn = chance.choice([1.0, -1.0, 0.0], size=tasks, p=[wins, losses, 1 - wins - losses])
            return holds(drawn, wins - losses)

        yield Line(
            what=f"covered, {tasks} tasks, {wins:.0%} won, {losses:.0%} lost",
            share=of(trials, tasks, passfail),
            at_least=0.94,
            trials=trials,
        )

    def rare_disaster(chance: Chance) -> bool:
        """A little better nearly always, and now and then a disaster: no gain on the whole."""
        return holds(np.where(chance.random(40) < 0.05, -0.95, 0.05), 0.0)

    yield Line(
        what="covered, 40 graded tasks with rare disasters", share=of(trials, 8, rare_disaster), at_least=0.94, trials=trials
    )

    def four_trials(chance: Chance) -> bool:
        """Tasks differ in how hard they are; each is attempted four times on both sides."""
        hard = chance.random(60)
        made = (chance.binomial(4, np.clip(hard + 0.1, 0, 1)) - chance.binomial(4, hard)) / 4
        return holds(made, 0.095)

    yield Line(what="covered, 60 tasks in four attempts each", share=of(trials, 9, four_trials), at_least=0.94, trials=trials)


def holds(differences: Floats, truth: float) -> bool:
    low, high = bootstrap_interval(list(differences))
    return low - 1e-9 <= truth <= high + 1e-9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=1000, help="Simulations a line.")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    started = time.process_time()
    lines = []
    for group in (nothing, something, coverage):
        for line in group(options.trials):
            lines.append(line)
            if not options.json:
                bound = (
                    f"at most {line.at_most:.0%}"
                    if line.at_most < 1
                    else f"at least {line.at_least:.0%}"
                    if line.at_least
                    else ""
                )
                print(
                    f"{line.what:62} {line.share:6.1%}  ± {line.error:.1%}  {bound}{'' if line.kept else '  BROKEN'}",
                    flush=True,
                )
    kept = all(line.kept for line in lines)
    if options.json:
        print(
            json.dumps(
                {"lines": [{"what": line.what, "share": line.share, "kept": line.kept} for line in lines], "passed": kept}
            )
        )
    else:
        print(f"{'all kept' if kept else 'broken'}, {time.process_time() - started:.0f} s of CPU")
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
