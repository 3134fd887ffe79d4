"""Execution logs: what is written is read back, by any number of writers, and secrets are in none."""

import gzip
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError, StoreError, TraceError
from journeyman.core.plan import ExecutionResult, Plan, Subtask, SubtaskResult, SubtaskState, Try
from journeyman.core.policy import Choice, Ending, Forecast, Outcome
from journeyman.core.trace import Trace
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.execution_log import ExecutionLogger, LoggedExecution, outputs_of, parse, read_executions
from journeyman.tracing.importers.reading import read
from journeyman.tracing.importers.source import Problem

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DOCUMENTED: dict[str, Any] = {
    "timestamp": "2024-12-24T10:30:00",
    "instruction": "Summarize document...",
    "success": True,
    "cost": 0.045,
    "latency_ms": 1200.0,
    "planner_outputs": {
        "model_selections": [2, 0, 1],
        "workflow_graph": {"adjacency": [[0, 1, 0], [0, 0, 1], [0, 0, 0]]},
    },
    "execution_result": {"success": True, "outputs": {}, "total_cost": 0.045, "total_latency_ms": 1200.0},
}

text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
amount = st.none() | st.floats(0, 1e6)
json_values = st.recursive(
    text | st.integers(-9, 9) | st.booleans(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
)


@st.composite
def tries(draw: st.DrawFn) -> Try:
    names = draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True))
    forecast = Forecast(worker=names[0], success=draw(st.floats(0, 1)), cost=draw(amount), p50=draw(amount), p95=None)
    choice = Choice(
        worker=names[0],
        propensity=draw(st.floats(0.01, 1)),
        candidates=tuple(names),
        policy=draw(text),
        forecasts=draw(st.sampled_from([(), (forecast,)])),
        explored=draw(st.booleans()),
    )
    outcome = Outcome(
        ending=draw(st.sampled_from(Ending)), success=draw(st.none() | st.floats(0, 1)), cost=draw(amount), seconds=draw(amount)
    )
    return Try(worker=names[0], outcome=outcome, choice=choice, started_at=AT, error=draw(st.none() | text))


@st.composite
def results(draw: st.DrawFn) -> ExecutionResult:
    subtasks: list[Subtask] = []
    for id in draw(st.lists(text.filter(bool), min_size=1, max_size=5, unique=True)):
        after = draw(st.sets(st.sampled_from([each.id for each in subtasks]))) if subtasks else set()
        own = Subtask(
            id=id,
            text=draw(text),
            type=draw(text),
            worker=draw(st.sampled_from(["", "a", "b"])),
            after=tuple(sorted(after)),
            arguments=draw(st.dictionaries(text, json_values, max_size=1)),
        )
        subtasks.append(own)
    found = {
        each.id: SubtaskResult(
            id=each.id,
            state=(state := draw(st.sampled_from(SubtaskState))),
            output=draw(json_values) if state is SubtaskState.DONE else None,
            tries=tuple(draw(st.lists(tries(), max_size=2))),
            why=draw(st.none() | text),
        )
        for each in subtasks
    }
    success = draw(st.none() | st.booleans())
    trace = Trace(
        id="t",
        task_id="task",
        candidate_id=draw(text.filter(bool)),
        started_at=AT,
        raw={"split": draw(st.sampled_from(["", "held_out"]))},
    )
    return ExecutionResult(
        plan=Plan(instruction=draw(text), subtasks=tuple(subtasks)),
        results=found,
        trace=trace,
        success=success,
        total_latency_ms=draw(st.floats(0, 1e6)),
        error=draw(st.none() | text.filter(bool)),
    )


def one(path: Path) -> LoggedExecution:
    (found,) = read_executions(path)
    assert isinstance(found, LoggedExecution), found
    return found


class Open:
    """Takes no text for a secret: what a strategy draws may look like one."""

    def mapping(self, values: Any) -> Any:
        return values


