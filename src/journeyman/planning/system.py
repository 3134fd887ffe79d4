"""From an instruction to what became of it: plan, carry out, log.

system = OrchestrationSystem(planner, crew, logger=ExecutionLogger("execution_logs/"))
result = system.execute("Summarise these reports and draw the trend.")
print(result.success, result.total_cost, result.outputs)
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

from journeyman.agents.crew.base import Worker
from journeyman.agents.orchestrator import Budget, Choose, Limits, Orchestrator
from journeyman.candidate import BASE
from journeyman.capture.execution_log import ExecutionLogger
from journeyman.learn.planner.base import Planner
from journeyman.plan import Plan
from journeyman.plan_result import ExecutionResult
from journeyman.policy import Card

Judge = Callable[[ExecutionResult], ExecutionResult]
"""Puts verdicts on what came out: on the whole, and on the steps where it can."""


def _unjudged(result: ExecutionResult) -> ExecutionResult:
    return result


@dataclass(frozen=True)
class OrchestrationSystem:
    """A planner and those who carry its plans out. Every execution is logged, where there is a logger."""

    planner: Planner
    """Makes the plans, of the crew's tools and models."""
    crew: Mapping[str, Worker]
    """Who does the subtasks, by name."""
    _: KW_ONLY
    choose: Choose | None = None
    """Who does a subtask for which the plan names nobody."""
    limits: Limits = field(default_factory=Limits)
    budget: Budget = field(default_factory=Budget)
    """Of each execution."""
    logger: ExecutionLogger | None = None
    """Where executions are written."""
    judge: Judge = _unjudged
    """Whether it was right. Without one nobody knows, and that is what the log says."""
    policy: str = BASE
    """The candidate in force."""

    def cards(self, kind: str) -> tuple[Card, ...]:
        """What is known of those in the crew that are a "model" or a "tool"."""
        return tuple(worker.card for worker in self.crew.values() if worker.card.kind == kind)

    def plan(self, instruction: str) -> Plan:
        """The steps, in an order in which they can be done, each with who does it.

        Raises:
            PlanError: No plan can be made; says why.
        """
        return self.planner.plan(instruction, tools=self.cards("tool"), models=self.cards("model"))

    def execute(self, instruction: str) -> ExecutionResult:
        """Plan, carry out and log; a step that fails is data. For programs without an event loop; others await `carry_out`.

        Raises:
            PlanError: No plan can be made, or nobody can do one of its steps. Nothing was begun.
            StoreError: It could not be logged.
        """
        return self.run(self.plan(instruction))

    def run(self, plan: Plan) -> ExecutionResult:
        """Carry a plan out that is made already. For programs without an event loop."""
        return asyncio.run(self.carry_out(plan))

    async def carry_out(self, plan: Plan) -> ExecutionResult:
        """Carry a plan out, and log it, also where it is broken off."""
        heard: list[ExecutionResult] = []
        # Of a run that is cancelled nothing is returned, but what it cost until then is told.
        orchestrator = Orchestrator(
            crew=self.crew,
            choose=self.choose,
            limits=self.limits,
            budget=self.budget,
            candidate_id=self.policy,
            done=heard.append,
        )
        try:
            await orchestrator.run(plan)
        finally:
            for result in heard:
                judged = self.judge(result)
                if self.logger is not None:
                    self.logger.log(judged)
        return judged
