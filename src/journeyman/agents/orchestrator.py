"""Carries out a plan: as many subtasks at once as their order and the limits allow, within a budget, on one trace."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from journeyman.agents.crew.base import Job, Worker
from journeyman.candidate import BASE
from journeyman.plan import Plan
from journeyman.plan_result import ExecutionResult, Try
from journeyman.policy import Choice
from journeyman.score import Reward
from journeyman.task import Task
from journeyman.tasks.base import Verifier

Choose = Callable[[Job], Choice]
"""Who does a subtask that names nobody; asked when it can begin, with the outputs that it needs."""
Check = Callable[[Job, Any], Awaitable[Reward | None]]
"""What an output is worth, 1 for right; `None`, or a value of `None`, where it has no opinion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much runs at once, and how long anything is waited for."""

    together: int = 8
    """Subtasks under way at once."""
    each: Mapping[str, int] = field(default_factory=dict)
    """Jobs of one worker at once, by its name; without an entry only `together` holds."""
    seconds: float = 120.0
    """For one try."""
    retries: int = 2
    """Tries of one worker after the first, where the same call may succeed later."""
    first_wait: float = 0.5
    """Seconds before the second try, doubled each time; the real wait is a random part of it between half and all."""
    longest_wait: float = 30.0
    """Seconds. A server that asks for more is not waited for: the next worker is asked."""
    replans: int = 2
    """Times that the rest of a plan may be made anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """For the whole plan. `None` is without an end."""

    money: float | None = None
    """US dollars. What could exceed it, by its worker's estimate, is not begun."""
    seconds: float | None = None
    """Wall time. What is under way at its end is cancelled; what would take longer than is left, by its card, is not begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A subtask that nobody brought to an end."""

    id: str
    tries: tuple[Try, ...]
    why: str

    @property
    def workers(self) -> tuple[str, ...]:
        """Who failed at it."""
        return tuple(dict.fromkeys(each.worker for each in self.tries))


Replan = Callable[[Plan, Failure], Awaitable[Plan | None]]
"""A plan whose rest is another, or `None` to leave it. Every subtask that is done stands in it as it was; what is under way
and no longer in it is cancelled."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class Orchestrator:
    """Carries out plans with one crew. May have several under way at once: limits hold for each plan by itself."""

    crew: Mapping[str, Worker]
    """By the names that plans use."""
    choose: Choose | None = None
    fallbacks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By a worker's name, who is asked after it, in this order."""
    limits: Limits = Limits()
    budget: Budget = Budget()
    check: Check | None = None
    """Judges each output as it comes: one that is not right goes to the next worker."""
    verifier: Verifier | None = None
    """Judges the whole, when every end of the plan was reached."""
    replan: Replan | None = None
    done: Callable[[ExecutionResult], None] | None = None
    """Called with every result, also of a run that was cancelled: `ExecutionLogger.log`, for one."""
    candidate_id: str = BASE
    """The policy in force."""
    clock: Callable[[], datetime] = _now
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    async def run(
        self, plan: Plan, *, task: Task | None = None, choices: Mapping[str, Choice] | None = None, id: str | None = None
    ) -> ExecutionResult:
        """Do the subtasks of a plan. One that fails is data: the result says which, and why.

        Args:
            plan: A subtask without a worker or known tool is given to whom `choose` chooses.
            task: What the verifier compares with; the instruction alone where there is none.
            choices: By the id of a subtask, the decision that put its worker into the plan.
            id: Of the trace; a random one where none is given.

        Raises:
            PlanError: A subtask names somebody who is not in the crew or nobody can be chosen for it, or there is a budget of
                money and somebody's price is not known. Nothing was begun.
        """
        raise NotImplementedError
