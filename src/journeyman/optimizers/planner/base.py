"""What plans, and what it learned from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from journeyman.core.plan import Plan
from journeyman.core.policy import Card


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A plan that somebody made, and what became of it."""

    plan: Plan
    success: float | None = None
    """0 to 1; `None` when it was not carried out, as plans of experts often are. One that failed is no example to follow."""
    cost: float | None = None
    """US dollars."""
    seconds: float | None = None
    group: str = ""
    """Examples made from one another, such as paraphrases, have the same; it never lies in two splits. Empty: its own."""
    synthetic: bool = False


class Planner(Protocol):
    """Makes a plan for an instruction."""

    def plan(self, instruction: str, *, tools: Sequence[Card] = (), models: Sequence[Card] = ()) -> Plan:
        """The plan with a worker for each subtask. Acyclic, and each required input is given by an earlier subtask or the
        instruction.

        Args:
            tools: What there is to call; others than it learned from, too.
            models: Who can do subtasks that no tool does.

        Raises:
            PlanError: No such plan can be made; says why.
        """
