"""One subtask, tried until somebody brings it to an end: again where that may help, else by the next worker."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from typing import Any

from journeyman.agents.workers import SubtaskJob, UnreadableAnswer, Worker, WorkerFailed
from journeyman.core.errors import ModelBusy, ModelRefused, PlanError
from journeyman.core.plan import Plan, SubtaskResult, SubtaskState, Try
from journeyman.core.policy import Choice, Ending, Outcome
from journeyman.core.score import Reward
from journeyman.core.trace import ModelCall, Step, ToolCall, total
from journeyman.io.retry import RetryPolicy

# On what terms a plan is carried out.

Choose = Callable[[SubtaskJob], Choice]
"""Who does a subtask that names nobody; asked when it can begin, with the outputs that it needs."""
Check = Callable[[SubtaskJob, Any], Awaitable[Reward | None]]
"""What an output is worth, 1 for right; `None`, or a value of `None`, where it has no opinion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits(RetryPolicy):
    """How much runs at once, and how long anything is waited for."""

    together: int = 8
    """Jobs under way at once."""
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

    def __post_init__(self) -> None:
        if self.together < 1 or min(self.each.values(), default=1) < 1:
            raise ValueError("together and each are at least 1: nothing could be begun")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBudget:
    """For the whole plan. `None` is without an end."""

    money: float | None = None
    """US dollars. What could exceed it, by its worker's estimate, is not begun."""
    seconds: float | None = None
    """Wall time. What is under way at its end is cancelled; what would take longer than is left, by its card, is not begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskFailure:
    """A subtask that nobody brought to an end."""

    id: str
    tries: tuple[Try, ...]
    why: str

    @property
    def workers(self) -> tuple[str, ...]:
        """Who failed at it."""
        return tuple(dict.fromkeys(each.worker for each in self.tries))


Replan = Callable[[Plan, SubtaskFailure], Awaitable[Plan | None]]
"""A plan whose rest is another, or `None` to leave it. Every subtask that is done stands in it as it was; what is under way
and no longer in it is cancelled."""

# The money of one plan: what a job could cost is set aside before it begins, what it did cost is taken afterwards.


class Purse:
    """Never promises more than there is. Belongs to one event loop."""

    def __init__(self, money: float | None) -> None:
        self.money = money
        """US dollars; `None` is without an end."""
        self.spent = 0.0
        """Where a cost is not known, the estimate counts."""
        self._held: list[float] = []
        self._changed = asyncio.Event()

    async def take(self, most: float | None) -> bool:
        """Set aside what a job costs at most; waits while the money that is set aside for others may come back. `False` when
        there is not enough, or nobody knows how much it is."""
        if self.money is None:
            return True
        while most is not None and self.spent + most <= self.money:
            if self.spent + sum(self._held) + most <= self.money:
                self._held.append(most)
                return True
            self._changed.clear()
            await self._changed.wait()
        return False

    def settle(self, most: float | None, cost: float | None) -> None:
        """Take what a job did cost, and free what was set aside for it."""
        if self.money is None or most is None:
            return
        self._held.remove(most)
        self.spent += most if cost is None else cost
        self._changed.set()


log = logging.getLogger(__name__)


class Slots:
    """Who may be at work at once."""

    def __init__(self, limits: PlanLimits) -> None:
        self._together = asyncio.Semaphore(limits.together)
        self._each = {name: asyncio.Semaphore(most) for name, most in limits.each.items()}

    async def enter(self, stack: AsyncExitStack, worker: str) -> None:
        # The worker's own first: whoever waits for a busy worker keeps nobody else from working.
        if worker in self._each:
            await stack.enter_async_context(self._each[worker])
        await stack.enter_async_context(self._together)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all subtasks of one plan have in common."""

    crew: Mapping[str, Worker]
    choose: Choose | None
    fallbacks: Mapping[str, Sequence[str]]
    limits: PlanLimits
    check: Check | None
    policy: str
    clock: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[object]]
    purse: Purse
    slots: Slots
    ends_at: float | None
    """When the time is up, by the event loop's clock."""
    choices: Mapping[str, Choice]
    rng: random.Random

    def choice(self, job: SubtaskJob) -> Choice:
        """Who is asked first.

        Raises:
            PlanError: Nobody can be.
        """
        subtask = job.subtask
        if subtask.id in self.choices:
            return self.choices[subtask.id]
        named = named_in(subtask.worker, subtask.tool, self.crew)
        if named:
            return Choice(
                worker=named, propensity=1.0, candidates=(named,), policy=self.policy, reason="the plan names it, and no other"
            )
        if self.choose is None:
            raise PlanError(f"subtask {subtask.id!r} names no worker, and there is nobody to choose one")
        return self.choose(job)

    @property
    def seconds_left(self) -> float | None:
        return None if self.ends_at is None else self.ends_at - asyncio.get_running_loop().time()


