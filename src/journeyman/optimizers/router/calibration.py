"""From scores to probabilities: a rising line through knots, fitted to predictions of rows that were not learned from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from journeyman.stats import Floats

_EDGE = 1e-3
"""No prediction is surer than this."""
_KNOTS = 65
_FEW = 1_000
"""Outcomes below which isotonic regression follows chance (Niculescu-Mizil and Caruana, 2005)."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A piecewise linear, strictly rising map; beyond its ends it stays."""

    scores: Floats
    """(k,), rising."""
    probabilities: Floats
    """(k,), rising, within 0 and 1."""

    def __call__(self, scores: Floats) -> Floats:
        return np.asarray(np.interp(scores, self.scores, self.probabilities))


def identity() -> Calibration:
    return Calibration(scores=np.array([_EDGE, 1 - _EDGE]), probabilities=np.array([_EDGE, 1 - _EDGE]))


def platt(scores: Floats, outcomes: Floats) -> Calibration:
    """A sigmoid in the score's logit: sigmoid(a + b * logit(score)), b at least 0, by maximum likelihood (Platt, 1999)."""
    x = _logit(scores)
    a, b = 0.0, 1.0
    for _ in range(50):
        p = _sigmoid(a + b * x)
        # One pseudo-row at a = 0 and b = 1 keeps the step finite where the outcomes are all alike.
        gradient = np.array([np.sum(p - outcomes) + a, np.sum((p - outcomes) * x) + (b - 1)])
        spread = np.maximum(p * (1 - p), 1e-9)
        cross = np.sum(spread * x)
        curve = np.array([[np.sum(spread) + 1, cross], [cross, np.sum(spread * x * x) + 1]])
        step = np.linalg.solve(curve, gradient)
        a, b = a - step[0], max(b - step[1], 0.0)
        if np.abs(step).max() < 1e-9:
            break
    knots = np.linspace(_EDGE, 1 - _EDGE, _KNOTS)
    return _rising(knots, _sigmoid(a + b * _logit(knots)))


def isotonic(scores: Floats, outcomes: Floats) -> Calibration:
    """Pools adjacent violators; between the middles of two pools it rises linearly."""
    from sklearn.isotonic import IsotonicRegression  # Heavy, and needed to fit only.

    fitted = IsotonicRegression(y_min=_EDGE, y_max=1 - _EDGE).fit_transform(scores, outcomes)
    levels, pools = np.unique(fitted, return_inverse=True)
    middles = np.bincount(pools, weights=scores) / np.bincount(pools)
    return _rising(middles, levels)


def calibration(scores: Floats, outcomes: Floats, fold: NDArray[np.int64]) -> Calibration:
    """The best of doing nothing, Platt and isotonic by squared error on rows that each was not fitted to.

    Args:
        scores: (k,), predictions of rows that were not learned from.
        outcomes: (k,), 0 to 1.
        fold: (k,), the part of the rows that each is in.
    """
    ways = [lambda _s, _o: identity(), platt] + ([isotonic] if len(scores) >= _FEW else [])
    parts = np.unique(fold)
    if len(parts) < 2 or np.ptp(outcomes) == 0:
        return identity()
    errors = []
    for way in ways:
        error = 0.0
        for part in parts:
            out = fold == part
            error += float(np.sum((way(scores[~out], outcomes[~out])(scores[out]) - outcomes[out]) ** 2))
        errors.append(error)
    return ways[int(np.argmin(errors))](scores, outcomes)


def _rising(scores: Floats, probabilities: Floats) -> Calibration:
    """Steps of nothing become tiny ones, so that of two scores the larger stays the larger."""
    lifted = np.clip(probabilities, _EDGE, 1 - _EDGE) * (1 - 1e-4) + 1e-4 * np.clip(scores, 0, 1)
    return Calibration(scores=scores.astype(np.float64), probabilities=lifted)


def _logit(p: Floats) -> Floats:
    clipped = np.clip(p, _EDGE, 1 - _EDGE)
    return np.asarray(np.log(clipped / (1 - clipped)))


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -30, 30))))


# Means that few observations move little: empirical Bayes, each level a prior for the next.
#
# A normal model of group means around 0 with observations around them (Efron and Morris, 1975): the mean of n observations is
# multiplied by n / (n + k), k = variance within groups / variance between them, both estimated from all groups together.

_NONE = 1e9
"""Pseudo-observations where groups do not differ more than chance has it: every mean becomes 0."""


def abilities(success: Floats) -> Floats:
    """(m,): the mean of each column of (n, m), NaN where unknown, shrunk towards the mean of all columns.

    Workers do differ, so the prior never weighs more than 10 observations; every column needs at least one.
    """
    known = ~np.isnan(success)
    counts = known.sum(0)
    means = np.where(known, success, 0).sum(0) / counts
    grand = float(np.mean(means))
    within = float(np.mean((success - means)[known] ** 2)) if known.any() else 0.0
    between = float(np.mean((means - grand) ** 2 - within / counts))
    prior = min(max(within / between, 1.0), 10.0) if between > 0 else 10.0
    return np.asarray((counts * means + prior * grand) / (counts + prior))


def group_sums(values: Floats, groups: NDArray[np.int64], size: int) -> tuple[Floats, Floats, Floats]:
    """Sums, sums of squares and counts of (n, m) values by group, each (size, m); NaN is no observation. Group -1 is none."""
    known = ~np.isnan(values) & (groups >= 0)[:, None]
    sums, squares, counts = (np.zeros((size, values.shape[1])) for _ in range(3))
    filled = np.where(known, values, 0)
    np.add.at(sums, groups, filled)
    np.add.at(squares, groups, filled**2)
    np.add.at(counts, groups, known)
    return sums, squares, counts


def prior_weight(sums: Floats, squares: Floats, counts: Floats) -> Floats:
    """(m,): pseudo-observations at 0 that each column's group means are shrunk by; at least 1."""
    seen = counts > 0
    means = np.divide(sums, counts, out=np.zeros_like(sums), where=seen)
    groups, total = seen.sum(0), counts.sum(0)
    within = (squares - counts * means**2).sum(0) / np.maximum(total - groups, 1)
    # E[sum n * mean^2] = groups * within + total * between.
    between = ((counts * means**2).sum(0) - groups * within) / np.maximum(total, 1)
    weight = np.divide(within, between, out=np.full(len(within), _NONE), where=between > within / _NONE)
    return np.asarray(np.where((total > groups) & (between > 0), np.clip(weight, 1.0, _NONE), _NONE))


def group_means(values: Floats, groups: NDArray[np.int64], size: int) -> Floats:
    """(size, m): shrunk means of (n, m) values by group."""
    sums, squares, counts = group_sums(values, groups, size)
    return np.asarray(sums / (counts + prior_weight(sums, squares, counts)))
