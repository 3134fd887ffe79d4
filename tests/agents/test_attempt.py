"""Attempts that nobody can check are not made."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from journeyman.agents.attempt import attempt_all
from journeyman.core.errors import SandboxError
from journeyman.core.reward import Reward
from journeyman.core.task import Task
from journeyman.core.trace import ModelCall, Step, Trace

TASKS = [Task(id=str(number), question=f"What is {number}?") for number in range(8)]


@dataclass
class Asked:
    """Answers one task after the other, as a model that serves one at a time does."""

    candidate_id: str = "base"
    asked: list[str] = field(default_factory=list)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, task: Task) -> AsyncIterator[Step]:
        async with self.turn:
            self.asked.append(task.id)
            await asyncio.sleep(0)
            yield ModelCall(model="m", prompt=task.question, reply=task.id)


@dataclass
class Checks:
    """Checks so many answers, and is down then."""

    left: int
    starts: int = 0

    async def start(self) -> None:
        self.starts += 1
        if self.left <= 0:
            raise SandboxError("no code service answers at http://127.0.0.1:1")

    async def verify(self, task: Task, trace: Trace) -> Reward:
        self.left -= 1
        return Reward(name="checks", value=1.0 if self.left >= 0 else None)


def attempted(agent: Asked, checks: Checks) -> list[float | None]:
    made = asyncio.run(attempt_all(agent, TASKS, checks, prefix="p", clock=lambda: datetime.now(UTC)))
    return [each.score.total for each in made]


def test_no_model_is_asked_while_the_checker_is_down() -> None:
    agent = Asked()
    with pytest.raises(SandboxError, match="no code service answers"):
        attempted(agent, Checks(left=0))
    assert agent.asked == []


def test_what_waits_for_its_turn_is_not_asked_once_the_checker_is_down() -> None:
    agent = Asked()
    with pytest.raises(SandboxError, match="no code service answers"):
        attempted(agent, Checks(left=2))
    assert len(agent.asked) <= 4, "the two that were checked, the one that was not, and what was under way then"


def test_a_checker_that_is_there_is_looked_for_once() -> None:
    checks = Checks(left=9)
    assert attempted(Asked(), checks) == [1.0] * 8
    assert checks.starts == 1


def test_a_checker_that_could_not_tell_of_one_attempt_and_is_there_leaves_it_unknown() -> None:
    class Unsure(Checks):
        async def verify(self, task: Task, trace: Trace) -> Reward:
            return Reward(name="checks", value=None if task.id == "3" else 1.0)

    assert attempted(Asked(), Unsure(left=9)) == [None if number == 3 else 1.0 for number in range(8)]
