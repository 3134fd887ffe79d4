"""Which worker, given what each is expected to bring: the largest utility of those that meet the limits, in closed form.

Prices, weights and limits enter here and nowhere else, so a new price or objective needs no training. A budget for the mean is
kept by a dual variable, the successes that a dollar is worth beyond the objective's own weight: tuned by bisection on logged
forecasts (`tuned_dual`), and carried on request by request in service (`OnlineBudget`).

Where two workers are equally good the cheaper is taken, then the first by name: the order in which they come plays no part.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from journeyman.core.errors import InputError
from journeyman.core.policy import Forecast
from journeyman.optimizers.outcome_table import Table
from journeyman.optimizers.router.objective import Objective
from journeyman.optimizers.router.predict import Forecasts
from journeyman.stats import Floats

_UNPRICED = 1e300
"""Stands for an unknown cost where only the order of costs matters: behind all that are known."""

_STEPS = 60
"""Halvings of the dual: from there on floats do not tell the ends apart."""


_Weights = tuple[float, float, float]
"""`Objective.weights`, which are read once for all workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """One choice."""

    worker: str
    """Empty where nobody may be chosen."""
    utility: float
    """In successes, by the objective and the budget's price of a dollar; NaN where nobody may be chosen."""
    reason: str
    """One sentence with its numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineBudget:
    """A mean cost that is kept in service, whatever comes: an online knapsack.

    Two things keep it. The dual rises when a request cost more than its share and falls when it cost less (dual mirror descent
    with the Euclidean distance: Balseiro, Lu and Mirrokni, "Dual Mirror Descent for Online Allocation Problems", ICML 2020;
    PILOT, arXiv 2508.21141, prices an LLM router's requests by such a knapsack). And nothing is chosen that costs more than is
    left, so that n requests never cost more than n + `ahead` times their share, as far as the costs were foreseen.
    """

    share: float
    """US dollars a request."""
    dual: float = 0.0
    """Successes a dollar is worth, beyond the objective's own weight. Start with the one tuned on logged forecasts."""
    asked: int = 0
    spent: float = 0.0
    ahead: float = 20.0
    """Requests' shares that may be spent before they come in, so that the first hard request need not wait for easy ones."""
    step: float = 0.02
    """How fast the dual follows, in successes for a request that cost twice its share."""

    @property
    def left(self) -> float:
        """US dollars that the next request may cost."""
        return self.share * (self.asked + 1 + self.ahead) - self.spent

    def after(self, cost: float) -> "OnlineBudget":
        """What is left when a request has cost that many dollars."""
        over = (cost / self.share - 1) if self.share else 0.0
        dual = max(0.0, self.dual + self.step * over / self.share) if self.share else self.dual
        return replace(self, dual=dual, asked=self.asked + 1, spent=self.spent + cost)


@dataclass(frozen=True, kw_only=True)
class BatchDecision:
    """n choices."""

    forecasts: Forecasts
    objective: Objective
    chosen: NDArray[np.int64]
    """(n,), the column of the worker; -1 where nobody may be chosen."""
    dual: float
    """Successes that a dollar was worth beyond the objective's own weight, to keep the budget; 0 where it was kept anyway."""

    def worker(self, at: int) -> str | None:
        column = int(self.chosen[at])
        return self.forecasts.workers[column] if column >= 0 else None

    def verdict(self, at: int) -> Selection:
        """The choice for one request with its reason."""
        return decide_one(row(self.forecasts, at), self.objective, dual=self.dual)


def row(forecasts: Forecasts, at: int) -> tuple[Forecast, ...]:
    """What is expected of each worker for one request; what is NaN in the arrays is `None` here."""
    columns = (forecasts.success, forecasts.cost, forecasts.p50, forecasts.p95)
    success, *others = (column[at].tolist() for column in columns)
    cost, p50, p95 = ([None if math.isnan(value) else value for value in values] for values in others)
    return tuple(
        Forecast(worker=name, success=s, cost=c, p50=half, p95=most)
        for name, s, c, half, most in zip(forecasts.workers, success, cost, p50, p95, strict=True)
    )


def decide(forecasts: Forecasts, objective: Objective, *, dual: float | None = None) -> BatchDecision:
    """The best worker for each request.

    Args:
        dual: Price of a dollar in successes, to keep `objective.max_cost`; without it, it is tuned on these very forecasts.

    Raises:
        InputError: No choice keeps the budget.
    """
    scene = _Scene.of(forecasts, objective)
    price = (_tuned(scene) if objective.max_cost is not None else 0.0) if dual is None else dual
    return BatchDecision(forecasts=forecasts, objective=objective, chosen=scene.chosen(price), dual=price)


def tuned_dual(forecasts: Forecasts, objective: Objective) -> float:
    """The least price of a dollar at which the mean cost of the choices meets `objective.max_cost`.

    Raises:
        InputError: No choice keeps the budget.
    """
    return _tuned(_Scene.of(forecasts, objective))


@dataclass(frozen=True, kw_only=True)
class _Scene:
    """Forecasts as an objective sees them. Columns are in the order of the workers' names."""

    objective: Objective
    columns: NDArray[np.int64]
    """Where each column stood."""
    may: NDArray[np.bool_]
    """(n, m), who meets the hard limits."""
    success: Floats
    cost: Floats
    """US dollars; an unknown one counts as the dearest of the others."""
    waits: Floats
    """Successes that the seconds are worth."""

    @classmethod
    def of(cls, forecasts: Forecasts, objective: Objective) -> "_Scene":
        columns = np.asarray(sorted(range(len(forecasts.workers)), key=forecasts.workers.__getitem__), np.int64)
        success, cost, p50, p95 = (
            values[:, columns] for values in (forecasts.success, forecasts.cost, forecasts.p50, forecasts.p95)
        )
        may = np.asarray([objective.admits(forecasts.workers[column]) for column in columns], np.bool_) & ~np.isnan(success)
        _, p50_weight, p95_weight = objective.weights
        waits = np.zeros_like(success)
        for weight, seconds in ((p50_weight, p50), (p95_weight, p95)):
            if weight:
                may &= ~np.isnan(seconds)
                waits = waits + weight * np.nan_to_num(seconds)
        if objective.deadline is not None:
            may &= np.nan_to_num(p95, nan=np.inf) <= objective.deadline
        if objective.money_counts and not objective.unpriced:
            may &= ~np.isnan(cost)
        return cls(objective=objective, columns=columns, may=may, success=success, cost=_filled(cost, may), waits=waits)

    def chosen(self, dual: float) -> NDArray[np.int64]:
        """(n,), original columns; -1 where nobody may be chosen."""
        if not self.columns.size:
            return np.full(len(self.may), -1, np.int64)
        weight = self.objective.weights[0] + dual
        cost = np.nan_to_num(self.cost)
        paid = self.waits + weight * cost
        may, score = self.may, self.success - paid
        if (floor := self.objective.min_quality) is not None:
            enough = may & (self.success >= floor)
            reached = enough.any(axis=1, keepdims=True)
            may = np.where(reached, enough, may)
            score = np.where(reached, -paid, self.success - dual * cost)
        score = np.where(may, score, -np.inf)
        best = may & (score >= score.max(axis=1, keepdims=True))
        cheapest = np.where(best, np.nan_to_num(self.cost, nan=_UNPRICED), np.inf).argmin(axis=1)
        return np.where(may.any(axis=1), self.columns[cheapest], -1)

    def mean_cost(self, dual: float) -> float:
        """US dollars a request that somebody is chosen for."""
        chosen = self.chosen(dual)
        answered = np.flatnonzero(chosen >= 0)
        if not len(answered):
            return 0.0
        at = np.argsort(self.columns)[chosen[answered]]
        return float(np.nan_to_num(self.cost[answered, at]).mean())


def _filled(cost: Floats, may: NDArray[np.bool_]) -> Floats:
    """Unknown costs as the dearest one of those that may be chosen for the request; NaN where none is known."""
    dearest = np.where(may & ~np.isnan(cost), cost, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
    return np.where(np.isnan(cost), np.where(np.isfinite(dearest), dearest, np.nan), cost)


def _tuned(scene: _Scene) -> float:
    limit = scene.objective.max_cost
    if limit is None or scene.mean_cost(0.0) <= limit:
        return 0.0
    low, high = 0.0, 1.0
    while (mean := scene.mean_cost(high)) > limit:
        low, high = high, high * 8
        if high > 1e18:
            raise InputError(
                f"a budget of ${limit:.6g} a request cannot be met: the cheapest choices cost ${mean:.6g} on average;"
                " raise max_cost, or allow a cheaper worker"
            )
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if scene.mean_cost(middle) <= limit else (middle, high)
    return high


def decide_one(
    forecasts: Sequence[Forecast], objective: Objective, *, dual: float = 0.0, left: float | None = None
) -> Selection:
    """The best worker for one request: the same choice as `decide`, without arrays.

    Args:
        dual: Successes that a dollar is worth beyond the objective's own weight: `OnlineBudget.dual` in service.
        left: US dollars that this request may cost: `OnlineBudget.left` in service.
    """
    weights, priced = objective.weights, objective.money_counts and not objective.unpriced
    able = [forecast for forecast in forecasts if _able(forecast, objective, weights, priced=priced)]
    known = [forecast.cost for forecast in able if forecast.cost is not None]
    dearest = max(known) if known else None
    ranked: list[tuple[bool, float, float, str, Forecast]] = []
    for forecast in able:
        cost = forecast.cost if forecast.cost is not None else dearest
        if left is not None and (cost is None or cost > left):
            continue
        short, score = _score(forecast, cost or 0.0, objective, weights, dual)
        ranked.append((short, -score, _UNPRICED if cost is None else cost, forecast.worker, forecast))
    if not ranked:
        return Selection(worker="", utility=math.nan, reason=_nobody(forecasts, objective, left))
    best = min(ranked)
    ranked.remove(best)
    return Selection(worker=best[3], utility=-best[1], reason=_reason(best, min(ranked) if ranked else None, objective, dual))


def _able(forecast: Forecast, objective: Objective, weights: _Weights, *, priced: bool) -> bool:
    _, p50_weight, p95_weight = weights
    return (
        objective.admits(forecast.worker)
        and not math.isnan(forecast.success)
        and (forecast.p50 is not None or not p50_weight)
        and (forecast.p95 is not None or not p95_weight)
        and (objective.deadline is None or (forecast.p95 is not None and forecast.p95 <= objective.deadline))
        and (forecast.cost is not None or not priced)
    )


def _score(forecast: Forecast, cost: float, objective: Objective, weights: _Weights, dual: float) -> tuple[bool, float]:
    """Whether it falls short of the floor, and what it is worth among those that are alike in that."""
    weight, p50_weight, p95_weight = weights
    waits = (p50_weight and p50_weight * (forecast.p50 or 0.0)) + (p95_weight and p95_weight * (forecast.p95 or 0.0))
    paid = waits + (weight + dual) * cost
    if objective.min_quality is None:
        return False, forecast.success - paid
    if forecast.success >= objective.min_quality:
        return False, -paid
    return True, forecast.success - dual * cost


def _reason(
    best: tuple[bool, float, float, str, Forecast],
    second: tuple[bool, float, float, str, Forecast] | None,
    objective: Objective,
    dual: float,
) -> str:
    short, _, _, name, forecast = best
    why = ""
    if objective.min_quality is not None:
        floor = f"{objective.min_quality:.3g}"
        why = f": nobody reaches {floor}, and it comes nearest" if short else f": the least that reaches {floor}"
    price = f"; a dollar counts {objective.weights[0] + dual:.3g} successes to keep the budget" if dual else ""
    text = f"{name} ({_described(forecast)}, utility {-best[1]:.3f}){why}"
    if second is None:
        return f"{text}; nobody else may be chosen{price}"
    return f"{text}; next is {second[3]} ({_described(second[4])}, utility {-second[1]:.3f}){price}"


def _described(forecast: Forecast) -> str:
    cost = "price unknown" if forecast.cost is None else f"${forecast.cost:.3g}"
    return f"{forecast.success:.3f} likely right, {cost}" + ("" if forecast.p95 is None else f", p95 {forecast.p95:.3g} s")


def _nobody(forecasts: Sequence[Forecast], objective: Objective, left: float | None) -> str:
    """Why nobody may be chosen."""
    admitted = [forecast for forecast in forecasts if objective.admits(forecast.worker)]
    if not admitted:
        return f"none of the {len(forecasts)} workers is allowed"
    if objective.money_counts and not objective.unpriced and all(forecast.cost is None for forecast in admitted):
        return "money counts, and no allowed worker has a known price; give prices, or set unpriced"
    if objective.deadline is not None and all(f.p95 is None or f.p95 > objective.deadline for f in admitted):
        fastest = min((f.p95 for f in admitted if f.p95 is not None), default=None)
        known = "no time was ever measured" if fastest is None else f"the fastest takes {fastest:.3g} s"
        return f"no allowed worker answers 95 of 100 requests within {objective.deadline:.3g} s; {known}"
    if left is not None:
        return f"no allowed worker costs less than the ${left:.3g} that are left of the budget"
    return f"none of the {len(admitted)} allowed workers meets all of {str(objective)!r}, as far as was ever measured"


# Never below the best single model: what is learned is used only where it was better than asking one worker always.
#
# The single workers are ranked on the rows that were learned from; which policy is used is decided on validation rows, where
# each
# is worth what its workers' answers really were.

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
    utility = known_mean(_utilities(table, objective))
    for column, card in enumerate(table.cards):
        if not (objective.admits(card.name) and _keeps(table.cost[:, column], table.seconds[:, column], objective)):
            utility[column] = np.nan
    return utility


def ranked_singles(table: Table, objective: Objective) -> tuple[str, ...]:
    """Workers that may be asked always, the best first; equals by cost, then by name.

    With a floor, those that reach it come first, the cheapest before the others.
    """
    utility, quality, cost = single_utility(table, objective), known_mean(table.success), known_mean(table.cost)
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
    costs = dict(zip(train.workers, np.nan_to_num(known_mean(train.cost), nan=np.inf).tolist(), strict=True))
    cheapest = min(singles, key=costs.__getitem__)
    names = tuple(dict.fromkeys((singles[0], cheapest)))
    columns = [np.full(len(validation), validation.workers.index(name), np.int64) for name in names]
    columns.append(decide(forecasts, objective).chosen)
    gained = _utilities(validation, objective)
    worth = np.column_stack([taken(gained, column) for column in columns])
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
    cost, seconds = taken(table.cost, columns)[rows], taken(table.seconds, columns)[rows]
    quality = float(taken(table.success, columns)[rows].mean())
    return PolicyTrial(
        name=name,
        utility=float(worth.mean()),
        quality=quality,
        cost=float(known_mean(cost)),
        seconds=float(known_mean(seconds)),
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
    mean, times = known_mean(cost), seconds[~np.isnan(seconds)]
    if objective.money_counts and not objective.unpriced and np.isnan(mean):
        return False
    if objective.max_cost is not None and mean > objective.max_cost:
        return False
    if objective.deadline is None:
        return True
    return bool(len(times)) and float(np.quantile(times, 0.95)) <= objective.deadline


def taken(values: Floats, columns: NDArray[np.int64], nobody: float = math.nan) -> Floats:
    """(n,), the chosen column of each row of (n, m), or `nobody` where the column is -1."""
    return np.where(columns >= 0, values[np.arange(len(values)), np.maximum(columns, 0)], nobody)


def known_mean(values: Floats) -> Floats:
    """Means along the first axis without what is unknown; NaN, and no warning, where nothing is known."""
    known = ~np.isnan(values)
    counts = known.sum(axis=0)
    return np.where(counts, np.where(known, values, 0.0).sum(axis=0) / np.maximum(counts, 1), np.nan)
