"""What a reward really rewards, on one's own runs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from journeyman.core.errors import InputError
from journeyman.rewards.utility import RunReward, Runs, total
from journeyman.stats import Floats

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
