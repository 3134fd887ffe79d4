"""Checks of answers against a ground truth, each a verifier. Those of `tasks.answers` are among them.

exact             the final answer, as a number where the truth is one, else as text
numeric           the final number
multiple_choice   the chosen letter; the truth is a letter
json_schema       the reply is JSON that satisfies a JSON schema; the truth is the schema
tool_calls        the calls that were made; the truth is {"calls": […], "tools": […]} as in `rewards.calls`
tool_relevance    whether a tool was called at all; the truth is "call" or "no call"
unit_tests        the program in the reply passes tests that it cannot reach; the truth is {"test": …, "entry_point": …}
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from journeyman.errors import InputError, MissingExtra
from journeyman.rewards.base import RewardResult
from journeyman.rewards.blocking import wait
from journeyman.rewards.blocks import blocks
from journeyman.rewards.calls import mismatch, parse_call
from journeyman.rewards.verdict import short, unknown, version
from journeyman.sandbox.base import Sandbox
from journeyman.score import Reward
from journeyman.task import Task
from journeyman.tasks.answers import Exact, Number, final_text, truth
from journeyman.tasks.base import Verifier
from journeyman.trace import ToolCall, Trace

_LETTER = re.compile(r"(?:option|choice|answer)?\s*[*_(\[]*([A-Za-z])[*_)\].:]*(?![\w'’])", re.IGNORECASE)
_NAMED = re.compile(r"(?:answer|option|choice)\s{0,3}(?:is|:|=)?\s{0,3}[*_(\[]*([A-Z])(?![\w'’])|\(([A-Z])\)")


class MultipleChoice:
    """Verifies the letter that a reply chooses: what it announces as its answer, or its last line, begins with it."""

    async def verify(self, task: Task, trace: Trace) -> Reward:
        expected, found = truth(task.answer).strip("()[]. ").upper(), chosen(trace.reply)
        if not re.fullmatch("[A-Z]", expected):
            return _reward(None, f'the ground truth "{short(task.answer)}" is no letter')
        return _reward(found == expected, f"expected {expected}, got {found or 'no letter'}")


class JsonSchema:
    """Verifies that a reply is JSON that satisfies the schema in the ground truth (by default draft 2020-12)."""

    async def verify(self, task: Task, trace: Trace) -> Reward:
        value = _json(trace.reply)
        if value is _NONE:
            return _reward(False, "the reply holds no JSON")
        try:
            fault = schema_fault(value, json.loads(task.answer))
        except (ValueError, RecursionError, InputError) as error:
            return _reward(None, f"the ground truth is no JSON schema: {short(str(error), 160)}")
        return _reward(not fault, fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class RightCalls:
    """The ground truth of `tool_calls`."""

    calls: tuple[Annotated[dict[str, dict[str, list[Any]]], Field(min_length=1, max_length=1)], ...]
    tools: tuple[dict[str, Any], ...] = ()


_CALLS = TypeAdapter(RightCalls)


class ToolCalls:
    """Verifies the calls that were made, by the rules of `calls.mismatch`."""

    async def verify(self, task: Task, trace: Trace) -> Reward:
        try:
            right = _CALLS.validate_json(task.answer)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]["msg"]
            return _reward(None, f"the ground truth is not one of tool calls: {fault}")
        steps = [step for step in trace.steps if isinstance(step, ToolCall)]
        made = [parse_call(step.tool, step.arguments) for step in steps]
        good = [call for call in made if call is not None]
        if len(good) < len(made):
            return _reward(False, f"the arguments of {steps[made.index(None)].tool} are no JSON object")
        fault = mismatch(right.calls, good, right.tools)
        return _reward(not fault, fault)


class ToolRelevance:
    """Verifies that a tool was called where one helps, and that none was where none does."""

    async def verify(self, task: Task, trace: Trace) -> Reward:
        called = any(isinstance(step, ToolCall) for step in trace.steps)
        if task.answer not in ("call", "no call"):
            return _reward(None, f'the ground truth is "{short(task.answer)}", and must be "call" or "no call"')
        return _reward(called == (task.answer == "call"), "a tool was called" if called else "no tool was called")


UNIT_TESTS = "unit_tests"
CHECKS: Mapping[str, type[Verifier]] = {
    "exact": Exact,
    "numeric": Number,
    "multiple_choice": MultipleChoice,
    "json_schema": JsonSchema,
    "tool_calls": ToolCalls,
    "tool_relevance": ToolRelevance,
}


class AnswerReward:
    """What a task's verifier says of the answer, as a reward; binary where the verifier is. Unknown for other tasks."""

    def __init__(self, verifier: Verifier, tasks: Iterable[Task], *, weight: float = 2.0, name: str = "answer") -> None:
        self.name, self.weight = name, weight
        self._verifier, self._tasks = verifier, {task.id: task for task in tasks}

    @property
    def version(self) -> str:
        return version(1, type(self._verifier).__name__, *sorted((id, task.answer) for id, task in self._tasks.items()))

    def compute(self, trace: Trace) -> RewardResult:
        task = self._tasks.get(trace.task_id)
        if task is None:
            return unknown(f"no ground truth is known for the task {trace.task_id!r}")
        found = wait(self._verifier.verify(task, trace))
        evidence = found.evidence or "the answer is right"
        return RewardResult(score=found.value, is_binary=found.value in (None, 0.0, 1.0), details={"evidence": evidence})


def load(name: str, sandbox: Callable[[], Sandbox] | None = None) -> Verifier:
    """The check called `name`.

    Args:
        sandbox: Makes the sandbox where unit tests run; other checks need none, and make none.

    Raises:
        InputError: There is none of that name, or it lacks its sandbox.
    """
    known = name.replace("-", "_")
    if known == UNIT_TESTS and sandbox is not None:
        from journeyman.rewards.unit_tests import UnitTests

        return UnitTests(sandbox())
    if known not in CHECKS:
        raise InputError(f"no answer check {name!r}; there are {', '.join(CHECKS)}, and {UNIT_TESTS} with a sandbox")
    return CHECKS[known]()


def chosen(reply: str) -> str | None:
    """The letter that a reply chooses, as a capital; `None` where it names none."""
    text = final_text(reply).strip()
    begins = _LETTER.match(text)
    if begins and (len(begins[0].strip()) == len(text) or not begins[1].islower()):
        return begins[1].upper()
    named = list(_NAMED.finditer(text))
    return (named[-1][1] or named[-1][2]) if named else None


def schema_fault(value: Any, schema: Any) -> str:
    """The first thing in a value that does not satisfy the JSON schema, or nothing. References outside of it are not followed.

    Raises:
        InputError: The schema is none.
        MissingExtra: The library is not installed.
    """
    try:
        import jsonschema
        from referencing import Registry
        from referencing.exceptions import Unresolvable
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[code]'") from error
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
        fault = jsonschema.exceptions.best_match(kind(schema, registry=Registry()).iter_errors(value))
    except (jsonschema.SchemaError, Unresolvable) as error:
        raise InputError(f"the JSON schema cannot be used: {short(str(error), 200)}") from None
    return f"{fault.json_path}: {short(fault.message, 160)}" if fault is not None else ""


_NONE = object()


def _json(reply: str) -> Any:
    """The JSON in a reply: its last fenced block that is some, else the whole reply."""
    for text in (*(block.code for block in reversed(blocks(reply)) if block.language in ("json", "")), reply):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            continue
    return _NONE


def _reward(right: bool | None, evidence: str) -> Reward:
    return Reward(name="answer", value=None if right is None else float(right), evidence="" if right else f"answer: {evidence}")
