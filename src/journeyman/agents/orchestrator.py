"""Carries out a plan: as many subtasks at once as their order and the limits allow, within a budget, on one trace.

crew = {"small": ByModel(small), "large": ByModel(large), "search": ByFunction("search", search)}
orchestrator = Orchestrator(crew=crew, fallbacks={"small": ["large"]}, budget=Budget(money=0.05))
result = await orchestrator.run(plan)
print(tree(result.plan, result.results), result.answer)
"""

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from journeyman.agents.crew.base import Worker
from journeyman.agents.orchestrating import record
from journeyman.agents.orchestrating.purse import Purse
from journeyman.agents.orchestrating.run import Run, check
from journeyman.agents.orchestrating.subtask import Setting, Slots
from journeyman.agents.orchestrating.terms import Budget as Budget
from journeyman.agents.orchestrating.terms import Check as Check
from journeyman.agents.orchestrating.terms import Choose as Choose
from journeyman.agents.orchestrating.terms import Failure as Failure
from journeyman.agents.orchestrating.terms import Limits as Limits
from journeyman.agents.orchestrating.terms import Replan as Replan
from journeyman.candidate import BASE
from journeyman.errors import StoreError
from journeyman.plan import Plan
from journeyman.plan_result import ExecutionResult, State
from journeyman.policy import Choice
from journeyman.score import Reward
from journeyman.task import Task
from journeyman.tasks.base import Verifier
from journeyman.trace import Trace

log = logging.getLogger(__name__)


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
    limits: Limits = field(default_factory=Limits)
    budget: Budget = field(default_factory=Budget)
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
        setting = self._setting(choices or {})
        check(plan, setting)
        id = id or uuid.uuid4().hex
        task = task or Task(id=id, question=plan.instruction)
        run = Run(plan, setting, self.replan)
        begun = self.clock()
        try:
            await run.drive(self.budget.seconds)
        except asyncio.CancelledError:
            self._hand_over(
                _result(run, self._trace(run, task, id, begun), error="Cancelled: the run was stopped from outside")
            )
            raise
        result = await self._judged(_result(run, self._trace(run, task, id, begun), error=_missing(run)), task)
        self._hand_over(result)
        return result

    def _setting(self, choices: Mapping[str, Choice]) -> Setting:
        seconds = self.budget.seconds
        return Setting(
            crew=self.crew,
            choose=self.choose,
            fallbacks=self.fallbacks,
            limits=self.limits,
            check=self.check,
            policy=self.candidate_id,
            clock=self.clock,
            sleep=self.sleep,
            purse=Purse(self.budget.money),
            slots=Slots(self.limits),
            ends_at=None if seconds is None else asyncio.get_running_loop().time() + seconds,
            choices=choices,
            rng=random.Random(),
        )

    def _trace(self, run: Run, task: Task, id: str, begun: datetime) -> Trace:
        by_state = {state: tuple(id for id, each in run.results.items() if each.state is state) for state in State}
        return Trace(
            id=id,
            task_id=task.id,
            candidate_id=self.candidate_id,
            started_at=begun,
            ended_at=self.clock(),
            steps=record.steps(run.plan, run.results, run.doings),
            domain=task.domain,
            agent="orchestrator",
            input=run.plan.instruction,
            tasks_created=tuple(run.results),
            tasks_completed=by_state[State.DONE],
            tasks_failed=by_state[State.FAILED],
            source="run",
            raw={**record.raw(run.plan), "split": str(task.split)},
        )

    async def _judged(self, result: ExecutionResult, task: Task) -> ExecutionResult:
        if result.error is not None:
            return replace(result, success=False)
        if self.verifier is None:
            return result
        try:
            reward = await self.verifier.verify(task, result.trace)
        except Exception as error:  # noqa: BLE001 - the boundary: what was paid for is kept, also where nobody can judge it
            log.warning("the verifier failed: %s: %s", type(error).__name__, error)
            reward = Reward(name="success", value=None, evidence=f"the verifier failed: {type(error).__name__}: {error}")
        success = None if reward.value is None else reward.value >= 1.0
        return replace(result, success=success, trace=replace(result.trace, rewards=(reward,)))

    def _hand_over(self, result: ExecutionResult) -> None:
        if self.done is None:
            return
        try:
            self.done(result)
        except StoreError as error:
            # The result is worth more than its line in a log.
            log.error("%s", error)


def _result(run: Run, trace: Trace, *, error: str | None) -> ExecutionResult:
    result = ExecutionResult(
        plan=run.plan,
        results=dict(run.results),
        trace=replace(trace, error=error),
        success=None,
        total_latency_ms=1000 * (trace.seconds or 0.0),
        error=error,
    )
    return replace(result, trace=replace(result.trace, output=record.text(result.answer)))


def _missing(run: Run) -> str | None:
    """Why an end of the plan was not reached: the first subtask that failed, else the first that was left."""
    if all(id in run.results and run.results[id].state is State.DONE for id in run.plan.ends):
        return None
    order = (State.FAILED, State.SKIPPED, State.CANCELLED)
    left = sorted(
        (each for each in run.results.values() if each.state is not State.DONE), key=lambda each: order.index(each.state)
    )
    return f"{left[0].id}: {left[0].why}"
