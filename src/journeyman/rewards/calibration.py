"""How well numbers between 0 and 1 say what labels say, with intervals, and how to make them say it better.

Attempts at one task resemble each other, so every interval resamples whole groups (tasks), not single attempts.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from journeyman.stats import cohens_kappa

Floats = NDArray[np.float64]
Statistic = Callable[[Floats, Floats], float]
"""Of scores and labels, in one order; NaN where it is not defined."""

ISOTONIC_FROM = 1000
"""Labels from which isotonic regression is no longer worse than Platt's (Niculescu-Mizil and Caruana, ICML 2005)."""
_RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class IntervalEstimate:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def json(self) -> dict[str, float | None]:
        """NaN, which is no JSON, as null."""
        named = {"value": self.value, "low": self.low, "high": self.high}
        return {name: None if math.isnan(number) else round(number, 6) for name, number in named.items()}


def auc(scores: Floats, labels: Floats) -> float:
    """The chance that a success has a higher score than a failure, ties counting half. NaN with one kind of label only."""
    positive = labels > 0.5
    yes, no = int(positive.sum()), int((~positive).sum())
    if not yes or not no:
        return float("nan")
    ranks = stats.rankdata(scores)
    return float((ranks[positive].sum() - yes * (yes + 1) / 2) / (yes * no))


def brier(probabilities: Floats, labels: Floats) -> float:
    """The mean squared distance of probability and label: 0 is perfect, 0.25 is a coin."""
    return float(np.mean((probabilities - labels) ** 2))


def ece(probabilities: Floats, labels: Floats, bins: int = 10) -> float:
    """The expected calibration error: |mean probability - share of successes|, over bins of equally many, in their proportions.

    Equally filled bins, since probabilities of a weak predictor crowd together (Nixon et al., Measuring Calibration in Deep
    Learning, 2019). Some error is chance: about 0.4 · sqrt(bins / n) of it for a perfect predictor around one half.
    """
    order = np.argsort(probabilities, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(len(part) * abs(probabilities[part].mean() - labels[part].mean()) for part in parts) / len(order))


def agreement(scores: Floats, labels: Floats) -> float:
    """The share on which verdict (from one half on) and label are the same."""
    return float(np.mean((scores >= 0.5) == (labels >= 0.5)))


def kappa(scores: Floats, labels: Floats) -> float:
    """Cohen's: agreement beyond chance; 0 is chance, 1 is perfect. NaN when both always say the same one thing."""
    found = cohens_kappa((scores >= 0.5).tolist(), (labels >= 0.5).tolist())
    return float("nan") if found is None else found


def estimate(
    statistic: Statistic, scores: Floats, labels: Floats, groups: Sequence[str], *, inflated: bool = False, seed: int = 0
) -> IntervalEstimate:
    """The statistic with its percentile interval over 1,000 resamplings of groups. (NaN, NaN) where none defined it.

    Of one that resampling inflates, as it does a calibration error, the interval is moved back by as much, to 0 at the least.
    """
    members: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    places = [np.array(found) for _, found in sorted(members.items())]
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(_RESAMPLES):
        drawn = np.concatenate([places[group] for group in rng.integers(len(places), size=len(places))])
        value = statistic(scores[drawn], labels[drawn])
        if not np.isnan(value):
            found.append(value)
    low, high = np.quantile(found, [0.025, 0.975]) if found else (float("nan"), float("nan"))
    value = statistic(scores, labels)
    if inflated and found:
        bias = float(np.mean(found)) - value
        low, high = max(0.0, low - bias), max(0.0, high - bias)
    return IntervalEstimate(value, float(low), float(high))


class Calibrator(Protocol):
    """From a score to the probability of a success."""

    def __call__(self, scores: Floats) -> Floats: ...

    def json(self) -> dict[str, Any]:
        """As a JSON object that `calibrator` reads."""


