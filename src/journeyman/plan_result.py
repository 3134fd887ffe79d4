"""What became of a plan: of each subtask, and of the whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from journeyman.plan import Plan
from journeyman.policy import Choice, Ending, Outcome
from journeyman.trace import Trace, total


class State(StrEnum):
    """Where a subtask ended."""

    DONE = "done"
    """There is an output, and no check found it wrong."""
    FAILED = "failed"
    """It was tried, and nobody brought an output that could be used."""
    SKIPPED = "skipped"
    """It was never begun: what it needs is missing, nobody needs it any more, or the budget does not allow it."""
    CANCELLED = "cancelled"
    """It was under way when its output became useless, or when the time was up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One worker's go at a subtask."""

    worker: str
    outcome: Outcome
    """Cost and seconds are this try's alone."""
    choice: Choice
    """Why it was this worker, and with what probability."""
    started_at: datetime
    error: str | None = None
    """Why there is no output, or why it was not taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskResult:
    """What became of one subtask."""

    id: str
    state: State
    output: Any = None
    """A text or any other JSON value; `None` where it was not done."""
    tries: tuple[Try, ...] = ()
    """Oldest first; none where it was skipped."""
    why: str | None = None
    """Why it was not done."""

    @property
    def worker(self) -> str:
        """Who did it, or tried last; empty where nobody did."""
        return self.tries[-1].worker if self.tries else ""

    @property
    def choice(self) -> Choice | None:
        """The decision that led to the last try."""
        return self.tries[-1].choice if self.tries else None

    @property
    def outcome(self) -> Outcome:
        """The last try's, with the cost, seconds and tokens of all of them. A subtask that was skipped cost nothing."""
        if not self.tries:
            return Outcome(ending=Ending.UNJUDGED, cost=0.0, seconds=0.0)
        parts = [each.outcome for each in self.tries]
        return Outcome(
            ending=parts[-1].ending,
            success=parts[-1].success,
            cost=total(part.cost for part in parts),
            seconds=total(part.seconds for part in parts),
            input_tokens=total(part.input_tokens for part in parts),
            output_tokens=total(part.output_tokens for part in parts),
        )


@dataclass(frozen=True, kw_only=True)
class ExecutionResult:
    """What became of a plan."""

    plan: Plan
    """As it was in the end: another than the one that was begun where it was made anew on the way."""
    results: Mapping[str, SubtaskResult]
    """By the id of the subtask; also of those that a new plan no longer holds."""
    trace: Trace
    """One attempt: a step for each subtask, and below it the calls that were made for it."""
    success: bool | None
    """What the verifier said of the whole; `None` where nobody judged, and `False` where a part of the answer is missing."""
    total_latency_ms: float
    """Wall time from beginning to end."""
    error: str | None = None
    """Why a part of the answer is missing."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outputs(self) -> Mapping[str, Any]:
        """What each subtask that was done gave, by its id."""
        return {id: result.output for id, result in self.results.items() if result.state is State.DONE}

    @property
    def answer(self) -> Any:
        """The output of the plan's one end, or of its several by their ids; `None` where one is missing."""
        outputs, ends = self.outputs, self.plan.ends
        if not ends or any(id not in outputs for id in ends):
            return None
        return outputs[ends[0]] if len(ends) == 1 else {id: outputs[id] for id in ends}

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        """What each subtask brought and cost, by its id."""
        return {id: result.outcome for id, result in self.results.items()}

    @property
    def total_cost(self) -> float | None:
        """US dollars of all tries; `None` as soon as one of them is not known."""
        return total(outcome.cost for outcome in self.outcomes.values())

    @property
    def critical_path_seconds(self) -> float | None:
        """How long it would have taken had nobody waited for a worker; `None` where a part of it was not measured."""
        outcomes = self.outcomes
        spent = {subtask.id: outcomes[subtask.id].seconds if subtask.id in outcomes else 0.0 for subtask in self.plan.subtasks}
        if any(seconds is None for seconds in spent.values()):
            return None
        return self.plan.critical_path(lambda subtask: spent[subtask.id] or 0.0)
