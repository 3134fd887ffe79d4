"""What another way of choosing would have brought, told from the log of decisions that were really made."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from journeyman.embed.base import Vectors
from journeyman.errors import InputError
from journeyman.learn.router.decisions import LoggedDecision
from journeyman.learn.router.objective import Objective
from journeyman.policy import Choice, Ending, Outcome
from journeyman.rewards.diagnostics import RewardReport, lint
from journeyman.rewards.utility import Runs, Utility, total
from journeyman.routing.policies import Policy
from journeyman.routing.training import choices
from journeyman.stats import Floats
from journeyman.stats.off_policy import LoggedDecisions, OffPolicyResult, evaluate_policy, request_features

Embed = Callable[[Sequence[str]], Vectors]


@dataclass(frozen=True, kw_only=True)
class OffPolicyReport:
    """What another way of choosing would have brought, and what it was measured by."""

    who: str
    """The router's id, or the worker that would always have been chosen."""
    result: OffPolicyResult
    skipped: int
    """Decisions whose worth or text is not known."""
    utility: Utility
    reward: RewardReport
    """What that utility does on these decisions."""

    def json(self) -> dict[str, Any]:
        found = self.result
        return {
            "who": self.who,
            "decisions": found.decisions,
            "skipped": self.skipped,
            "effective": found.effective,
            "refused": found.refused,
            "better": found.better,
            "logged": asdict(found.logged),
            "estimates": {name: asdict(each) for name, each in found.estimates.items()},
            "gain": asdict(found.gain) if found.gain else None,
            "utility": asdict(self.utility),
            "reward": asdict(self.reward),
        }


def of_worker(decisions: Sequence[LoggedDecision], worker: str, objective: Objective) -> OffPolicyReport:
    """What one worker, asked always, would have brought.

    Raises:
        InputError: No decision has a known outcome.
    """
    judged = _judged(decisions, texts=False)
    features = request_features(np.zeros((len(judged.choices), 1)), judged.types)
    return judged.report(worker, [worker] * len(judged.choices), features, objective)


def of_router(decisions: Sequence[LoggedDecision], policy: Policy, embed: Embed) -> OffPolicyReport:
    """What a trained router would have brought by its own objective, had it chosen without exploring.

    Raises:
        InputError: No decision has a known outcome and its text.
    """
    judged, workers = _judged(decisions, texts=True), policy.fitted.workers
    vectors = embed(judged.requests)
    chosen = choices(policy, policy.fitted.forecast(vectors, judged.requests, judged.types)).chosen
    names = [workers[at] if at >= 0 else policy.best for at in chosen.tolist()]
    features = request_features(vectors, judged.types)
    return judged.report(policy.id, names, features, policy.objective, workers)


def utility_of(objective: Objective, runs: Runs) -> Utility:
    """A router's objective as a utility of what really came: the same successes for a dollar and a second."""
    dollars, half, most = objective.weights
    paid = {"dollars_per_success": dollars, "seconds_per_success": half + most}
    made = Utility.of(runs, **{name: 1 / weight for name, weight in paid.items() if weight})
    return replace(
        made,
        cost_weight=made.cost_weight if dollars else 0.0,
        latency_weight=made.latency_weight if half + most else 0.0,
    )


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """The decisions of a log whose outcome somebody judged."""

    choices: tuple[Choice, ...]
    runs: Runs
    requests: tuple[str, ...]
    types: tuple[str, ...]
    decisions: int
    """Of the whole log."""

    def report(
        self, who: str, names: Sequence[str], features: Floats, objective: Objective, workers: Sequence[str] = ()
    ) -> OffPolicyReport:
        """What choosing these names, one for each decision, would have brought; `workers` are all that could be named."""
        utility = utility_of(objective, self.runs)
        rewards = total(utility, self.runs)
        logged = LoggedDecisions.of(self.choices, rewards, features, workers=workers or names)
        target = np.asarray([[float(worker == name) for worker in logged.workers] for name in names])
        return OffPolicyReport(
            who=who,
            result=evaluate_policy(logged, target),
            skipped=self.decisions - len(logged),
            utility=utility,
            reward=lint(utility, self.runs),
        )


def _judged(decisions: Sequence[LoggedDecision], *, texts: bool) -> _Judged:
    ended = [(each, _with_failures(each.outcome)) for each in decisions if each.outcome is not None]
    known = [(each, outcome) for each, outcome in ended if outcome.success is not None and (each.request or not texts)]
    if not known:
        missing = "an outcome that somebody judged, and its text" if texts else "an outcome that somebody judged"
        raise InputError(f"of {len(decisions)} decisions none has {missing}; tell outcomes with `Router.became`")
    return _Judged(
        choices=tuple(each.choice for each, _ in known),
        runs=Runs.of((each.choice.worker, outcome) for each, outcome in known),
        requests=tuple(each.request or "" for each, _ in known),
        types=tuple(each.type for each, _ in known),
        decisions=len(decisions),
    )


def _with_failures(outcome: Outcome) -> Outcome:
    """With a success of 0 where the provider failed: left out, one that is often down would look as good as its answers."""
    return replace(outcome, success=0.0) if outcome.ending is Ending.ERROR else outcome
