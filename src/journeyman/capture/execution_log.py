"""Execution logs: what was asked, the plan, who did what, and what it brought; one JSON object a line.

    logger = ExecutionLogger("execution_logs/")
    logger.log_execution(instruction=…, planner_outputs={"model_selections": [2, 0], …}, execution_result=result)
    for found in read_executions("execution_logs/"): …

docs/planning.md has the schema. Lines of earlier systems, which hold less, are read too.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from journeyman import plan_json
from journeyman.candidate import BASE
from journeyman.capture import fields
from journeyman.capture.files.source import Problem, Source
from journeyman.capture.redact import Redactor
from journeyman.errors import InputError, PlanError, StoreError, TraceError
from journeyman.plan import Plan, Subtask
from journeyman.plan_result import ExecutionResult, SubtaskResult

FILE = "executions.jsonl"
"""In the folder of the logs."""
_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
_RESULTS: TypeAdapter[tuple[SubtaskResult, ...]] = TypeAdapter(tuple[SubtaskResult, ...])


@dataclass(frozen=True, kw_only=True)
class LoggedExecution:
    """One line of a log. What it does not tell is `None` or empty."""

    instruction: str
    timestamp: datetime | None = None
    """When it began."""
    success: bool | None = None
    """`None` when nobody judged."""
    cost: float | None = None
    """US dollars."""
    latency_ms: float | None = None
    model_selections: tuple[int | None, ...] = ()
    """Of each subtask, the place of its worker in `models`; `None` where nobody was chosen."""
    models: tuple[str, ...] = ()
    """Empty in lines of earlier systems: their places name nobody."""
    task_types: tuple[str, ...] = ()
    outputs: Any = None
    """By the id or number of the subtask, or a list in the order of the plan."""
    error: str | None = None
    plan: Plan | None = None
    """`None` where the line does not hold enough of one, or one that nobody could carry out."""
    results: Mapping[str, SubtaskResult] = field(default_factory=dict)
    """What became of each subtask, with every decision and its propensity; empty in lines of earlier systems."""
    policy: str = BASE
    """The candidate that was in force."""
    split: str = ""
    """Of the task that the instruction came from. Nobody learns from "held_out"."""
    id: str = ""
    """Of the trace, where there is one."""
    task_id: str = ""
    critical_path_seconds: float | None = None
    where: str = ""
    """File and line."""
    raw: Mapping[str, Any] = field(default_factory=dict)
    """The line's `planner_outputs` and `execution_result`, as they stand there."""

    @property
    def held_out(self) -> bool:
        return self.split == "held_out"


class ExecutionLogger:
    """Writes executions down, secrets taken out. Several processes may write to one file at once, and a file that is moved
    away is begun anew."""

    def __init__(self, path: Path | str, *, models: Sequence[str] = (), redactor: Redactor | None = None) -> None:
        """
        Args:
            path: A folder, or a file that ends in `.jsonl`. Either is made when it is first written to.
            models: What the indices of `model_selections` mean; each line names its own where none are given.
        """
        given = Path(path)
        self.path = given if given.suffix == ".jsonl" else given / FILE
        self._models = tuple(models)
        self._redactor = redactor or Redactor()

    def log(self, result: ExecutionResult) -> None:
        """Log an execution by its result alone: `Orchestrator(done=logger.log)`.

        Raises:
            StoreError: It could not be written.
        """
        self.log_execution(instruction=result.plan.instruction, planner_outputs={}, execution_result=result)

    def log_execution(
        self, *, instruction: str, planner_outputs: Mapping[str, Any], execution_result: ExecutionResult | Mapping[str, Any]
    ) -> None:
        """Append one line.

        Args:
            planner_outputs: `model_selections` and `workflow_graph`, and whatever else the planner has to say. What is missing
                is taken from the result's plan.
            execution_result: From the orchestrator, or the documented object.

        Raises:
            StoreError: It could not be written.
        """
        if isinstance(execution_result, ExecutionResult):
            record = _record(instruction, planner_outputs, execution_result, self._models)
        else:
            record = _documented(instruction, planner_outputs, execution_result)
        _append(self.path, json.dumps(_plain(self._redactor.mapping(_plain(record))), ensure_ascii=True, allow_nan=False))


