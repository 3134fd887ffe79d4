"""Cost and latency: their logarithms by ridge regression, and statistics of what is left over, by worker and type."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from journeyman.learn.router.features import Singles
from journeyman.learn.router.predict import Amount
from journeyman.learn.router.regress import ridge
from journeyman.stats import Floats

_PRIOR = 20.0
"""Measurements with which a level weighs as much as the level above it."""

Statistic = Callable[[Floats], float]


def fit_cost(full: Singles, cost: Floats, types: NDArray[np.int64], kinds: int) -> Amount:
    """The mean of costs (n, m), by Duan's smearing (1983): the mean of exp(what is left) brings back what logarithms lose."""
    return _fit(full, cost, types, kinds, (_smear,))


def fit_seconds(full: Singles, seconds: Floats, types: NDArray[np.int64], kinds: int) -> Amount:
    """The 50th and 95th percentiles of seconds (n, m)."""
    return _fit(full, seconds, types, kinds, (partial(_quantile, share=0.5), partial(_quantile, share=0.95)))


def _fit(full: Singles, measured: Floats, types: NDArray[np.int64], kinds: int, statistics: tuple[Statistic, ...]) -> Amount:
    known = ~np.isnan(measured)
    # What is free has no logarithm: its worker is expected at the share of its calls that are not.
    positive = np.where(known & (measured > 0), measured, np.nan)
    level, left = ridge(full, np.log(positive), np.arange(measured.shape[1]))
    share = (~np.isnan(positive)).sum(0) / np.maximum(known.sum(0), 1)
    with np.errstate(divide="ignore"):
        offsets = np.stack([_levels(statistic, left, types, kinds) for statistic in statistics]) + np.log(share)
    return Amount(weights=level.weights, bias=np.where(known.any(0), level.bias, np.nan).astype(np.float32), offsets=offsets)


def _levels(statistic: Statistic, left: Floats, types: NDArray[np.int64], kinds: int) -> Floats:
    """(kinds + 1, m): of each type and worker, shrunk towards the worker's, and that towards all; the last of no type."""
    everybody = statistic(left[~np.isnan(left)])
    found = np.empty((kinds + 1, left.shape[1]))
    for column in range(left.shape[1]):
        mine = ~np.isnan(left[:, column])
        found[kinds, column] = worker = _towards(everybody, statistic, left[mine, column])
        for kind in range(kinds):
            found[kind, column] = _towards(worker, statistic, left[mine & (types == kind), column])
    return found


def _towards(prior: float, statistic: Statistic, left: Floats) -> float:
    return (_PRIOR * prior + len(left) * statistic(left)) / (_PRIOR + len(left))


def _smear(left: Floats) -> float:
    return float(np.log(np.mean(np.exp(np.clip(left, -10, 10))))) if len(left) else 0.0


def _quantile(left: Floats, share: float) -> float:
    return float(np.quantile(left, share)) if len(left) else 0.0
