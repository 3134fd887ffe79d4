"""Carrying out plans: order, outputs, retries, fallbacks, checks, verdicts, and one trace."""

import asyncio
import json
from typing import Any

import pytest

from journeyman.agents.orchestrator import Orchestrator
from journeyman.agents.subtask import PlanLimits
from journeyman.agents.workers import Note, SubtaskJob, UnreadableAnswer, Worker, WorkerFailed
from journeyman.core.errors import ModelBusy, ModelError, ModelRefused, PlanError, StoreError
from journeyman.core.plan import ExecutionResult, Plan, Subtask, SubtaskState
from journeyman.core.policy import Card, Choice, Ending
from journeyman.core.score import Reward
from journeyman.core.task import Split, Task
from journeyman.core.trace import ModelCall, ToolCall, Trace, children
from journeyman.models.base import Reply
from journeyman.tracing.importers.jsonl import line, parse
from tests.support.crews import by_subtask, model, nap, plan, says, tool


class Same:
    """Finds right what is as it is told."""

    def __init__(self, right: str) -> None:
        self.right = right

    async def verify(self, task: Task, trace: Trace) -> Reward:
        return Reward(name="same", value=float(trace.reply == self.right))


async def test_outputs_go_along_the_edges_and_the_end_is_the_answer() -> None:
    def join(inputs: dict[str, Any]) -> str:
        return " ".join(inputs.values())

    crew = {"a": says("hello"), "b": says("world"), "c": tool(join)}
    result = await Orchestrator(crew=crew).run(plan(a="", b="", c="a b"))
    assert (result.answer, result.outputs) == ("hello world", {"a": "hello", "b": "world", "c": "hello world"})
    assert (result.success, result.error, result.total_cost) == (None, None, 0.0)
    assert result.trace.reply == "hello world"


async def test_several_ends_are_an_answer_by_their_ids() -> None:
    result = await Orchestrator(crew={"a": says("x"), "b": tool(lambda: [1, 2])}).run(plan(a="", b=""))
    assert result.answer == {"a": "x", "b": [1, 2]}
    assert json.loads(result.trace.reply) == {"a": "x", "b": [1, 2]}


async def test_a_run_that_nobody_judged_is_no_success() -> None:
    assert (await Orchestrator(crew={"a": says("x")}).run(plan(a=""))).success is None


@pytest.mark.parametrize(("right", "success"), [("x", True), ("y", False)])
async def test_the_verifier_judges_the_whole(right: str, success: bool) -> None:
    result = await Orchestrator(crew={"a": says("x")}, verifier=Same(right)).run(plan(a=""))
    assert result.success is success
    assert [reward.name for reward in result.trace.rewards] == ["same"]
    assert result.outcomes["a"].ending is Ending.UNJUDGED


async def test_a_verifier_that_fails_leaves_the_run_unjudged() -> None:
    class Broken:
        async def verify(self, task: Task, trace: Trace) -> Reward:
            raise RuntimeError("no judge")

    result = await Orchestrator(crew={"a": says("x")}, verifier=Broken()).run(plan(a=""))
    assert (result.success, result.answer) == (None, "x")
    assert "no judge" in result.trace.rewards[0].evidence


async def test_a_busy_worker_is_asked_again_and_every_try_is_kept() -> None:
    busy = model(ModelBusy("later"), ModelBusy("later"), Reply(text="yes", model="m", input_tokens=10, output_tokens=5))
    result = await Orchestrator(crew={"a": busy}, sleep=nap).run(plan(a=""))
    tries = result.results["a"].tries
    assert [(each.outcome.ending, each.outcome.cost) for each in tries] == [
        (Ending.ERROR, 0.0),
        (Ending.ERROR, 0.0),
        (Ending.UNJUDGED, 15e-6),
    ]
    assert (result.answer, result.total_cost, result.results["a"].outcome.input_tokens) == ("yes", 15e-6, 10)
    assert [step.raw["attempt"] for step in result.trace.calls] == [1, 2, 3]


async def test_waits_double_and_a_server_that_asks_for_too_long_is_not_waited_for() -> None:
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    limits = PlanLimits(retries=3, first_wait=1.0)
    crew = {
        "a": model(*[ModelBusy("later")] * 3, ModelBusy("much later", retry_after=1e6)),
        "b": model(ModelBusy("at nine", retry_after=7.0), "yes"),
    }
    result = await Orchestrator(crew=crew, limits=limits, sleep=wait, fallbacks={"a": ["b"]}).run(plan(a=""))
    assert result.answer == "yes"
    assert [0.5 * 2**n <= seconds <= 2**n for n, seconds in enumerate(waited[:3])] == [True] * 3
    assert waited[3:] == [7.0]


