"""The trace that a plan leaves: a step for each subtask, and below it the calls that were made for it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from journeyman import plan_json
from journeyman.agents.orchestrating.subtask import Doing
from journeyman.plan import Plan, Subtask
from journeyman.plan_result import State, SubtaskResult, Try
from journeyman.trace import AgentCall, Step


def steps(plan: Plan, results: Mapping[str, SubtaskResult], doings: Mapping[str, Doing]) -> tuple[Step, ...]:
    """In the order in which the subtasks were begun; those that never were come last, in the plan's."""
    subtasks = {**{id: doing.job.subtask for id, doing in doings.items()}, **plan.by_id}
    begun = sorted(
        (id for id, doing in doings.items() if doing.started_at is not None), key=lambda id: str(doings[id].started_at)
    )
    order = dict.fromkeys((*begun, *subtasks))
    return tuple(step for id in order for step in _of(subtasks[id], results.get(id), doings.get(id)))


def text(output: Any) -> str:
    """An output as text: a text as it is, nothing for nothing, else JSON."""
    if isinstance(output, str):
        return output
    return "" if output is None else json.dumps(output, ensure_ascii=False, default=str)


def raw(plan: Plan) -> dict[str, Any]:
    """What the trace tells of the plan."""
    return {"plan": plan_json.written(plan)}


def _of(subtask: Subtask, result: SubtaskResult | None, doing: Doing | None) -> Iterator[Step]:
    result = result or SubtaskResult(id=subtask.id, state=State.SKIPPED, why="the run was cancelled")
    yield AgentCall(
        agent=result.worker or subtask.worker or subtask.tool or "nobody",
        input=subtask.text,
        output=text(result.output),
        error=result.why,
        started_at=doing.started_at if doing else None,
        seconds=doing.seconds if doing and doing.started_at else None,
        id=subtask.id,
        raw={
            "subtask": subtask.id,
            "type": subtask.type,
            "after": list(subtask.after),
            "state": str(result.state),
            "attempts": len(result.tries),
            "cost": result.outcome.cost,
            "choice": asdict(result.choice) if result.choice else None,
            "tries": [_try(number, each) for number, each in enumerate(result.tries, start=1)],
        },
    )
    if doing:
        yield from _below(subtask.id, doing.steps, result.tries)


def _try(number: int, each: Try) -> dict[str, Any]:
    return {
        "attempt": number,
        "worker": each.worker,
        "started_at": each.started_at.isoformat(),
        "outcome": asdict(each.outcome),
        "error": each.error,
        "choice": asdict(each.choice),
    }


def _below(id: str, noted: Sequence[tuple[int, Step]], tries: Sequence[Try]) -> Iterator[Step]:
    """The calls, with ids that are their own in the whole trace: those of a worker are so in one of its jobs."""
    for number, (attempt, step) in enumerate(noted, start=1):
        lead = f"{id}/{attempt}/"
        own = lead + (step.id or f"#{number}")
        parent = id if step.parent is None else lead + step.parent
        told = {**step.raw, "attempt": attempt, "worker": tries[attempt - 1].worker}
        yield replace(step, id=own, parent=parent, raw=told)
