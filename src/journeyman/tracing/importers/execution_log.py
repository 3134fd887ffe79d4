"""Execution logs: what was asked, the plan, who did what, and what it brought; one JSON object a line.

    logger = ExecutionLogger("execution_logs/")
    logger.log_execution(instruction=…, planner_outputs={"model_selections": [2, 0], …}, execution_result=result)
    for found in read_executions("execution_logs/"): …

docs/planning.md has the schema. Lines of earlier systems, which hold less, are read too.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from journeyman.core import plan
from journeyman.core import plan as plan_json
from journeyman.core.candidate import BASE
from journeyman.core.errors import InputError, PlanError, StoreError, TraceError
from journeyman.core.plan import ExecutionResult, Plan, Subtask, SubtaskResult
from journeyman.core.trace import AgentCall, ModelCall, Step, Trace
from journeyman.io.jsonl import append_line
from journeyman.tracing import fields
from journeyman.tracing.base import NO_TIME, RecordedTrace
from journeyman.tracing.importers.source import Format, JsonSource, Problem
from journeyman.tracing.redaction import Redactor

# Lines of execution logs as values: ours, and those of earlier systems, which hold less.

RESULTS: TypeAdapter[tuple[SubtaskResult, ...]] = TypeAdapter(tuple[SubtaskResult, ...])


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
        success=_agreed_success(record.get("success"), result.get("success")),
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


def _agreed_success(outer: Any, inner: Any) -> bool | None:
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
        found = RESULTS.validate_python(rows)
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
        "plan": plan.written(result.plan),
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
    try:
        append_line(path, line)
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
        with JsonSource(file) as source:
            for record in source.records():
                if isinstance(record, Problem):
                    yield record
                    continue
                try:
                    yield replace(parse(record.value), where=record.where)
                except TraceError as error:
                    yield Problem(record.where, str(error))


# The same lines as traces.


def read(record: Mapping[str, Any]) -> Iterator[RecordedTrace]:
    """The execution that a line tells of.

    In lines of earlier systems, which model did a subtask is an index into a list that the log does not hold, so it is
    "worker 2".

    Raises:
        TraceError: The instruction is no text, or two fields say opposite things.
    """
    line = parse(record)
    started, success = line.timestamp, line.success
    trace = Trace(
        id=line.id,
        task_id=line.task_id or line.id or line.instruction[:80],
        candidate_id=line.policy,
        started_at=started or NO_TIME,
        ended_at=_end(started, line.latency_ms),
        steps=tuple(_steps(line)),
        error=f"Failed: {line.error or 'the log says no more'}" if success is False else None,
        agent="planner",
        input=line.instruction,
        output=fields.text(line.outputs) if line.outputs else None,
        rewards=() if success is None else (fields.reward("success", success, line.error or ""),),
        raw=fields.without_empty(
            cost=line.cost,
            latency_ms=line.latency_ms,
            split=line.split,
            plan=None if line.plan is None else plan.written(line.plan),
            planner_outputs=line.raw["planner_outputs"],
            execution_result={key: value for key, value in line.raw["execution_result"].items() if key != "outputs"},
        ),
    )
    yield RecordedTrace(trace=trace, reward=None if success is None else float(success))


def _end(started: Any, millis: float | None) -> Any:
    try:
        return None if started is None or millis is None else started + timedelta(milliseconds=millis)
    except OverflowError:
        return None


def _steps(line: LoggedExecution) -> Iterator[Step]:
    """The planner's work, and in it a call of a worker for each subtask.

    What a call alone cost is known where it is told, or there is only one. An edge of the plan is what came before, not what
    caused: it stays in `raw`.
    """
    yield AgentCall(
        agent="planner", input=line.instruction, output=fields.text(line.outputs) if line.outputs else "", id="plan"
    )
    subtasks = sorted(line.plan.subtasks, key=_number_of) if line.plan else _without_plan(line)
    numbers = {subtask.id: number for number, subtask in enumerate(subtasks)}
    for number, subtask in enumerate(subtasks):
        result = line.results.get(subtask.id)
        cost = result.outcome.cost if result else line.cost if len(subtasks) == 1 else None
        yield ModelCall(
            model=(result.worker if result else "") or subtask.worker or subtask.tool,
            prompt=subtask.text,
            reply=_output(line.outputs, subtask.id, number),
            cost=cost,
            seconds=result.outcome.seconds if result else None,
            started_at=result.tries[0].started_at if result and result.tries else None,
            error=result.why if result else None,
            id=f"subtask-{number}",
            parent="plan",
            raw=fields.without_empty(
                after=[numbers[id] for id in subtask.after],
                subtask=subtask.id,
                state=str(result.state) if result else None,
                choice=asdict(result.choice) if result and result.choice else None,
            ),
        )


def _without_plan(line: LoggedExecution) -> list[Subtask]:
    """Who was chosen, where the edges make no plan."""
    chosen = enumerate(line.model_selections)
    return [Subtask(id=str(number), text="", worker="" if place is None else f"worker {place}") for number, place in chosen]


def _number_of(subtask: Subtask) -> int:
    """A plan that was made of numbers keeps their order, also where its edges would allow another."""
    return int(subtask.id) if subtask.id.isdecimal() else 0


def _output(outputs: Any, id: str, number: int) -> str:
    """What a subtask gave, from a list by its place or from an object by its id, number or name."""
    if isinstance(outputs, list):
        return fields.text(outputs[number]) if number < len(outputs) else ""
    names = (id, str(number), f"subtask_{number}", f"task_{number}")
    return next((fields.text(outputs[name]) for name in names if name in outputs), "") if isinstance(outputs, dict) else ""


FORMAT = Format(name="execution-log", recognises=recognised, read=read)
