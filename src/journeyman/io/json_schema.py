"""A value against a JSON Schema, as far as those of tools go; tolerant of the words that others write for a type."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

_IS: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: not isinstance(value, bool) and (isinstance(value, int) or _whole(value)),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, Mapping),
    "null": lambda value: value is None,
}
_ALSO = {"float": "number", "double": "number", "int": "integer", "long": "integer", "str": "string", "bool": "boolean",
         "dict": "object", "hashmap": "object", "list": "array", "tuple": "array"}  # fmt: skip
"""Words that others write for a type of JSON Schema. A word that nobody knows forbids nothing."""
_DEEPEST = 20


def _whole(value: object) -> bool:
    return isinstance(value, float) and value.is_integer()


def schema_faults(arguments: Any, schema: Mapping[str, Any], *, strict: bool = True) -> list[str]:
    """What is wrong with the arguments of a call by the schema that was declared for them, a line for each fault; empty where
    nothing is. What a schema says in words that are not read here (`oneOf`, `pattern`, …) counts for the call, and so does a
    null in place of an argument that may be left out."""
    if arguments is None:
        return ["the arguments are no JSON object"]
    return list(_faults(arguments, schema, "", strict=strict and "properties" in schema))


def _faults(value: Any, schema: Mapping[str, Any], where: str, *, strict: bool = False, depth: int = 0) -> Iterable[str]:
    """
    Args:
        strict: An argument that is not declared is a fault, although the schema does not forbid it: no tool has it.
    """
    if depth > _DEEPEST:
        return
    at = where or "the arguments"
    types = _types(schema)
    if types and not any(_IS[each](value) for each in types):
        yield f"{at}: expected {' or '.join(types)}, got {_kind(value)}"
        return
    if isinstance(options := schema.get("enum"), list) and not _one_of(value, options):
        yield f"{at}: not one of the {len(options)} values that are allowed"
    if isinstance(value, Mapping):
        yield from _object_faults(value, schema, where, strict=strict, depth=depth)
    elif isinstance(value, list) and isinstance(inner := schema.get("items"), Mapping):
        for place, each in enumerate(value):
            yield from _faults(each, inner, f"{where}[{place}]", depth=depth + 1)


def _object_faults(
    value: Mapping[str, Any], schema: Mapping[str, Any], where: str, *, strict: bool, depth: int
) -> Iterable[str]:
    declared = _mapping(schema.get("properties"))
    required = schema.get("required")
    begin = f"{where}." if where else ""
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    yield from (f"{begin}{name}: required, and missing" for name in sorted(needed - value.keys()))
    others = schema.get("additionalProperties", not (strict and declared))
    for name, each in value.items():
        if name in declared and (each is not None or name in needed):
            yield from _faults(each, _mapping(declared[name]), f"{begin}{name}", depth=depth + 1)
        elif name not in declared and others is False and "patternProperties" not in schema:
            yield f"{begin}{name}: not declared"


def _types(schema: Mapping[str, Any]) -> list[str]:
    """The types that a schema allows; empty where it allows any, or speaks of one that nobody knows."""
    told = schema.get("type")
    named = [each for each in told if isinstance(each, str)] if isinstance(told, list) else [told] if told else []
    types = [_ALSO.get(str(each).lower(), str(each).lower()) for each in named]
    if schema.get("nullable") is True and types:
        types.append("null")
    return types if all(each in _IS for each in types) else []


def _kind(value: object) -> str:
    return next((name for name in ("boolean", "integer", "number", *_IS) if _IS[name](value)), type(value).__name__)


def _one_of(value: object, options: Sequence[object]) -> bool:
    """Equal as JSON, where `true` is not 1. Many write beside an array what its items may be."""
    if isinstance(value, list) and not any(isinstance(each, list) for each in options):
        return all(_one_of(each, options) for each in value)
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in options)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
