"""Where a plan ends: budgets of money and time, cancellation, what is moot, and a rest that is planned anew."""

import asyncio
import logging
from typing import Any

import pytest

from journeyman.agents.orchestrator import Orchestrator
from journeyman.agents.subtask import PlanBudget, PlanLimits, SubtaskFailure
from journeyman.agents.workers import ByModel, Note, SubtaskJob, Worker, WorkerFailed
from journeyman.core.errors import PlanError
from journeyman.core.plan import ExecutionResult, Plan, Subtask, SubtaskState
from journeyman.core.policy import Card, Ending
from journeyman.core.trace import ModelCall
from journeyman.models.scripted import Scripted
from tests.support.crews import by_subtask, plan, says, tool


async def test_what_nobody_needs_any_more_is_cancelled() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return "late"

    async def fails() -> None:
        await began.wait()
        raise ValueError("broken")

    crew = {"slow": tool(slow), "fails": tool(fails), "both": says("never")}
    result = await Orchestrator(crew=crew).run(plan(slow="", fails="", both="slow fails"))
    assert ended.is_set()
    assert result.results["slow"].state is SubtaskState.CANCELLED
    assert result.results["slow"].why == "nobody needs it any more: fails was not brought to an end"
    assert result.results["slow"].tries[0].outcome.ending is Ending.UNJUDGED


async def test_a_try_that_takes_too_long_is_cancelled_and_its_cost_is_unknown() -> None:
    crew: dict[str, Worker] = {"a": ByModel(model=Scripted("late", latency=60), card=Card(name="a")), "b": says("in time")}
    limits = PlanLimits(seconds=0.05, retries=0)
    result = await Orchestrator(crew=crew, limits=limits, fallbacks={"a": ["b"]}).run(plan(a=""))
    assert result.answer == "in time"
    assert result.results["a"].tries[0].error == "took longer than 0.05 s"
    assert result.total_cost is None


async def test_when_the_time_is_up_nothing_is_left_and_what_was_done_is_kept() -> None:
    async def slow() -> None:
        await asyncio.sleep(60)

    crew = {"a": says("a"), "b": tool(slow), "c": says("c")}
    before = asyncio.all_tasks()
    result = await Orchestrator(crew=crew, budget=PlanBudget(seconds=0.1)).run(plan(a="", b="a", c="b"))
    assert asyncio.all_tasks() == before
    assert {id: each.state for id, each in result.results.items()} == {
        "a": SubtaskState.DONE,
        "b": SubtaskState.CANCELLED,
        "c": SubtaskState.SKIPPED,
    }
    assert (result.success, result.results["b"].why) == (False, "the time of 0.1 s was up")
    assert result.total_latency_ms < 10_000


async def test_what_takes_longer_than_is_left_is_not_begun() -> None:
    called: list[str] = []
    crew = {"a": tool(lambda: called.append("a"), seconds=3600.0)}
    result = await Orchestrator(crew=crew, budget=PlanBudget(seconds=60)).run(plan(a=""))
    assert (called, result.results["a"].state) == ([], SubtaskState.SKIPPED)
    assert "it takes 3.6e+03 s" in (result.results["a"].why or "")


async def test_cancelling_a_run_leaves_no_task_behind_and_what_it_cost_is_handed_over() -> None:
    began = asyncio.Event()

    async def slow() -> None:
        began.set()
        await asyncio.sleep(60)

    handed: list[ExecutionResult] = []
    before = asyncio.all_tasks()
    orchestrator = Orchestrator(crew={"a": says("a"), "b": tool(slow), "c": tool(slow)}, done=handed.append)
    running = asyncio.create_task(orchestrator.run(plan(a="", b="a", c="")))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.all_tasks() == before
    (result,) = handed
    assert (result.success, result.trace.error) == (None, "Cancelled: the run was stopped from outside")
    assert {each.state for each in result.results.values()} <= {SubtaskState.DONE, SubtaskState.CANCELLED, SubtaskState.SKIPPED}


async def test_a_worker_that_cancels_itself_does_not_cancel_the_run() -> None:
    async def odd() -> None:
        raise asyncio.CancelledError

    result = await Orchestrator(crew={"a": tool(odd), "b": says("b")}, fallbacks={"a": ["b"]}).run(plan(a=""))
    assert result.answer == "b"


async def test_money_is_set_aside_before_a_job_begins() -> None:
    crew = {"a": tool(lambda: "a", price=0.4), "b": tool(lambda: "b", price=0.4), "c": tool(lambda: "c", price=0.4)}
    result = await Orchestrator(crew=crew, budget=PlanBudget(money=1.0)).run(plan(a="", b="", c=""))
    assert sorted(each.state for each in result.results.values()) == [
        SubtaskState.DONE,
        SubtaskState.DONE,
        SubtaskState.SKIPPED,
    ]
    assert (result.total_cost, result.success) == (0.8, False)
    assert "it may cost $0.4, and $0.8 of $1 are spent" in (result.error or "")


async def test_what_was_set_aside_and_not_spent_is_there_for_others() -> None:
    class Thrifty:
        card = Card(name="thrifty", call_price=0.9)

        def estimate(self, job: SubtaskJob) -> float | None:
            return 0.9

        async def do(self, job: SubtaskJob, note: Note) -> str:
            await asyncio.sleep(0.01)
            note(ModelCall(model="m", prompt="", reply="x", cost=0.1))
            return "x"

    crew = {"a": Thrifty(), "b": Thrifty()}
    result = await Orchestrator(crew=crew, budget=PlanBudget(money=1.0)).run(plan(a="", b=""))
    assert {each.state for each in result.results.values()} == {SubtaskState.DONE}
    assert result.total_cost == pytest.approx(0.2)


