"""Are these the right tool calls? The rules of the Berkeley Function Calling Leaderboard's checker, for JSON.

An expected call is `{name: {argument: [allowed values]}}`; an allowed value of "" says that the argument may be left out. In an
allowed object each key has its own list of allowed values. Several calls may come in any order.

    Patil et al., "The Berkeley Function Calling Leaderboard (BFCL)", ICML 2025.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
class Call:
    """One tool call that was made."""

    name: str
    arguments: Mapping[str, Any]


def mismatch(
    expected: Sequence[Expected], made: Sequence[Call], tools: Sequence[Tool] = (), *, whole_floats: bool = False
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


def parse_call(name: str, arguments: str | Mapping[str, Any]) -> Call | None:
    """A call with its arguments as JSON text or as an object; `None` when the text is no object."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return None
    return Call(name, arguments) if isinstance(arguments, Mapping) else None


def _fault(name: str, allowed: Mapping[str, Sequence[Any]], made: Call, tool: Tool | None, whole: bool) -> str:
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
