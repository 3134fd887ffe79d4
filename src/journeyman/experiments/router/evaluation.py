"""What a router brings on held-out requests, against the best single worker, chance and an oracle; and what the gate says.

Everything is counted in the objective's unit, the success: the utility of an answer is

    success - cost weight * dollars - (p50 weight + p95 weight) * seconds

A request whose provider failed was not answered: its success is 0. With a floor for quality more than enough is worth nothing,
so there the utility is what was saved, and quality has a gate of its own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from journeyman.core.errors import InputError
from journeyman.core.evaluation import Decision, Result, pair
from journeyman.core.gate import BetterOnHeldOut
from journeyman.core.trace import average
from journeyman.experiments.compare import EvaluationReport
from journeyman.experiments.evaluator import FIRST, Look
from journeyman.optimizers.outcome_table import Table
from journeyman.optimizers.router.decide import BatchDecision, known_mean, ranked_singles, taken
from journeyman.optimizers.router.objective import Objective
from journeyman.stats import Floats, bootstrap_interval

# How good a router is: what it recovers of a strong model's quality, for what money, and whether its probabilities are true.
#
# Sources: PGR, APGR and CPT are those of Ong et al., "RouteLLM" (arXiv 2406.18665, section 2); AIQ is that of Hu et al.,
# "RouterBench" (arXiv 2403.12031, section 3); ECE is that of Guo et al., "On Calibration of Modern Neural Networks" (arXiv
# 1706.04599); risk and coverage are those of Geifman and El-Yaniv (arXiv 1705.08500).

SHARES = np.linspace(0, 1, 11)
"""Where APGR and CPT look at the curve: every tenth of the calls, straight lines between, as RouteLLM's own evaluation does.
Looked at after every request, noise alone would cross a threshold too early."""


def strong_share_curve(scores: ArrayLike, weak: ArrayLike, strong: ArrayLike) -> tuple[Floats, Floats]:
    """Share of calls to the strong model, and the mean quality there, as the threshold on the scores falls.

    Args:
        scores: (n,), how much a request gains by the strong model; those with the largest go there first.
        weak: (n,), quality of the weak model's answers, 0 to 1.
        strong: (n,), quality of the strong model's.

    Returns:
        Shares from 0 to 1 and qualities, (k + 1,) for k different scores. Between two of them quality is linear: requests with
        one score are sent in random order, so the order of the rows does not matter.
    """
    score, low, high = (np.asarray(values, np.float64) for values in (scores, weak, strong))
    if not len(score) or not len(score) == len(low) == len(high):
        raise ValueError(f"{len(score)} scores, {len(low)} weak and {len(high)} strong qualities do not make a curve")
    order = np.argsort(-score, kind="stable")
    last_of_ties = np.append(np.flatnonzero(np.diff(score[order])), len(score) - 1)
    gained = np.cumsum((high - low)[order])[last_of_ties]
    shares = np.append(0.0, (last_of_ties + 1) / len(score))
    return shares, low.mean() + np.append(0.0, gained) / len(score)


def _recovered(scores: ArrayLike, weak: ArrayLike, strong: ArrayLike) -> tuple[Floats, Floats]:
    """PGR = (quality - weak) / (strong - weak) at eleven shares; not defined without a gap."""
    shares, quality = strong_share_curve(scores, weak, strong)
    gap = quality[-1] - quality[0]
    if gap <= 0:
        raise ValueError("the strong model is not better than the weak one here, so no gap can be recovered")
    return SHARES, (np.interp(SHARES, shares, quality) - quality[0]) / gap


def apgr(scores: ArrayLike, weak: ArrayLike, strong: ArrayLike) -> float:
    """Average performance gap recovered: the integral of PGR over the share of strong calls, from 0 to 1, by trapezoids.

    0.5 is chance, and an oracle may pass 1, as it also avoids what only the weak model gets right. Arguments as in
    `strong_share_curve`.
    """
    shares, recovered = _recovered(scores, weak, strong)
    return float(np.trapezoid(recovered, shares))


def cpt(scores: ArrayLike, weak: ArrayLike, strong: ArrayLike, share: float) -> float:
    """Call-performance threshold: the least percentage of strong calls, 0 to 100, whose PGR is at least `share` (0 to 1)."""
    calls, recovered = _recovered(scores, weak, strong)
    if not 0 <= share <= 1:
        raise ValueError(f"a share of the gap is between 0 and 1, not {share}")
    at = int(np.argmax(recovered >= share - 1e-12))
    if at == 0:
        return 0.0
    rise = (share - recovered[at - 1]) / (recovered[at] - recovered[at - 1])
    return float(100 * (calls[at - 1] + min(rise, 1.0) * (calls[at] - calls[at - 1])))


def hull(costs: ArrayLike, qualities: ArrayLike) -> tuple[Floats, Floats]:
    """The non-decreasing convex hull of (cost, quality) points: what can be had by drawing between two of them.

    Returns:
        Costs, rising, and their qualities, rising too: corners only.
    """
    cost, quality = np.asarray(costs, np.float64), np.asarray(qualities, np.float64)
    corners: list[tuple[float, float]] = []
    for x, y in sorted(zip(cost.tolist(), quality.tolist(), strict=True), key=lambda point: (point[0], -point[1])):
        if corners and y <= corners[-1][1]:
            continue
        while len(corners) > 1 and _slope(corners[-2], corners[-1]) <= _slope(corners[-2], (x, y)):
            corners.pop()
        corners.append((x, y))
    found = np.asarray(corners, np.float64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _slope(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])


def aiq(costs: ArrayLike, qualities: ArrayLike, cost_range: tuple[float, float] | None = None) -> float:
    """Average improvement in quality: the mean height of the hull over a range of costs.

    Args:
        costs: (k,), mean US dollars a request, one for each setting of a router.
        qualities: (k,), mean quality there.
        cost_range: From and to; without one, from the cheapest point to the dearest. Give the same to all that are compared,
            such as the cheapest and the dearest single model's. Beyond the last corner quality stays; for less than the first
            costs, a share of the requests is left without an answer.
    """
    at, height = hull(costs, qualities)
    low, high = cost_range or (float(np.min(np.asarray(costs))), float(np.max(np.asarray(costs))))
    if high <= low:
        return float(np.interp(low, np.append(0.0, at), np.append(0.0, height)))
    if at[0] > 0:
        at, height = np.append(0.0, at), np.append(0.0, height)
    inside = at[(at > low) & (at < high)]
    grid = np.concatenate([[low], inside, [high]])
    return float(np.trapezoid(np.interp(grid, at, height), grid) / (high - low))


def saving(costs: ArrayLike, qualities: ArrayLike, single_cost: float, single_quality: float) -> float | None:
    """The share of a single model's cost that is saved at its quality: 1 - (least cost of a point as good) / `single_cost`.

    No mixing of points; `None` where no point is as good. Arguments as in `aiq`.
    """
    cost, quality = np.asarray(costs, np.float64), np.asarray(qualities, np.float64)
    as_good = cost[quality >= single_quality - 1e-12]
    return 1 - float(as_good.min()) / single_cost if len(as_good) else None


def brier(probabilities: ArrayLike, outcomes: ArrayLike) -> float:
    """Mean squared distance of probabilities from outcomes, both (n,) and 0 to 1; an outcome that is NaN does not count."""
    p, y = _known_metrics(probabilities, outcomes)
    return float(np.mean((p - y) ** 2))


def ece(probabilities: ArrayLike, outcomes: ArrayLike, bins: int = 15) -> float:
    """Expected calibration error: |mean outcome - mean probability| in bins of equal width, weighted by how many fall in each.

    Arguments as in `brier`.
    """
    p, y = _known_metrics(probabilities, outcomes)
    places = np.minimum((p * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(places, weights=p - y, minlength=bins)
    return float(np.abs(gaps).sum() / len(p))


def risk_coverage(confidence: ArrayLike, outcomes: ArrayLike) -> tuple[Floats, Floats]:
    """What share goes wrong of those answered, if only the most confident are.

    Returns:
        Coverages, 1/n to 1, and the risks there, 1 - mean outcome; (n,) each, without the unknown outcomes. Among equal
        confidences each counts as their mean, so the order of the rows does not matter. The mean of the risks is the AURC.
    """
    p, y = _known_metrics(confidence, outcomes)
    order = np.argsort(-p, kind="stable")
    _, group = np.unique(-p[order], return_inverse=True)
    means = np.bincount(group, weights=y[order]) / np.bincount(group)
    places = np.arange(1, len(p) + 1)
    return places / len(p), 1 - np.cumsum(means[group]) / places


def _known_metrics(probabilities: ArrayLike, outcomes: ArrayLike) -> tuple[Floats, Floats]:
    p, y = np.asarray(probabilities, np.float64).ravel(), np.asarray(outcomes, np.float64).ravel()
    if len(p) != len(y):
        raise ValueError(f"{len(p)} probabilities and {len(y)} outcomes cannot be compared")
    known = ~np.isnan(y)
    if not known.any():
        raise ValueError("no outcome is known, so nothing can be said about the probabilities")
    return p[known], y[known]


_GATE = BetterOnHeldOut()
_COVERAGES = (0.2, 0.4, 0.6, 0.8, 1.0)
MARGIN = 0.02
"""How much of the best single worker's success may be lost where a floor for quality is asked for."""