async def test_who_refuses_for_good_is_asked_once_and_the_next_one_does_it() -> None:
    crew = {"a": model(ModelRefused("no such model")), "b": model("b's")}
    result = await Orchestrator(crew=crew, fallbacks={"a": ["b"]}).run(plan(a=""))
    tries = result.results["a"].tries
    assert [each.worker for each in tries] == ["a", "b"]
    assert (result.answer, result.results["a"].worker) == ("b's", "b")
    assert "no such model" in tries[1].choice.fallback


async def test_a_check_that_finds_an_output_wrong_hands_it_to_the_next_worker() -> None:
    async def check(job: SubtaskJob, output: Any) -> Reward | None:
        return Reward(name="is right", value=float(output == "right"), evidence=f"said {output}")

    orchestrator = Orchestrator(crew={"a": says("wrong"), "b": says("right")}, fallbacks={"a": ["b"]}, check=check)
    result = await orchestrator.run(plan(a=""))
    assert [(each.outcome.ending, each.outcome.success) for each in result.results["a"].tries] == [
        (Ending.WRONG, 0.0),
        (Ending.RIGHT, 1.0),
    ]
    assert (result.answer, result.outcomes["a"].ending) == ("right", Ending.RIGHT)


async def test_a_check_that_fails_says_nothing_of_the_output() -> None:
    async def check(job: SubtaskJob, output: Any) -> Reward | None:
        raise RuntimeError("the judge is ill")

    result = await Orchestrator(crew={"a": says("x")}, check=check).run(plan(a=""))
    assert (result.answer, result.outcomes["a"].ending) == ("x", Ending.UNJUDGED)


async def test_an_answer_that_cannot_be_read_is_another_thing_than_none() -> None:
    class Mumbles:
        card = Card(name="a", call_price=0.0)

        def estimate(self, job: SubtaskJob) -> float | None:
            return 0.0

        async def do(self, job: SubtaskJob, note: Note) -> Any:
            raise UnreadableAnswer("no JSON")

    def fails() -> None:
        raise OSError("no disk")

    crew: dict[str, Worker] = {"a": Mumbles(), "b": tool(fails)}
    result = await Orchestrator(crew=crew).run(plan(a="", b=""))
    assert {id: outcome.ending for id, outcome in result.outcomes.items()} == {"a": Ending.FORMAT, "b": Ending.ERROR}
    assert (result.success, result.answer) == (False, None)
    assert result.error == "a: a: no JSON"


async def test_what_follows_a_failure_is_skipped_and_says_why_while_the_rest_goes_on() -> None:
    def fails() -> None:
        raise ValueError("broken")

    crew = {"a": tool(fails), "b": says("b"), "c": says("c"), "d": says("d")}
    result = await Orchestrator(crew=crew).run(plan(a="", b="a", c="b", d=""))
    assert {id: each.state for id, each in result.results.items()} == {
        "a": SubtaskState.FAILED,
        "b": SubtaskState.SKIPPED,
        "c": SubtaskState.SKIPPED,
        "d": SubtaskState.DONE,
    }
    assert result.results["c"].why == "needs an output that is missing: a was not brought to an end"
    assert result.outcomes["c"].cost == 0.0
    assert result.trace.tasks_failed == ("a",)
    assert "Skipped" not in (result.trace.error or "")


@pytest.mark.parametrize(
    ("subtask", "said"),
    [
        (Subtask(id="x", text="", worker="nobody"), r"'x' names 'nobody', who is not in the crew: a"),
        (Subtask(id="x", text="", tool="saw"), r"'x' \(tool 'saw'\) names nobody in the crew, and there is nobody to choose"),
    ],
)
async def test_a_plan_that_nobody_can_carry_out_is_refused_before_anything_is_begun(subtask: Subtask, said: str) -> None:
    called: list[str] = []
    first = Subtask(id="a", text="", worker="a")
    with pytest.raises(PlanError, match=said):
        await Orchestrator(crew={"a": tool(lambda: called.append("a"))}).run(Plan(instruction="", subtasks=(first, subtask)))
    assert called == []


