"""Where tasks come from, and what verifies the answers."""

from dataclasses import dataclass
from typing import Protocol

from journeyman.score import Reward
from journeyman.task import Split, Task
from journeyman.trace import Trace


class Verifier(Protocol):
    """Compares what an attempt gave with what is right. A verdict it cannot reach is a reward of `None`, not an exception."""

    async def verify(self, task: Task, trace: Trace) -> Reward: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Tasks of one kind with the verifier that goes with them."""

    name: str
    tasks: tuple[Task, ...]
    verifier: Verifier

    def split(self, split: Split) -> tuple[Task, ...]:
        return tuple(task for task in self.tasks if task.split is split)
