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
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from journeyman.agents.subtask import Check as Check
from journeyman.agents.subtask import Choose as Choose
from journeyman.agents.subtask import Doing, Purse, Replan, Setting, Slots, SubtaskFailure, named_in
from journeyman.agents.subtask import PlanBudget as PlanBudget
from journeyman.agents.subtask import PlanLimits as PlanLimits
from journeyman.agents.workers import SubtaskJob, Worker, as_text
from journeyman.core import plan as plan_json
from journeyman.core.candidate import BASE
from journeyman.core.errors import PlanError, StoreError
from journeyman.core.plan import ExecutionResult, Plan, Subtask, SubtaskResult, SubtaskState, Try
from journeyman.core.policy import Choice
from journeyman.core.score import Reward
from journeyman.core.task import Task
from journeyman.core.trace import AgentCall, Step, Trace
from journeyman.tasks.base import Verifier

# All subtasks of one plan: begun when their inputs are there, and left when nobody needs them any more.

log = logging.getLogger(__name__)


def check(plan: Plan, setting: Setting) -> None:
    """Refuse what cannot be carried out, before anything is begun.

    Raises:
        PlanError: Says which subtask, and why.
    """
    if not plan.subtasks:
        raise PlanError("the plan has no subtasks")
    for subtask in plan.subtasks:
        _check_worker(subtask, setting)
    if setting.purse.money is None:
        return
    named = {named_in(subtask.worker, subtask.tool, setting.crew) for subtask in plan.subtasks}
    asked = set(setting.crew) if "" in named else named
    asked |= {name for each in asked for name in setting.fallbacks.get(each, ())}
    unpriced = sorted(name for name in asked if name in setting.crew and setting.crew[name].card.price(0, 0) is None)
    if unpriced:
        raise PlanError(
            f"the price of {', '.join(unpriced)} is not known, so a budget of ${setting.purse.money:g} could not be kept; give "
            "its card a price, leave it out, or set no budget of money"
        )


def _check_worker(subtask: Subtask, setting: Setting) -> None:
    named = named_in(subtask.worker, subtask.tool, setting.crew)
    given = setting.choices.get(subtask.id)
    if given is not None and named and given.worker != named:
        raise PlanError(
            f"subtask {subtask.id!r} is {named}'s in the plan, and {given.worker}'s by the choice that came with it"
        )
    who = named or (given.worker if given else "")
    if who and who not in setting.crew:
        raise PlanError(f"subtask {subtask.id!r} names {who!r}, who is not in the crew: {', '.join(sorted(setting.crew))}")
    if not who and setting.choose is None:
        doing = f" (tool {subtask.tool!r})" if subtask.tool else ""
        raise PlanError(f"subtask {subtask.id!r}{doing} names nobody in the crew, and there is nobody to choose one")