def _documented(instruction: str, planner_outputs: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that lines of earlier systems have."""
    return {
        "timestamp": datetime.now(UTC).isoformat(),
        "instruction": instruction,
        "success": result.get("success"),
        "cost": result.get("total_cost"),
        "latency_ms": result.get("total_latency_ms"),
        "planner_outputs": dict(planner_outputs),
        "execution_result": dict(result),
    }


def _record(
    instruction: str, planner_outputs: Mapping[str, Any], result: ExecutionResult, models: Sequence[str]
) -> dict[str, Any]:
    brief = {
        "success": result.success,
        "outputs": dict(result.outputs),
        "total_cost": result.total_cost,
        "total_latency_ms": result.total_latency_ms,
        "error": result.error,
    }
    trace = result.trace
    subtasks = [replace(each, output=None) for each in result.results.values()]
    return {
        **_documented(instruction, {**outputs_of(result, models), **planner_outputs}, brief),
        "timestamp": trace.started_at.isoformat(),
        "id": trace.id,
        "task_id": trace.task_id,
        "policy": trace.candidate_id,
        "split": str(trace.raw.get("split", "")),
        "plan": plan_json.written(result.plan),
        "subtasks": _RESULTS.dump_python(tuple(subtasks), mode="json", exclude_defaults=True),
        "critical_path_seconds": result.critical_path_seconds,
    }


def outputs_of(result: ExecutionResult, models: Sequence[str] = ()) -> dict[str, Any]:
    """What the planner decided, in the documented form: who was chosen first for each subtask, and the plan's edges.

    Args:
        models: What the indices mean; those who are not among them are added behind.
    """
    chosen = [_chosen(subtask, result.results.get(subtask.id)) for subtask in result.plan.subtasks]
    names = [*dict.fromkeys((*models, *sorted({name for name in chosen if name} - set(models))))]
    return {
        "model_selections": [names.index(name) if name else None for name in chosen],
        "workflow_graph": {"adjacency": [list(row) for row in result.plan.adjacency]},
        "models": names,
        "task_types": list(result.plan.types),
    }


def _chosen(subtask: Subtask, result: SubtaskResult | None) -> str:
    return result.tries[0].worker if result and result.tries else subtask.worker or subtask.tool


def _append(path: Path, line: str) -> None:
    """Add a line in one write, so that lines of several processes never stand in one another."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(file).st_size
            # Behind what a killed process left half-written, a line of its own begins.
            torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            data = (b"\n" if torn else b"") + line.encode() + b"\n"
            if os.write(file, data) != len(data):
                raise OSError("the disk is full")
        finally:
            os.close(file)
    except OSError as error:
        raise StoreError(f"{path}: the execution could not be logged: {error.strerror or error}") from error


def _plain(value: Any) -> Any:
    """Of a value what JSON has a word for; what is no finite number is unknown."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def read_executions(path: Path | str) -> Iterator[LoggedExecution | Problem]:
    """The executions of a log, and the places that could not be read, in the order in which they stand there.

    Args:
        path: A file, or a folder with files (.jsonl or .json, also gzipped), which are read in the order of their names.

    Raises:
        InputError: There is no such file, or none in the folder.
    """
    root = Path(path)
    files = [root]
    if root.is_dir():
        files = sorted(each for each in root.rglob("*") if each.is_file() and each.name.endswith(_SUFFIXES))
        if not files:
            raise InputError(f"{root} holds no execution logs; they end in {', '.join(_SUFFIXES)}")
    for file in files:
        with Source(file) as source:
            for record in source.records():
                if isinstance(record, Problem):
                    yield record
                    continue
                try:
                    yield replace(parse(record.value), where=record.where)
                except TraceError as error:
                    yield Problem(record.where, str(error))


def recognised(record: Mapping[str, Any]) -> bool:
    """Whether a record is a line of an execution log, ours or an earlier system's."""
    return "instruction" in record and bool({"planner_outputs", "execution_result"} & set(record))


def parse(record: Any) -> LoggedExecution:
    """The execution that a line tells of.

    Raises:
        TraceError: It is none, or a field cannot be what it is; the message names the field.
    """
    if not isinstance(record, dict) or not recognised(record):
        raise TraceError('is no execution: it has no "instruction" with "planner_outputs" or "execution_result"')
    if not isinstance(record["instruction"], str):
        raise TraceError("instruction: is no text")
    result, decided = fields.mapping(record.get("execution_result")), fields.mapping(record.get("planner_outputs"))
    outputs = result.get("outputs")
    return LoggedExecution(
        instruction=record["instruction"],
        timestamp=fields.time(record.get("timestamp")),
        success=_agreed(record.get("success"), result.get("success")),
        cost=fields.number(record.get("cost", result.get("total_cost"))),
        latency_ms=fields.number(record.get("latency_ms", result.get("total_latency_ms"))),
        model_selections=_selections(decided.get("model_selections")),
        models=_texts(decided.get("models")),
        task_types=_texts(decided.get("task_types")),
        outputs=outputs,
        error=fields.text(record.get("error") or result.get("error")) or None,
        plan=_plan(record, decided),
        results=_results(record.get("subtasks"), fields.mapping(outputs)),
        policy=fields.text(record.get("policy")) or BASE,
        split=fields.text(record.get("split")),
        id=fields.text(record.get("id")),
        task_id=fields.text(record.get("task_id")),
        critical_path_seconds=fields.number(record.get("critical_path_seconds")),
        raw={"planner_outputs": decided, "execution_result": result},
    )


def _agreed(outer: Any, inner: Any) -> bool | None:
    told = {value for value in (outer, inner) if isinstance(value, bool)}
    if len(told) > 1:
        raise TraceError("success: the line says the opposite of its execution_result")
    return told.pop() if told else None


def _selections(value: Any) -> tuple[int | None, ...]:
    return tuple(map(fields.count, value)) if isinstance(value, list) else ()


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(fields.text, value)) if isinstance(value, list) else ()


