"""How workers are drawn to learn more of them: a share at random (epsilon-greedy), or each as often as it may be the best
(Thompson sampling). Every draw is logged with the probability that it had, so that off-policy evaluation can use it.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from journeyman.core.errors import InputError
from journeyman.core.policy import Choice
from journeyman.stats import Floats

_TRUST = 20.0
"""Outcomes that the guess of their variance is worth."""
_FEW = 5.0
"""Cells that the guess of the variance between them is worth."""


def epsilon_greedy(best: str, arms: Sequence[str], share: float, chance: random.Random, *, policy: str) -> Choice:
    """The best one, or for this share of the decisions one drawn evenly among the arms; the propensity is that of the result.

    Args:
        best: One of the arms.
        arms: Who may be drawn, in an order that is always the same.
        share: 0 to 1.
        policy: As it is logged with the choice.
    """
    explored = chance.random() < share
    worker = chance.choice(arms) if explored else best
    return Choice(
        worker=worker,
        propensity=share / len(arms) + (1 - share if worker == best else 0.0),
        candidates=tuple(arms),
        policy=policy,
        explored=explored,
    )


@dataclass(frozen=True, kw_only=True)
class ThompsonConfig:
    """How boldly Thompson sampling explores, and what it believes before the first outcome.

    Raises:
        InputError: The cap is not a share above 0, there are fewer than two draws, or a variance is not above 0.
    """

    cap: float = 0.2
    """The most that may be chosen beside the best as far as is known."""
    draws: int = 128
    """From the posterior, for each decision."""
    noise: float = 0.2
    """Variance of one outcome, as guessed before there are any; the data then speak (empirical Bayes)."""
    between: float = 0.02
    """Variance of workers' means, as guessed."""
    within: float = 0.01
    """Variance of a worker's departure from its mean on one type, as guessed."""

    def __post_init__(self) -> None:
        if not 0 < self.cap <= 1:
            raise InputError(f"the exploration cap is {self.cap}; it lies above 0 and is at most 1")
        if self.draws < 2 or min(self.noise, self.between, self.within) <= 0:
            raise InputError("a Thompson policy needs at least 2 draws, and variances above 0")


