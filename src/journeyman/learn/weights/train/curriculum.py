"""Which tasks to draw next: those whose completions are likely to differ in reward, since only those teach GRPO anything."""

import math
import random
from collections.abc import Collection, Sequence
from typing import Any

PRIOR = 0.5
"""So many completions that got everything, and as many that got nothing, is each task thought to have had (Jeffreys' prior)."""


class Curriculum:
    """Draws tasks by the variance of their rewards, measured while training; for rewards of 0 and 1 that is p (1 - p).

    A task that is never solved, or always, has no variance, and a group of its completions no gradient. What is known of a
    task fades with every draw, since the policy that it was measured under has moved on: the hard ones come back when others
    have been learned, and the learned ones to see whether they were forgotten.

    Draws follow from the seed and from what was seen, whenever the process was started.
    """

    def __init__(self, tasks: Sequence[str], *, seed: int, half_life: float = 16.0) -> None:
        """
        Args:
            tasks: Their ids.
            half_life: Draws after which a measured reward counts half.
        """
        self._tasks = tuple(dict.fromkeys(tasks))
        self._seed = seed
        self._half_life = half_life
        self._draws = 0
        self._seen: dict[str, list[float]] = {}
        """Of a task: the draw after which it was last measured, and then count, sum and sum of squares of its rewards."""

    def draw(self, count: int, without: Collection[str] = ()) -> list[str]:
        """Tasks, different ones as far as there are enough.

        A sample without replacement by weight: the smallest of exponential variables with the weights as rates (Efraimidis
        and Spirakis 2006, "Weighted random sampling with a reservoir").

        Args:
            without: Tasks to take only when there are no others.
        """
        self._draws += 1
        chance = random.Random(f"{self._seed} {self._draws}")
        keys = {task: (task in without, chance.expovariate(self.weight(task))) for task in self._tasks}
        order = sorted(self._tasks, key=keys.__getitem__)
        return (order * math.ceil(count / len(order)))[:count]

    def saw(self, task: str, rewards: Sequence[float | None]) -> None:
        """What completions of a task were worth, each from 0 to 1; unknown ones teach nothing."""
        known = [reward for reward in rewards if reward is not None]
        if not known:
            return
        _, *sums = self._faded(task)
        new = (len(known), math.fsum(known), math.fsum(reward * reward for reward in known))
        self._seen[task] = [self._draws, *(old + more for old, more in zip(sums, new, strict=True))]

    def weight(self, task: str) -> float:
        """Expected variance of its rewards, above 0."""
        _, count, total, squares = self._faded(task)
        mean, of_squares = (total + PRIOR) / (count + 2 * PRIOR), (squares + PRIOR) / (count + 2 * PRIOR)
        return of_squares - mean * mean

    @property
    def pass_rate(self) -> float | None:
        """Mean measured reward over the tasks that were seen; `None` before any was."""
        rates = [total / count for _, count, total, _ in self._seen.values()]
        return math.fsum(rates) / len(rates) if rates else None

    def _faded(self, task: str) -> list[float]:
        drawn, *sums = self._seen.get(task, (self._draws, 0.0, 0.0, 0.0))
        left = 0.5 ** ((self._draws - drawn) / self._half_life)
        return [drawn, *(left * each for each in sums)]

    def state_dict(self) -> dict[str, Any]:
        return {"draws": self._draws, "seen": {task: list(sums) for task, sums in self._seen.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._draws = int(state["draws"])
        self._seen = {task: [float(each) for each in sums] for task, sums in state["seen"].items() if task in self._tasks}
