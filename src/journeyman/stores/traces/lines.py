"""A trace as rows: what a list shows, what it is filtered by, and what statistics add up."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from journeyman.reward import Reward
from journeyman.score import Score
from journeyman.stores.base import utc
from journeyman.stores.traces.base import RECORDER
from journeyman.trace import ModelCall, Reasoning, Step, ToolCall, Trace, total

_TITLE = 200
_ERROR = 1000
"""Characters of a title and of an error that a list is given; the whole is in the trace."""

Row = dict[str, Any]


def line(trace: Trace) -> Row:
    """The row of a trace as if nothing had been said of it here yet.

    Raises:
        StoreError: A time has no zone.
    """
    calls, tools, error, began = trace.calls, trace.tool_calls, _error(trace), utc(trace.started_at)
    return {
        "id": trace.id,
        "title": " ".join(_asked(trace, calls)[: 2 * _TITLE].split())[:_TITLE],
        "agent": trace.agent,
        "session": trace.session,
        "task_id": trace.task_id,
        "domain": trace.domain,
        "source": trace.source,
        "candidate_id": trace.candidate_id,
        "models": list(dict.fromkeys(call.model for call in calls)),
        "started_at": began,
        "seconds": None if trace.ended_at is None else (utc(trace.ended_at) - began).total_seconds(),
        "model_calls": len(calls),
        "tool_calls": len(tools),
        "failed_tool_calls": sum(not call.ok for call in tools),
        "input_tokens": total(call.input_tokens for call in calls),
        "output_tokens": total(call.output_tokens for call in calls),
        "cost": total(call.cost for call in calls),
        "error": None if error is None else error[:_ERROR],
        "failed": error is not None or any(not call.ok or call.error is not None for call in tools),
        "own_label": trace.label,
        "label": trace.label,
        "labelled_by": None if trace.label is None else RECORDER,
        "reward": mean(trace.rewards),
        "steps": len(trace.steps),
        "identified": len(responses(calls)) if all(call.response_id for call in calls) else 0,
        "duplicate_of": None,
    }


def _asked(trace: Trace, calls: Sequence[ModelCall]) -> str:
    """`trace.query`, without looking for the calls again."""
    if trace.input is not None or not calls:
        return trace.query
    return next((message.text for call in calls for message in call.messages if message.role == "user"), calls[0].prompt)


def mean(rewards: Iterable[Reward]) -> float | None:
    """The weighted mean; unknown as soon as one reward is."""
    return Score(trace_id="", rewards=tuple(rewards)).total


def responses(calls: Iterable[ModelCall]) -> frozenset[str]:
    """The ids of their answers, as far as they have one."""
    return frozenset(call.response_id for call in calls if call.response_id)


def of_models(calls: Iterable[ModelCall]) -> list[Row]:
    rows: dict[str, Row] = {}
    for call in calls:
        row = rows.setdefault(call.model, _nothing(call.model))
        row["calls"] += 1
        row["input_tokens"] += call.input_tokens or 0
        row["output_tokens"] += call.output_tokens or 0
        row["uncounted"] += call.input_tokens is None or call.output_tokens is None
        row["cost"] += call.cost or 0.0
        row["unpriced"] += call.cost is None
        if call.seconds is not None:
            row["seconds"] = (row["seconds"] or 0.0) + call.seconds
    return list(rows.values())


def _nothing(model: str) -> Row:
    counts = dict.fromkeys(("calls", "input_tokens", "output_tokens", "uncounted", "unpriced"), 0)
    return {"model": model, **counts, "cost": 0.0, "seconds": None}


def of_tools(trace: Trace) -> list[Row]:
    rows: dict[str, Row] = {}
    for call in trace.tool_calls:
        row = rows.setdefault(call.tool, {"tool": call.tool, "calls": 0, "failures": 0, "timed": 0, "seconds": 0.0})
        row["calls"] += 1
        row["failures"] += not call.ok
        row["timed"] += call.seconds is not None
        row["seconds"] += call.seconds or 0.0
    return list(rows.values())


def in_force(own: Sequence[Reward], given: Sequence[Reward]) -> tuple[Reward, ...]:
    """All rewards of a trace: those it came with and those it was given, oldest first. Of one name the latest given holds."""
    latest: Mapping[str, Reward] = {reward.name: reward for reward in given}
    return (*(reward for reward in own if reward.name not in latest), *latest.values())


def _error(trace: Trace) -> str | None:
    if trace.error is not None:
        return trace.error
    return next((found for step in trace.steps if (found := _said(step)) is not None), None)


def _said(step: Step) -> str | None:
    return None if isinstance(step, ToolCall | Reasoning) else step.error