@dataclass(frozen=True, kw_only=True)
class Utilities:
    """Realised utilities of a table, and their map to scores."""

    values: Floats
    """(n, m), in successes; NaN where a part that counts is unknown."""
    success: Floats
    """(n, m), with 0 where the provider failed."""
    most: float
    """The largest penalty that counts: beyond it one answer is as bad as any."""
    weight: float
    """Of a success: 1, or 0 with a floor for quality."""

    @classmethod
    def of(cls, table: Table, objective: Objective, most: float | None = None) -> "Utilities":
        """`most` is taken from the table where it is not given."""
        success = table.answered.success
        penalty = objective.penalty(_charged(table), table.seconds)
        known = penalty[~np.isnan(penalty)]
        largest = float(known.max(initial=0.0)) if most is None else most
        weight = 0.0 if objective.min_quality is not None else 1.0
        values = weight * success - np.minimum(penalty, largest)
        return cls(values=np.where(np.isnan(success), math.nan, values), success=success, most=largest, weight=weight)

    @property
    def span(self) -> float:
        """Successes between the worst and the best answer: a gain in scores times this is one in successes."""
        return (self.weight + self.most) or 1.0

    def score(self, utility: float) -> float | None:
        """0 for a wrong answer at the largest penalty, 1 for a right one at none; `None` where it is unknown."""
        return None if math.isnan(utility) else min(1.0, max(0.0, (utility + self.most) / self.span))


