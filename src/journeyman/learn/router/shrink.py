"""Means that few observations move little: empirical Bayes, each level a prior for the next.

A normal model of group means around 0 with observations around them (Efron and Morris, 1975): the mean of n observations is
multiplied by n / (n + k), k = variance within groups / variance between them, both estimated from all groups together.
"""

import numpy as np
from numpy.typing import NDArray

from journeyman.stats import Floats

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