def _results(rows: Any, outputs: Mapping[str, Any]) -> Mapping[str, SubtaskResult]:
    if rows is None:
        return {}
    try:
        found = _RESULTS.validate_python(rows)
    except ValidationError as error:
        raise TraceError(fields.fault(error, "subtasks")) from None
    return {each.id: replace(each, output=outputs.get(each.id)) for each in found}


def _plan(record: Mapping[str, Any], decided: Mapping[str, Any]) -> Plan | None:
    """The plan as it stands there, or what selections and edges tell of one: its subtasks are called "0", "1", … then."""
    if "plan" in record:
        try:
            return plan_json.read(record["plan"])
        except PlanError as error:
            raise TraceError(f"plan: {error}") from None
    selections, models, types = (
        _selections(decided.get("model_selections")),
        *map(_texts, (decided.get("models"), decided.get("task_types"))),
    )
    rows = fields.mapping(decided.get("workflow_graph")).get("adjacency")
    count = max(len(selections), len(rows) if isinstance(rows, list) else 0)
    if not count:
        return None
    subtasks = [
        Subtask(
            id=str(number),
            text="",
            type=types[number] if number < len(types) and types[number] else "general",
            worker=_worker(selections[number], models) if number < len(selections) else "",
            after=tuple(str(row) for row, edges in enumerate(rows if isinstance(rows, list) else ()) if _edge(edges, number)),
        )
        for number in range(count)
    ]
    try:
        return Plan.of(str(record["instruction"]), subtasks)
    except PlanError:
        return None


def _worker(place: int | None, models: Sequence[str]) -> str:
    if place is None:
        return ""
    return models[place] if place < len(models) else f"worker {place}"


def _edge(row: Any, to: int) -> bool:
    return isinstance(row, list) and to < len(row) and bool(row[to])
