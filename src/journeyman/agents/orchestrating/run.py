"""All subtasks of one plan: begun when their inputs are there, and left when nobody needs them any more."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

from journeyman.agents.crew.base import Job
from journeyman.agents.orchestrating.subtask import Doing, Setting, named_in
from journeyman.agents.orchestrating.terms import Failure, Replan
from journeyman.errors import PlanError
from journeyman.plan import Plan, Subtask
from journeyman.plan_result import State, SubtaskResult

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


class Run:
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
            job = Job(plan=self.plan, subtask=subtask, inputs=inputs)
            earlier = self.doings.get(id)
            self.doings[id] = replace(earlier, job=job) if earlier else Doing(setting=self._setting, job=job)
            self._running[id] = asyncio.create_task(self.doings[id].do(), name=f"subtask {id}")

    def _is_done(self, id: str) -> bool:
        return id in self.results and self.results[id].state is State.DONE

    async def _finish(self, id: str) -> None:
        """Keep what became of a subtask, and let the rest be planned anew where it failed."""
        result = self._running.pop(id).result()
        self.results[id] = result
        if result.state is not State.FAILED or self._replan is None or not self._replans_left:
            return
        self._replans_left -= 1
        failure = Failure(id=id, tries=result.tries, why=result.why or "")
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
            if result.state is State.DONE and new.by_id.get(id) != self.plan.by_id[id]:
                raise PlanError(f"the new plan changes subtask {id!r}, which is done")
        for id in [id for id in self._running if new.by_id.get(id) != self.plan.by_id[id]]:
            await self._cancel(id, "the new plan does without it")
        self.plan = new
        # Whoever stands in the new plan gets another chance; the tries that failed stay on the trace.
        self.results = {id: each for id, each in self.results.items() if each.state is State.DONE or id not in new.by_id}

    async def _leave_what_is_moot(self) -> None:
        """Skip what lacks an input, and leave what only such subtasks would have needed."""
        lacks: dict[str, str] = {}
        for subtask in self.plan.subtasks:
            result = self.results.get(subtask.id)
            if result is not None and result.state is not State.DONE:
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
        self.results[id] = SubtaskResult(id=id, state=State.SKIPPED, tries=tries, why=why)

    async def _cancel(self, id: str, why: str) -> None:
        """End a subtask that is under way. One that has just come to its end is kept as it is."""
        task = self._running.pop(id)
        task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            self.results[id] = SubtaskResult(id=id, state=State.CANCELLED, tries=tuple(self.doings[id].tries), why=why)
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


_SAID: Mapping[State, str] = {State.FAILED: "not brought to an end", State.SKIPPED: "not begun", State.CANCELLED: "cancelled"}


def _useless(plan: Plan, id: str, lacks: Mapping[str, str]) -> str:
    below = [each.id for each in plan.subtasks if each.id in plan.below(id) and each.id in lacks]
    return f"nobody needs it any more: {lacks[below[0]]}" if below else "nobody needs it any more"
