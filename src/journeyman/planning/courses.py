"""Instructions to practise on: plans as a supervised planner sees them, with what it would choose as the prior."""

from collections.abc import Callable, Mapping, Sequence

from journeyman.agents.orchestrator import Orchestrator
from journeyman.learn.planner.network import PlannerModel
from journeyman.learn.planner.reinforced import features_of_plan
from journeyman.plan import Plan
from journeyman.plan_result import ExecutionResult
from journeyman.planning.collecting import Instruction
from journeyman.planning.live import CarryOut, PracticeTask
from journeyman.policy import Choice


def courses(
    asked: Sequence[Instruction], plans: Sequence[Plan], model: PlannerModel, orchestrator: Orchestrator
) -> tuple[PracticeTask, ...]:
    """A course for each instruction and its plan, carried out by the orchestrator and judged as the instruction says.

    Raises:
        InputError: A plan has a tool or kind of work that the planner has no card of.
    """
    found = []
    for each, plan in zip(asked, plans, strict=True):
        seen = features_of_plan(model, plan)
        carry_out = _by(orchestrator, each.judge)
        found.append(PracticeTask(id=each.id, plan=plan, nodes=seen.nodes, prior=seen.prior, carry_out=carry_out))
    return tuple(found)


def _by(orchestrator: Orchestrator, judge: Callable[[ExecutionResult], ExecutionResult]) -> CarryOut:
    async def carry_out(plan: Plan, choices: Mapping[str, Choice]) -> ExecutionResult:
        return judge(await orchestrator.run(plan, choices=choices))

    return carry_out
