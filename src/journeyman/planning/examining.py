"""Is a planner better than another one? On plans that are known to be right, or on what carrying its plans out brings."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from journeyman import app
from journeyman.agents.orchestrator import Orchestrator
from journeyman.errors import InputError, PlanError
from journeyman.evaluation import Evaluation, Result, pair
from journeyman.examination import Report
from journeyman.experiments.evaluator import landmarks
from journeyman.gate import BetterOnHeldOut
from journeyman.learn.planner.base import Example
from journeyman.learn.planner.metrics import Agreement, agreement, mean
from journeyman.learn.planner.utility import Utility
from journeyman.plan import Plan
from journeyman.plan_result import ExecutionResult
from journeyman.planning.arenas import Side
from journeyman.planning.collecting import Asked
from journeyman.planning.crews import Make
from journeyman.planning.live import compared, worth
from journeyman.stores import EvaluationRecord, Store
from journeyman.task import Task
from journeyman.tasks.base import digest
from journeyman.trace import average

NOTHING = Agreement(node_f1=0.0, edge_f1=0.0, exact=0.0)
"""Of a plan that could not be made."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Two planners on the same instructions."""

    report: Report
    candidate: dict[str, Any]
    baseline: dict[str, Any]
    refused: int
    """Instructions for which the candidate made no plan; they count as failures."""

    def json(self) -> dict[str, Any]:
        return {
            "passed": self.report.passed,
            "reason": self.report.reason,
            "gain": self.report.gain,
            "low": self.report.low,
            "high": self.report.high,
            "candidate": self.candidate,
            "baseline": self.baseline,
            "refused": self.refused,
        }


def on_plans(examples: Sequence[Example], candidate: Make, baseline: Make, gate: BetterOnHeldOut) -> Compared:
    """By agreement with plans that are right: the score of a plan is the mean of its node-F1 and edge-F1.

    Raises:
        InputError: There is no example that succeeded, or that nobody judged.
    """
    right = [example.plan for example in examples if example.success is None or example.success >= 1]
    if not right:
        raise InputError("no plan of the data succeeded, so there is nothing to compare with")
    now, refused = _agreements(candidate, right)
    before, _ = _agreements(baseline, right)
    evaluation = pair(_results(before), _results(now))
    return Compared(
        report=Report(evaluation=evaluation, decision=gate.decide(evaluation)),
        candidate=_means(now),
        baseline=_means(before),
        refused=refused,
    )


def _agreements(make: Make, right: Sequence[Plan]) -> tuple[list[Agreement], int]:
    found, refused = [], 0
    for plan in right:
        try:
            found.append(agreement(make(plan.instruction), plan))
        except PlanError:
            found.append(NOTHING)
            refused += 1
    return found, refused


def _results(found: Sequence[Agreement]) -> list[Result]:
    return [Result(task_id=str(at), score=(each.node_f1 + each.edge_f1) / 2) for at, each in enumerate(found)]


def _means(found: Sequence[Agreement]) -> dict[str, Any]:
    whole = mean(found)
    return {"node_f1": whole.node_f1, "edge_f1": whole.edge_f1, "exact": whole.exact}


@dataclass(frozen=True, kw_only=True)
class LiveExamination:
    """Two planners whose plans are carried out."""

    asked: Sequence[Asked]
    orchestrator: Orchestrator
    utility: Utility
    gate: BetterOnHeldOut
    heard: Callable[[ExecutionResult], None] = lambda _: None

    def sit(self, candidate: tuple[str, Make], baseline: tuple[str, Make], store: Store, *, id: str) -> Compared:
        """Let both do the instructions, ask the gate, and keep what was found; the look is counted before it is made.

        Args:
            candidate: A planner's id, and how it makes plans.
            id: Of the command; part of the evaluation's.
        """
        tasks = [Task(id=each.id, question=each.text) for each in self.asked]
        examined, at = digest(tasks), app.now()
        again = f"{baseline[0]}/{examined}"
        look = max((store.record_look(mark, candidate[0], at, again) for mark in landmarks(tasks)), default=1)
        now, refused = self._side(candidate[1])
        before, _ = self._side(baseline[1])
        evaluation: Evaluation = replace(
            compared([each.id for each in self.asked], before.utilities, now.utilities, self.utility), looks=look - 1
        )
        report = Report(evaluation=evaluation, decision=self.gate.decide(evaluation))
        made = Compared(report=report, candidate=_told(now), baseline=_told(before), refused=refused)
        store.add_evaluation(
            EvaluationRecord(
                id=f"{id}/{candidate[0]}/{baseline[0]}/{examined}/{look}",
                candidate_id=candidate[0],
                baseline_id=baseline[0],
                held_out_id=examined,
                passed=report.passed,
                reason=report.reason,
                report=made.json(),
                at=at,
            )
        )
        return made

    def _side(self, make: Make) -> tuple[Side, int]:
        results = asyncio.run(self._results(make))
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

    async def _results(self, make: Make) -> list[ExecutionResult | None]:
        async def one(each: Asked) -> ExecutionResult | None:
            try:
                result = each.judge(await self.orchestrator.run(make(each.text)))
            except PlanError:
                return None
            self.heard(result)
            return result

        return list(await asyncio.gather(*(one(each) for each in self.asked)))


def _told(side: Side) -> dict[str, Any]:
    return {"utility": side.utility, "success": side.success, "cost": side.cost, "seconds": side.seconds}
