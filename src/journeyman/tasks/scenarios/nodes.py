"""YAML and JSON as values that know their line. Nothing but text, numbers, lists and mappings comes out of either."""

import json
from dataclasses import dataclass
from typing import Any

import yaml

MOST = 100_000
"""Values in a file, those that an alias repeats counted again: a few lines of aliases can stand for billions."""
DEEPEST = 50
_TAG = "tag:yaml.org,2002:"
_SCALARS = {"str", "int", "float", "bool", "null", "timestamp"}


@dataclass(frozen=True, slots=True)
class Node:
    """A value and the line that it begins on."""

    line: int
    value: "str | int | float | bool | list[Node] | dict[str, Node] | None"
    """Of a mapping, each key leads to its value; the line of a value is that of its key."""
    twice: tuple[tuple[int, str], ...] = ()
    """Line and name of keys that stand in a mapping more than once. The first one counts."""

    @property
    def kind(self) -> str:
        """What it is, in the words of a complaint."""
        kinds = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
        return kinds.get(type(self.value), "nothing")


class Unreadable(Exception):
    """The text is not YAML or JSON at all, or more than it looks."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


def of_yaml(text: str) -> Node:
    """The only document in a YAML text.

    Raises:
        Unreadable: It is none, has several, names a type of object, or its aliases say more than `MOST` values.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        raise Unreadable(mark.line + 1 if mark else 1, f"is not YAML: {said}") from None
    except yaml.YAMLError as error:
        raise Unreadable(1, f"is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise Unreadable(1, "is nested too deeply") from None
    return Node(1, None) if root is None else _Walk().of(root, 0)


class _Walk:
    def __init__(self) -> None:
        self._seen = 0

    def of(self, node: Any, depth: int) -> Node:
        line = node.start_mark.line + 1
        self._seen += 1
        if self._seen > MOST or depth > DEEPEST:
            raise Unreadable(line, f"says more than {MOST} values, or is nested deeper than {DEEPEST}: are its aliases right?")
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self._mapping(node, line, depth)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return Node(line, [self.of(item, depth + 1) for item in node.value])
        if isinstance(node, yaml.ScalarNode) and kind in _SCALARS:
            return Node(line, _scalar(kind, node.value))
        raise Unreadable(line, f"holds a {node.tag}, and only text, numbers, lists and mappings are read")

    def _mapping(self, node: Any, line: int, depth: int) -> Node:
        found: dict[str, Node] = {}
        twice = []
        for key, value in node.value:
            name, at = str(key.value), key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise Unreadable(at, "has a key that is no text")
            inner = self.of(value, depth + 1)
            if name in found:
                twice.append((at, name))
            else:
                found[name] = Node(at, inner.value, inner.twice)
        return Node(line, found, tuple(twice))


def _scalar(kind: str, text: str) -> str | int | float | bool | None:
    """Its type is all that matters of a value that is not text: none is wanted but yes and no."""
    if kind == "null":
        return None
    if kind == "bool":
        return text.casefold() in ("true", "yes", "on")
    return 0.0 if kind in ("int", "float") else text


def of_json(text: str) -> Node:
    """A JSON text.

    Raises:
        Unreadable: It is none.
    """
    try:
        json.loads(text)
        return _value(text, *_on(text, 0, 1))[0]
    except json.JSONDecodeError as error:
        raise Unreadable(error.lineno, f"is not JSON: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        why = "is nested too deeply" if isinstance(error, RecursionError) else f"is not JSON: {error}"
        raise Unreadable(1, why) from None


_SCALAR = json.JSONDecoder()


def _value(text: str, at: int, line: int) -> tuple[Node, int, int]:
    """The value that begins at a place of a sound JSON text, where it ends, and on which line."""
    if text[at] not in "{[":
        value, end = _SCALAR.raw_decode(text, at)
        return Node(line, value), end, line
    first, mapping = line, text[at] == "{"
    items: list[Node] = []
    found: dict[str, Node] = {}
    twice: list[tuple[int, str]] = []
    at, line = _on(text, at + 1, line)
    while text[at] not in "}]":
        key, begun = "", line
        if mapping:
            key, at = _SCALAR.raw_decode(text, at)
            at, line = _on(text, _blank(text, at) + 1, line + text.count("\n", at, _blank(text, at)))
        item, at, line = _value(text, at, line)
        if not mapping:
            items.append(item)
        elif key in found:
            twice.append((begun, key))
        else:
            found[key] = Node(begun, item.value, item.twice)
        at, line = _on(text, at, line)
        if text[at] == ",":
            at, line = _on(text, at + 1, line)
    return Node(first, found if mapping else items, tuple(twice)), at + 1, line


def _blank(text: str, at: int) -> int:
    """Past white space."""
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _on(text: str, at: int, line: int) -> tuple[int, int]:
    """Past white space, with the line there."""
    end = _blank(text, at)
    return end, line + text.count("\n", at, end)
