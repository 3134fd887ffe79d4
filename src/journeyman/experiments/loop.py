"""The whole loop on one screen: learn, evaluate, decide, release."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from journeyman.core.candidate import Candidate
from journeyman.core.release import Release, Stage
from journeyman.experiments.release_policy import ReleasePolicy
from journeyman.experiments.run import Run

log = logging.getLogger(__name__)


class Optimizer(Protocol):
    """A way of learning: playbook, router, planner, weights, or one's own."""

    @property
    def name(self) -> str:
        """As a user would type it: "playbook"."""

    async def optimize(self, baseline: Candidate | None, run: Run) -> Candidate | None:
        """Learn, from the baseline on where there is one; `None` when nothing was learned, or the run is not at its end yet."""


class Finding(Protocol):
    """What an evaluation came to, and what the gate made of it."""

    @property
    def passed(self) -> bool: ...

    @property
    def reason(self) -> str:
        """One sentence with its numbers."""

    def json(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Unproven:
    """The finding where the gate was not asked, and why."""

    reason: str
    passed: bool = False

    def json(self) -> dict[str, Any]:
        return {"passed": self.passed, "reason": self.reason}


Evaluate = Callable[[Candidate, Candidate | None], Awaitable[Finding]]
"""Candidate against baseline, on tasks that neither has learned from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """All of what happened: a refusal teaches as much as a release."""

    reason: str
    candidate: Candidate | None = None
    """What was learned; `None` when nothing was."""
    finding: Finding | None = None
    stage: Stage = Stage.SHADOW
    """How far it may go."""
    forced: bool = False
    """A person lets it go there, although the gate did not."""
    release: Release | None = None

    @property
    def passed(self) -> bool:
        return self.finding is not None and self.finding.passed


async def improve(
    optimizer: Optimizer,
    *,
    baseline: Candidate | None,
    run: Run,
    evaluate: Evaluate,
    releases: ReleasePolicy,
    settle: Callable[[Iteration], None] = lambda _: None,
) -> Iteration:
    """Go round once, within `run.tracked()`.

    Args:
        settle: Writes down what was decided; done before anything is released, and also when nothing was learned.
    """
    candidate = await optimizer.optimize(baseline, run)
    if candidate is None or (baseline is not None and candidate.id == baseline.id):
        iteration = Iteration(reason="nothing was learned")
        settle(iteration)
        return iteration

    finding = await evaluate(candidate, baseline)
    log.info("%s %s: %s", optimizer.name, candidate.id, finding.reason)

    decision = releases.decide(candidate, run, passed=finding.passed, reason=finding.reason)
    iteration = Iteration(**decision._asdict(), candidate=candidate, finding=finding)
    settle(iteration)

    release = releases.begin(candidate, run, decision, passed=finding.passed)
    return replace(iteration, release=release)
