"""Execution logs of a planner: JSON lines with the instruction, the plan, what it cost, and whether it succeeded."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from journeyman.capture import fields
from journeyman.capture.base import NO_TIME, Recorded
from journeyman.errors import TraceError
from journeyman.trace import AgentCall, ModelCall, Step, Trace


def recognised(record: Mapping[str, Any]) -> bool:
    return "instruction" in record and bool({"planner_outputs", "execution_result"} & set(record))


def read(record: Mapping[str, Any]) -> Iterator[Recorded]:
    """The execution that a line tells of.

    Which model did a subtask is an index into a list that the log does not hold, so it is "worker 2".

    Raises:
        TraceError: The instruction is no text, or two fields say opposite things.
    """
    instruction = record["instruction"]
    if not isinstance(instruction, str):
        raise TraceError("instruction: is no text")
    result, plan = fields.mapping(record.get("execution_result")), fields.mapping(record.get("planner_outputs"))
    success = _agreed(record.get("success"), result.get("success"))
    millis = fields.number(record.get("latency_ms", result.get("total_latency_ms")))
    cost = fields.number(record.get("cost", result.get("total_cost")))
    started = fields.time(record.get("timestamp"))
    outputs = result.get("outputs")
    failure = fields.text(record.get("error") or result.get("error"))
    trace = Trace(
        id="",
        task_id=str(record.get("task_id") or record.get("id") or instruction[:80]),
        candidate_id="base",
        started_at=started or NO_TIME,
        ended_at=_end(started, millis),
        steps=tuple(_steps(instruction, plan, result, cost)),
        error=f"Failed: {failure or 'the log says no more'}" if success is False else None,
        agent="planner",
        input=instruction,
        output=fields.text(outputs) if outputs else None,
        rewards=() if success is None else (fields.reward("success", success, failure),),
        raw=fields.known(
            cost=cost,
            latency_ms=millis,
            planner_outputs=plan,
            execution_result={key: value for key, value in result.items() if key != "outputs"},
        ),
    )
    yield Recorded(trace=trace, reward=None if success is None else float(success))


def _end(started: Any, millis: float | None) -> Any:
    try:
        return None if started is None or millis is None else started + timedelta(milliseconds=millis)
    except OverflowError:
        return None


def _agreed(outer: Any, inner: Any) -> bool | None:
    told = {value for value in (outer, inner) if isinstance(value, bool)}
    if len(told) > 1:
        raise TraceError("success: the line says the opposite of its execution_result")
    return told.pop() if told else None


def _steps(instruction: str, plan: Mapping[str, Any], result: Mapping[str, Any], cost: float | None) -> Iterator[Step]:
    """The planner's work, and in it a call of a worker model for each subtask.

    What a call alone cost is known where there is only one. An edge of the plan is what came before, not what caused: it stays
    in `raw`.
    """
    outputs = result.get("outputs")
    yield AgentCall(agent="planner", input=instruction, output=fields.text(outputs) if outputs else "", id="plan")
    models = plan.get("model_selections")
    rows = fields.mapping(plan.get("workflow_graph")).get("adjacency")
    count = len(models) if isinstance(models, list) else 0
    for number in range(count):
        after = [row for row, edges in enumerate(rows if isinstance(rows, list) else ()) if _edge(edges, number)]
        yield ModelCall(
            model=f"worker {models[number]}" if models else "",
            prompt="",
            reply=_output(outputs, number),
            cost=cost if count == 1 else None,
            id=f"subtask-{number}",
            parent="plan",
            raw=fields.known(after=after),
        )


def _edge(row: Any, to: int) -> bool:
    return isinstance(row, list) and to < len(row) and bool(row[to])


def _output(outputs: Any, number: int) -> str:
    """What a subtask gave, from a list by its place or from an object by its number or name."""
    if isinstance(outputs, list):
        return fields.text(outputs[number]) if number < len(outputs) else ""
    names = (str(number), f"subtask_{number}", f"task_{number}")
    return next((fields.text(outputs[name]) for name in names if name in outputs), "") if isinstance(outputs, dict) else ""
