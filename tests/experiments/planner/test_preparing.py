"""Logs become training data: what was done by whom, what it brought, and nothing that nobody may learn from."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from journeyman.core.errors import InputError
from journeyman.core.plan import ExecutionResult, Plan, Subtask, SubtaskResult, SubtaskState, Try
from journeyman.core.policy import Card, Choice, Ending, Outcome
from journeyman.core.trace import Trace
from journeyman.optimizers.planner import data
from journeyman.optimizers.planner.data import PreparedExamples, prepare
from journeyman.tracing.importers.execution_log import ExecutionLogger

PLAN = Plan(
    instruction="write and send",
    subtasks=(
        Subtask(id="a", text="write", type="writing", worker="small"),
        Subtask(id="b", text="send", type="sending", tool="post", worker="post", after=("a",)),
    ),
)


def executed(task: str, *, success: bool | None = True, by: str = "large", split: str = "train") -> ExecutionResult:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    outcome = Outcome(ending=Ending.RIGHT, success=1.0, cost=0.5, seconds=2.0)
    choice = Choice(worker=by, propensity=1.0, candidates=(by,), policy="base")
    results = {
        id: SubtaskResult(
            id=id,
            state=SubtaskState.DONE,
            output="x",
            tries=(Try(worker=worker, choice=choice, outcome=outcome, started_at=at),),
        )
        for id, worker in (("a", by), ("b", "post"))
    }
    trace = Trace(id=f"t-{task}", task_id=task, candidate_id="base", started_at=at, raw={"split": split})
    plan = replace(PLAN, instruction=f"write and send {task}")
    return ExecutionResult(plan=plan, results=results, success=success, total_latency_ms=4000.0, trace=trace)


def logs(folder: Path, *results: ExecutionResult) -> Path:
    logger = ExecutionLogger(folder)
    for result in results:
        logger.log(result)
    return folder


def counts(made: PreparedExamples) -> dict[str, int]:
    told = made.json()
    return {name: value for name, value in told.items() if isinstance(value, int) and value}


def test_an_example_says_who_did_the_work_and_what_it_brought(tmp_path: Path) -> None:
    (example,) = prepare([logs(tmp_path, executed("one"))]).data.examples
    assert example.plan.workers == ("large", ""), "who did it, not who was planned; and a tool is no choice"
    assert (example.success, example.cost, example.group) == (1.0, 1.0, "one")


def test_what_is_held_out_is_counted_and_not_learned_from(tmp_path: Path) -> None:
    made = prepare([logs(tmp_path, executed("one"), executed("two", split="held_out"))])
    assert counts(made) == {"examples": 1, "lines": 2, "succeeded": 1, "held_out": 1}


def test_failures_are_kept_with_what_they_brought_unless_only_success_is_asked_for(tmp_path: Path) -> None:
    folder = logs(tmp_path, executed("one"), executed("two", success=False), executed("three", success=None))
    made = prepare([folder])
    assert [example.success for example in made.data.examples] == [1.0, 0.0, None]
    assert counts(made) == {"examples": 3, "lines": 3, "succeeded": 1, "failed": 1, "unjudged": 1}
    only = prepare([folder], only_success=True)
    assert [example.success for example in only.data.examples] == [1.0, None]
    assert only.left_out == 1


def test_what_can_be_learned_survives_the_file(tmp_path: Path) -> None:
    made = prepare([logs(tmp_path, executed("one"), executed("two", success=None))])
    data.write(made.data, tmp_path / "set.json")
    assert data.dumps(data.read(tmp_path / "set.json")) == data.dumps(made.data)


def test_only_cards_of_what_the_plans_use_are_taken(tmp_path: Path) -> None:
    known = [
        Card(name="large", description="careful"),
        Card(name="unused", description="idle"),
        Card(name="post", kind="tool", description="by pigeon"),
        Card(name="writing", kind="type", description="with a pen"),
    ]
    made = prepare([logs(tmp_path, executed("one"))], cards=known).data
    assert [(card.name, card.description) for card in made.models] == [("large", "careful")]
    assert [(card.name, card.description) for card in made.tools] == [("post", "by pigeon")]
    assert dict((card.name, card.description) for card in made.task_types) == {"writing": "with a pen", "sending": ""}


def test_broken_lines_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    folder = logs(tmp_path, executed("one"))
    with (folder / "executions.jsonl").open("a") as file:
        file.write('{"instruction": "torn\n')
        bare = {"instruction": "no plan", "success": True, "planner_outputs": {}, "execution_result": {}}
        file.write(json.dumps(bare) + "\n")
    made = prepare([folder])
    assert (made.lines, made.without_plan, len(made.problems)) == (2, 1, 1)
    assert "executions.jsonl:2" in str(made.problems[0])


def test_a_cost_that_is_no_number_is_not_known(tmp_path: Path) -> None:
    folder = logs(tmp_path, executed("one"))
    file = folder / "executions.jsonl"
    line = json.loads(file.read_text())
    file.write_text(json.dumps({**line, "cost": float("nan"), "execution_result": {}}) + "\n")
    (example,) = prepare([folder]).data.examples
    assert example.cost is None


@pytest.mark.parametrize(
    ("results", "why"),
    [
        ([executed("one", split="held_out")], "1 of held-out instructions"),
        ([replace(executed("one"), plan=Plan(instruction="nothing", subtasks=()), results={})], "1 without a plan"),
    ],
)
def test_logs_that_nobody_can_learn_from_are_refused_with_the_reason(
    tmp_path: Path, results: list[ExecutionResult], why: str
) -> None:
    with pytest.raises(InputError, match=rf"no execution there can be learned from \({why}\)"):
        prepare([logs(tmp_path, *results)])


def test_a_folder_without_logs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no execution logs"):
        prepare([tmp_path])
    (tmp_path / "executions.jsonl").write_text("")
    with pytest.raises(InputError, match="the logs are empty"):
        prepare([tmp_path])
