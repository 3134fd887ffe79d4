"""What a run was worth: the reward as documented, and a utility in one unit that success decides.

The documented reward adds terms of four units. With latency in milliseconds one second outweighs a whole success, so what it
prefers is speed (`lint` shows it on one's own runs). The utility counts in successes: what an
operator would pay for one more, in dollars and in seconds, says what a dollar and a second are worth.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from journeyman.core.errors import InputError
from journeyman.core.policy import Outcome
from journeyman.stats import Floats


class Answers(Protocol):
    """Requests to workers as arrays (n, m), such as a table of outcomes; NaN is not known."""

    @property
    def workers(self) -> tuple[str, ...]:
        """m, in the order of the columns."""

    @property
    def success(self) -> Floats: ...
    @property
    def cost(self) -> Floats: ...
    @property
    def seconds(self) -> Floats: ...


class Executed(Protocol):
    """What became of a plan, as far as a reward looks at it."""

    @property
    def success(self) -> bool | float | None: ...
    @property
    def total_cost(self) -> float | None:
        """US dollars."""

    @property
    def total_latency_ms(self) -> float | None: ...
    @property
    def outputs(self) -> Mapping[str, Any]:
        """By subtask; empty where it gave none."""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """n runs as arrays; what is unknown is NaN."""

    workers: tuple[str, ...]
    """n, who did each. Runs of whole plans are told apart by the plan's workers joined, or not at all."""
    success: Floats
    """(n,), 0 to 1."""
    cost: Floats
    """(n,), US dollars."""
    seconds: Floats
    """(n,), along the critical path: what somebody waited for."""
    subtasks: Floats
    """(n,), how many subtasks were done."""

    def __len__(self) -> int:
        return len(self.workers)

    def assuming(self) -> "Runs":
        """The same with the median of what is known where a cost or latency is not. What nobody knows stays unknown."""
        return replace(self, cost=_filled(self.cost), seconds=_filled(self.seconds))

    @classmethod
    def one(cls, *, success: float = 0.0, cost: float | None = 0.0, seconds: float | None = 0.0, subtasks: int = 0) -> "Runs":
        """A single run, of nobody in particular."""
        return cls(
            workers=("",),
            success=measured([success]),
            cost=measured([cost]),
            seconds=measured([seconds]),
            subtasks=measured([subtasks]),
        )

    @classmethod
    def of(cls, outcomes: Iterable[tuple[str, Outcome]]) -> "Runs":
        """Single calls: a worker's name, and what became of asking it."""
        pairs = list(outcomes)
        return cls(
            workers=tuple(worker for worker, _ in pairs),
            success=measured(outcome.success for _, outcome in pairs),
            cost=measured(outcome.cost for _, outcome in pairs),
            seconds=measured(outcome.seconds for _, outcome in pairs),
            subtasks=measured(outcome.success is not None for _, outcome in pairs),
        )

    @classmethod
    def executed(cls, results: Iterable[tuple[str, Executed]]) -> "Runs":
        """Whole plans: a name for who did it, and what became of it."""
        pairs = list(results)
        return cls(
            workers=tuple(worker for worker, _ in pairs),
            success=measured(result.success for _, result in pairs),
            cost=measured(result.total_cost for _, result in pairs),
            seconds=measured(result.total_latency_ms for _, result in pairs) / 1000,
            subtasks=measured(_done(result) for _, result in pairs),
        )

    @classmethod
    def table(cls, table: Answers) -> "Runs":
        """Each request to each worker that answered it, row by row."""
        asked = np.isfinite(table.success)
        names = np.broadcast_to(np.asarray(table.workers, object), asked.shape)
        return cls(
            workers=tuple(names[asked].tolist()),
            success=table.success[asked],
            cost=table.cost[asked],
            seconds=table.seconds[asked],
            subtasks=np.ones(int(asked.sum())),
        )


class RunReward(Protocol):
    """Says what runs were worth, as a sum of terms."""

    def terms(self, runs: Runs) -> Mapping[str, Floats]:
        """By name of the term, shape (n,). NaN where it cannot be told."""