@given(result=results())
def test_what_was_logged_is_read_back(result: ExecutionResult, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("logs")
    ExecutionLogger(path, redactor=Open()).log(result)  # type: ignore[arg-type]
    found = one(path)
    assert found.plan == result.plan
    assert found.results == result.results
    assert (found.success, found.error, found.outputs) == (result.success, result.error, result.outputs)
    assert (found.cost, found.latency_ms) == (result.total_cost, result.total_latency_ms)
    assert (found.policy, found.timestamp, found.task_id) == (result.trace.candidate_id, AT, "task")
    assert found.held_out == result.trace.held_out
    assert found.critical_path_seconds == result.critical_path_seconds
    chosen = [None if place is None else found.models[place] for place in found.model_selections]
    assert len(chosen) == len(found.task_types) == len(result.plan.subtasks)


def simple(answer: str = "done", worker: str = "m") -> ExecutionResult:
    choice = Choice(worker=worker, propensity=1.0, candidates=(worker,), policy="base")
    outcome = Outcome(cost=0.5, seconds=1.0)
    own = (Try(worker=worker, outcome=outcome, choice=choice, started_at=AT),)
    return ExecutionResult(
        plan=Plan(instruction="do it", subtasks=(Subtask(id="a", text="do", type="doing", worker=worker),)),
        results={"a": SubtaskResult(id="a", state=SubtaskState.DONE, output=answer, tries=own)},
        trace=Trace(id="t", task_id="t", candidate_id="base", started_at=AT),
        success=True,
        total_latency_ms=1000.0,
    )


def test_a_line_has_the_documented_fields_and_names_who_its_indices_are(tmp_path: Path) -> None:
    ExecutionLogger(tmp_path, models=("x", "m")).log(simple())
    record = json.loads((tmp_path / "executions.jsonl").read_text())
    assert record.keys() >= DOCUMENTED.keys()
    assert record["planner_outputs"] == {
        "model_selections": [1],
        "workflow_graph": {"adjacency": [[0]]},
        "models": ["x", "m"],
        "task_types": ["doing"],
    }
    assert record["execution_result"] == {
        "success": True,
        "outputs": {"a": "done"},
        "total_cost": 0.5,
        "total_latency_ms": 1000.0,
        "error": None,
    }


def test_what_a_planner_says_of_itself_stands_before_what_the_plan_tells(tmp_path: Path) -> None:
    logger = ExecutionLogger(tmp_path / "own.jsonl")
    decided = {**outputs_of(simple(), ("m", "n")), "confidence": 0.5}
    logger.log_execution(instruction="asked", planner_outputs=decided, execution_result=simple())
    found = one(tmp_path / "own.jsonl")
    assert (found.instruction, found.models, found.raw["planner_outputs"]["confidence"]) == ("asked", ("m", "n"), 0.5)


def test_the_documented_call_gives_the_documented_line(tmp_path: Path) -> None:
    logger = ExecutionLogger(tmp_path)
    logger.log_execution(
        instruction=DOCUMENTED["instruction"],
        planner_outputs=DOCUMENTED["planner_outputs"],
        execution_result=DOCUMENTED["execution_result"],
    )
    record = json.loads(logger.path.read_text())
    assert {**record, "timestamp": ""} == {**DOCUMENTED, "timestamp": ""}


def test_a_documented_line_gives_a_plan_of_numbers() -> None:
    found = parse(DOCUMENTED)
    assert found.plan is not None
    assert [(each.id, each.worker, each.after) for each in found.plan.subtasks] == [
        ("0", "worker 2", ()),
        ("1", "worker 0", ("0",)),
        ("2", "worker 1", ("1",)),
    ]
    assert (found.success, found.cost, found.latency_ms, found.results) == (True, 0.045, 1200.0, {})


def test_edges_in_a_circle_make_no_plan_and_the_rest_of_the_line_is_read() -> None:
    circle = {"model_selections": [0, 1], "workflow_graph": {"adjacency": [[0, 1], [1, 0]]}}
    record = {**DOCUMENTED, "planner_outputs": circle}
    assert (parse(record).plan, parse(record).model_selections) == (None, (0, 1))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"instruction": 3}, "instruction: is no text"),
        ({"success": False}, "success: the line says the opposite of its execution_result"),
        ({"plan": {"instruction": "x"}}, "plan: subtasks: "),
        ({"subtasks": [{"id": "a"}]}, "subtasks.0.state: Field required"),
    ],
)
def test_a_bad_line_is_named_with_its_field(change: dict[str, Any], said: str) -> None:
    with pytest.raises(TraceError, match=said):
        parse({**DOCUMENTED, **change})


