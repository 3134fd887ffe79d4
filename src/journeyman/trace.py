"""The record of one attempt."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One exchange with a model."""

    model: str
    prompt: str
    reply: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    """`None` when the provider did not count: unknown is not zero."""
    cost: float | None = None
    """US dollars; `None` when the model has no known price."""
    seconds: float | None = None
    """Wall time of the call, queueing included."""
    finish: str | None = None
    """Why the model stopped, in the provider's word ("stop", "length", …)."""
    shown: tuple[str, ...] = ()
    """Ids of the bullets that stood in the prompt."""
    cited: tuple[str, ...] = ()
    """Ids of those that the model says it used."""
    id: str = ""
    parent: str | None = None
    """The id of the step that caused this one: sub-agents make a tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One use of a tool."""

    tool: str
    arguments: str
    result: str
    ok: bool = True
    seconds: float | None = None
    id: str = ""
    parent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """What the agent said to itself, where it is recorded apart from the reply."""

    text: str
    id: str = ""
    parent: str | None = None


Step = ModelCall | ToolCall | Reasoning


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One attempt at one task, oldest step first. A failed attempt is a trace too."""

    id: str
    task_id: str
    candidate_id: str
    """The playbook, policy or adapter in force; "base" when there was none."""
    started_at: datetime
    steps: tuple[Step, ...] = ()
    error: str | None = None
    """Why it stopped early, as `ErrorName: message`."""
    domain: str = "general"

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        return tuple(step for step in self.steps if isinstance(step, ModelCall))

    @property
    def reply(self) -> str:
        """The agent's last word, or nothing."""
        return self.calls[-1].reply if self.calls else ""

    @property
    def shown(self) -> frozenset[str]:
        """Every bullet that stood in a prompt of this attempt."""
        return frozenset(id for call in self.calls for id in call.shown)

    @property
    def cited(self) -> frozenset[str]:
        return frozenset(id for call in self.calls for id in call.cited)

    @property
    def input_tokens(self) -> int | None:
        """The sum over calls; unknown as soon as one call is."""
        return total(call.input_tokens for call in self.calls)

    @property
    def output_tokens(self) -> int | None:
        return total(call.output_tokens for call in self.calls)

    @property
    def cost(self) -> float | None:
        """US dollars; unknown as soon as one call's cost is."""
        costs = [call.cost for call in self.calls]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None


def total(counts: Iterable[int | None]) -> int | None:
    """The sum, or `None` as soon as one part is unknown."""
    found = list(counts)
    known = [count for count in found if count is not None]
    return sum(known) if len(known) == len(found) else None
