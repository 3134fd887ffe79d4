"""Checks of answers against a ground truth, each a verifier. Those of `tasks.answers` are among them.

exact             the final answer, as a number where the truth is one, else as text
numeric           the final number
multiple_choice   the chosen letter; the truth is a letter
json_schema       the reply is JSON that satisfies a JSON schema; the truth is the schema
tool_calls        the calls that were made; the truth is {"calls": […], "tools": […]} as in `mismatch`
tool_relevance    whether a tool was called at all; the truth is "call" or "no call"
unit_tests        the program in the reply passes tests that it cannot reach; the truth is {"test": …, "entry_point": …}
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from journeyman.core.errors import InputError, MissingExtra
from journeyman.core.score import Reward
from journeyman.core.task import Task
from journeyman.core.trace import ToolCall, Trace
from journeyman.rewards.base import RewardResult, short, unknown, version
from journeyman.rewards.blocks import blocks
from journeyman.rewards.code_execution import wait
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.answers import Exact, Number, final_text, truth
from journeyman.tasks.base import Verifier
from journeyman.tasks.function_calls import written_calls

# Are these the right tool calls? The rules of the Berkeley Function Calling Leaderboard's checker, for JSON.
#
# An expected call is `{name: {argument: [allowed values]}}`; an allowed value of "" says that the argument may be left out. In
# an
# allowed object each key has its own list of allowed values. Several calls may come in any order.
#
#     Patil et al., "The Berkeley Function Calling Leaderboard (BFCL)", ICML 2025.

Expected = Mapping[str, Mapping[str, Sequence[Any]]]
"""One call, by its name; the mapping has this one key."""
Tool = Mapping[str, Any]
"""What a tool is: "name" and "parameters" as JSON schema, whose types may be Python's (float, dict, tuple, any)."""

