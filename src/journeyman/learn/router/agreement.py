"""A verifier that needs no key: how likely is the answer that several workers agree on?

Workers err independently of each other, or nearly so, and seldom in the same way. With K answers that are as likely as each
other, a worker that is right with probability a, and wrong answers spread over the other K - 1, Bayes' rule gives an answer x
the weight prod of a (K - 1) / (1 - a) over those that say x, against K - d for "none of them", with d different answers (the
one-coin model of Dawid and Skene, Applied Statistics 28, 1979, with many labels). K is estimated by how often two wrong answers
are the same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from journeyman.stats import Floats

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
