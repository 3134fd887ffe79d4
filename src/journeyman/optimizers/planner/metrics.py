"""How much a plan is like another one: by its steps, by who follows whom, and whether all is the same."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from journeyman.core.plan import Plan
from journeyman.optimizers.planner.memory import Step, step_of

Thing = TypeVar("Thing", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAgreement:
    """Of one plan with the right one, each 0 to 1; or the means over many."""

    node_f1: float
    """Of the steps as a bag."""
    edge_f1: float
    """Of the pairs of steps of which one follows the other; 1 where neither plan has any."""
    exact: float
    """Whether both bags are the same."""


def agreement(made: Plan, right: Plan) -> PlanAgreement:
    nodes = [Counter(step_of(subtask) for subtask in plan.subtasks) for plan in (made, right)]
    edges = [Counter(_edges(plan)) for plan in (made, right)]
    return PlanAgreement(
        node_f1=f1(nodes[0], nodes[1]),
        edge_f1=f1(edges[0], edges[1]),
        exact=float(nodes[0] == nodes[1] and edges[0] == edges[1]),
    )


def mean_agreement(made: Iterable[Plan], right: Iterable[Plan]) -> PlanAgreement:
    """The means over pairs of plans, of which there is at least one."""
    found = [agreement(*pair) for pair in zip(made, right, strict=True)]
    return mean(found)


def mean(found: Sequence[PlanAgreement]) -> PlanAgreement:
    n = len(found)
    return PlanAgreement(
        node_f1=sum(each.node_f1 for each in found) / n,
        edge_f1=sum(each.edge_f1 for each in found) / n,
        exact=sum(each.exact for each in found) / n,
    )


def f1(made: Counter[Thing], right: Counter[Thing]) -> float:
    """The harmonic mean of precision and recall of a bag; 1 where both are empty."""
    both = (made & right).total()
    total = made.total() + right.total()
    return 2 * both / total if total else 1.0


def _edges(plan: Plan) -> list[tuple[Step, Step]]:
    steps = {subtask.id: step_of(subtask) for subtask in plan.subtasks}
    return [(steps[before], steps[after]) for before, after in plan.edges]