async def test_a_dear_worker_that_the_budget_does_not_allow_makes_way_for_a_cheaper_one() -> None:
    crew = {"a": tool(lambda: "dear", price=2.0), "b": tool(lambda: "cheap", price=0.5)}
    result = await Orchestrator(crew=crew, budget=PlanBudget(money=1.0), fallbacks={"a": ["b"]}).run(plan(a=""))
    assert (result.answer, result.total_cost) == ("cheap", 0.5)


@pytest.mark.parametrize("names", [{"a": []}, {"b": ["a"]}])
async def test_a_budget_of_money_is_refused_where_a_price_is_not_known(names: dict[str, list[str]]) -> None:
    called: list[str] = []
    crew = {"a": tool(lambda: called.append("a"), price=None), "b": says("b")}
    worker = next(iter(names))
    one = Plan(instruction="", subtasks=(Subtask(id="x", text="", worker=worker),))
    with pytest.raises(PlanError, match=r"the price of a is not known, so a budget of \$1 could not be kept; give its card"):
        await Orchestrator(crew=crew, budget=PlanBudget(money=1.0), fallbacks=names).run(one)
    assert called == []


async def test_the_rest_of_a_plan_is_made_anew_where_a_subtask_failed() -> None:
    asked: list[SubtaskFailure] = []

    async def replan(old: Plan, failure: SubtaskFailure) -> Plan | None:
        asked.append(failure)
        rest = (Subtask(id="b2", text="", worker="good", after=("a",)), Subtask(id="c", text="", worker="join", after=("b2",)))
        return Plan(instruction=old.instruction, subtasks=(old.by_id["a"], *rest))

    def fails() -> None:
        raise ValueError("broken")

    def join(inputs: dict[str, Any]) -> str:
        return f"joined {inputs}"

    called: list[str] = []

    def first() -> str:
        called.append("a")
        return "a"

    crew = {
        "a": tool(first),
        "b": tool(fails),
        "c": says("c"),
        "good": says("good"),
        "join": tool(join),
    }
    result = await Orchestrator(crew=crew, replan=replan).run(plan(a="", b="a", c="b"))
    assert [(failure.id, failure.workers) for failure in asked] == [("b", ("b",))]
    assert (result.answer, called, result.error) == ("joined {'b2': 'good'}", ["a"], None)
    assert result.results["b"].state is SubtaskState.FAILED
    assert result.plan.by_id.keys() == {"a", "b2", "c"}
    assert set(by_subtask(result.trace)) == {"a", "b", "b2", "c"}


async def test_a_plan_is_made_anew_a_few_times_and_no_more() -> None:
    asked: list[str] = []

    async def replan(old: Plan, failure: SubtaskFailure) -> Plan | None:
        asked.append(failure.id)
        return old

    def fails() -> None:
        raise ValueError("broken")

    result = await Orchestrator(crew={"a": tool(fails)}, replan=replan, limits=PlanLimits(replans=3)).run(plan(a=""))
    assert (asked, len(result.results["a"].tries)) == (["a"] * 3, 4)
    assert [try_["attempt"] for try_ in by_subtask(result.trace)["a"].raw["tries"]] == [1, 2, 3, 4]


@pytest.mark.parametrize("new", [plan(a="", z="a"), Plan(instruction="", subtasks=(Subtask(id="b", text="", worker="a"),))])
async def test_a_new_plan_that_forgets_what_is_done_or_names_nobody_is_not_taken(
    new: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise ValueError("broken")

    async def replan(old: Plan, failure: SubtaskFailure) -> Plan | None:
        return new

    with caplog.at_level(logging.WARNING):
        result = await Orchestrator(crew={"a": says("a"), "b": tool(fails)}, replan=replan).run(plan(a="", b="a"))
    assert (result.outputs, result.plan) == ({"a": "a"}, plan(a="", b="a"))
    assert "the plan was not made anew" in caplog.text


async def test_a_new_plan_ends_what_it_does_without() -> None:
    ended = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def fails() -> None:
        await asyncio.sleep(0.01)
        raise ValueError("broken")

    async def replan(old: Plan, failure: SubtaskFailure) -> Plan | None:
        return Plan(instruction="", subtasks=(Subtask(id="z", text="", worker="z"),))

    crew = {"slow": tool(slow), "fails": tool(fails), "z": says("z")}
    result = await Orchestrator(crew=crew, replan=replan).run(plan(slow="", fails=""))
    assert ended.is_set()
    assert (result.answer, result.results["slow"].state) == ("z", SubtaskState.CANCELLED)


async def test_a_worker_that_cannot_tell_what_it_costs_says_why_when_it_is_asked() -> None:
    class Odd:
        card = Card(name="odd", call_price=1.0)

        def estimate(self, job: SubtaskJob) -> float | None:
            raise WorkerFailed("there is no such shop")

        async def do(self, job: SubtaskJob, note: Note) -> Any:
            raise WorkerFailed("there is no such shop")

    result = await Orchestrator(crew={"a": Odd()}).run(plan(a=""))
    assert (result.results["a"].state, result.error) == (SubtaskState.FAILED, "a: a: there is no such shop")
    paid = await Orchestrator(crew={"a": Odd()}, budget=PlanBudget(money=1.0)).run(plan(a=""))
    assert (paid.results["a"].state, paid.total_cost) == (SubtaskState.SKIPPED, 0.0)