@dataclass(frozen=True, slots=True)
class Platt:
    """The logistic function of slope · score + offset."""

    slope: float
    offset: float

    def __call__(self, scores: Floats) -> Floats:
        return sigmoid(self.slope * scores + self.offset)

    def json(self) -> dict[str, Any]:
        return {"kind": "platt", "slope": self.slope, "offset": self.offset}


@dataclass(frozen=True, slots=True)
class Isotonic:
    """Straight lines between points that never fall."""

    scores: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __call__(self, scores: Floats) -> Floats:
        return np.interp(scores, self.scores, self.probabilities)

    def json(self) -> dict[str, Any]:
        return {"kind": "isotonic", "scores": list(self.scores), "probabilities": list(self.probabilities)}


def sigmoid(values: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -500, 500))), np.float64)


def calibrated(scores: Floats, labels: Floats) -> Calibrator:
    """The calibrator that fits: isotonic from 1,000 labels on, Platt's below."""
    return _isotonic(scores, labels) if len(labels) >= ISOTONIC_FROM else platt(scores, labels)


def platt(scores: Floats, labels: Floats) -> Platt:
    """By maximum likelihood on targets drawn in a little from 0 and 1 (Platt, Probabilities for SV Machines, 1999).

    The slope is never negative: a score that points the wrong way calibrates to a constant, and is not turned round.
    """
    yes, no = labels.sum(), len(labels) - labels.sum()
    targets = np.where(labels > 0.5, (yes + 1) / (yes + 2), 1 / (no + 2))

    def loss(parameters: Floats) -> float:
        logits = parameters[0] * scores + parameters[1]
        return float(np.mean(np.logaddexp(0, logits) - targets * logits))

    start = np.array([1.0, np.log((yes + 1) / (no + 1))])
    found = optimize.minimize(loss, start, method="L-BFGS-B", bounds=[(0, 1e3), (-1e3, 1e3)])
    return Platt(float(found.x[0]), float(found.x[1]))


def _isotonic(scores: Floats, labels: Floats) -> Isotonic:
    points, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    means = np.bincount(inverse, labels) / counts
    fitted = optimize.isotonic_regression(means, weights=counts).x
    return Isotonic(tuple(map(float, points)), tuple(map(float, fitted)))


def calibrator(data: Mapping[str, Any]) -> Calibrator:
    """What `json` wrote.

    Raises:
        ValueError, KeyError, TypeError: It is not that.
    """
    if data["kind"] == "platt":
        return Platt(finite(data["slope"]), finite(data["offset"]))
    if data["kind"] != "isotonic":
        raise ValueError(f"no calibrator {data['kind']!r}")
    scores, probabilities = (tuple(finite(value) for value in data[name]) for name in ("scores", "probabilities"))
    sound = (
        len(scores) == len(probabilities) > 0
        and sorted(scores) == list(scores)
        and sorted(probabilities) == list(probabilities)
    )
    if not sound:
        raise ValueError("the points of an isotonic calibrator must be as many, and must not fall")
    return Isotonic(scores, probabilities)


