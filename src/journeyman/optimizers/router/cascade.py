"""Ask a cheap worker first, and a dearer one where a verifier is not content.

A cascade is an order of workers and a threshold after each but the last: the answer is given as soon as the verifier's score
reaches it. The verifier is agreement between the answers so far (`by_agreement`) or any score of each answer (`by_scores`), and
never the key. Order and thresholds are tuned on judged rows for the value of information: going on is right as long as what it
gains in success is worth more than what it costs (Chen, Zaharia and Zou, "FrugalGPT", arXiv 2305.05176, for thresholds on a
score; Yue et al., arXiv 2310.03094, for agreement as the verifier).
"""

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from journeyman.core.errors import InputError, ModelError
from journeyman.core.policy import Ending, Outcome
from journeyman.models.base import Dialect, Model, ModelRequest, Reply
from journeyman.stats import Floats

# A verifier that needs no key: how likely is the answer that several workers agree on?
#
# Workers err independently of each other, or nearly so, and seldom in the same way. With K answers that are as likely as each
# other, a worker that is right with probability a, and wrong answers spread over the other K - 1, Bayes' rule gives an answer x
# the weight prod of a (K - 1) / (1 - a) over those that say x, against K - d for "none of them", with d different answers (the
# one-coin model of Dawid and Skene, Applied Statistics 28, 1979, with many labels). K is estimated by how often two wrong
# answers
# are the same.

Answers = NDArray[np.str_]
"""(n, m), as they were read, in one form for equals; empty where an answer could not be read or there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerAgreement:
    """What has to be known of workers to judge their answers together."""

    skill: tuple[float, ...]
    """Of each worker in the order in which they are asked, the share of right answers, above 0 and below 1."""
    chance: float
    """That two wrong answers are the same, above 0: 1 / (K - 1)."""

    def judge(self, answers: Sequence[str]) -> tuple[int, float]:
        """The answer to give, as the place of the first who said it, and the probability that it is right.

        `answers` are those of the first workers, empty where one could not be read. Where none could be read it is the last
        one, with probability 0.
        """
        weights: dict[str, float] = {}
        for answer, vote in zip(answers, self._votes(len(answers)), strict=False):
            if answer:
                weights[answer] = weights.get(answer, 0.0) + vote
        if not weights:
            return len(answers) - 1, 0.0
        leader = max(weights, key=lambda answer: (weights[answer], -answers.index(answer)))
        top = weights[leader]
        others = sum(math.exp(weight - top) for weight in weights.values()) + self._none(len(weights)) * math.exp(-top)
        return answers.index(leader), 1 / others

    def judge_all(self, answers: Answers) -> tuple[NDArray[np.int64], Floats]:
        """The same of n requests after each of k workers: places and probabilities, both (n, k)."""
        n, k = answers.shape
        same = (answers[:, :, None] == answers[:, None, :]) & (answers != "")[:, :, None]
        first = same.argmax(axis=2) == np.arange(k)
        votes = np.asarray(self._votes(k))
        leaders, scores = np.zeros((n, k), np.int64), np.zeros((n, k))
        for t in range(1, k + 1):
            said = same[:, :t, :t].any(axis=2)
            counts = np.where(said, same[:, :t, :t] @ votes[:t], -np.inf)
            distinct = said & first[:, :t]
            leader, top = counts.argmax(axis=1), counts.max(axis=1, keepdims=True)
            level = np.where(np.isfinite(top), top, 0.0)
            none = np.maximum(1 / self.chance + 1 - distinct.sum(axis=1), 1.0) * np.exp(-level[:, 0])
            spread = np.where(distinct, np.exp(np.where(said, counts - level, -np.inf)), 0.0).sum(axis=1) + none
            readable = said.any(axis=1)
            leaders[:, t - 1] = np.where(readable, leader, t - 1)
            scores[:, t - 1] = np.where(readable, 1 / spread, 0.0)
        return leaders, scores

    def _votes(self, workers: int) -> list[float]:
        return [math.log(skill / ((1 - skill) * self.chance)) for skill in self.skill[:workers]]

    def _none(self, different: int) -> float:
        return max(1 / self.chance + 1 - different, 1.0)


def learn(answers: Answers, success: Floats) -> AnswerAgreement:
    """Skills and chance from rows that were judged.

    Args:
        answers: (n, m).
        success: (n, m), NaN where nobody judged.
    """
    known = ~np.isnan(success)
    right = np.where(known, success, 0.0).sum(axis=0)
    skill = (right + 1) / (known.sum(axis=0) + 2)
    wrong = known & (success < 0.5) & (answers != "")
    pairs = same = 0
    for one in range(answers.shape[1]):
        both = wrong[:, one, None] & wrong[:, one + 1 :]
        pairs += int(both.sum())
        same += int((both & (answers[:, one, None] == answers[:, one + 1 :])).sum())
    return AnswerAgreement(skill=tuple(skill.tolist()), chance=(same + 1) / (pairs + 4))


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


# The cascade at work: models asked one after the other until a verifier is content. It is a model itself.
#
# Every call is handed to the log, those that failed too. A provider that fails is no verdict on the answer: the next is asked.


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeCall:
    """One call of a cascade."""

    task_id: str
    """Of the request."""
    step: int
    """From 0."""
    worker: str
    outcome: Outcome
    """UNJUDGED where there is an answer, ERROR where there is none: a verifier's score is not what an evaluator says."""
    score: float | None = None
    """The verifier's, of what would be given now; `None` where the call failed."""
    accepted: bool = False
    """Whether it ended the cascade."""
    error: str = ""


