"""Was the task brought to its end?"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from journeyman.core.trace import ModelCall, ToolCall, Trace
from journeyman.rewards.base import RewardResult, binary, short, unknown, version
from journeyman.rewards.tool_use import went_well

_NOT_THE_AGENT = frozenset(
    {"ModelError", "ModelBusy", "ModelRefused", "SandboxError", "StoreError", "TaskError", "MissingExtra", "ConnectionError"}
)
"""Errors that say nothing about the attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What must have been done at the end of a task. Written by the task's author."""

    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Tool calls, by name and arguments, that must have been made and gone well."""
    only: frozenset[str] = frozenset()
    """Tools that may be called for nothing else: those that change the world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCompletionReward:
    """1 when the attempt came to its end by itself, and did what the task's goal asks for where one is known; binary.

    Where a goal is known, it is reached or not. Else the attempt came to its end when nothing broke it off (a limit of steps,
    an error of its own, a reply cut at its length), its last tool call went well, and a reply or a tool call stands at the
    end. That an agent says it is done counts for nothing, and neither does a reward that somebody recorded. Unknown when
    something else than the agent broke it off, such as a model server that was down, and when nothing was done.
    """

    name: str = "task_completion"
    weight: float = 1.5
    goals: Mapping[str, Goal] = field(default_factory=dict, repr=False)
    """By task id. Tasks without one are judged by how they ended."""

    @property
    def version(self) -> str:
        return version(1, self.goals) if self.goals else version(1)

    def compute(self, trace: Trace) -> RewardResult:
        if trace.error is not None:
            elsewhere = trace.error.partition(":")[0] in _NOT_THE_AGENT
            evidence = f"it broke off: {short(trace.error, 160)}"
            return unknown(evidence) if elsewhere else binary(False, evidence)
        steps = [step for step in trace.steps if isinstance(step, ModelCall | ToolCall)]
        if not steps:
            return unknown("nothing was done")
        goal = self.goals.get(trace.task_id)
        fault = _unfinished(steps) if goal is None else _missed(steps, goal)
        right = "it ended by itself" if goal is None else "it did what was asked for"
        return binary(not fault, fault or right, goal=goal is not None)


def _unfinished(steps: list[ModelCall | ToolCall]) -> str:
    """Why the end is none, or nothing."""
    last = steps[-1]
    if isinstance(last, ModelCall):
        if last.finish == "length":
            return "the last reply was cut at its length"
        if not last.reply.strip():
            return "the last reply is empty"
    calls = [step for step in steps if isinstance(step, ToolCall)]
    if calls and not went_well(calls[-1]):
        return f"the last tool call, {calls[-1].tool}, failed: {short(calls[-1].result, 120) or 'no result'}"
    return ""


def _missed(steps: list[ModelCall | ToolCall], goal: Goal) -> str:
    """What the goal asks for and was not done, or what was done that it forbids; nothing when all is right."""
    made = Counter(_made(step) for step in steps if isinstance(step, ToolCall) and went_well(step))
    asked = Counter(_key(tool, arguments) for tool, arguments in goal.calls)
    for tool, arguments in goal.calls:
        if not made[_key(tool, arguments)]:
            return f"{tool} was not called with {short(json.dumps(arguments, ensure_ascii=False), 160)}"
    for call, times in made.items():
        if call[0] in goal.only and times > asked[call]:
            return f"{call[0]} was called with {short(call[1], 160)}, which nobody asked for"
    return ""


def _made(call: ToolCall) -> tuple[str, str]:
    try:
        return _key(call.tool, json.loads(call.arguments))
    except (ValueError, RecursionError):
        return call.tool, call.arguments


def _key(tool: str, arguments: object) -> tuple[str, str]:
    """The same for the same call, whatever the order of its arguments, and 1.0 being 1."""
    return tool, json.dumps(_plain(arguments), sort_keys=True, ensure_ascii=False)


def _plain(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _plain(part) for key, part in value.items()}
        case list():
            return [_plain(part) for part in value]
    return value
