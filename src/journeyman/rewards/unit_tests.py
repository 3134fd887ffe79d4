"""A program is right when its task's tests pass, which it cannot reach: they run in another sandbox and ask it for values."""

import asyncio
import os
from asyncio import AbstractEventLoop, Semaphore
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from journeyman.errors import TaskError
from journeyman.rewards.out_of_process import Candidate, Tests, Verdict, examine
from journeyman.sandbox.base import Limits, Sandbox
from journeyman.score import Reward
from journeyman.task import Task
from journeyman.tasks.code import MODULE, CodeTests, answer, code_tests
from journeyman.trace import Trace

SECONDS = 5.0
"""Of computing that a program may take for all its tests."""
_TESTS = "tests_of_the_task"


def limits(seconds: float = SECONDS) -> Limits:
    """For so many seconds of computing. Waiting may take longer, since a busy machine makes everybody wait."""
    return Limits(cpu_seconds=seconds, wall_seconds=1.5 * seconds + 1)


@dataclass(frozen=True, slots=True)
class UnitTests:
    """Runs the tests of programming tasks. Implements `tasks.base.Verifier`."""

    sandbox: Sandbox
    limits: Limits = limits()  # noqa: RUF009 - frozen as well

    _places: WeakKeyDictionary[AbstractEventLoop, Semaphore] = field(
        default_factory=WeakKeyDictionary, repr=False, compare=False
    )

    async def verify(self, task: Task, trace: Trace) -> Reward:
        """1 when the program in the reply passes all tests of its task, 0 when not, `None` when this could not be told."""
        try:
            tests = code_tests(task)
            async with self._free():
                text = answer(trace.reply)
                verdict = await self.check(tests, tests.program(text, continues=tests.goes_on(text)))
        except TaskError as error:
            return Reward(name="unit_tests", value=None, evidence=str(error))
        value = None if verdict.passed is None else float(verdict.passed)
        found = "the tests pass" if verdict.passed else verdict.evidence
        return Reward(name="unit_tests", value=value, evidence=f"{found} ({self.sandbox.level})")

    def _free(self) -> Semaphore:
        """All attempts at a set of tasks may end at once, and each verdict takes two sandboxes."""
        loop = asyncio.get_running_loop()
        return self._places.setdefault(loop, Semaphore(2 * (os.cpu_count() or 1)))

    async def check(self, tests: CodeTests, program: str) -> Verdict:
        """Whether a program passes."""
        module = Tests(file=f"{_TESTS}.py", files={f"{_TESTS}.py": tests.module().encode()})
        files = {f"{MODULE}.py": program.encode("utf-8", "replace")}
        return await examine(self.sandbox, module, Candidate(files=files, limits=self.limits))
