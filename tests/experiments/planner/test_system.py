"""From an instruction to what became of it, and everything logged."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.agents.subtask import PlanLimits
from journeyman.agents.workers import Worker
from journeyman.core.errors import PlanError
from journeyman.core.plan import ExecutionResult, Plan, SubtaskState
from journeyman.core.policy import Card
from journeyman.experiments.planner.collect import OrchestrationSystem
from journeyman.experiments.planner.workers import Making
from journeyman.tracing.importers.execution_log import ExecutionLogger, LoggedExecution, read_executions
from tests.support.crews import model, plan, says, tool

pytestmark = pytest.mark.training

PLANNED = plan(a="", b="a")


def planner(made: Plan = PLANNED) -> Making:
    return Making(lambda text: replace(made, instruction=text))


def logged(folder: Path) -> list[LoggedExecution]:
    return [each for each in read_executions(folder) if isinstance(each, LoggedExecution)]


def test_an_instruction_is_planned_carried_out_judged_and_logged(tmp_path: Path) -> None:
    def judge(result: ExecutionResult) -> ExecutionResult:
        return replace(result, success=result.outputs["b"] == "two")

    system = OrchestrationSystem(
        planner(), {"a": says("one"), "b": says("two")}, logger=ExecutionLogger(tmp_path), judge=judge, policy="p1"
    )
    result = system.execute("do it")
    assert (result.success, dict(result.outputs)) == (True, {"a": "one", "b": "two"})
    (line,) = logged(tmp_path)
    assert (line.instruction, line.success, line.policy) == ("do it", True, "p1")


def test_without_a_judge_nobody_knows_and_the_log_says_so(tmp_path: Path) -> None:
    system = OrchestrationSystem(planner(), {"a": says("one"), "b": says("two")}, logger=ExecutionLogger(tmp_path))
    assert system.execute("do it").success is None
    assert logged(tmp_path)[0].success is None


def test_a_step_that_fails_is_data_and_is_logged(tmp_path: Path) -> None:
    def broken() -> str:
        raise RuntimeError("no paper")

    system = OrchestrationSystem(planner(), {"a": tool(broken), "b": says("two")}, logger=ExecutionLogger(tmp_path))
    result = system.execute("do it")
    assert (result.success, result.results["a"].state, result.results["b"].state) == (
        False,
        SubtaskState.FAILED,
        SubtaskState.SKIPPED,
    )
    assert logged(tmp_path)[0].success is False


def test_where_no_plan_can_be_made_or_nobody_does_a_step_nothing_is_begun_and_nothing_logged(tmp_path: Path) -> None:
    def refuse(text: str) -> Plan:
        raise PlanError("nobody bakes bread here")

    began: list[int] = []
    crew = {"a": tool(lambda: began.append(1))}
    for made in (Making(refuse), planner()):
        with pytest.raises(PlanError):
            OrchestrationSystem(made, crew, logger=ExecutionLogger(tmp_path)).execute("bread")
    assert began == []
    assert list(tmp_path.iterdir()) == []


def test_the_planner_is_told_who_there_is() -> None:
    crew: dict[str, Worker] = {"a": says("one"), "m": model("hello")}
    system = OrchestrationSystem(planner(), crew)
    assert [card.name for card in system.cards("tool")] == ["tool"]
    assert [card.name for card in system.cards("model")] == ["m"]


async def test_what_was_broken_off_is_logged_with_what_it_had_cost(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def long() -> str:
        begun.set()
        await asyncio.sleep(600)
        return ""

    crew = {"a": replace(says("one"), card=Card(name="a", kind="tool", call_price=2.0)), "b": tool(long)}
    system = OrchestrationSystem(planner(), crew, logger=ExecutionLogger(tmp_path), limits=PlanLimits(together=1))
    running = asyncio.create_task(system.carry_out(PLANNED))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    (line,) = logged(tmp_path)
    assert line.success is not True
    assert (line.results["a"].outcome.cost, line.error is not None) == (2.0, True)