class PlanRun:
    """One plan while it is carried out."""

    def __init__(self, plan: Plan, setting: Setting, replan: Replan | None) -> None:
        self.plan = plan
        self.results: dict[str, SubtaskResult] = {}
        self.doings: dict[str, Doing] = {}
        """All that were ever begun."""
        self._setting = setting
        self._replan = replan
        self._replans_left = setting.limits.replans
        self._running: dict[str, asyncio.Task[SubtaskResult]] = {}

    async def drive(self, seconds: float | None) -> None:
        """Do all that can be done. Whatever ends it, nothing is under way afterwards."""
        try:
            async with asyncio.timeout(seconds) as limit:
                while True:
                    await self._leave_what_is_moot()
                    self._begin_what_is_ready()
                    if not self._running:
                        return
                    await asyncio.wait(self._running.values(), return_when=asyncio.FIRST_COMPLETED)
                    for id in [id for id, task in self._running.items() if task.done()]:
                        await self._finish(id)
        except TimeoutError:
            if not limit.expired():
                raise
            await self._stop(f"the time of {seconds:g} s was up")
        finally:
            await self._stop("the run was cancelled")

    def _begin_what_is_ready(self) -> None:
        for subtask in self.plan.subtasks:
            id = subtask.id
            if id in self.results or id in self._running or not all(self._is_done(before) for before in subtask.after):
                continue
            inputs = {before.id: self.results[before.id].output for before in self.plan.subtasks if before.id in subtask.after}
            job = SubtaskJob(plan=self.plan, subtask=subtask, inputs=inputs)
            earlier = self.doings.get(id)
            self.doings[id] = replace(earlier, job=job) if earlier else Doing(setting=self._setting, job=job)
            self._running[id] = asyncio.create_task(self.doings[id].do(), name=f"subtask {id}")

    def _is_done(self, id: str) -> bool:
        return id in self.results and self.results[id].state is SubtaskState.DONE

    async def _finish(self, id: str) -> None:
        """Keep what became of a subtask, and let the rest be planned anew where it failed."""
        result = self._running.pop(id).result()
        self.results[id] = result
        if result.state is not SubtaskState.FAILED or self._replan is None or not self._replans_left:
            return
        self._replans_left -= 1
        failure = SubtaskFailure(id=id, tries=result.tries, why=result.why or "")
        try:
            new = await self._replan(self.plan, failure)
            if new is not None:
                await self._adopt(new)
        except PlanError as error:
            log.warning("the plan was not made anew after %s failed: %s", id, error)

    async def _adopt(self, new: Plan) -> None:
        """Go on by another plan.

        Raises:
            PlanError: It cannot be carried out, or forgets something that is done.
        """
        check(new, self._setting)
        for id, result in self.results.items():
            if result.state is SubtaskState.DONE and new.by_id.get(id) != self.plan.by_id[id]:
                raise PlanError(f"the new plan changes subtask {id!r}, which is done")
        for id in [id for id in self._running if new.by_id.get(id) != self.plan.by_id[id]]:
            await self._cancel(id, "the new plan does without it")
        self.plan = new
        # Whoever stands in the new plan gets another chance; the tries that failed stay on the trace.
        self.results = {id: each for id, each in self.results.items() if each.state is SubtaskState.DONE or id not in new.by_id}

    async def _leave_what_is_moot(self) -> None:
        """Skip what lacks an input, and leave what only such subtasks would have needed."""
        lacks: dict[str, str] = {}
        for subtask in self.plan.subtasks:
            result = self.results.get(subtask.id)
            if result is not None and result.state is not SubtaskState.DONE:
                lacks[subtask.id] = f"{subtask.id} was {_SAID[result.state]}"
            elif missing := [lacks[before] for before in subtask.after if before in lacks]:
                lacks[subtask.id] = missing[0]
        matters = {id for id in self.plan.ends if id not in lacks}
        for subtask in reversed(self.plan.subtasks):
            if subtask.id in matters:
                matters |= set(subtask.after)
        for subtask in self.plan.subtasks:
            id = subtask.id
            if id in self.results or id in matters:
                continue
            why = f"needs an output that is missing: {lacks[id]}" if id in lacks else _useless(self.plan, id, lacks)
            if id in self._running:
                await self._cancel(id, why)
            else:
                self._skip(id, why)

    def _skip(self, id: str, why: str) -> None:
        tries = tuple(self.doings[id].tries) if id in self.doings else ()
        self.results[id] = SubtaskResult(id=id, state=SubtaskState.SKIPPED, tries=tries, why=why)

    async def _cancel(self, id: str, why: str) -> None:
        """End a subtask that is under way. One that has just come to its end is kept as it is."""
        task = self._running.pop(id)
        task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            self.results[id] = SubtaskResult(id=id, state=SubtaskState.CANCELLED, tries=tuple(self.doings[id].tries), why=why)
        else:
            self.results[id] = task.result()

    async def _stop(self, why: str) -> None:
        """Cancel all that is under way, at once, and skip the rest."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for id in list(self._running):
            await self._cancel(id, why)
        for subtask in self.plan.subtasks:
            if subtask.id not in self.results:
                self._skip(subtask.id, why)


_SAID: Mapping[SubtaskState, str] = {
    SubtaskState.FAILED: "not brought to an end",
    SubtaskState.SKIPPED: "not begun",
    SubtaskState.CANCELLED: "cancelled",
}


def _useless(plan: Plan, id: str, lacks: Mapping[str, str]) -> str:
    below = [each.id for each in plan.subtasks if each.id in plan.below(id) and each.id in lacks]
    return f"nobody needs it any more: {lacks[below[0]]}" if below else "nobody needs it any more"


# The trace that a plan leaves: a step for each subtask, and below it the calls that were made for it.


def steps(plan: Plan, results: Mapping[str, SubtaskResult], doings: Mapping[str, Doing]) -> tuple[Step, ...]:
    """In the order in which the subtasks were begun; those that never were come last, in the plan's."""
    subtasks = {**{id: doing.job.subtask for id, doing in doings.items()}, **plan.by_id}
    begun = sorted(
        (id for id, doing in doings.items() if doing.started_at is not None), key=lambda id: str(doings[id].started_at)
    )
    order = dict.fromkeys((*begun, *subtasks))
    return tuple(step for id in order for step in _of(subtasks[id], results.get(id), doings.get(id)))