N = TypeVar("N", int, float)


class AnswerVerifier(Protocol):
    """Looks at the answers so far. `None` stands for a worker that gave none."""

    async def verify(self, request: ModelRequest, replies: Sequence[Reply | None]) -> tuple[int, float]:
        """Which one to give, and how sure it is of that one, 0 to 1. One at least is an answer."""


class CheckVerifier:
    """Any check of one answer: a test that runs it, a schema, a judge. The one that it likes best is given."""

    def __init__(self, check: Callable[[ModelRequest, Reply], float | Awaitable[float]]) -> None:
        """`check` returns 0 to 1, or will."""
        self._check = check

    async def verify(self, request: ModelRequest, replies: Sequence[Reply | None]) -> tuple[int, float]:
        # An answer is checked again at every step; a check that is dear keeps its results.
        scores = [-1.0 if reply is None else await self._score(request, reply) for reply in replies]
        best = scores.index(max(scores))
        return best, scores[best]

    async def _score(self, request: ModelRequest, reply: Reply) -> float:
        found = self._check(request, reply)
        return await found if inspect.isawaitable(found) else found


class AgreementVerifier:
    """Agreement of the answers, without a key."""

    def __init__(self, agreement: AnswerAgreement, read: Callable[[str], str | None]) -> None:
        """`read` finds the answer in a reply, in one form for equals, or none; skills are in the order of the cascade."""
        self._agreement = agreement
        self._read = read

    async def verify(self, request: ModelRequest, replies: Sequence[Reply | None]) -> tuple[int, float]:
        found = ["" if reply is None else self._read(reply.text) or "" for reply in replies]
        leader, score = self._agreement.judge(found)
        if replies[leader] is None:
            leader = max(at for at, reply in enumerate(replies) if reply is not None)
        return leader, score


class Cascade:
    """A model that asks others, the cheapest first.

    Its reply is the one that was given, with the cost, tokens and seconds of all calls that were answered; unknown as soon as
    those of one are. `raw` tells who was asked.
    """

    def __init__(
        self,
        steps: Mapping[str, Model],
        thresholds: Sequence[float],
        verifier: AnswerVerifier,
        log: Callable[[CascadeCall], None] = lambda _: None,
    ) -> None:
        """
        Args:
            steps: Models by the name that the log gives them, in the order in which they are asked.
            thresholds: The score that ends the cascade, after each but the last.
        """
        if len(thresholds) != len(steps) - 1:
            raise InputError(f"a cascade of {len(steps)} models has {len(steps) - 1} thresholds, not {len(thresholds)}")
        self._steps = dict(steps)
        self._thresholds = (*thresholds, 0.0)
        self._verifier = verifier
        self._log = log

    @property
    def name(self) -> str:
        return "cascade:" + ",".join(self._steps)

    @property
    def dialect(self) -> Dialect:
        return "terse" if all(model.dialect == "terse" for model in self._steps.values()) else "full"

    @property
    def deterministic(self) -> bool:
        return all(model.deterministic for model in self._steps.values())

    async def complete(self, request: ModelRequest) -> Reply:
        """The answer of the first step whose score reaches its threshold, or the best there is.

        Raises:
            ModelError: All failed; it is the last one's.
        """
        replies: list[Reply | None] = []
        given, failure = -1, ModelError(f"{self.name} has nobody to ask")
        for step, (worker, model) in enumerate(self._steps.items()):
            try:
                reply = await model.complete(request)
            except ModelError as error:
                replies.append(None)
                failure = error
                said = f"{type(error).__name__}: {error}"
                failed = Outcome(ending=Ending.ERROR)
                self._log(CascadeCall(task_id=request.task_id, step=step, worker=worker, outcome=failed, error=said))
                continue
            replies.append(reply)
            given, score = await self._verifier.verify(request, replies)
            accepted = score >= self._thresholds[step]
            outcome = _measured(reply)
            self._log(
                CascadeCall(task_id=request.task_id, step=step, worker=worker, outcome=outcome, score=score, accepted=accepted)
            )
            if accepted:
                break
        chosen = replies[given] if given >= 0 else None
        if chosen is None:
            raise failure
        return self._given(chosen, given, replies)

    async def close(self) -> None:
        """Give back the connections of all models."""
        for model in self._steps.values():
            await model.close()

    def _given(self, chosen: Reply, place: int, replies: Sequence[Reply | None]) -> Reply:
        workers = list(self._steps)
        answered = [reply for reply in replies if reply is not None]
        return Reply(
            text=chosen.text,
            model=chosen.model,
            input_tokens=_sum([reply.input_tokens for reply in answered]),
            output_tokens=_sum([reply.output_tokens for reply in answered]),
            cached_tokens=_sum([reply.cached_tokens for reply in answered]),
            cost=_sum([reply.cost for reply in answered]),
            seconds=_sum([reply.seconds for reply in answered]),
            finish=chosen.finish,
            raw={"cascade": workers[: len(replies)], "given": workers[place], "reply": chosen.raw},
        )


def _sum(parts: Sequence[N | None]) -> N | None:
    """Unknown as soon as one part is."""
    known = [part for part in parts if part is not None]
    return sum(known[1:], known[0]) if known and len(known) == len(parts) else None


def _measured(reply: Reply) -> Outcome:
    return Outcome(cost=reply.cost, seconds=reply.seconds, input_tokens=reply.input_tokens, output_tokens=reply.output_tokens)