def singles(table: Table, objective: Objective) -> tuple[str, ...]:
    """The workers that the objective could always ask, the best first, by the rows of a table. The first is the incumbent.

    Raises:
        InputError: No worker alone keeps the objective's limits.
    """
    ranked = ranked_singles(table.answered, objective)
    if not ranked:
        raise InputError(
            f"no worker alone keeps the limits of {str(objective)!r} on {len(table)} rows, or what counts is not known of any;"
            " loosen them, or give prices with --prices"
        )
    return ranked


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSide:
    """What a way of choosing brings, per request. `None` is unknown."""

    accuracy: float | None
    cost: float | None
    """US dollars."""
    seconds: float | None
    utility: float | None
    utility_low: float | None = None
    utility_high: float | None = None
    """The 95 % interval by resampling requests."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """How often each worker is asked."""


@dataclass(frozen=True, kw_only=True)
class RouterEvaluation:
    """A router on requests that it has not learned from."""

    report: EvaluationReport
    """Router against best single worker, in scores of 0 to 1; `span` times a gain is in successes."""
    span: float
    best: str
    sides: Mapping[str, RoutingSide]
    """"router", the best single worker's name, the other workers' names, "random" and "oracle"."""
    ece: float | None
    """Expected calibration error of the probabilities of success, over all workers."""
    brier: float | None
    aurc: float | None
    """Area under the risk-coverage curve of the router's choices: the mean share that goes wrong of the most confident."""
    requests: int
    risks: Mapping[str, float] = field(default_factory=dict)
    """Share that goes wrong of the most confident fifth of the router's choices, of two fifths, and so on to all."""

    @property
    def passed(self) -> bool:
        return self.report.passed

    @property
    def reason(self) -> str:
        """The gate's sentence, and in which unit its gain is: beside it `gain` is in successes."""
        unit = "" if self.span == 1.0 else f" (in scores, of which 1 is {self.span:.3g} successes)"
        return f"{self.report.reason}{unit}"

    def record(self) -> dict[str, Any]:
        """As it is kept: with each request's scores."""
        return {**self.json(), "report": self.report.record()}

    @property
    def gain(self) -> float | None:
        """Mean gain in utility, in successes."""
        return None if self.report.gain is None else self.report.gain * self.span

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """Of the gain, 95 %, in successes."""
        low, high = self.report.low, self.report.high
        return (None if low is None else low * self.span), (None if high is None else high * self.span)

    def json(self) -> dict[str, Any]:
        low, high = self.interval
        return {
            "requests": self.requests,
            "best_single": self.best,
            "gain": self.gain,
            "low": low,
            "high": high,
            "passed": self.report.passed,
            "reason": self.reason,
            "span": self.span,
            "sides": {name: {key: getattr(side, key) for key in RoutingSide.__slots__} for name, side in self.sides.items()},
            "ece": self.ece,
            "brier": self.brier,
            "aurc": self.aurc,
            "risk_at_coverage": dict(self.risks),
            "report": self.report.json(),
        }


