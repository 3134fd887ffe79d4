"""Is a planner better than another one? On plans that are known to be right, or on what carrying its plans out brings."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from journeyman import plan_json
from journeyman.agents.orchestrator import Orchestrator
from journeyman.errors import InputError, PlanError
from journeyman.evaluation import Result, pair
from journeyman.examination import Report
from journeyman.experiments.evaluator import HeldOutEvaluator, Look, Subject
from journeyman.experiments.run import blocking
from journeyman.gate import BetterOnHeldOut
from journeyman.learn.planner.base import Example
from journeyman.learn.planner.metrics import PlanAgreement, agreement, mean
from journeyman.plan import Plan
from journeyman.plan_result import ExecutionResult
from journeyman.planning.arenas import Side
from journeyman.planning.collecting import Instruction
from journeyman.planning.crews import Make
from journeyman.planning.live import compared, worth
from journeyman.rewards.utility import Utility
from journeyman.task import Task
from journeyman.trace import average

NOTHING = PlanAgreement(node_f1=0.0, edge_f1=0.0, exact=0.0)
"""Of a plan that could not be made."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Two planners on the same instructions."""

    report: Report
    candidate: dict[str, Any]
    baseline: dict[str, Any]
    refused: int
    """Instructions for which the candidate made no plan; they count as failures."""

    @property
    def passed(self) -> bool:
        return self.report.passed

    @property
    def reason(self) -> str:
        return self.report.reason

    def record(self) -> dict[str, Any]:
        """As it is kept: with each instruction's scores."""
        return {**self.json(), "report": self.report.record()}

    def json(self) -> dict[str, Any]:
        found = self.report.json()
        names = ("gain", "low", "high", "decided_low", "decided_high", "level", "looks", "chosen_among", "gain_shrunk")
        return {
            "passed": self.passed,
            "reason": self.reason,
            **{name: found[name] for name in (*names, "contaminated")},
            "candidate": self.candidate,
            "baseline": self.baseline,
            "refused": self.refused,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A planner that is compared."""

    id: str
    """Made of its content, or the name of what is always the same."""
    make: Make
    """How it makes plans."""
    trained_on: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class PlanExamination:
    """Two planners by agreement with plans that are right: the score of a plan is the mean of its node-F1 and edge-F1."""

    examples: Sequence[Example]
    gate: BetterOnHeldOut

    def evaluate(self, candidate: Contender, baseline: Contender, evaluator: HeldOutEvaluator, *, id: str) -> Compared:
        """Let both plan, ask the gate, and keep what was found.

        Raises:
            InputError: There is no example that succeeded, or that nobody judged; or all of them were learned from.
        """
        right = [example.plan for example in self.examples if example.success is None or example.success >= 1]
        if not right:
            raise InputError("no plan of the data succeeded, so there is nothing to compare with")
        tasks = [
            Task(id=str(at), question=plan.instruction, answer=json.dumps(plan_json.written(plan)))
            for at, plan in enumerate(right)
        ]

        def measure(look: Look) -> Compared:
            some = [right[int(task.id)] for task in look.tasks]
            now, refused = _agreements(candidate.make, some)
            before, _ = _agreements(baseline.make, some)
            evaluation = look.at(pair(_results(before, look), _results(now, look)))
            report = Report(evaluation=evaluation, decision=self.gate.decide(evaluation))
            return Compared(report=report, candidate=_means(now), baseline=_means(before), refused=refused)

        return _counted((candidate, baseline), tasks, {"by": "plans", "gate": repr(self.gate)}, measure, evaluator, id)


def _agreements(make: Make, right: Sequence[Plan]) -> tuple[list[PlanAgreement], int]:
    found, refused = [], 0
    for plan in right:
        try:
            found.append(agreement(make(plan.instruction), plan))
        except PlanError:
            found.append(NOTHING)
            refused += 1
    return found, refused


def _results(found: Sequence[PlanAgreement], look: Look) -> list[Result]:
    scores = ((each.node_f1 + each.edge_f1) / 2 for each in found)
    return [Result(task_id=task.id, score=score) for task, score in zip(look.tasks, scores, strict=True)]


def _means(found: Sequence[PlanAgreement]) -> dict[str, Any]:
    whole = mean(found)
    return {"node_f1": whole.node_f1, "edge_f1": whole.edge_f1, "exact": whole.exact}


@dataclass(frozen=True, kw_only=True)
class LiveExamination:
    """Two planners whose plans are carried out."""

    asked: Sequence[Instruction]
    orchestrator: Orchestrator
    utility: Utility
    gate: BetterOnHeldOut
    heard: Callable[[ExecutionResult], None] = lambda _: None

    def evaluate(self, candidate: Contender, baseline: Contender, evaluator: HeldOutEvaluator, *, id: str) -> Compared:
        """Let both do the instructions, ask the gate, and keep what was found.

        Args:
            id: Of the command; part of the evaluation's.
        """
        tasks = [Task(id=each.id, question=each.text) for each in self.asked]

        def measure(look: Look) -> Compared:
            asked = [each for each in self.asked if each.id in {task.id for task in look.tasks}]
            now, refused = self._side(candidate.make, asked)
            before, _ = self._side(baseline.make, asked)
            pairs = compared([each.id for each in asked], before.utilities, now.utilities, self.utility)
            evaluation = look.at(pairs)
            report = Report(evaluation=evaluation, decision=self.gate.decide(evaluation))
            return Compared(report=report, candidate=_told(now), baseline=_told(before), refused=refused)

        crew = sorted(self.orchestrator.crew) if self.orchestrator else []
        settings = {"by": "outcomes", "utility": repr(self.utility), "gate": repr(self.gate), "crew": crew}
        return _counted((candidate, baseline), tasks, settings, measure, evaluator, id)

    def _side(self, make: Make, asked: Sequence[Instruction]) -> tuple[Side, int]:
        results = asyncio.run(self._results(make, asked))
        done = [result for result in results if result is not None]
        # Nothing was spent, and nothing done.
        utilities = [0.0 if result is None else worth(self.utility, result) for result in results]
        side = Side(
            utilities=tuple(utilities),
            success=sum(result.success is True for result in done) / max(1, len(results)),
            cost=average([result.total_cost for result in done]),
            seconds=average([result.critical_path_seconds for result in done]),
        )
        return side, len(results) - len(done)

    async def _results(self, make: Make, asked: Sequence[Instruction]) -> list[ExecutionResult | None]:
        async def one(each: Instruction) -> ExecutionResult | None:
            try:
                result = each.judge(await self.orchestrator.run(make(each.text)))
            except PlanError:
                return None
            self.heard(result)
            return result

        return list(await asyncio.gather(*(one(each) for each in asked)))


def _told(side: Side) -> dict[str, Any]:
    return {"utility": side.utility, "success": side.success, "cost": side.cost, "seconds": side.seconds}


def _counted(
    sides: tuple[Contender, Contender],
    tasks: Sequence[Task],
    settings: Mapping[str, object],
    measure: Callable[[Look], Compared],
    evaluator: HeldOutEvaluator,
    id: str,
) -> Compared:
    candidate, baseline = sides
    subject = Subject(
        candidate=candidate.id,
        baseline=baseline.id,
        tasks=tasks,
        settings=settings,
        # Plans are always the same; what workers bring is not known to be.
        deterministic=settings["by"] == "plans",
        trained_on=candidate.trained_on | baseline.trained_on,
    )
    return blocking(evaluator.evaluate(subject, measure, id=id, records=lambda found: [(baseline.id, found)]))
