"""Never below the best single model: what is learned is used only where it was better than asking one worker always.

The single workers are ranked on the rows that were learned from; which policy is used is decided on validation rows, where each
is worth what its workers' answers really were.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from journeyman.errors import InputError
from journeyman.learn.router.base import Forecasts
from journeyman.learn.router.decide import decide
from journeyman.learn.router.objective import Objective
from journeyman.optimizers.outcome_table import Table
from journeyman.stats import Floats

LEARNED = "learned"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTrial:
    """A policy on the validation rows."""

    name: str
    """`LEARNED`, or the worker that it always asks."""
    utility: float
    """Mean, in successes; with a floor, what is paid alone."""
    quality: float
    cost: float
    """Mean US dollars a request; NaN where no cost is known."""
    seconds: float
    """Mean; NaN where none were measured."""
    keeps: bool
    """Whether it keeps the objective's limits, the floor apart."""
    reaches: bool
    """Whether it reaches the floor, where there is one."""

    @property
    def order(self) -> tuple[bool, bool, float]:
        """The larger, the better: limits, then the floor, then utility, or quality where the floor is not reached."""
        return self.keeps, self.reaches, self.utility if self.reaches else self.quality


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """What was tried, best single first."""

    best: str
    """The one to use: `LEARNED`, or a worker's name."""
    tried: tuple[PolicyTrial, ...]
    rows: int
    """On which all of them are known."""
    gain: float
    """Mean utility of the learned policy over the best single worker's, on the same rows."""
    error: float
    """Standard error of the gain; NaN of fewer than two rows."""
    reason: str


def single_utility(table: Table, objective: Objective) -> Floats:
    """(m,), what always asking one worker brings on average; NaN where it is not known or the objective's limits forbid it."""
    utility = _mean(_utilities(table, objective))
    for column, card in enumerate(table.cards):
        if not (objective.admits(card.name) and _keeps(table.cost[:, column], table.seconds[:, column], objective)):
            utility[column] = np.nan
    return utility


def ranked_singles(table: Table, objective: Objective) -> tuple[str, ...]:
    """Workers that may be asked always, the best first; equals by cost, then by name.

    With a floor, those that reach it come first, the cheapest before the others.
    """
    utility, quality, cost = single_utility(table, objective), _mean(table.success), _mean(table.cost)
    floor = objective.min_quality

    def key(column: int) -> tuple[bool, float, float, str]:
        short = floor is not None and quality[column] < floor
        worth = quality[column] if short else utility[column]
        return short, -worth, math.inf if math.isnan(cost[column]) else float(cost[column]), table.workers[column]

    return tuple(table.workers[column] for column in sorted(np.flatnonzero(~np.isnan(utility)).tolist(), key=key))


def compare(train: Table, validation: Table, forecasts: Forecasts, objective: Objective) -> Policies:
    """The learned policy against the best single worker and the cheapest of all.

    Args:
        train: Rows on which single workers are ranked.
        validation: Rows that nothing was learned from.
        forecasts: Of the validation rows, workers in the table's order.

    Raises:
        InputError: No worker may be asked always, or no validation row is known for all.
    """
    singles = ranked_singles(train, objective)
    if not singles:
        raise InputError(f"no worker alone keeps the limits of {str(objective)!r} on {len(train)} rows; loosen them")
    if forecasts.workers != validation.workers:
        raise InputError("the forecasts are of other workers than the table, or in another order")
    costs = dict(zip(train.workers, np.nan_to_num(_mean(train.cost), nan=np.inf).tolist(), strict=True))
    cheapest = min(singles, key=costs.__getitem__)
    names = tuple(dict.fromkeys((singles[0], cheapest)))
    columns = [np.full(len(validation), validation.workers.index(name), np.int64) for name in names]
    columns.append(decide(forecasts, objective).chosen)
    gained = _utilities(validation, objective)
    worth = np.column_stack([_at(gained, column) for column in columns])
    known = np.flatnonzero(~np.isnan(worth).any(axis=1))
    if not len(known):
        raise InputError(
            f"none of {len(validation)} validation rows is known for the learned choice and the best single worker"
        )
    tried = tuple(
        _tried(name, validation, column, worth[known, at], (known, objective))
        for at, (name, column) in enumerate(zip((*names, LEARNED), columns, strict=True))
    )
    return _judged(tried, worth[known, -1] - worth[known, 0])


def _judged(tried: tuple[PolicyTrial, ...], gains: Floats) -> Policies:
    single, learned = tried[0], tried[-1]
    error = float(gains.std(ddof=1) / math.sqrt(len(gains))) if len(gains) > 1 else math.nan
    better = learned.order > single.order
    numbers = f"{learned.utility:.4f} against {single.utility:.4f} of {single.name}, on {len(gains)} validation rows"
    why = "" if learned.keeps else ", and it breaks a limit"
    why += "" if learned.reaches else f", and its quality of {learned.quality:.4f} is below the floor"
    return Policies(
        best=LEARNED if better else single.name,
        tried=tried,
        rows=len(gains),
        gain=float(gains.mean()),
        error=error,
        reason=f"the learned policy's utility is {numbers}{why}: {'it is used' if better else f'{single.name} is used'}",
    )


def _tried(
    name: str, table: Table, columns: NDArray[np.int64], worth: Floats, kept: tuple[NDArray[np.int64], Objective]
) -> PolicyTrial:
    rows, objective = kept
    cost, seconds = _at(table.cost, columns)[rows], _at(table.seconds, columns)[rows]
    quality = float(_at(table.success, columns)[rows].mean())
    return PolicyTrial(
        name=name,
        utility=float(worth.mean()),
        quality=quality,
        cost=float(_mean(cost)),
        seconds=float(_mean(seconds)),
        reaches=objective.min_quality is None or quality >= objective.min_quality,
        # A policy's limits were tuned on forecasts, so it may miss a budget by what noise explains.
        keeps=_keeps(
            cost, seconds, replace(objective, max_cost=None if objective.max_cost is None else 1.1 * objective.max_cost)
        ),
    )


def _utilities(table: Table, objective: Objective) -> Floats:
    """(n, m), what each answer really was worth; NaN of one that was not judged.

    With a floor, success is worth nothing but to reach it on average.
    """
    success = table.success if objective.min_quality is None else 0.0 * table.success
    return success - objective.penalty(table.cost, table.seconds)


def _keeps(cost: Floats, seconds: Floats, objective: Objective) -> bool:
    mean, times = _mean(cost), seconds[~np.isnan(seconds)]
    if objective.money_counts and not objective.unpriced and np.isnan(mean):
        return False
    if objective.max_cost is not None and mean > objective.max_cost:
        return False
    if objective.deadline is None:
        return True
    return bool(len(times)) and float(np.quantile(times, 0.95)) <= objective.deadline


def _at(values: Floats, columns: NDArray[np.int64]) -> Floats:
    """The chosen column of each row; NaN where nobody was chosen."""
    picked = values[np.arange(len(values)), np.maximum(columns, 0)]
    return np.where(columns >= 0, picked, np.nan)


def _mean(values: Floats) -> Floats:
    """Means of the columns without what is unknown; NaN, and no warning, where nothing is known."""
    known = ~np.isnan(values)
    counts = known.sum(axis=0)
    return np.where(counts, np.where(known, values, 0.0).sum(axis=0) / np.maximum(counts, 1), np.nan)