def prove(
    table: Table, made: BatchDecision, *, best: str, most: float, gate: BetterOnHeldOut = _GATE, look: Look = FIRST
) -> RouterEvaluation:
    """What choices bring on the rows of a table, and whether they may take the best single worker's place.

    Args:
        made: The choices for these rows, with the forecasts that they were made by; a row for which nobody could be chosen
            counts as a wrong answer that cost nothing.
        best: The single worker that is to be beaten.
        most: The largest penalty that counts, from the rows that were learned from.
        gate: Its `min_gain` is in successes.
        look: At these requests: how often they were looked at before, and which were left out.
    """
    chosen, objective = made.chosen, made.objective
    utilities = Utilities.of(table, objective, most)
    single = table.workers.index(best)
    mine, other = _taken(utilities.values, chosen), utilities.values[:, single]
    was, now = ([utilities.score(float(value)) for value in side] for side in (other, mine))
    evaluation = look.at(pair(_results(table, was, _took(table, single)), _results(table, now, _took(table, chosen))))
    strict = replace(gate, min_gain=gate.min_gain / utilities.span)
    decision = strict.decide(evaluation)
    if decision.passed and objective.min_quality is not None:
        lost = _quality_kept(table, utilities, chosen, single, strict, look)
        decision = replace(decision, passed=False, reason=lost.reason) if lost else decision
    confidence = np.where(np.isnan(table.success), np.nan, made.forecasts.success)
    able = ~np.isnan(confidence)
    sure, came = confidence[able], table.success[able]
    picked = _taken(confidence, chosen)
    answered = ~np.isnan(picked)
    coverage, risks = np.empty(0), np.empty(0)
    if answered.any():
        coverage, risks = risk_coverage(picked[answered], _taken(table.success, chosen)[answered])
    return RouterEvaluation(
        report=EvaluationReport(evaluation=evaluation, decision=decision),
        span=utilities.span,
        best=best,
        sides=_sides(table, utilities, chosen, objective),
        ece=ece(sure, came) if len(sure) else None,
        brier=brier(sure, came) if len(sure) else None,
        aurc=float(risks.mean()) if len(risks) else None,
        requests=len(table),
        risks={f"{c:.0%}": float(np.interp(c, coverage, risks)) for c in _COVERAGES} if len(risks) else {},
    )