def text(output: Any) -> str:
    """An output as text: a text as it is, nothing for nothing, else JSON."""
    return "" if output is None else as_text(output)


def raw(plan: Plan) -> dict[str, Any]:
    """What the trace tells of the plan."""
    return {"plan": plan_json.written(plan)}


def _of(subtask: Subtask, result: SubtaskResult | None, doing: Doing | None) -> Iterator[Step]:
    result = result or SubtaskResult(id=subtask.id, state=SubtaskState.SKIPPED, why="the run was cancelled")
    yield AgentCall(
        agent=result.worker or subtask.worker or subtask.tool or "nobody",
        input=subtask.text,
        output=text(result.output),
        error=result.why,
        started_at=doing.started_at if doing else None,
        seconds=doing.seconds if doing and doing.started_at else None,
        id=subtask.id,
        raw={
            "subtask": subtask.id,
            "type": subtask.type,
            "after": list(subtask.after),
            "state": str(result.state),
            "attempts": len(result.tries),
            "cost": result.outcome.cost,
            "choice": asdict(result.choice) if result.choice else None,
            "tries": [_try(number, each) for number, each in enumerate(result.tries, start=1)],
        },
    )
    if doing:
        yield from _below(subtask.id, doing.steps, result.tries)


def _try(number: int, each: Try) -> dict[str, Any]:
    return {
        "attempt": number,
        "worker": each.worker,
        "started_at": each.started_at.isoformat(),
        "outcome": asdict(each.outcome),
        "error": each.error,
        "choice": asdict(each.choice),
    }


def _below(id: str, noted: Sequence[tuple[int, Step]], tries: Sequence[Try]) -> Iterator[Step]:
    """The calls, with ids that are their own in the whole trace: those of a worker are so in one of its jobs."""
    for number, (attempt, step) in enumerate(noted, start=1):
        lead = f"{id}/{attempt}/"
        own = lead + (step.id or f"#{number}")
        parent = id if step.parent is None else lead + step.parent
        told = {**step.raw, "attempt": attempt, "worker": tries[attempt - 1].worker}
        yield replace(step, id=own, parent=parent, raw=told)


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
    limits: PlanLimits = field(default_factory=PlanLimits)
    budget: PlanBudget = field(default_factory=PlanBudget)
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
        run = PlanRun(plan, setting, self.replan)
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

    def _trace(self, run: PlanRun, task: Task, id: str, begun: datetime) -> Trace:
        by_state = {state: tuple(id for id, each in run.results.items() if each.state is state) for state in SubtaskState}
        return Trace(
            id=id,
            task_id=task.id,
            candidate_id=self.candidate_id,
            started_at=begun,
            ended_at=self.clock(),
            steps=steps(run.plan, run.results, run.doings),
            domain=task.domain,
            agent="orchestrator",
            input=run.plan.instruction,
            tasks_created=tuple(run.results),
            tasks_completed=by_state[SubtaskState.DONE],
            tasks_failed=by_state[SubtaskState.FAILED],
            source="run",
            raw={**raw(run.plan), "split": str(task.split)},
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


def _result(run: PlanRun, trace: Trace, *, error: str | None) -> ExecutionResult:
    result = ExecutionResult(
        plan=run.plan,
        results=dict(run.results),
        trace=replace(trace, error=error),
        success=None,
        total_latency_ms=1000 * (trace.seconds or 0.0),
        error=error,
    )
    return replace(result, trace=replace(result.trace, output=text(result.answer)))


def _missing(run: PlanRun) -> str | None:
    """Why an end of the plan was not reached: the first subtask that failed, else the first that was left."""
    if all(id in run.results and run.results[id].state is SubtaskState.DONE for id in run.plan.ends):
        return None
    order = (SubtaskState.FAILED, SubtaskState.SKIPPED, SubtaskState.CANCELLED)
    left = sorted(
        (each for each in run.results.values() if each.state is not SubtaskState.DONE), key=lambda each: order.index(each.state)
    )
    return f"{left[0].id}: {left[0].why}"
