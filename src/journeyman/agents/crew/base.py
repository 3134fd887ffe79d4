"""What a worker is: one verb, from a job to its output."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from journeyman.errors import JourneymanError
from journeyman.plan import Plan, Subtask
from journeyman.policy import Card
from journeyman.trace import Step


class Unreadable(JourneymanError):
    """An answer came, and could not be read. Says nothing of whether asking again would help."""


class WorkerFailed(JourneymanError):
    """No answer came: the tool, its server or its program failed."""

    def __init__(self, message: str, *, again: bool = False, retry_after: float | None = None, refused: bool = False) -> None:
        super().__init__(message)
        self.again = again
        """Whether the same call may succeed later."""
        self.refused = refused
        """Whether the other side did not even begin, so that there is nothing to pay."""
        self.retry_after = retry_after
        """Seconds that the other side asked for, when it did."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One subtask, ready to be done."""

    plan: Plan
    subtask: Subtask
    inputs: Mapping[str, Any]
    """The outputs of the subtasks it follows, by their ids, in the plan's order."""
    attempt: int = 1
    """Which go at this subtask it is, from 1."""

    @property
    def instruction(self) -> str:
        return self.plan.instruction

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What a tool is called with: where an argument is `<id>` of a subtask that this one follows, its output."""
        return {name: self._filled(value) for name, value in self.subtask.arguments.items()}

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str) and value[:1] == "<" and value[-1:] == ">" and value[1:-1] in self.inputs:
            return self.inputs[value[1:-1]]
        if isinstance(value, Mapping):
            return {name: self._filled(each) for name, each in value.items()}
        return [self._filled(each) for each in value] if isinstance(value, list | tuple) else value


Note = Callable[[Step], None]
"""Takes a step as soon as it was made: what was paid for is known also where the job breaks off after it."""


class Worker(Protocol):
    """Whoever can do a subtask. One worker may have many jobs under way at once."""

    @property
    def card(self) -> Card:
        """What is known beforehand: its name, and its prices."""

    def estimate(self, job: Job) -> float | None:
        """US dollars that the job costs at most, by the card; `None` where a price is not known."""

    async def do(self, job: Job, note: Note) -> Any:
        """The output: a text or any other JSON value.

        Raises:
            ModelBusy: The same call may succeed later.
            WorkerFailed: No answer came.
            Unreadable: An answer came, and could not be read.
        """