def _results(table: Table, scores: Sequence[float | None], took: Sequence[Mapping[str, float]]) -> list[Result]:
    return [
        Result(task_id=task.id, score=score, cluster=task.cluster, metrics=metrics)
        for task, score, metrics in zip(table.tasks, scores, took, strict=True)
    ]


def _took(table: Table, chosen: NDArray[np.int64] | int) -> list[dict[str, float]]:
    """What is known of cost and time of each request under these choices."""
    columns = np.broadcast_to(chosen, len(table))
    known = {name: _taken(values, columns).tolist() for name, values in (("cost", table.cost), ("seconds", table.seconds))}
    return [{name: each[row] for name, each in known.items() if not math.isnan(each[row])} for row in range(len(table))]


def _quality_kept(
    table: Table, utilities: Utilities, chosen: NDArray[np.int64], single: int, gate: BetterOnHeldOut, look: Look
) -> Decision | None:
    """The refusal, where success falls by more than the margin; `None` where it does not."""
    mine, other = _taken(utilities.success, chosen), utilities.success[:, single]
    before, now = (_results(table, [_none(value) for value in side], [{}] * len(table)) for side in (other, mine))
    decision = replace(gate, min_gain=-MARGIN, guardrails=()).decide(look.at(pair(before, now)))
    return None if decision.passed else Decision(False, f"it costs less, and loses success: {decision.reason}")


def _sides(table: Table, utilities: Utilities, chosen: NDArray[np.int64], objective: Objective) -> dict[str, RoutingSide]:
    able = [column for column, name in enumerate(table.workers) if objective.admits(name)]
    found = {"router": _side(table, utilities, chosen)}
    for column in able:
        found[table.workers[column]] = _side(table, utilities, np.full(len(table), column))
    among = np.where(np.isnan(utilities.values[:, able]), -np.inf, utilities.values[:, able])
    oracle = np.asarray(able)[among.argmax(axis=1)] if able else chosen
    parts = [_side(table, utilities, np.full(len(table), column)) for column in able]
    found["random"] = RoutingSide(
        accuracy=average([side.accuracy for side in parts]),
        cost=average([side.cost for side in parts]),
        seconds=average([side.seconds for side in parts]),
        utility=average([side.utility for side in parts]),
    )
    found["oracle"] = _side(table, utilities, oracle)
    return found


def _side(table: Table, utilities: Utilities, chosen: NDArray[np.int64]) -> RoutingSide:
    worth = _taken(utilities.values, chosen)
    known = worth[~np.isnan(worth)]
    low, high = bootstrap_interval(((known - known.mean()) / (2 * utilities.span)).tolist()) if len(known) else (0.0, 0.0)
    names, counts = np.unique(chosen[chosen >= 0], return_counts=True)
    return RoutingSide(
        accuracy=_none(known_mean(_taken(utilities.success, chosen))),
        cost=_none(known_mean(_taken(_charged(table), chosen))),
        seconds=_none(known_mean(_taken(table.seconds, chosen))),
        utility=_none(known_mean(worth)),
        utility_low=float(known.mean() + 2 * utilities.span * low) if len(known) else None,
        utility_high=float(known.mean() + 2 * utilities.span * high) if len(known) else None,
        shares={table.workers[name]: count / len(table) for name, count in zip(names.tolist(), counts.tolist(), strict=True)},
    )


def _charged(table: Table) -> Floats:
    """Costs, with 0 for calls that failed and of which no charge is known: there is nothing to pay for."""
    return np.where(table.errors & np.isnan(table.cost), 0.0, table.cost)


def _taken(values: Floats, chosen: NDArray[np.int64]) -> Floats:
    """(n,), of the chosen columns; 0 where nobody was chosen."""
    return taken(values, chosen, nobody=0.0)


def _none(value: float | Floats) -> float | None:
    return None if np.isnan(value) else float(value)
