"""What another way of choosing would have brought, told from the log of decisions that were really made."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from journeyman.embed.base import Vectors
from journeyman.errors import InputError
from journeyman.learn.planner.lint import Report, lint
from journeyman.learn.planner.offpolicy import Logged, Verdict, compressed, evaluate
from journeyman.learn.planner.utility import Runs, Utility
from journeyman.learn.router.decisions import Decision
from journeyman.learn.router.objective import Objective
from journeyman.learn.router.table import Floats
from journeyman.policy import Choice, Ending, Outcome
from journeyman.routing.policies import Policy
from journeyman.routing.training import choices

Embed = Callable[[Sequence[str]], Vectors]


@dataclass(frozen=True, kw_only=True)
class Hindsight:
    """The answer, and what it was measured by."""

    who: str
    """The router's id, or the worker that would always have been chosen."""
    verdict: Verdict
    skipped: int
    """Decisions whose worth or text is not known."""
    utility: Utility
    reward: Report
    """What that utility does on these decisions."""

    def json(self) -> dict[str, Any]:
        found = self.verdict
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


def of_worker(decisions: Sequence[Decision], worker: str, objective: Objective) -> Hindsight:
    """What one worker, asked always, would have brought.

    Raises:
        InputError: No decision has a known outcome.
    """
    pairs, kept = _judged(decisions, texts=False)
    utility = utility_of(objective, pairs)
    logged = Logged.of(pairs, utility, compressed(np.zeros((len(kept), 1)), [each.type for each in kept]), workers=(worker,))
    target = np.tile([float(name == worker) for name in logged.workers], (len(logged), 1))
    return _told(worker, logged, target, utility, pairs, len(decisions))


def of_router(decisions: Sequence[Decision], policy: Policy, embed: Embed) -> Hindsight:
    """What a trained router would have brought by its own objective, had it chosen without exploring.

    Raises:
        InputError: No decision has a known outcome and its text.
    """
    pairs, kept = _judged(decisions, texts=True)
    utility = utility_of(policy.objective, pairs)
    requests, types = [each.request or "" for each in kept], [each.type for each in kept]
    vectors = embed(requests)
    chosen = choices(policy, policy.fitted.forecast(vectors, requests, types)).chosen
    logged = Logged.of(pairs, utility, compressed(vectors, types), workers=policy.fitted.workers)
    names = [policy.fitted.workers[at] if at >= 0 else policy.best for at in chosen.tolist()]
    target = np.asarray([[float(worker == name) for worker in logged.workers] for name in names])
    return _told(policy.id, logged, target, utility, pairs, len(decisions))


def utility_of(objective: Objective, pairs: Sequence[tuple[Choice, Outcome]]) -> Utility:
    """A router's objective as a utility of what really came: the same successes for a dollar and a second."""
    runs = Runs.of((choice.worker, outcome) for choice, outcome in pairs)
    dollars, half, most = objective.weights
    paid = {"dollars_per_success": dollars, "seconds_per_success": half + most}
    made = Utility.of(runs, **{name: 1 / weight for name, weight in paid.items() if weight})
    return Utility(
        cost_weight=made.cost_weight if dollars else 0.0,
        latency_weight=made.latency_weight if half + most else 0.0,
        cost_reference=made.cost_reference,
        seconds_reference=made.seconds_reference,
    )


def _judged(decisions: Sequence[Decision], *, texts: bool) -> tuple[list[tuple[Choice, Outcome]], list[Decision]]:
    answered = [replace(each, outcome=_answered(each.outcome)) for each in decisions if each.outcome is not None]
    kept = [each for each in answered if each.outcome and each.outcome.success is not None and (each.request or not texts)]
    if not kept:
        missing = "an outcome that somebody judged, and its text" if texts else "an outcome that somebody judged"
        raise InputError(f"of {len(decisions)} decisions none has {missing}; tell outcomes with `Router.became`")
    return [(each.choice, each.outcome) for each in kept if each.outcome is not None], kept


def _answered(outcome: Outcome) -> Outcome:
    """With a success of 0 where the provider failed: left out, one that is often down would look as good as its answers."""
    return replace(outcome, success=0.0) if outcome.ending is Ending.ERROR else outcome


def _told(
    who: str, logged: Logged, target: Floats, utility: Utility, pairs: Sequence[tuple[Choice, Outcome]], decisions: int
) -> Hindsight:
    runs = Runs.of((choice.worker, outcome) for choice, outcome in pairs)
    return Hindsight(
        who=who,
        verdict=evaluate(logged, target),
        skipped=decisions - len(logged),
        utility=utility,
        reward=lint(utility, runs),
    )
