"""Attempting tasks: the one place where an exception becomes data."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from journeyman.core.errors import ModelRefused
from journeyman.core.score import Reward, Score
from journeyman.core.task import Task
from journeyman.core.trace import Step, Trace
from journeyman.tasks.base import ReachableVerifier, Verifier

_Result = TypeVar("_Result")


class Agent(Protocol):
    """Whatever can attempt a task, a step at a time."""

    @property
    def candidate_id(self) -> str:
        """The playbook, policy or adapter in force; `candidate.BASE` when there is none."""

    def run(self, task: Task) -> AsyncIterator[Step]: ...


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try and what it was worth. Unlike an `Experience` it may be of a held-out task."""

    task: Task
    trace: Trace
    score: Score


async def attempt(agent: Agent, task: Task, *, id: str, clock: Callable[[], datetime]) -> Trace:
    """Let the agent try. What goes wrong is written on the trace and stops nobody else."""
    started_at = clock()
    steps: list[Step] = []
    error = None
    try:
        async for step in agent.run(task):
            steps.append(step)
    except Exception as failure:  # noqa: BLE001 - the boundary: a failed attempt is data
        error = f"{type(failure).__name__}: {failure}"
    return Trace(
        id=id,
        task_id=task.id,
        candidate_id=agent.candidate_id,
        started_at=started_at,
        steps=tuple(steps),
        error=error,
        domain=task.domain,
    )


async def score(verifier: Verifier, task: Task, trace: Trace) -> Score:
    """What the attempt was worth. One that broke off is unknown: "the server was down" is not "the agent was wrong"."""
    if trace.error is not None:
        return Score(trace_id=trace.id, rewards=(Reward(name="finished", value=None, evidence=trace.error),))
    return Score(trace_id=trace.id, rewards=(await verifier.verify(task, trace),))


async def attempt_all(
    agent: Agent,
    tasks: Sequence[Task],
    verifier: Verifier,
    *,
    prefix: str,
    clock: Callable[[], datetime],
    done: Callable[[Attempt], None] = lambda _: None,
) -> list[Attempt]:
    """Attempt every task at once, in the order given; how many calls really run together is the model client's to limit.

    Trace ids are `prefix/task id`, so that the same attempt has the same id whenever it is made again. `done` is called
    after each attempt, for a progress bar.

    Raises:
        SandboxError: Whatever checks the attempts is down. No model is asked for what nobody can check.
    """
    await see_checker(verifier)

    async def one(task: Task) -> Attempt:
        trace = await attempt(agent, task, id=f"{prefix}/{task.id}", clock=clock)
        result = Attempt(task, trace, await score(verifier, task, trace))
        if result.score.total is None:
            # Unknown for this one alone, or for whatever comes?
            await see_checker(verifier)
        done(result)
        return result

    return await together(one(task) for task in tasks)


async def see_checker(verifier: object) -> None:
    """See that what the verifier needs is there, where it needs anything.

    Raises:
        SandboxError: It is not.
    """
    checker = verifier if isinstance(verifier, ReachableVerifier) else getattr(verifier, "sandbox", None)
    if isinstance(checker, ReachableVerifier):
        await checker.start()


async def together(parts: Iterable[Coroutine[Any, Any, _Result]]) -> list[_Result]:
    """The results of all, in their order. Where one raises, the others are ended and not left to go on for nobody."""
    running = [asyncio.ensure_future(part) for part in parts]
    try:
        return list(await asyncio.gather(*running))
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def refusal(attempts: Iterable[Attempt]) -> str | None:
    """Why all of them broke off, when a model said no for good and for one and the same reason, such as a wrong key."""
    errors = {attempt.trace.error for attempt in attempts}
    error = errors.pop() if len(errors) == 1 else None
    kind = f"{ModelRefused.__name__}: "
    return error.removeprefix(kind) if error is not None and error.startswith(kind) else None