_IGNORED = re.compile(r"[ ,./\-_*^]")
_TYPES: Mapping[str, type] = {
    "string": str, "integer": int, "float": float, "number": float, "boolean": bool, "array": list, "tuple": list, "dict": dict,
    "object": dict, "any": str,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """One tool call that was made."""

    name: str
    arguments: Mapping[str, Any]


def mismatch(
    expected: Sequence[Expected], made: Sequence[FunctionCall], tools: Sequence[Tool] = (), *, whole_floats: bool = False
) -> str:
    """Why the calls are not the expected ones, in one sentence; nothing when they are.

    Each expected call needs a made one of its own, in whatever order. (The leaderboard lets each take the first that fits, so
    that an early one may take the only one that fits a later one; here they move aside.) With `tools` types are compared as the
    descriptions say: an integer may stand for a float, but no text for a number.

    Args:
        whole_floats: An integer may stand for a float inside of a list too, where the leaderboard refuses it. JSON itself
            knows no difference.
    """
    if len(expected) != len(made):
        return f"{len(made)} tool calls instead of {len(expected)}"
    described = {tool["name"]: tool for tool in tools}
    faults = [
        [_fault(name, arguments, candidate, described.get(name), whole_floats) for candidate in made]
        for call in expected
        for name, arguments in call.items()
    ]
    alone = _unmatched(faults)
    if alone is None:
        return ""
    return min(filter(None, faults[alone]), key=lambda fault: " was called instead of " in fault)


def _unmatched(faults: Sequence[Sequence[str]]) -> int | None:
    """The first expected call that finds no made one for itself, others moving aside where they can (Kuhn's algorithm)."""
    taken: dict[int, int] = {}

    def place(call: int, seen: set[int]) -> bool:
        for made, fault in enumerate(faults[call]):
            if not fault and made not in seen:
                seen.add(made)
                if made not in taken or place(taken[made], seen):
                    taken[made] = call
                    return True
        return False

    return next((call for call in range(len(faults)) if not place(call, set())), None)


def parse_call(name: str, arguments: str | Mapping[str, Any]) -> FunctionCall | None:
    """A call with its arguments as JSON text or as an object; `None` when the text is no object."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return None
    return FunctionCall(name, arguments) if isinstance(arguments, Mapping) else None


def _fault(name: str, allowed: Mapping[str, Sequence[Any]], made: FunctionCall, tool: Tool | None, whole: bool) -> str:
    # Some APIs allow no dot in a name, and their users write an underscore.
    if made.name not in (name, name.replace(".", "_")):
        return f"{made.name} was called instead of {name}"
    parameters = tool["parameters"] if tool else {}
    missing = [key for key in parameters.get("required", ()) if key not in made.arguments]
    if missing:
        return f"{name}: the argument {missing[0]!r} is missing"
    properties = parameters.get("properties") if tool else None
    for key, value in made.arguments.items():
        if key not in allowed or (properties is not None and key not in properties):
            return f"{name}: the argument {key!r} is one too many"
        if not _fits(value, allowed[key], (properties or {}).get(key), whole):
            return f"{name}: {key} is {value!r}, and must be one of {list(allowed[key])!r}"
    for key, values in allowed.items():
        if key not in made.arguments and "" not in values:
            return f"{name}: the argument {key!r} is missing"
    return ""


def _fits(value: Any, allowed: Sequence[Any], described: Mapping[str, Any] | None, whole: bool) -> bool:
    """Whether a value is among those allowed, of the type that the tool's description names."""
    if described is None:
        # `true` is not 1.
        alike = [one for one in allowed if isinstance(one, bool) == isinstance(value, bool)]
        return _listed(value, alike, type(value), _inner(value))
    kind = _TYPES.get(str(described.get("type")), str)
    items = described.get("items")
    inner = _TYPES.get(str(items.get("type")), str) if kind is list and isinstance(items, Mapping) else None
    if kind is float and type(value) is int:
        value = float(value)
    if whole and inner is float and type(value) is list:
        value = [float(part) if type(part) is int else part for part in value]
    # The kind that the allowed values have, where the description says another: a variable's name, or nothing, for a value.
    other = next((type(part) for part in allowed if part != ""), None)
    if type(value) is kind:
        if inner is not None and not _items_fit(value, allowed, inner):
            return False
        if other in (None, kind):
            return _listed(value, allowed, kind, inner)
        return value in allowed
    return other is not None and type(value) is other and value in allowed


def _items_fit(value: Any, allowed: Sequence[Any], inner: type) -> bool:
    """Whether the items have their type, or that of the items of an allowed list."""
    for possible in allowed:
        if not isinstance(possible, list):
            return True
        other = next((type(part) for part in possible if part != ""), None)
        if all(type(part) is inner or (other is not None and type(part) is other) for part in value):
            return True
    return False


def _listed(value: Any, allowed: Sequence[Any], kind: type, inner: type | None) -> bool:
    """Whether a value of this kind is among the allowed ones, texts being compared without case, spaces and small marks."""
    if kind is dict:
        return any(_object_fits(value, possible) for possible in allowed)
    if kind is list and inner is dict:
        return any(
            isinstance(possible, list)
            and len(possible) == len(value)
            and all(_object_fits(part, one) for part, one in zip(value, possible, strict=True))
            for possible in allowed
        )
    if kind is list:
        # An empty list is what leaving it out means.
        lists = [[] if possible == "" else possible for possible in allowed if possible == "" or isinstance(possible, list)]
        return [_plain(part) for part in value] in [[_plain(part) for part in possible] for possible in lists]
    if kind is str:
        return _plain(value) in [_plain(possible) for possible in allowed if isinstance(possible, str)]
    return value in allowed


def _object_fits(value: Any, possible: Any) -> bool:
    if not isinstance(value, Mapping) or not isinstance(possible, Mapping):
        return False
    given = all(key in possible and _plain(part) in [_plain(one) for one in possible[key]] for key, part in value.items())
    return given and all(key in value or "" in values for key, values in possible.items())


def _inner(value: Any) -> type | None:
    return type(value[0]) if isinstance(value, list) and value else None


def _plain(value: Any) -> Any:
    return _IGNORED.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value


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
    """Verifies the calls that were made, by the rules of `mismatch`."""

    deterministic = True

    async def verify(self, task: Task, trace: Trace) -> Reward:
        try:
            right = _CALLS.validate_json(task.answer)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]["msg"]
            return _reward(None, f"the ground truth is not one of tool calls: {fault}")
        asked = self._asked(trace)
        made = [parse_call(tool, arguments) for tool, arguments in asked]
        good = [call for call in made if call is not None]
        if len(good) < len(made):
            return _reward(False, f"the arguments of {asked[made.index(None)][0]} are no JSON object")
        fault = mismatch(right.calls, good, right.tools)
        return _reward(not fault, fault)

    def _asked(self, trace: Trace) -> list[tuple[str, str]]:
        """Names and arguments."""
        return [(step.tool, step.arguments) for step in trace.steps if isinstance(step, ToolCall)]


class WrittenCalls(ToolCalls):
    """Verifies calls that were made, or else those that a reply holds as JSON: of a model that takes no tools."""

    def _asked(self, trace: Trace) -> list[tuple[str, str]]:
        return super()._asked(trace) or [(use.tool, use.arguments) for use in written_calls(trace.reply)]


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