def total(reward: RunReward, runs: Runs) -> Floats:
    """What each run was worth, shape (n,); NaN where a term of it cannot be told."""
    worth: Floats = np.sum([*reward.terms(runs).values()], axis=0)
    return worth


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSumReward:
    """alpha·success - beta·cost - gamma_latency·latency_ms + shaped_reward·subtasks done."""

    alpha: float = 10.0
    beta: float = 0.1
    """For a US dollar."""
    gamma_latency: float = 0.01
    """For a millisecond."""
    shaped_reward: float = 0.1
    """For a subtask that gave an output."""

    def terms(self, runs: Runs) -> Mapping[str, Floats]:
        return {
            "success": self.alpha * runs.success,
            "cost": -self.beta * runs.cost,
            "latency": -self.gamma_latency * 1000 * runs.seconds,
            "subtasks": self.shaped_reward * runs.subtasks,
        }


def compute_reward(
    result: Executed, *, alpha: float = 10.0, beta: float = 0.1, gamma_latency: float = 0.01, shaped_reward: float = 0.1
) -> float:
    """alpha·success - beta·total_cost - gamma_latency·total_latency_ms + shaped_reward·(subtasks with an output).

    Raises:
        InputError: Success, cost or latency is not known: taking it for 0 would make the unknown look free.
    """
    known = {"success": result.success, "total_cost": result.total_cost, "total_latency_ms": result.total_latency_ms}
    if missing := [name for name, value in known.items() if value is None or not np.isfinite(value)]:
        raise InputError(
            f"the result has no {' and no '.join(missing)}, and unknown is not 0; use a Utility, which can assume it"
        )
    documented = WeightedSumReward(alpha=alpha, beta=beta, gamma_latency=gamma_latency, shaped_reward=shaped_reward)
    return float(total(documented, Runs.executed([("", result)]))[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Utility:
    """U = value·success - cost_weight·cost/cost_reference - latency_weight·seconds/seconds_reference, in successes.

    `value` comes with success alone: what fails is never worth more than nothing, however quick it was. A cost or latency that
    is not known counts as the reference, and `assumed` says how often.
    """

    value: float = 1.0
    cost_weight: float = 0.1
    """What a run at the reference's cost loses."""
    latency_weight: float = 0.1
    cost_reference: float | None = None
    """US dollars, the median of the pool or logs; `None` when no cost is known, and cost then counts for nothing."""
    seconds_reference: float | None = None
    most: float = 10.0
    """Times the reference, at which cost and latency are clipped: one call that hung for an hour must not outweigh the rest."""
    refuse_unknown: bool = False
    """Whether a cost or latency that is not known makes the utility unknown, instead of being assumed."""

    @classmethod
    def of(
        cls,
        runs: Runs,
        *,
        dollars_per_success: float | None = None,
        seconds_per_success: float | None = None,
        most: float = 10.0,
    ) -> "Utility":
        """In the operator's words: "I pay so many dollars, and wait so many seconds, for one more success".

        The weights become reference/dollars and reference/seconds. What is not said keeps its default of 0.1: one success is
        then worth ten times the median cost, or ten times the median wait.

        Raises:
            InputError: A number is not above 0, or a price is given for what the runs do not record.
        """
        cost, seconds = _median(runs.cost), _median(runs.seconds)
        made = cls(cost_reference=cost, seconds_reference=seconds, most=most)
        if dollars_per_success is not None:
            made = replace(made, cost_weight=_weight(cost, dollars_per_success, "cost"))
        if seconds_per_success is not None:
            made = replace(made, latency_weight=_weight(seconds, seconds_per_success, "latency"))
        return made

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most that a run can be worth."""
        spent = self.cost_weight * (self.cost_reference is not None) + self.latency_weight * (
            self.seconds_reference is not None
        )
        return -self.most * spent, self.value

    def terms(self, runs: Runs) -> Mapping[str, Floats]:
        return {
            "success": self.value * runs.success,
            "cost": -self.cost_weight * self._share(runs.cost, self.cost_reference),
            "latency": -self.latency_weight * self._share(runs.seconds, self.seconds_reference),
        }

    def assumed(self, runs: Runs) -> Mapping[str, int]:
        """Of how many runs cost and latency are not known and count as the reference."""
        return {
            "cost": int(np.isnan(runs.cost).sum()) if self.cost_reference is not None else 0,
            "latency": int(np.isnan(runs.seconds).sum()) if self.seconds_reference is not None else 0,
        }

    def clipped(self, runs: Runs) -> Mapping[str, int]:
        """Of how many runs cost and latency are so far above the reference that they count as less than they were."""
        spent = {"cost": (runs.cost, self.cost_reference), "latency": (runs.seconds, self.seconds_reference)}
        return {name: int((of > self.most * by).sum()) for name, (of, by) in spent.items() if by is not None}

    @property
    def span(self) -> float:
        """What a score of 1 is above one of 0: a gain in scores times this is one in successes."""
        low, high = self.bounds
        return high - low

    def unit(self, worth: Floats) -> Floats:
        """Utilities as scores from 0 to 1, which a gate compares."""
        return np.clip((worth - self.bounds[0]) / self.span, 0.0, 1.0)

    def _share(self, spent: Floats, reference: float | None) -> Floats:
        if reference is None:
            return np.zeros_like(spent)
        ratio = spent / reference
        known = ratio if self.refuse_unknown else np.where(np.isnan(ratio), 1.0, ratio)
        return np.clip(known, 0.0, self.most)


def _weight(reference: float | None, pays: float, what: str) -> float:
    if not pays > 0:
        raise InputError(f"what one more success is worth in {what} is {pays:g}; it must be above 0")
    if reference is None:
        raise InputError(f"no run has a known {what}, so what one more success is worth in it cannot be used")
    return reference / pays


def _median(spent: Floats) -> float | None:
    known = spent[np.isfinite(spent)]
    middle = float(np.median(known)) if len(known) else 0.0
    # A pool of free workers has no price to measure others by.
    return middle if middle > 0 else (float(known.mean()) or None if len(known) else None)


def _filled(values: Floats) -> Floats:
    known = values[np.isfinite(values)]
    return np.where(np.isnan(values), np.median(known), values) if len(known) else values


def _done(result: Executed) -> int:
    return sum(bool(output) for output in result.outputs.values())


def measured(values: Iterable[float | None]) -> Floats:
    """Shape (n,); NaN where nothing is known."""
    found: Sequence[float] = [float("nan") if value is None else float(value) for value in values]
    return np.asarray(found, np.float64)


# What a reward really rewards, on one's own runs.

_LEAST_RUNS = 20
_DROWNED = 0.25
"""Squared correlation with success below which success does not decide."""
_DECIDES = 0.8
"""Squared correlation with another term from which that one decides."""
_WORSE = 0.02
"""By how much the preferred worker's accuracy may fall behind before it is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TermShare:
    """One term of a reward, over the runs."""

    term: str
    mean: float
    size: float
    """Mean of its absolute value."""
    share: float
    """Of the sizes of all terms together."""
    r2: float | None
    """Squared correlation of the reward with this term; `None` where one of them does not vary. They need not add up to 1."""


@dataclass(frozen=True, kw_only=True)
class RewardReport:
    """What a reward does."""

    runs: int
    skipped: int
    """Runs of which the reward cannot be told."""
    assumed: int
    """Runs whose cost or latency is not known, and counts as the median."""
    shares: tuple[TermShare, ...]
    accuracy: Mapping[str, float]
    """By worker."""
    reward: Mapping[str, float]
    """Mean, by worker."""
    with_accuracy: float | None
    """Spearman's correlation, over workers, of mean reward and accuracy; `None` with fewer than two."""
    with_speed: float | None
    """The same with speed: 1 when the quickest is valued highest."""
    preferred: str
    """The worker with the highest mean reward."""
    most_accurate: str
    warnings: tuple[str, ...]
    """One sentence each; none when success decides."""


def explain(reward: RunReward, runs: Runs) -> tuple[TermShare, ...]:
    """Each term's share, the largest first. A cost or latency that is not known counts as the median.

    Raises:
        InputError: The reward cannot be told of a single run.
    """
    runs = runs.assuming()
    known = _known(reward, runs)
    terms = {name: values[known] for name, values in reward.terms(runs).items()}
    whole = np.sum([*terms.values()], axis=0)
    sizes = {name: float(np.abs(values).mean()) for name, values in terms.items()}
    everything = sum(sizes.values()) or 1.0
    found = [
        TermShare(term=name, mean=float(of.mean()), size=sizes[name], share=sizes[name] / everything, r2=_r2(whole, of))
        for name, of in terms.items()
    ]
    return tuple(sorted(found, key=lambda share: -share.size))


def lint(reward: RunReward, runs: Runs) -> RewardReport:
    """Whether success decides: sizes of the terms, what the reward goes with, and whom it prefers.

    Raises:
        InputError: The reward cannot be told of a single run.
    """
    unknown = np.isnan(runs.cost) | np.isnan(runs.seconds)
    runs = runs.assuming()
    shares, known = explain(reward, runs), _known(reward, runs)
    worth = total(reward, runs)
    by_worker = {name: known & np.asarray([worker == name for worker in runs.workers]) for name in dict.fromkeys(runs.workers)}
    groups = {name: rows for name, rows in by_worker.items() if rows.any()}
    accuracy = {name: float(np.mean(runs.success[rows])) for name, rows in groups.items()}
    rewards = {name: float(worth[rows].mean()) for name, rows in groups.items()}
    speed = {name: -float(np.mean(runs.seconds[rows])) for name, rows in groups.items()}
    preferred, best = max(rewards, key=lambda w: rewards[w]), max(accuracy, key=lambda w: accuracy[w])
    report = RewardReport(
        runs=int(known.sum()),
        skipped=int((~known).sum()),
        assumed=int((unknown & known).sum()),
        shares=shares,
        accuracy=accuracy,
        reward=rewards,
        with_accuracy=spearman(list(rewards.values()), list(accuracy.values())),
        with_speed=spearman(list(rewards.values()), list(speed.values())),
        preferred=preferred,
        most_accurate=best,
        warnings=(),
    )
    return _with_warnings(report)


def _with_warnings(report: RewardReport) -> RewardReport:
    r2 = {share.term: share.r2 for share in report.shares}
    success, said = r2.get("success"), []
    for term, value in r2.items():
        if term != "success" and value is not None and value >= _DECIDES and (success is None or value > success):
            told = "nothing" if success is None else f"{success:.2f}"
            said.append(f"the {term} term alone explains {value:.2f} of this reward's variance, and success {told}")
    if success is not None and success < _DROWNED and not said:
        said.append(f"success explains only {success:.2f} of this reward's variance")
    behind = report.accuracy[report.most_accurate] - report.accuracy[report.preferred]
    if behind > _WORSE:
        said.append(
            f"it prefers {report.preferred}, which is right in {report.accuracy[report.preferred]:.3f} of its runs, to "
            f"{report.most_accurate} with {report.accuracy[report.most_accurate]:.3f}"
        )
    if (sign := report.with_accuracy) is not None and sign < 0:
        said.append(f"over workers it goes against accuracy (Spearman {sign:+.2f})")
    if report.runs < _LEAST_RUNS:
        said.append(f"only {report.runs} runs could be looked at, so this says little")
    return replace(report, warnings=tuple(said))


def spearman(one: list[float], other: list[float]) -> float | None:
    """The correlation of ranks, ties sharing theirs; `None` where there are fewer than two, or no spread."""
    if len(one) < 2 or not np.isfinite(one).all() or not np.isfinite(other).all():
        return None
    return _correlation(_ranks(np.asarray(one)), _ranks(np.asarray(other)))


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    middle: Floats = ends - (counts - 1) / 2
    return middle[inverse]


def _correlation(one: Floats, other: Floats) -> float | None:
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    return float(np.corrcoef(one, other)[0, 1])


def _r2(whole: Floats, term: Floats) -> float | None:
    found = _correlation(whole, term)
    return None if found is None else found**2


def _known(reward: RunReward, runs: Runs) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    known = np.isfinite(total(reward, runs)) & np.isfinite(runs.success)
    if not known.any():
        raise InputError("this reward cannot be told of a single run: success, cost or latency is unknown in each")
    return np.asarray(known)
