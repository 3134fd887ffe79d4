"""What an evaluation found: candidate against baseline, paired by task, and what a gate made of it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from journeyman.core.errors import InputError
from journeyman.core.task import check_clusters
from journeyman.core.trace import average, average_known

METRICS = ("cost", "seconds", "tokens")
"""What an attempt takes: US dollars, time of model calls, tokens in and out. Less is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The score of one attempt. A file of results holds one a line: `{"task_id": …, "score": …, "trial": …, "cluster": …}`."""

    task_id: str
    score: float | None
    """0 to 1, or `None` when it could not be told."""
    trial: str = "0"
    """Which of several attempts at the task."""
    cluster: str = ""
    """That of the task."""
    metrics: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Those of `METRICS` that are known of it."""

    def __post_init__(self) -> None:
        if self.score is not None and not 0 <= self.score <= 1:
            raise InputError(f"the score of task {self.task_id} is {self.score}; a score is between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One task whose score is known on both sides: the means over its attempts."""

    task_id: str
    baseline: float
    """Of the attempts with a verdict, as `candidate` is."""
    candidate: float
    baseline_unknown: float = 0.0
    """The share of its attempts without a verdict, 0 to 1."""
    candidate_unknown: float = 0.0
    cluster: str = ""
    """Of tasks that go well or badly together, as those of one repository or customer; empty where it stands alone."""
    metrics: Mapping[str, Sequence[float]] = field(default_factory=dict, hash=False)
    """What an attempt took, baseline and candidate: those of `METRICS` that are known of all attempts on both sides."""

    @property
    def difference(self) -> float:
        return self.candidate - self.baseline

    def json(self) -> dict[str, Any]:
        """`{task_id, baseline, candidate}`; shares of attempts without a verdict and the cluster where there are such."""
        always = ("task_id", "baseline", "candidate")
        return {name: value for name, value in asdict(self).items() if value or name in always}

    @property
    def bounds(self) -> tuple[float, float]:
        """The difference if every attempt without a verdict was worth most to the baseline, and if it was to the candidate."""
        was, now = self.baseline * (1 - self.baseline_unknown), self.candidate * (1 - self.candidate_unknown)
        return now - was - self.baseline_unknown, now + self.candidate_unknown - was


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What one side's attempts took: the part that is known, and how many calls it leaves out. `None` where nothing is known:
    unknown is not zero."""

    attempts: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    """US dollars."""
    calls_without_usage: int = 0
    """Whose tokens nobody counted; they are not in the sums."""
    calls_without_price: int = 0
    """Which are not in the cost."""
    seconds: float | None = None
    """Of model calls, one after the other: attempts that ran together took less time on the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Candidate and baseline on the same tasks."""

    pairs: tuple[Pair, ...]
    """By task id."""
    unknown: int = 0
    """Tasks that could not be compared: no attempt with a verdict on one side."""
    unknown_attempts: int = 0
    """Attempts without a verdict at tasks that were compared. A gate bounds each by 0 and 1."""
    looks: int = 0
    """How often these held-out tasks had been looked at before, by other candidates."""
    spent_baseline: Totals = Totals()
    spent_candidate: Totals = Totals()
    only_baseline: tuple[str, ...] = field(default=())
    """Tasks that only the baseline attempted; they are among the unknown."""
    only_candidate: tuple[str, ...] = field(default=())
    contaminated: tuple[str, ...] = field(default=())
    """Held-out tasks that one of the two was trained on. They were left out, and stand nowhere else here."""

    @property
    def tasks(self) -> int:
        """How many were compared."""
        return len(self.pairs)

    @property
    def clusters(self) -> tuple[str, ...]:
        """Of each pair, the one that it belongs to; empty where tasks stand alone."""
        found = tuple(pair.cluster for pair in self.pairs)
        return found if all(found) else ()

    @property
    def differences(self) -> tuple[float, ...]:
        """Candidate minus baseline, a number for each task, from -1 to 1."""
        return tuple(pair.difference for pair in self.pairs)

    @property
    def bounds(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """`differences` at their worst and at their best; both are those where every attempt has a verdict."""
        found = [pair.bounds for pair in self.pairs]
        return tuple(low for low, _ in found), tuple(high for _, high in found)

    @property
    def baseline(self) -> float | None:
        """The mean score; `None` when no task was compared."""
        return average([pair.baseline for pair in self.pairs])

    @property
    def candidate(self) -> float | None:
        return average([pair.candidate for pair in self.pairs])

    @property
    def gain(self) -> float | None:
        """The mean difference."""
        return average(self.differences)

    @property
    def gain_shrunk(self) -> float | None:
        """The gain without what it owes to being chosen: of several candidates on the same tasks the luckiest is the best."""
        from journeyman.stats import without_choice

        return without_choice(self.differences, self.looks + 1, self.clusters) if self.pairs else None

    @property
    def wins(self) -> int:
        return sum(pair.difference > 0 for pair in self.pairs)

    @property
    def losses(self) -> int:
        return sum(pair.difference < 0 for pair in self.pairs)

    @property
    def broken(self) -> tuple[str, ...]:
        """The tasks on which the candidate is worse, those that fell furthest first."""
        fallen = sorted((pair.difference, pair.task_id) for pair in self.pairs if pair.difference < 0)
        return tuple(task_id for _, task_id in fallen)

    def pairs_json(self) -> list[dict[str, Any]]:
        """Every compared task as its JSON: what is kept of an evaluation beside its report."""
        return [pair.json() for pair in self.pairs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """What became of a metric that must not become worse by more than a margin."""

    metric: str
    margin: float
    """The share of the baseline's mean that may be added."""
    unknown: int
    """Compared tasks of which it is not known."""
    baseline: float | None = None
    """The mean over those of which it is; `None` where they are too few to ask."""
    candidate: float | None = None
    bound: float | None = None
    """The increase that it does not exceed, as a share, at the level that decided; `None` where there is none."""
    passed: bool = False

    @property
    def change(self) -> float | None:
        """As a share of the baseline's mean; `None` where that is 0 or not known."""
        if self.baseline is None or self.candidate is None:
            return None
        if self.baseline == 0:
            return 0.0 if self.candidate == 0 else None
        return self.candidate / self.baseline - 1

    def json(self) -> dict[str, Any]:
        return {**asdict(self), "change": self.change}


@dataclass(frozen=True, slots=True)
class Decision:
    passed: bool
    reason: str
    """One sentence with its numbers, shown to people and kept with the release."""
    low: float | None = None
    """The interval that decided, with the looks that were taken before it paid for; `None` where it was not come to."""
    high: float | None = None
    level: float | None = None
    """Of that interval: 0.95 at the first look."""
    guarded: tuple[Guarded, ...] = ()
    """What became of the gate's guardrails."""
    planned_tasks: int | None = None
    """How many there will be at most, where the gate was told."""


def pair(baseline: Iterable[Result], candidate: Iterable[Result], *, looks: int = 0) -> Evaluation:
    """Set two sides' results against each other, task by task.

    Several attempts at a task are one number, their mean: they are not independent, so the task is what counts. One without a
    verdict is left out of it and stands beside it, for a gate to bound. A task is unknown when one side has no attempt with a
    verdict, and so is one that only one side attempted: otherwise leaving out the hard ones would be a way to win.

    Raises:
        InputError: The results do not agree on a task's cluster, or only some of the tasks have one.
    """
    baseline, candidate = tuple(baseline), tuple(candidate)
    clusters = _clusters((*baseline, *candidate))
    before, after = _by_task(baseline), _by_task(candidate)
    pairs, missing = [], 0
    for task_id in sorted(before.keys() & after.keys()):
        (was, was_unknown), (now, now_unknown) = _mean(before[task_id]), _mean(after[task_id])
        if was is not None and now is not None:
            pairs.append(
                Pair(
                    task_id=task_id,
                    baseline=was,
                    candidate=now,
                    baseline_unknown=was_unknown,
                    candidate_unknown=now_unknown,
                    cluster=clusters.get(task_id, ""),
                    metrics=_metrics(before[task_id], after[task_id]),
                )
            )
            missing += sum(result.score is None for result in (*before[task_id], *after[task_id]))
    return Evaluation(
        pairs=tuple(pairs),
        unknown=len(before.keys() | after.keys()) - len(pairs),
        unknown_attempts=missing,
        looks=looks,
        only_baseline=tuple(sorted(before.keys() - after.keys())),
        only_candidate=tuple(sorted(after.keys() - before.keys())),
    )


def _clusters(results: Iterable[Result]) -> Mapping[str, str]:
    """That of each task: one side may leave it to the other to say."""
    found: dict[str, str] = {}
    for result in results:
        known = found.get(result.task_id) or result.cluster
        if result.cluster and known != result.cluster:
            raise InputError(f"the task {result.task_id} is of cluster {known} and of {result.cluster}; a task is of one")
        found[result.task_id] = known
    check_clusters(found)
    return found


def _by_task(results: Iterable[Result]) -> Mapping[str, list[Result]]:
    found: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        found[result.task_id].append(result)
    return found


def _mean(results: Sequence[Result]) -> tuple[float | None, float]:
    """Of the scores that are known, and the share of those that are not."""
    scores = [result.score for result in results]
    return average_known(scores), scores.count(None) / len(scores)


def _metrics(*sides: Sequence[Result]) -> dict[str, Sequence[float]]:
    """The mean of each side, of what is known of all its attempts: what failed took something too."""
    known = set(METRICS).intersection(*(result.metrics for side in sides for result in side))
    return {name: [sum(each.metrics[name] for each in side) / len(side) for side in sides] for name in METRICS if name in known}
