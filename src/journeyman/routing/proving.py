"""What a router brings on held-out requests, against the best single worker, chance and an oracle; and what the gate says.

Everything is counted in the objective's unit, the success: the utility of an answer is

    success - cost weight * dollars - (p50 weight + p95 weight) * seconds

A request whose provider failed was not answered: its success is 0. With a floor for quality more than enough is worth nothing,
so there the utility is what was saved, and quality has a gate of its own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from journeyman.errors import InputError
from journeyman.evaluation import Decision, Result, pair
from journeyman.examination import Report
from journeyman.experiments.evaluator import FIRST, Look
from journeyman.gate import BetterOnHeldOut
from journeyman.learn.router import decide, metrics
from journeyman.learn.router.objective import Objective
from journeyman.learn.router.policies import ranked_singles
from journeyman.optimizers.outcome_table import Table
from journeyman.stats import Floats, bootstrap_interval
from journeyman.trace import average

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
class Side:
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
class Proof:
    """A router on requests that it has not learned from."""

    report: Report
    """Router against best single worker, in scores of 0 to 1; `span` times a gain is in successes."""
    span: float
    best: str
    sides: Mapping[str, Side]
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
        return self.report.reason

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
            "reason": self.report.reason,
            "span": self.span,
            "sides": {name: {key: getattr(side, key) for key in Side.__slots__} for name, side in self.sides.items()},
            "ece": self.ece,
            "brier": self.brier,
            "aurc": self.aurc,
            "risk_at_coverage": dict(self.risks),
            "report": self.report.json(),
        }


def prove(
    table: Table, made: decide.BatchDecision, *, best: str, most: float, gate: BetterOnHeldOut = _GATE, look: Look = FIRST
) -> Proof:
    """What choices bring on the rows of a table, and whether they may take the best single worker's place.

    Args:
        made: The choices for these rows, with the forecasts that they were made by; a row for which nobody could be chosen
            counts as a wrong answer that cost nothing.
        best: The single worker that is to be beaten.
        most: The largest penalty that counts, from the rows that were learned from.
        gate: Its `least_gain` is in successes.
        look: At these requests: how often they were looked at before, and which were left out.
    """
    chosen, objective = made.chosen, made.objective
    utilities = Utilities.of(table, objective, most)
    single = table.workers.index(best)
    mine, other = _taken(utilities.values, chosen), utilities.values[:, single]
    scored = [
        (id, utilities.score(float(a)), utilities.score(float(b))) for id, a, b in zip(table.ids, mine, other, strict=True)
    ]
    evaluation = look.at(
        pair(
            (Result(task_id=id, score=was) for id, _, was in scored),
            (Result(task_id=id, score=now) for id, now, _ in scored),
        )
    )
    strict = BetterOnHeldOut(
        least_gain=gate.least_gain / utilities.span, least_tasks=gate.least_tasks, alpha=gate.alpha, seed=gate.seed
    )
    decision = strict.decide(evaluation)
    if decision.passed and objective.min_quality is not None:
        lost = _quality_kept(table, utilities, chosen, single, strict, look)
        decision = replace(decision, passed=False, reason=lost.reason) if lost else decision
    confidence = made.forecasts.success
    coverage, risks = _risks(_taken(confidence, chosen), _taken(table.success, chosen))
    return Proof(
        report=Report(evaluation=evaluation, decision=decision),
        span=utilities.span,
        best=best,
        sides=_sides(table, utilities, chosen, objective),
        ece=_known(metrics.ece, confidence, table.success),
        brier=_known(metrics.brier, confidence, table.success),
        aurc=float(risks.mean()) if len(risks) else None,
        requests=len(table),
        risks={f"{c:.0%}": float(np.interp(c, coverage, risks)) for c in _COVERAGES} if len(risks) else {},
    )


def _quality_kept(
    table: Table, utilities: Utilities, chosen: NDArray[np.int64], single: int, gate: BetterOnHeldOut, look: Look
) -> Decision | None:
    """The refusal, where success falls by more than the margin; `None` where it does not."""
    mine, other = _taken(utilities.success, chosen), utilities.success[:, single]
    sides = [[Result(task_id=id, score=_none(v)) for id, v in zip(table.ids, side, strict=True)] for side in (other, mine)]
    margin = BetterOnHeldOut(least_gain=-MARGIN, least_tasks=gate.least_tasks, alpha=gate.alpha, seed=gate.seed)
    decision = margin.decide(look.at(pair(sides[0], sides[1])))
    return None if decision.passed else Decision(False, f"it costs less, and loses success: {decision.reason}")


def _sides(table: Table, utilities: Utilities, chosen: NDArray[np.int64], objective: Objective) -> dict[str, Side]:
    able = [column for column, name in enumerate(table.workers) if objective.admits(name)]
    found = {"router": _side(table, utilities, chosen)}
    for column in able:
        found[table.workers[column]] = _side(table, utilities, np.full(len(table), column))
    among = np.where(np.isnan(utilities.values[:, able]), -np.inf, utilities.values[:, able])
    oracle = np.asarray(able)[among.argmax(axis=1)] if able else chosen
    parts = [_side(table, utilities, np.full(len(table), column)) for column in able]
    found["random"] = Side(
        accuracy=average([side.accuracy for side in parts]),
        cost=average([side.cost for side in parts]),
        seconds=average([side.seconds for side in parts]),
        utility=average([side.utility for side in parts]),
    )
    found["oracle"] = _side(table, utilities, oracle)
    return found


def _side(table: Table, utilities: Utilities, chosen: NDArray[np.int64]) -> Side:
    worth = _taken(utilities.values, chosen)
    known = worth[~np.isnan(worth)]
    low, high = bootstrap_interval(((known - known.mean()) / (2 * utilities.span)).tolist()) if len(known) else (0.0, 0.0)
    names, counts = np.unique(chosen[chosen >= 0], return_counts=True)
    return Side(
        accuracy=_none(_mean(_taken(utilities.success, chosen))),
        cost=_none(_mean(_taken(_charged(table), chosen))),
        seconds=_none(_mean(_taken(table.seconds, chosen))),
        utility=_none(_mean(worth)),
        utility_low=float(known.mean() + 2 * utilities.span * low) if len(known) else None,
        utility_high=float(known.mean() + 2 * utilities.span * high) if len(known) else None,
        shares={table.workers[name]: count / len(table) for name, count in zip(names.tolist(), counts.tolist(), strict=True)},
    )


def _charged(table: Table) -> Floats:
    """Costs, with 0 for calls that failed and of which no charge is known: there is nothing to pay for."""
    return np.where(table.errors & np.isnan(table.cost), 0.0, table.cost)


def _taken(values: Floats, chosen: NDArray[np.int64]) -> Floats:
    """(n,), of the chosen columns; 0 where nobody was chosen."""
    return np.where(chosen >= 0, values[np.arange(len(values)), np.maximum(chosen, 0)], 0.0)


def _risks(confidence: Floats, outcomes: Floats) -> tuple[Floats, Floats]:
    able = ~(np.isnan(outcomes) | np.isnan(confidence))
    return metrics.risk_coverage(confidence[able], outcomes[able]) if able.any() else (np.empty(0), np.empty(0))


def _known(measure: Any, confidence: Floats, outcomes: Floats) -> float | None:
    able = ~(np.isnan(outcomes) | np.isnan(confidence))
    return float(measure(confidence[able], outcomes[able])) if able.any() else None


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def _none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