def test_bad_lines_are_named_by_file_and_line_and_the_others_are_read(tmp_path: Path) -> None:
    good = json.dumps(DOCUMENTED)
    (tmp_path / "a.jsonl").write_text(
        f'{good}\n{{"instruction": 3, "planner_outputs": {{}}}}\n{good}\n{{"torn": \n{good}\n{{"inst'
    )
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write(good + "\n")
    found = list(read_executions(tmp_path))
    assert [type(each) for each in found] == [
        LoggedExecution,
        Problem,
        LoggedExecution,
        Problem,
        LoggedExecution,
        Problem,
        LoggedExecution,
    ]
    wheres = [each.where.removeprefix(str(tmp_path)) for each in found]
    assert wheres == ["/a.jsonl:1", "/a.jsonl:2", "/a.jsonl:3", "/a.jsonl:4", "/a.jsonl:5", "/a.jsonl:6", "/b.jsonl.gz:1"]


@pytest.mark.parametrize("there", [True, False])
def test_no_logs_are_an_error_in_one_sentence(tmp_path: Path, there: bool) -> None:
    path = tmp_path if there else tmp_path / "none"
    with pytest.raises(InputError, match="holds no execution logs" if there else "is not there"):
        list(read_executions(path))


def test_secrets_are_in_no_line(tmp_path: Path) -> None:
    key = "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1w" * 2
    result = simple(answer=f"the key is {key}")
    asked = replace(result, plan=replace(result.plan, instruction=f"use {key}"))
    logger = ExecutionLogger(tmp_path)
    logger.log(asked)
    assert key not in logger.path.read_text()
    assert one(tmp_path).instruction.startswith("use [redacted")


def test_a_line_that_a_killed_process_left_torn_costs_no_other_line(tmp_path: Path) -> None:
    logger = ExecutionLogger(tmp_path)
    logger.log(simple())
    with logger.path.open("a") as file:
        file.write('{"instruction": "half')
    logger.log(simple("after"))
    found = list(read_executions(tmp_path))
    assert [type(each) for each in found] == [LoggedExecution, Problem, LoggedExecution]
    assert isinstance(found[2], LoggedExecution)
    assert found[2].outputs == {"a": "after"}


def test_a_log_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/executions.jsonl: the execution could not be logged"):
        ExecutionLogger(tmp_path / "file").log(simple())


WRITER = """
import sys
from journeyman.tracing.importers.execution_log import ExecutionLogger
logger = ExecutionLogger(sys.argv[1])
for number in range(60):
    logger.log_execution(
        instruction=f"{sys.argv[2]} {number}",
        planner_outputs={"model_selections": [0]},
        execution_result={"success": True, "outputs": {"0": sys.argv[2] * 50_000}},
    )
"""


@pytest.mark.service
def test_two_processes_write_to_one_file_and_no_line_stands_in_another(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name]) for name in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    found = [each for each in read_executions(tmp_path) if isinstance(each, LoggedExecution)]
    assert sorted(each.instruction for each in found) == sorted(f"{name} {number}" for name in "ab" for number in range(60))
    assert all(each.outputs["0"] == each.instruction[0] * 50_000 for each in found)


def test_our_lines_come_in_as_traces_with_who_did_what(tmp_path: Path) -> None:
    logger = ExecutionLogger(tmp_path)
    logger.log(simple())
    (found,) = read(logger.path)
    assert isinstance(found, RecordedTrace)
    (call,) = found.trace.calls
    assert (call.model, call.reply, call.cost, call.raw["state"]) == ("m", "done", 0.5, "done")
    assert (call.raw["choice"]["propensity"], call.raw["choice"]["candidates"]) == (1.0, ("m",))
    assert found.trace.raw["plan"]["subtasks"][0]["id"] == "a"
