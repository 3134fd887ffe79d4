"""Execution logs: what was asked, the plan, who did what, and what it brought; one JSON object a line.

    logger = ExecutionLogger("execution_logs/")
    logger.log_execution(instruction=…, planner_outputs={"model_selections": [2, 0], …}, execution_result=result)
    for found in read_executions("execution_logs/"): …

docs/planning.md has the schema. Lines of earlier systems, which hold less, are read too.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

from journeyman import plan_json
from journeyman.capture.executions import RESULTS, parse
from journeyman.capture.executions import LoggedExecution as LoggedExecution
from journeyman.capture.files.source import Problem, Source
from journeyman.capture.redact import Redactor
from journeyman.errors import InputError, StoreError, TraceError
from journeyman.plan import Subtask
from journeyman.plan_result import ExecutionResult, SubtaskResult

FILE = "executions.jsonl"
"""In the folder of the logs."""
_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")


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
        "subtasks": RESULTS.dump_python(tuple(subtasks), mode="json", exclude_defaults=True),
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
