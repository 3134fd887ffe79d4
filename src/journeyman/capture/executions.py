"""Lines of execution logs as values: ours, and those of earlier systems, which hold less."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from journeyman import plan_json
from journeyman.candidate import BASE
from journeyman.capture import fields
from journeyman.errors import PlanError, TraceError
from journeyman.plan import Plan, Subtask
from journeyman.plan_result import SubtaskResult

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