async def test_whoever_chooses_is_told_the_outputs_and_the_decision_is_on_the_trace() -> None:
    def choose(job: SubtaskJob) -> Choice:
        worker = "long" if len(str(job.inputs)) > 20 else "short"
        return Choice(worker=worker, propensity=0.25, candidates=("long", "short"), policy="p1", explored=True)

    one = Plan(
        instruction="i", subtasks=(Subtask(id="x", text="", worker="text"), Subtask(id="y", text="", type="t", after=("x",)))
    )
    crew = {"text": says("w" * 30), "long": says("by long"), "short": says("by short")}
    result = await Orchestrator(crew=crew, choose=choose, candidate_id="p1").run(
        one, task=Task(id="t", question="", split=Split.VALIDATION)
    )
    step = by_subtask(result.trace)["y"]
    assert (step.agent, step.raw["choice"]["propensity"], step.raw["choice"]["candidates"]) == ("long", 0.25, ("long", "short"))
    assert (step.raw["type"], step.raw["after"], step.raw["state"], step.raw["attempts"]) == ("t", ["x"], "done", 1)
    assert by_subtask(result.trace)["x"].raw["choice"]["propensity"] == 1.0
    assert (result.trace.candidate_id, result.trace.task_id, result.trace.raw["split"]) == ("p1", "t", "validation")


async def test_the_decisions_of_the_planner_are_kept_with_their_propensities() -> None:
    given = Choice(worker="a", propensity=0.5, candidates=("a", "b"), policy="p")
    result = await Orchestrator(crew={"a": says("x"), "b": says("y")}).run(plan(a=""), choices={"a": given})
    assert result.results["a"].choice == given
    other = Choice(worker="b", propensity=0.5, candidates=("a", "b"), policy="p")
    with pytest.raises(PlanError, match="'a' is a's in the plan, and b's by the choice"):
        await Orchestrator(crew={"a": says("x"), "b": says("y")}).run(plan(a=""), choices={"a": other})


async def test_whoever_chooses_and_fails_costs_one_subtask_and_not_the_run() -> None:
    def choose(job: SubtaskJob) -> Choice:
        raise KeyError("no such type")

    one = Plan(instruction="i", subtasks=(Subtask(id="x", text="", worker="x"), Subtask(id="y", text="")))
    result = await Orchestrator(crew={"x": says("x")}, choose=choose).run(one)
    assert (result.outputs, result.results["y"].state) == ({"x": "x"}, SubtaskState.FAILED)


async def test_the_trace_is_a_tree_with_a_step_for_each_subtask_and_can_be_written_and_read() -> None:
    crew: dict[str, Worker] = {"a": model(ModelError("odd"), price=None), "b": tool(lambda: 1), "c": says("c"), "d": model("d")}
    result = await Orchestrator(crew=crew, fallbacks={"a": ["d"]}).run(plan(a="", b="a", c=""), id="t1")
    tree = children(result.trace.steps)
    assert {step.id for step in tree[None]} == {"a", "b", "c"}
    assert [type(step) for step in tree["a"]] == [ModelCall, ModelCall]
    assert [type(step) for step in tree["b"]] == [ToolCall]
    ids = [step.id for step in result.trace.steps]
    assert len(set(ids)) == len(ids)
    again = parse(json.loads(line(result.trace)), name="").trace
    assert [step.id for step in again.steps] == ids
    assert line(again) == line(result.trace)


async def test_a_log_that_cannot_be_written_does_not_cost_the_result(caplog: pytest.LogCaptureFixture) -> None:
    def full(result: ExecutionResult) -> None:
        raise StoreError("the disk is full")

    assert (await Orchestrator(crew={"a": says("x")}, done=full).run(plan(a=""))).answer == "x"
    assert "the disk is full" in caplog.text


async def test_the_critical_path_counts_work_and_no_waiting() -> None:
    async def work() -> str:
        await asyncio.sleep(0.05)
        return "x"

    crew = {name: tool(work) for name in "abc"}
    result = await Orchestrator(crew=crew, limits=PlanLimits(together=1)).run(plan(a="", b="", c=""))
    assert result.critical_path_seconds is not None
    assert result.critical_path_seconds < sum(outcome.seconds or 0.0 for outcome in result.outcomes.values()) / 2
    assert result.total_latency_ms >= 150


async def test_a_worker_that_fails_for_now_is_asked_again_and_one_that_fails_for_good_is_not() -> None:
    asked: list[str] = []

    class Fails:
        def __init__(self, name: str, again: bool) -> None:
            self.card, self.again = Card(name=name, call_price=0.0), again

        def estimate(self, job: SubtaskJob) -> float | None:
            return 0.0

        async def do(self, job: SubtaskJob, note: Note) -> Any:
            asked.append(self.card.name)
            raise WorkerFailed("down", again=self.again)

    crew = {"a": Fails("a", again=True), "b": Fails("b", again=False)}
    await Orchestrator(crew=crew, limits=PlanLimits(retries=2), sleep=nap).run(plan(a="", b=""))
    assert (asked.count("a"), asked.count("b")) == (3, 1)