def named_in(worker: str, tool: str, crew: Mapping[str, Worker]) -> str:
    """The worker that a subtask names: its worker, else the tool that is in the crew; empty where it leaves that open."""
    return worker or (tool if tool in crew else "")


@dataclass(slots=True)
class _Broken:
    """What went wrong in a try."""

    ending: Ending
    why: str
    again: bool = False
    retry_after: float | None = None
    unpaid: bool = False
    """Whether nothing was begun beyond what was noted: then nothing else is to be paid."""


@dataclass(kw_only=True)
class Doing:
    """The tries at one subtask, and the steps that they left: those of a try that is broken off too."""

    setting: Setting
    job: SubtaskJob
    tries: list[Try] = field(default_factory=list)
    steps: list[tuple[int, Step]] = field(default_factory=list)
    """Each with the number of its try, from 1."""
    started_at: datetime | None = None
    seconds: float = 0.0
    """Wall time since the first try, waits included."""

    async def do(self) -> SubtaskResult:
        """Ask the first worker, then those that follow it. What goes wrong is in the result."""
        begun = time.perf_counter()
        try:
            return await self._ask_all()
        finally:
            self.seconds += time.perf_counter() - begun

    async def _ask_all(self) -> SubtaskResult:
        try:
            choice = self.setting.choice(self.job)
        except Exception as error:  # noqa: BLE001 - whoever chooses may raise whatever it likes: what is done already is kept
            return self._ended(SubtaskState.FAILED, f"nobody could be chosen: {error}")
        reasons: list[str] = []
        for name in dict.fromkeys((choice.worker, *self.setting.fallbacks.get(choice.worker, ()))):
            if name not in self.setting.crew:
                reasons.append(f"there is no worker {name!r}")
                continue
            if reasons:
                choice = Choice(
                    worker=name, propensity=1.0, candidates=(name,), policy=self.setting.policy, fallback=reasons[-1]
                )
            found = await self._insist(name, choice)
            if isinstance(found, SubtaskResult):
                return found
            reasons.append(found)
        log.info("subtask %s: %s", self.job.subtask.id, "; ".join(reasons))
        return self._ended(SubtaskState.FAILED if self.tries else SubtaskState.SKIPPED, "; ".join(dict.fromkeys(reasons)))

    async def _insist(self, name: str, choice: Choice) -> SubtaskResult | str:
        """One worker, several times where that may help; or why it brought nothing."""
        for tries in count(1):
            job = replace(self.job, attempt=len(self.tries) + 1)
            estimate = _estimated(self.setting.crew[name], job)
            if refused := await self._allowed(self.setting.crew[name], estimate):
                return f"{name} was not begun: {refused}"
            found = await self._try(name, job, choice, estimate)
            if not isinstance(found, _Broken):
                return self._ended(SubtaskState.DONE, None, found[0])
            wait = self.setting.limits.wait(tries, found.retry_after, self.setting.rng) if found.again else None
            if wait is None:
                return found.why if found.why.startswith(name) else f"{name}: {found.why}"
            log.info("subtask %s: %s: %s; again in %.1f s", job.subtask.id, name, found.why, wait)
            await self.setting.sleep(wait)
        raise AssertionError("it counts without an end")

    async def _allowed(self, worker: Worker, estimate: float | None) -> str:
        """Why a job is not begun; nothing, with its money set aside, where it may be."""
        purse, left, needed = self.setting.purse, self.setting.seconds_left, worker.card.seconds
        if left is not None and needed is not None and needed > left:
            return f"it takes {needed:.3g} s, and {max(left, 0.0):.3g} s of the time are left"
        if await purse.take(estimate):
            return ""
        if estimate is None:
            return "its price is not known, and there is a budget"
        return f"it may cost ${estimate:.3g}, and ${purse.spent:.3g} of ${purse.money:.3g} are spent"

    async def _try(self, name: str, job: SubtaskJob, choice: Choice, estimate: float | None) -> tuple[Any] | _Broken:
        """One go: the output, or what was wrong. Its money was set aside."""
        worker, setting = self.setting.crew[name], self.setting
        noted: list[Step] = []
        begun: float | None = None
        started_at = setting.clock()
        # What was cancelled says nothing of its worker.
        broken: _Broken | None = _Broken(Ending.UNJUDGED, "cancelled")
        output: Any = None
        try:
            async with AsyncExitStack() as stack:
                await setting.slots.enter(stack, name)
                started_at, begun = setting.clock(), time.perf_counter()
                self.started_at = self.started_at or started_at
                output, broken = await _done(worker, job, noted.append, setting.limits.seconds)
        finally:
            seconds = None if begun is None else time.perf_counter() - begun
            cost = 0.0 if begun is None else _cost(worker, noted, broken, estimate)
            setting.purse.settle(estimate, cost)
            if begun is not None:
                self.steps += [(job.attempt, step) for step in noted]
                outcome = _outcome(noted, broken, cost, seconds)
                error = broken.why if broken else None
                self.tries.append(Try(worker=name, outcome=outcome, choice=choice, started_at=started_at, error=error))
        return broken or await self._judged(job, output)

    async def _judged(self, job: SubtaskJob, output: Any) -> tuple[Any] | _Broken:
        """The output, where the check does not find it wrong."""
        if self.setting.check is None:
            return (output,)
        try:
            async with asyncio.timeout(self.setting.limits.seconds):
                reward = await self.setting.check(job, output)
        except Exception as error:  # noqa: BLE001 - a check that fails says nothing of the output
            log.warning("the check of subtask %s failed: %s: %s", job.subtask.id, type(error).__name__, error)
            reward = None
        if reward is None or reward.value is None:
            return (output,)
        right = reward.value >= 1.0
        why = None if right else f"the check {reward.name} found it wrong{': ' if reward.evidence else ''}{reward.evidence}"
        last = self.tries[-1]
        outcome = replace(last.outcome, ending=Ending.RIGHT if right else Ending.WRONG, success=reward.value)
        self.tries[-1] = replace(last, outcome=outcome, error=why)
        return (output,) if why is None else _Broken(Ending.WRONG, why)

    def _ended(self, state: SubtaskState, why: str | None, output: Any = None) -> SubtaskResult:
        return SubtaskResult(id=self.job.subtask.id, state=state, output=output, tries=tuple(self.tries), why=why)