def finite(value: Any) -> float:
    """A number out of JSON.

    Raises:
        ValueError: It is none, or not finite.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)


# What may be said: thresholds of which a share of errors is promised, by counting.


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """A promise of what a labeler says: no more than `risk` of it is wrong, and the promise is broken in `1 - confidence` of
    the cases in which it is given, at most."""

    least: float = 0.9
    """The share that is right, at least: of what is said, not of all that there is."""
    confidence: float = 0.9

    @property
    def risk(self) -> float:
        """The largest share that may be wrong."""
        return 1 - self.least

    def upper(self, wrong: int, said: int) -> float:
        """The exact one-sided upper bound of the share that is wrong, by what was counted; 1 where nothing was (Clopper and
        Pearson, Biometrika 26, 1934)."""
        return 1.0 if wrong >= said else float(stats.beta.ppf(self.confidence, wrong + 1, said - wrong))

    def is_shown(self, wrong: int, said: int) -> bool:
        """Whether the counts show it: the chance of no more errors, if the share were `risk`, is at most `1 - confidence`."""
        return said > 0 and float(stats.binom.cdf(wrong, said, self.risk)) <= 1 - self.confidence

    def is_refuted(self, wrong: int, said: int) -> bool:
        """Whether the counts speak against it: the chance of no fewer errors, if the share were `risk`, is at most
        `1 - confidence`."""
        return wrong > 0 and float(stats.binom.sf(wrong - 1, said, self.risk)) <= 1 - self.confidence

    def least_said(self, share_wrong: float = 0.0) -> int | None:
        """Of how many examples, so many of which are wrong, it would be shown; `None` where of no number below a million."""
        if share_wrong >= self.risk:
            return None
        low, high = 0, 1
        while not self.is_shown(round(share_wrong * high), high):
            low, high = high, 2 * high
            if high > 1_000_000:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.is_shown(round(share_wrong * middle), middle) else (middle, high)
        return high


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskSelection:
    """How much may be said, and by what it was shown."""

    share: float
    """Of all cases, the surest ones that may be said."""
    said: int
    """Among the labelled ones, as models judged them that were not taught with them."""
    wrong: int


def select(ranks: Floats, right: NDArray[np.bool_], guarantee: Guarantee) -> RiskSelection | None:
    """The largest share of cases that may be said; `None` where the examples show it of none.

    Learn-then-Test (Angelopoulos, Bates, Candès, Jordan and Lei, "Learn then Test: Calibrating Predictive Algorithms to Achieve
    Risk Control", 2021): each share is a hypothesis that more than `risk` of what would be said is wrong, tested by its exact
    binomial p-value, in a fixed order that ends with the first that is not refused: those that hold the surest examples first,
    as many as just suffice if none of them is wrong. The order follows from the ranks alone, never from who was right. The
    chance that a share is chosen of which the hypothesis is true is at most `1 - confidence`, where the examples are drawn at
    random from the cases that are meant. It is the risk among what is said, and not among all.

    Args:
        ranks: Of each example, the share of cases without a label of which its model is as sure or surer: 0 is the surest.
            Judged by a model that was not taught with it.
        right: Whether that model was right about it.
    """
    found: RiskSelection | None = None
    ordered = np.sort(ranks)
    for count in _counts(len(ranks), guarantee):
        among = ranks <= ordered[count - 1]
        said, wrong = int(among.sum()), int((among & ~right).sum())
        if not guarantee.is_shown(wrong, said):
            return found
        found = RiskSelection(share=float(ordered[count - 1]), said=said, wrong=wrong)
    return found


def _counts(examples: int, guarantee: Guarantee) -> list[int]:
    """Of how many of the surest examples it is asked: of those that admit one error more, and of some between. Where there are
    many examples the first are a quarter of them, so that a single error among the surest does not end it."""
    admitted = [_fewest(0, guarantee)]
    if admitted[0] > examples:
        return []
    while admitted[-1] < examples:
        admitted.append(_fewest(len(admitted), guarantee))
    first = max((each for each in admitted if each <= examples / 4), default=admitted[0])
    between = [low + (high - low) // 2 for low, high in pairwise(admitted)]
    return sorted({each for each in (*admitted, *between) if first <= each < examples} | {examples})


@lru_cache(maxsize=4096)
def _fewest(wrong: int, guarantee: Guarantee) -> int:
    """The fewest examples with so many wrong ones that show it."""
    count = wrong + 1
    while not guarantee.is_shown(wrong, count):
        count += 1
    return count


def examples_needed(ranks: Floats, right: NDArray[np.bool_], guarantee: Guarantee) -> int | None:
    """About how many examples would show it of the share that takes the fewest, if as many were wrong of it as of these now;
    `None` where too many are wrong of all shares. Half an error is added to each: none among few is not none."""
    found = list[int]()
    for share in np.arange(0.1, 1.0 + 1e-9, 0.1):
        among = ranks <= share
        said, wrong = int(among.sum()), int((among & ~right).sum())
        needed = guarantee.least_said((wrong + 0.5) / (said + 1)) if said else None
        if needed is not None:
            found.append(math.ceil(needed / share))
    return min(found, default=None)
