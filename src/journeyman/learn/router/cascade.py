"""Ask a cheap worker first, and a dearer one where a verifier is not content.

A cascade is an order of workers and a threshold after each but the last: the answer is given as soon as the verifier's score
reaches it. The verifier is agreement between the answers so far (`by_agreement`) or any score of each answer (`by_scores`), and
never the key. Order and thresholds are tuned on judged rows for the value of information: going on is right as long as what it
gains in success is worth more than what it costs (Chen, Zaharia and Zou, "FrugalGPT", arXiv 2305.05176, for thresholds on a
score; Yue et al., arXiv 2310.03094, for agreement as the verifier).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from journeyman.errors import InputError
from journeyman.learn.router.agreement import AnswerAgreement, Answers
from journeyman.stats import Floats

NEVER = 2.0
"""A threshold that no score reaches: the next worker is always asked."""

_SWEEPS = 3


@dataclass(frozen=True, kw_only=True)
class RecordedAnswers:
    """What m workers answered to n requests, as far as it was recorded."""

    workers: tuple[str, ...]
    answers: Answers
    success: Floats
    """(n, m), 0 to 1."""
    cost: Floats
    """(n, m), US dollars."""
    seconds: Floats | None = None
    """(n, m)"""

    def take(self, rows: NDArray[np.int64]) -> "RecordedAnswers":
        """Some of the requests."""
        seconds = None if self.seconds is None else self.seconds[rows]
        return RecordedAnswers(
            workers=self.workers, answers=self.answers[rows], success=self.success[rows], cost=self.cost[rows], seconds=seconds
        )


@dataclass(frozen=True, kw_only=True)
class Stages:
    """n requests after each of k workers, one asked after the other."""

    score: Floats
    """(n, k), the verifier's, 0 to 1."""
    success: Floats
    """(n, k), of the answer that would be given there."""
    cost: Floats
    """(n, k), US dollars so far."""
    seconds: Floats
    """(n, k), so far; 0 where none were recorded."""

    def worth(self, cost: float, seconds: float = 0.0) -> Floats:
        """(n, k), in successes, by what a dollar and a second are worth."""
        return self.success - cost * self.cost - seconds * self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """A cascade as it was tuned."""

    workers: tuple[str, ...]
    thresholds: tuple[float, ...]
    """The score to reach after each worker but the last."""

    def stops(self, stages: Stages) -> NDArray[np.int64]:
        """(n,), after which worker each request has its answer, from 0."""
        # The last one's answer is given whatever its score.
        reached = stages.score >= np.asarray([*self.thresholds, 0.0])
        return np.asarray(reached.argmax(axis=1), np.int64)


def by_agreement(recorded: RecordedAnswers, order: Sequence[int], agreement: AnswerAgreement) -> Stages:
    """The answer that most speaks for, and the probability that it is right.

    `order` are columns of what was recorded, and `agreement` has the skills of all of them.
    """
    columns = list(order)
    asked = AnswerAgreement(skill=tuple(agreement.skill[column] for column in columns), chance=agreement.chance)
    leaders, score = asked.judge_all(recorded.answers[:, columns])
    return _stages(recorded, columns, leaders, score)


def by_scores(recorded: RecordedAnswers, order: Sequence[int], scores: Floats) -> Stages:
    """The answer that a verifier liked best so far; `scores` are (n, m), 0 to 1, of each answer alone."""
    columns = list(order)
    liked = scores[:, columns]
    best = np.maximum.accumulate(liked, axis=1)
    leaders = np.stack([liked[:, : t + 1].argmax(axis=1) for t in range(len(columns))], axis=1)
    return _stages(recorded, columns, leaders, best)


def _stages(recorded: RecordedAnswers, columns: list[int], leaders: NDArray[np.int64], score: Floats) -> Stages:
    seconds = np.zeros_like(recorded.cost) if recorded.seconds is None else recorded.seconds
    return Stages(
        score=score,
        success=np.take_along_axis(recorded.success[:, columns], leaders, axis=1),
        cost=recorded.cost[:, columns].cumsum(axis=1),
        seconds=seconds[:, columns].cumsum(axis=1),
    )


def tune(stages: Stages, *, cost: float, seconds: float = 0.0) -> tuple[tuple[float, ...], float]:
    """The thresholds of the largest mean worth on these rows, and that worth.

    From the last to the first, each threshold is set to the best there is given the others, and so again until none changes.

    Args:
        cost: Successes that a dollar is worth.
        seconds: Successes that a second is worth.
    """
    worth = stages.worth(cost, seconds)
    n, k = worth.shape
    thresholds = [NEVER] * (k - 1)
    for _ in range(_SWEEPS):
        before = list(thresholds)
        later = worth[:, -1]
        for t in reversed(range(k - 1)):
            here = ~(stages.score[:, :t] >= np.asarray(thresholds[:t])).any(axis=1) if t else np.ones(n, np.bool_)
            thresholds[t] = _best_threshold(stages.score[here, t], (worth[:, t] - later)[here])
            later = np.where(stages.score[:, t] >= thresholds[t], worth[:, t], later)
        if thresholds == before:
            break
    return tuple(thresholds), float(later.mean()) if k > 1 else float(worth[:, 0].mean())


def _best_threshold(scores: Floats, gains: Floats) -> float:
    """From which score on to stop, for the largest sum of gains by stopping; between two scores it lies in the middle."""
    if not len(scores):
        return NEVER
    order = np.argsort(-scores, kind="stable")
    ranked, total = scores[order], np.append(0.0, gains[order].cumsum())
    # Only where the score changes can a threshold lie.
    cuts = np.flatnonzero(np.append(True, np.append(ranked[1:] < ranked[:-1], True)))
    cut = int(cuts[total[cuts].argmax()])
    if cut == 0:
        return NEVER
    return 0.0 if cut == len(ranked) else float((ranked[cut - 1] + ranked[cut]) / 2)


def search(
    recorded: RecordedAnswers, agreement: AnswerAgreement, *, cost: float, seconds: float = 0.0, longest: int = 4, beam: int = 8
) -> tuple[Ladder, float]:
    """The cascade by agreement that is worth the most on these rows, and its mean worth there.

    Orders grow by one worker at a time, the `beam` best of each length are kept, and one worker alone is a cascade too. Rows in
    which a success or cost is unknown are left out.

    Raises:
        InputError: No row is known for all workers.
    """
    whole = np.flatnonzero(~(np.isnan(recorded.success) | np.isnan(recorded.cost)).any(axis=1))
    if not len(whole):
        raise InputError("a cascade is tuned on requests that all of its workers answered, and there is none")
    rows = recorded.take(whole)
    best: tuple[float, tuple[int, ...], tuple[float, ...]] = (-np.inf, (), ())
    kept: list[tuple[int, ...]] = [()]
    for _ in range(min(longest, len(recorded.workers))):
        grown: list[tuple[float, tuple[int, ...], tuple[float, ...]]] = []
        for order in kept:
            for column in set(range(len(recorded.workers))) - set(order):
                longer = (*order, column)
                thresholds, worth = tune(by_agreement(rows, longer, agreement), cost=cost, seconds=seconds)
                grown.append((worth, longer, thresholds))
        grown.sort(key=lambda found: (-found[0], found[1]))
        # A longer one has to be worth more, not as much.
        best = max(best, grown[0], key=lambda found: found[0])
        kept = [order for _, order, _ in grown[:beam]]
    return Ladder(workers=tuple(recorded.workers[column] for column in best[1]), thresholds=best[2]), best[0]
