"""Execution logs of a planner as traces. `capture.executions` reads the lines."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from journeyman import plan_json
from journeyman.capture import fields
from journeyman.capture.base import NO_TIME, Recorded
from journeyman.capture.executions import LoggedExecution, parse
from journeyman.capture.executions import recognised as recognised
from journeyman.plan import Subtask
from journeyman.trace import AgentCall, ModelCall, Step, Trace


def read(record: Mapping[str, Any]) -> Iterator[Recorded]:
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
        raw=fields.known(
            cost=line.cost,
            latency_ms=line.latency_ms,
            split=line.split,
            plan=None if line.plan is None else plan_json.written(line.plan),
            planner_outputs=line.raw["planner_outputs"],
            execution_result={key: value for key, value in line.raw["execution_result"].items() if key != "outputs"},
        ),
    )
    yield Recorded(trace=trace, reward=None if success is None else float(success))


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
    subtasks = sorted(line.plan.subtasks, key=_place) if line.plan else _loose(line)
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
            raw=fields.known(
                after=[numbers[id] for id in subtask.after],
                subtask=subtask.id,
                state=str(result.state) if result else None,
                choice=asdict(result.choice) if result and result.choice else None,
            ),
        )


def _loose(line: LoggedExecution) -> list[Subtask]:
    """Who was chosen, where the edges make no plan."""
    chosen = enumerate(line.model_selections)
    return [Subtask(id=str(number), text="", worker="" if place is None else f"worker {place}") for number, place in chosen]


def _place(subtask: Subtask) -> int:
    """A plan that was made of numbers keeps their order, also where its edges would allow another."""
    return int(subtask.id) if subtask.id.isdecimal() else 0


def _output(outputs: Any, id: str, number: int) -> str:
    """What a subtask gave, from a list by its place or from an object by its id, number or name."""
    if isinstance(outputs, list):
        return fields.text(outputs[number]) if number < len(outputs) else ""
    names = (id, str(number), f"subtask_{number}", f"task_{number}")
    return next((fields.text(outputs[name]) for name in names if name in outputs), "") if isinstance(outputs, dict) else ""
