"""What mirrored requests tell of a candidate before anybody is served it: both answers of each, compared and judged.

Sessions are compared, not requests: those of one session are alike, and would count a mistake as often as it is repeated.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from journeyman.core import extension
from journeyman.core.errors import InputError
from journeyman.core.format import counted
from journeyman.core.rollout import Rollout
from journeyman.core.rollout_decision import Brake, Mirrored, ObservedShadow, mirrored_out
from journeyman.core.trace import average_known
from journeyman.stats import anytime_interval
from journeyman.stores.base import SessionScore
from journeyman.stores.rollouts import RolloutStore
from journeyman.stores.sessions import MirroredPair
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import TraceStore

_COMPARED = ("seconds", "cost", "tokens")
Judge = Callable[[str, Sequence[str]], Sequence[float | None]]
"""What rewards find the answer worth that is in a trace."""


class ShadowJudge:
    """Judges answers by rewards that stand in a plan. Opened when the first one is asked for."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._traces: TraceStore | None = None

    def __call__(self, trace_id: str, rewards: Sequence[str]) -> Sequence[float | None]:
        from journeyman.rewards.engine import RewardEngine

        if self._traces is None:
            self._traces = open_traces(self._url, make=False)
        trace = self._traces.get(trace_id)
        if trace is None:
            return [None] * len(rewards)
        engine = RewardEngine([extension.make("rewards", name) for name in rewards])
        return [result.score for result in engine.verdicts(trace).results.values()]


def check_rewards(rewards: Iterable[str]) -> None:
    """
    Raises:
        InputError: There is no such reward.
    """
    for name in rewards:
        try:
            extension.make("rewards", name)
        except InputError as error:
            raise InputError(f"shadow_rewards: {error}") from None


class ShadowEvidence(NamedTuple):
    """What both answers of mirrored requests have come to."""

    rollout: Rollout
    mirrored: Mirrored
    pairs: Sequence[MirroredPair]
    scores: Mapping[str, Mapping[str, float | None]]
    """By reward: how much more the candidate's answer of each pair was worth than production's."""

    @classmethod
    def read(cls, store: RolloutStore, rollout: Rollout) -> "ShadowEvidence":
        scores = {name: store.scores(rollout.id, _metric(name)) for name in rollout.plan.shadow_rewards}
        return cls(rollout, store.mirrored(rollout.id), store.mirrored_pairs(rollout.id), scores)

    def judged(self, store: RolloutStore, judge: Judge, now: datetime) -> "ShadowEvidence":
        """The same, once every pair is judged."""
        names = self.rollout.plan.shadow_rewards
        known = next(iter(self.scores.values()), {})
        scores = [
            SessionScore(each.pair, _metric(name), None if one is None or other is None else one - other)
            for each in (self.pairs if names else ())
            if each.pair not in known
            for name, one, other in zip(
                names, judge(each.candidate.trace_id, names), judge(each.production.trace_id, names), strict=True
            )
        ]
        if not scores:
            return self
        store.add_scores(self.rollout.id, scores, now)
        return self.read(store, self.rollout)

    def seen(self, now: datetime) -> ObservedShadow:
        """What is decided by."""
        brake = Brake(self.rollout.plan.brake)
        failed = self._by_session({each.pair: float(each.candidate.failed) for each in self.pairs})
        for each in failed:
            brake.add(failed=each > 0)
        days = (now - self.rollout.created_at).total_seconds() / 86_400
        return ObservedShadow(
            mirrored=self.mirrored,
            failed=sum(each > 0 for each in failed),
            brake=brake.tripped,
            worse=self._worse(),
            days=days,
        )

    def summary(self) -> dict[str, Any]:
        """What there is to be seen of it, for JSON."""
        rewards = {name: self._rewarded(name) for name in self.rollout.plan.shadow_rewards}
        return {
            "pairs": self.mirrored.pairs,
            "requests": len(self.pairs),
            "failed": self.seen(self.rollout.created_at).failed,
            "spent": round(self.mirrored.spent, 6),
            "unpriced": self.mirrored.unpriced,
            "budget": self.rollout.plan.shadow_budget,
            "ended": mirrored_out(self.rollout.plan, self.mirrored),
            **{f"{name}_{side}": self._mean(name, side) for name in _COMPARED for side in ("candidate", "production")},
            "rewards": rewards,
        }

    def _mean(self, name: str, side: str) -> float | None:
        """Over pairs that did not fail and of which both sides are known."""
        both = [each for each in self.pairs if not each.candidate.failed]
        known = [each for each in both if None not in (getattr(each.candidate, name), getattr(each.production, name))]
        return average_known(getattr(getattr(each, side), name) for each in known)

    def _by_session(self, values: Mapping[str, float | None]) -> list[float]:
        """The mean of each session over what is known, in the order of their first pairs."""
        found: dict[str, list[float]] = defaultdict(list)
        for each in self.pairs:
            if (value := values.get(each.pair)) is not None:
                found[each.unit].append(value)
        return [sum(of_unit) / len(of_unit) for of_unit in found.values()]

    def _rewarded(self, name: str) -> dict[str, Any]:
        differences = self._by_session(self.scores[name])
        low, high = anytime_interval(differences, self._alpha) if differences else (-1.0, 1.0)
        return {"sessions": len(differences), "mean": average_known(differences), "from": low, "to": high}

    def _worse(self) -> str:
        for name in self.rollout.plan.shadow_rewards:
            found = self._rewarded(name)
            if found["to"] < 0:
                less = f"by {100 * -found['mean']:.3g} points, at least {100 * -found['to']:.3g} whenever one looks"
                return f"{name} is worse on mirrored requests: {less} ({counted(found['sessions'], 'session')})"
        return ""

    @property
    def _alpha(self) -> float:
        """Of a false alarm, over all rewards and looks together."""
        return self.rollout.plan.alpha / max(1, len(self.rollout.plan.shadow_rewards))


def shadow_told(store: RolloutStore, rollout: Rollout) -> dict[str, Any] | None:
    """What there is to be seen of a rollout's mirrored requests; `None` where none ever were."""
    return ShadowEvidence.read(store, rollout).summary() if rollout.was_mirrored else None


def _metric(reward: str) -> str:
    return f"shadow {reward}"