def _estimated(worker: Worker, job: SubtaskJob) -> float | None:
    try:
        return worker.estimate(job)
    except Exception as error:  # noqa: BLE001 - the boundary: what it cannot tell is unknown, and its `do` says why
        log.info("what %s would cost for subtask %s is not known: %s", worker.card.name, job.subtask.id, error)
        return None


async def _done(
    worker: Worker, job: SubtaskJob, note: Callable[[Step], None], seconds: float
) -> tuple[Any, None] | tuple[None, _Broken]:
    try:
        async with asyncio.timeout(seconds) as limit:
            return await worker.do(job, note), None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return None, _Broken(Ending.ERROR, "the worker was cancelled by something of its own")
    except TimeoutError as error:
        why = f"took longer than {seconds:g} s" if limit.expired() else f"TimeoutError: {error}"
        return None, _Broken(Ending.ERROR, why, again=True)
    except Exception as error:  # noqa: BLE001 - the boundary: a worker may raise whatever it likes, and a failure is data
        return None, _named(error)


def _named(error: Exception) -> _Broken:
    why = f"{type(error).__name__}: {error}"
    match error:
        case ModelBusy():
            return _Broken(Ending.ERROR, why, again=True, retry_after=error.retry_after, unpaid=True)
        case WorkerFailed():
            return _Broken(Ending.ERROR, str(error), again=error.again, retry_after=error.retry_after, unpaid=True)
        case UnreadableAnswer():
            return _Broken(Ending.FORMAT, str(error), unpaid=True)
        case ModelRefused():
            return _Broken(Ending.ERROR, why, unpaid=True)
        case _:
            return _Broken(Ending.ERROR, why, again=isinstance(error, ConnectionError))


def _cost(worker: Worker, noted: Sequence[Step], broken: _Broken | None, estimate: float | None) -> float | None:
    """US dollars of a try. What was broken off may have been paid for, unless it could not cost anything."""
    if broken is not None and not broken.unpaid:
        return 0.0 if estimate == 0.0 else None
    card = worker.card
    if not any(isinstance(step, ModelCall | ToolCall) for step in noted):
        return card.price(0, 0) if broken is None else 0.0
    calls = [step for step in noted if isinstance(step, ModelCall)]
    parts = [
        card.price(call.input_tokens, call.output_tokens)
        if call.cost is None and call.input_tokens is not None and call.output_tokens is not None
        else call.cost
        for call in calls
    ]
    tools = [step.cost for step in noted if isinstance(step, ToolCall)]
    # A tool that a model uses costs where it says so; a tool that is itself the worker costs what its card says.
    return total([*parts, *(tools if card.kind == "tool" else (cost for cost in tools if cost is not None))])


def _outcome(noted: Sequence[Step], broken: _Broken | None, cost: float | None, seconds: float | None) -> Outcome:
    calls = [step for step in noted if isinstance(step, ModelCall)]
    # A server that refused counted nothing; of what was broken off, nobody knows.
    known = bool(calls) if broken is None else broken.unpaid
    return Outcome(
        ending=broken.ending if broken else Ending.UNJUDGED,
        cost=cost,
        seconds=seconds,
        input_tokens=total(call.input_tokens for call in calls) if known else None,
        output_tokens=total(call.output_tokens for call in calls) if known else None,
    )