@dataclass(kw_only=True)
class Thompson:
    """Hierarchical Gaussian: all workers → a worker → that worker on one type of request.

    A worker's mean on a type is its general mean plus a departure, and what is hard for all is taken out by the type's own
    mean. The variances are estimated from the outcomes (empirical Bayes, method of moments), so types that do not matter are
    pooled by themselves. W. R. Thompson, Biometrika 25 (1933).

    The posterior's probabilities are estimated by Monte Carlo, a worker that no draw favours counting as half a draw, then cut
    to the cap; and the choice is drawn from just this estimate. So the propensity that is logged is the one it was chosen by.
    """

    workers: tuple[str, ...]
    config: ThompsonConfig = field(default_factory=ThompsonConfig)
    name: str = "thompson"
    """The policy's name in the log of decisions."""
    count: dict[str, Floats] = field(default_factory=dict)
    """By type, shape (m,): how often each worker was asked, what that brought in all, and the squares of it."""
    sum: dict[str, Floats] = field(default_factory=dict)
    squares: dict[str, Floats] = field(default_factory=dict)

    def learn(self, type: str, worker: str, worth: float) -> None:
        """One more outcome. What nobody judged is left out: pass no NaN.

        Raises:
            InputError: It is not a number, or the worker is unknown.
        """
        if worker not in self.workers:
            raise InputError(f"{worker!r} is none of the workers {', '.join(self.workers)}")
        if not np.isfinite(worth):
            raise InputError(f"what {worker!r} brought is {worth}; leave out what is not known")
        at = self.workers.index(worker)
        for sums, value in ((self.count, 1.0), (self.sum, worth), (self.squares, worth**2)):
            sums.setdefault(type, np.zeros(len(self.workers)))[at] += value

    def choose(self, type: str, chance: np.random.Generator, ahead: Floats | None = None) -> Choice:
        """Who does it, drawn; with the probability that this had. `ahead` as for `probabilities`."""
        chances = self.probabilities(type, chance, ahead)
        at = int(chance.choice(len(self.workers), p=chances))
        best = int(chances.argmax())
        reason = f"chosen with {chances[at]:.2f}; {self.workers[best]} with {chances[best]:.2f} is the best as far as is known"
        return Choice(
            worker=self.workers[at],
            propensity=float(chances[at]),
            candidates=self.workers,
            policy=self.name,
            reason=reason,
            explored=at != best,
        )

    def probabilities(self, type: str, chance: np.random.Generator, ahead: Floats | None = None) -> Floats:
        """With which each worker is chosen for a request of this type, shape (m,), and the cap is kept.

        Args:
            ahead: (m,), what is known of each for this request beforehand, where outcomes are learned beyond it; minus
                infinity for a worker that may not be chosen. Of all others none has the probability 0.
        """
        means, spreads = self.posterior(type)
        ahead = np.zeros(len(means)) if ahead is None else ahead
        drawn = chance.normal(means, spreads, size=(self.config.draws, len(means))) + ahead
        means = means + ahead
        wins = np.bincount(drawn.argmax(axis=1), minlength=len(means)).astype(np.float64)
        wins[(wins == 0) & np.isfinite(ahead)] = 0.5
        chances: Floats = wins / wins.sum()
        best = int(means.argmax())
        others = 1 - chances[best]
        if others > self.config.cap:
            chances *= self.config.cap / others
            chances[best] = 1 - self.config.cap
        return chances

    def best(self, type: str) -> str:
        """Who is expected to bring most, without exploring."""
        return self.workers[int(self.posterior(type)[0].argmax())]

    def posterior(self, type: str) -> tuple[Floats, Floats]:
        """Mean and standard deviation of what each worker brings on this type beyond what all bring on it, shapes (m,)."""
        names = sorted(self.count)
        empty = np.zeros((0, len(self.workers)))
        kept = (self.count, self.sum, self.squares)
        counts, sums, squares = (np.stack([by_type[name] for name in names]) if names else empty for by_type in kept)
        cells, noise, within, between = self._variances(counts, sums, squares)
        # Each type tells of the worker's general mean with the noise of its own departure on top.
        precisions = np.where(counts > 0, 1 / (within + noise / np.maximum(counts, 1)), 0.0)
        precision = 1 / between + precisions.sum(axis=0)
        general = (precisions * cells).sum(axis=0) / precision
        if type not in self.count:
            return general, np.sqrt(1 / precision + within)
        row = names.index(type)
        others = precision - precisions[row]
        before = (general * precision - precisions[row] * cells[row]) / others
        prior = within + 1 / others
        seen = counts[row] / noise
        mean = (before / prior + seen * cells[row]) / (1 / prior + seen)
        return mean, np.sqrt(1 / (1 / prior + seen))

    def _variances(self, counts: Floats, sums: Floats, squares: Floats) -> tuple[Floats, float, float, float]:
        """Means of the cells less their type's, and the variances of an outcome, of departures and of workers."""
        guess = self.config
        seen, cells = counts > 0, sums / np.maximum(counts, 1)
        everything = counts.sum()
        if not everything:
            return cells, guess.noise, guess.within, guess.between
        middle = sums.sum() / everything
        hard = (sums.sum(axis=1) + 5 * middle) / (counts.sum(axis=1) + 5)
        inside = float(np.maximum(squares - counts * cells**2, 0)[seen].sum())
        free = max(float(everything - seen.sum()), 0.0)
        noise = max((inside + _TRUST * guess.noise) / (free + _TRUST), 1e-6)
        cells = np.where(seen, cells - hard[:, None], 0.0)
        workers = (counts * cells).sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
        departures = _moments(counts, np.where(seen, cells - workers, 0.0), noise, guess.within)
        return cells, noise, departures, _moments(counts.sum(axis=0), workers - workers.mean(), noise, guess.between)

    def to_json(self) -> str:
        rows = {name: [self.count[name].tolist(), self.sum[name].tolist(), self.squares[name].tolist()] for name in self.count}
        known = {key: getattr(self.config, key) for key in ("cap", "draws", "noise", "between", "within")}
        return json.dumps({"thompson": 1, "name": self.name, "workers": self.workers, "config": known, "types": rows}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Thompson":
        """
        Raises:
            InputError: It is not what `to_json` writes.
        """
        try:
            state: Mapping[str, Any] = json.loads(text)
            made = cls(workers=tuple(state["workers"]), config=ThompsonConfig(**state["config"]), name=str(state["name"]))
            for type, arrays in state["types"].items():
                count, sum, squares = (np.asarray(values, np.float64) for values in arrays)
                if not count.shape == sum.shape == squares.shape == (len(made.workers),) or not np.isfinite(arrays).all():
                    raise ValueError(type)
                made.count[type], made.sum[type], made.squares[type] = count, sum, squares
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError("this is no Thompson policy as it was written; begin a new one, or restore the file") from error
        return made


def _moments(counts: Floats, departures: Floats, noise: float, guess: float) -> float:
    """The variance of true departures: that of the seen ones less what noise explains; near a guess while there are few."""
    cells, everything = int((counts > 0).sum()), float(counts.sum())
    excess = float((counts * departures**2).sum()) - cells * noise
    more = _FEW * everything / max(cells, 1)
    return max((excess + more * guess) / (everything + more), 1e-6)


def pareto_front(success: Sequence[float], cost: Sequence[float | None], seconds: Sequence[float | None]) -> tuple[int, ...]:
    """Which workers no other one beats or equals in all three and beats in one. Unknown costs or seconds beat nobody's.

    Where two are alike in all, both stay.
    """
    spent = [[np.inf if value is None or np.isnan(value) else value for value in values] for values in (cost, seconds)]
    losses = np.column_stack([-np.asarray(success, np.float64), *spent])
    beaten = [
        any((other <= one).all() and (other < one).any() for at, other in enumerate(losses) if at != index)
        for index, one in enumerate(losses)
    ]
    return tuple(int(at) for at in np.flatnonzero(~np.asarray(beaten)))
