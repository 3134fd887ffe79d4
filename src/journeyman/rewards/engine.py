"""Many verdicts become one number, one label, or the advantages of a group."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from numbers import Real
from statistics import fmean, pstdev
from typing import Protocol, runtime_checkable

from journeyman.core import extension
from journeyman.core.errors import InputError
from journeyman.core.reward import Reward, Source, Verdict, decide, mean_known, verified_first
from journeyman.core.score import Score
from journeyman.core.trace import Trace
from journeyman.rewards.base import BROKEN, UNREACHABLE, RewardFunction, RewardResult, judged

_log = logging.getLogger(__name__)
RECORDED = "recorded"
"""What was said of an attempt before: by its run, by its recorder, by people."""
_SPREAD = 1e-9


@runtime_checkable
class GroupReward(Protocol):
    """A reward that measures an attempt by others at the same task."""

    def for_group(self, traces: Sequence[Trace]) -> RewardFunction:
        """The reward with what it needs to know of the group."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What every reward said of one trace."""

    trace_id: str
    results: Mapping[str, RewardResult]
    """By the reward's name."""
    weights: Mapping[str, float]
    said: tuple[Reward, ...] = ()
    """What others said of it: the checks of its run, its recorder, people. It has no part in `combined`."""

    @property
    def score(self) -> Score:
        """The verdicts as rewards with their weights and evidence, the unknown ones as well."""
        return Score(
            trace_id=self.trace_id,
            rewards=tuple(result.named(name, self.weights[name]) for name, result in self.results.items()),
        )

    @property
    def measured(self) -> tuple[Reward, ...]:
        """The rewards that had something to measure, those among them that a failure kept from it as unknown."""
        return tuple(
            reward
            for name, reward in zip(self.results, self.score.rewards, strict=True)
            if name != RECORDED and (reward.value is not None or self.results[name].details.get(UNREACHABLE))
        )

    @property
    def combined(self) -> float | None:
        """The weighted mean over the rewards that could tell, 0 to 1, in which guesses never outweigh a verifier; unknown when
        none of weight could."""
        return mean_known(verified_first(self.score.rewards))


class RewardEngine:
    """Combines rewards.

    Unlike `Score.total`, which is unknown as soon as one reward is, the combined number is taken over the rewards that could
    tell: an answer without code has nothing to execute, and is not the less known for it.
    """

    def __init__(
        self,
        rewards: Iterable[RewardFunction] | None = None,
        *,
        weights: Mapping[str, float] | None = None,
        threshold: float = 0.5,
        decisive: Collection[str] | None = None,
    ) -> None:
        """Put an engine together.

        Args:
            rewards: The default ones, where nothing is said: `rewards.DEFAULTS`, each with its own weight.
            weights: Instead of the rewards' own, by name, as `rewards.weight_fitting.load` reads them from a file. Names of
                rewards that are not here say nothing.
            threshold: The least mean of a good attempt for those who only have an opinion: judges, heuristics.
            decisive: The rewards that decide about the label, as checks do. Where nothing is said, whose word each is tells.

        Raises:
            InputError: Two rewards have one name, or a weight is below 0.
        """
        if rewards is None:
            from journeyman.rewards import defaults

            rewards = defaults()
        self.rewards = tuple(rewards)
        self.threshold = threshold
        self._broken = set[str]()
        """Rewards that were said to have failed."""
        self.decisive = None if decisive is None else frozenset(decisive)
        names = [reward.name for reward in self.rewards]
        for name in sorted(set(names)):
            if names.count(name) > 1:
                raise InputError(f"two rewards are called {name!r}; give one of them another name")
        self.weights = {reward.name: (weights or {}).get(reward.name, reward.weight) for reward in self.rewards}
        for name, weight in self.weights.items():
            if not isinstance(weight, Real) or not 0 <= weight < inf:
                raise InputError(f"the reward {name!r} has the weight {weight!r:.40}; weights are 0 or more, and numbers")

    def for_group(self, traces: Sequence[Trace]) -> "RewardEngine":
        """The same engine, with rewards that measure each attempt by these attempts at the same task."""
        rewards = [_of_group(reward, traces) for reward in self.rewards]
        return RewardEngine(rewards, weights=self.weights, threshold=self.threshold, decisive=self.decisive)

    def verdicts(self, trace: Trace) -> Verdicts:
        """What every reward says, with its details. A reward whose own code failed is said in the log, the first time."""
        results = {reward.name: judged(reward, trace) for reward in self.rewards}
        for name, result in results.items():
            if result.details.get(BROKEN) and name not in self._broken:
                self._broken.add(name)
                _log.warning("%s", result.details["evidence"])
        return self.gathered(trace, results)

    def gathered(self, trace: Trace, results: Mapping[str, RewardResult]) -> Verdicts:
        """Verdicts that were computed before."""
        return Verdicts(trace.id, results, self.weights)

    def score(self, trace: Trace) -> Score:
        """Every reward with its evidence, the unknown ones as well."""
        return self.verdicts(trace).score

    def compute_combined(self, trace: Trace) -> float | None:
        """The weighted mean over the rewards that could tell, 0 to 1; unknown when none could."""
        return self.verdicts(trace).combined

    def compute_for_group(self, traces: Sequence[Trace]) -> list[float | None]:
        """The combined scores of several attempts at one task as advantages: mean 0, standard deviation 1 (of the population).

        As in GRPO (Shao et al., arXiv 2402.03300). A group without spread teaches nothing and gives zeros. An attempt whose
        score is unknown stays unknown, and the others are compared without it.
        """
        engine = self.for_group(traces)
        return normalised([engine.compute_combined(trace) for trace in traces])

    def get_binary_label(self, trace: Trace) -> bool | None:
        """Whether the attempt is one to learn from, for KTO; see `label`."""
        return self.label(self.verdicts(trace))

    def label(self, verdicts: Verdicts) -> bool | None:
        """Whether the attempt was a good one; see `decide`."""
        return self.decide(verdicts).good

    def decide(self, verdicts: Verdicts) -> Verdict:
        """Whether the attempt was a good one, and by whose word, as `core.reward.decide` has it of all that was said of it.

        Unknown where nothing was measured but form: good form alone is no success. A reward that had nothing to measure says
        nothing; one that a failure kept from looking leaves it open.
        """
        own = verdicts.measured
        if self.decisive is not None:
            own = tuple(replace(reward, source=Source.CHECK) for reward in own if reward.name in self.decisive)
        return decide((*verdicts.said, *own), threshold=self.threshold)

    def close(self) -> None:
        """End what rewards have begun, such as a sandbox."""
        for reward in self.rewards:
            if isinstance(reward, _Closing):
                reward.close()


def _of_group(reward: RewardFunction, traces: Sequence[Trace]) -> RewardFunction:
    if not isinstance(reward, GroupReward):
        return reward
    with extension.named("rewards", reward.name):
        return reward.for_group(traces)


@runtime_checkable
class _Closing(Protocol):
    def close(self) -> None: ...


def normalised(scores: Sequence[float | None]) -> list[float | None]:
    """Each known score less their mean, over their standard deviation; zeros where they do not differ."""
    known = [score for score in scores if score is not None]
    if not known:
        return list(scores)
    mean, spread = fmean(known), pstdev(known)
    if spread < _SPREAD:
        return [None if score is None else 0.0 for score in scores]
    return [None if score is None else (score - mean) / spread for score in scores]
