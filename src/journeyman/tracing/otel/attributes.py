"""What one span tells of an agent's work, whichever dialect it speaks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as fields_of
from enum import StrEnum
from typing import Any

from journeyman.core.messages import UNCOUNTED, ToolUse, Turn, Usage
from journeyman.tracing import fields
from journeyman.tracing.conversation import SPANS
from journeyman.tracing.fields import opened


class SpanKind(StrEnum):
    """What a span stands for."""

    CALL = "call"
    """An exchange with a model."""
    OUTER = "outer"
    """A function around exchanges with a model, which stands for the exchange itself where none is reported within it."""
    TOOL = "tool"
    AGENT = "agent"
    """An agent, a chain, a workflow, or another named part of the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanFacts:
    """What is known from one span. What it does not tell is `None`, or empty."""

    kind: SpanKind | None = None
    name: str | None = None
    """Of the tool, the agent, or the part of the work."""
    model: str | None = None
    said: tuple[Turn, ...] = ()
    """What the model was sent."""
    replies: tuple[Turn, ...] = ()
    """What it answered; several where several answers were asked for."""
    usage: Usage = UNCOUNTED
    finish: str | None = None
    response_id: str | None = None
    cost: float | None = None
    first_token_seconds: float | None = None
    arguments: str | None = None
    """Of a tool."""
    result: str | None = None
    call_id: str | None = None
    input: str | None = None
    """Of an agent, or of a span that is no step."""
    output: str | None = None
    session: str | None = None
    agent: str | None = None
    """Who made the call, or used the tool."""


def merged(parts: Iterable[SpanFacts]) -> SpanFacts:
    """What they tell together: of each thing, what the first says that says something."""
    told: dict[str, Any] = {}
    usage = UNCOUNTED
    found = tuple(parts)
    if len(found) == 1:
        return found[0]
    for part in found:
        usage = usage.known_or(part.usage)
        for name in _FIELDS:
            value = getattr(part, name)
            if value is not None and value != () and told.get(name) is None:
                told[name] = value
    return SpanFacts(**{**told, "usage": usage})


said, replied = SPANS.said, SPANS.replied
_FIELDS = tuple(each.name for each in fields_of(SpanFacts))


def text(value: Any) -> str | None:
    """A value as text: what is no text, as JSON."""
    return None if value is None else fields.text(value)


def count(attributes: Mapping[str, Any], *names: str) -> int | None:
    """The first of these that is a count. Some write numbers as text; what is negative is not known."""
    for name in names:
        value = attributes.get(name)
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is int and value >= 0:
            return value
    return None


def number(attributes: Mapping[str, Any], *names: str) -> float | None:
    for name in names:
        value = attributes.get(name)
        try:
            found = float(value) if value is not None and not isinstance(value, bool) else -1.0
        except (TypeError, ValueError):
            continue
        if 0 <= found < float("inf"):
            return found
    return None


def word(value: Any) -> str | None:
    """The first word where one or a list of them is written."""
    if isinstance(value, list):
        value = next((each for each in value if each), None)
    value = opened(value)
    if isinstance(value, list):
        value = next((each for each in value if each), None)
    return value if isinstance(value, str) and value else None


def nested(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Attributes whose names count, `prefix.0.message.role`, as the list of objects that they spell, in order."""
    start = prefix + "."
    tree: dict[str, Any] = {}
    for name, value in attributes.items():
        if not name.startswith(start):
            continue
        *path, last = name[len(start) :].split(".")
        at = tree
        for step in path[:_DEEPEST]:
            below = at.setdefault(step, {})
            if not isinstance(below, dict):
                below = at[step] = {"": below}
            at = below
        at[last] = value
    found = _listed(tree)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


_DEEPEST = 16


def _listed(tree: Any) -> Any:
    if not isinstance(tree, dict) or not tree:
        return tree
    if all(key.isdecimal() and key.isascii() for key in tree):
        return [_listed(tree[key]) for key in sorted(tree, key=int)]
    return {key: _listed(value) for key, value in tree.items()}


def replies_joined(replies: Sequence[Turn]) -> Turn | None:
    """One answer of several that were given: the text of the first that has any, and every tool call that is asked for."""
    if not replies:
        return None
    calls: dict[tuple[str, str, str], ToolUse] = {}
    for reply in replies:
        for call in reply.calls:
            calls.setdefault((call.id, "" if call.id else call.tool, "" if call.id else call.arguments), call)
    return Turn(
        "assistant",
        next((reply.text for reply in replies if reply.text), ""),
        thought=next((reply.thought for reply in replies if reply.thought), ""),
        calls=tuple(calls.values()),
        finish=next((reply.finish for reply in replies if reply.finish), None),
    )
