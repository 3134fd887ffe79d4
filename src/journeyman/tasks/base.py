"""Where tasks come from, and what verifies the answers."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from journeyman.core.score import Reward
from journeyman.core.task import Split, Task
from journeyman.core.trace import Trace


class Verifier(Protocol):
    """Compares what an attempt gave with what is right. A verdict it cannot reach is a reward of `None`, not an exception.

    One whose verdict on the same answer is always the same may say so by an attribute `deterministic = True`: an evaluation is
    repeated for nothing only then.
    """

    async def verify(self, task: Task, trace: Trace) -> Reward: ...


@runtime_checkable
class ReachableVerifier(Protocol):
    """A verifier that needs something else to be there, such as a code service."""

    async def start(self) -> None:
        """See that it is there.

        Raises:
            SandboxError: It is not: nobody could tell what an attempt was worth.
        """


@runtime_checkable
class Grader(Protocol):
    """A verifier that can also tell how near an attempt came: all there is to learn from while nothing is right yet."""

    async def grade(self, task: Task, trace: Trace) -> Reward:
        """From 0 to 1, and 1 only for what `verify` finds right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Tasks of one kind with the verifier that goes with them."""

    name: str
    tasks: tuple[Task, ...]
    verifier: Verifier

    def split(self, split: Split) -> tuple[Task, ...]:
        return tuple(task for task in self.tasks if task.split is split)


def digest(tasks: Iterable[Task]) -> str:
    """Of what is asked and what is right: a data set that was changed is another one, and no run goes on with it."""
    rows = [[task.id, task.question, task.answer, task.domain, task.split] for task in tasks]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
