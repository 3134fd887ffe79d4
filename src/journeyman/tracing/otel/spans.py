"""One trace's spans as plain values: attributes, events, and the log records that belong to them."""

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, Protocol

from journeyman.core.messages import UNCOUNTED, ToolUse, Turn, Usage
from journeyman.tracing import fields, secrets
from journeyman.tracing.conversation import SPANS
from journeyman.tracing.fields import parsed_if_json
from journeyman.tracing.otel.wire import LOG, AnyValue, KeyValue, LogRecord, RawSpan, ResourceSpans, Span, moment
from journeyman.tracing.otel.wire import Span as Message

_ERROR = 2
_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")


class SpanBytes(Protocol):
    """A raw span, as `wire` reads it and as a store keeps it."""

    @property
    def trace_id(self) -> str: ...
    @property
    def span_id(self) -> str: ...
    @property
    def body(self) -> bytes: ...
    @property
    def scope(self) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanEvent:
    """Something that happened within a span: an event of it, or a log record that names it."""

    name: str
    at: int
    """Nanoseconds since 1970."""
    attributes: Mapping[str, Any]
    body: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanData:
    """One span."""

    id: str
    parent: str | None
    name: str
    kind: str
    began: int
    """Nanoseconds since 1970."""
    ended: int
    attributes: Mapping[str, Any]
    events: tuple[SpanEvent, ...] = ()
    error: str | None = None
    """Why it failed: from its status, and from the last exception that it tells of."""
    scope: str = ""
    """Which library reported it."""
    resource: Mapping[str, Any] = field(default_factory=dict)
    """What was instrumented: the service, its host."""

    @property
    def started_at(self) -> datetime:
        return moment(self.began)

    @property
    def seconds(self) -> float | None:
        """`None` while it is not known when it ended."""
        return (self.ended - self.began) / 1e9 if self.ended >= self.began > 0 else None


def spans(rows: Iterable[SpanBytes]) -> list[SpanData]:
    """The spans of one trace, oldest first, each once.

    What comes out does not depend on the order of the rows. Where one span was reported twice with different words, the longer
    report is believed: exporters that report a span while it runs report it again when it has ended.
    """
    best: dict[str, SpanBytes] = {}
    for row in rows:
        before = best.get(row.span_id)
        if before is None or _size(row) > _size(before):
            best[row.span_id] = row
    records: dict[str, list[SpanEvent]] = {}
    for id, row in best.items():
        if id.startswith(LOG):
            about, event = _record(row)
            records.setdefault(about, []).append(event)
    found = [_span(row, records.get(id, ())) for id, row in best.items() if not id.startswith(LOG)]
    return sorted(found, key=lambda span: (span.began, span.id))


def plain(value: AnyValue) -> Any:
    """A value as Python's own; bytes as base64, so that JSON can hold it."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [plain(each) for each in value.array_value.values]
    if kind == "kvlist_value":
        return pairs(value.kvlist_value.values)
    found = getattr(value, kind)
    return base64.b64encode(found).decode() if kind == "bytes_value" else found


def pairs(found: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: plain(pair.value) for pair in found}


def _size(row: SpanBytes) -> tuple[int, bytes, bytes]:
    return len(row.body), row.body, row.scope


def _record(row: SpanBytes) -> tuple[str, SpanEvent]:
    record = LogRecord.FromString(row.body)
    attributes = pairs(record.attributes)
    name = record.event_name or str(attributes.get("event.name", ""))
    at = record.time_unix_nano or record.observed_time_unix_nano
    return record.span_id.hex(), SpanEvent(name=name, at=at, attributes=attributes, body=plain(record.body))


def _span(row: SpanBytes, records: Iterable[SpanEvent]) -> SpanData:
    message = Message.FromString(row.body)
    shared = ResourceSpans.FromString(row.scope)
    told = (SpanEvent(name=each.name, at=each.time_unix_nano, attributes=pairs(each.attributes)) for each in message.events)
    # The sort is by time, and stable: events of one time keep the order in which the span, or else their words, have them.
    events = sorted((*told, *sorted(records, key=lambda each: (each.name, str(each.body)))), key=lambda each: each.at)
    return SpanData(
        id=row.span_id,
        parent=message.parent_span_id.hex() or None,
        name=message.name,
        kind=_KINDS[message.kind] if 0 <= message.kind < len(_KINDS) else _KINDS[0],
        began=message.start_time_unix_nano,
        ended=message.end_time_unix_nano,
        attributes=pairs(message.attributes),
        events=tuple(events),
        error=_error(message, events) if message.status.code == _ERROR else None,
        scope=shared.scope_spans[0].scope.name if shared.scope_spans else "",
        resource=pairs(shared.resource.attributes),
    )


def _error(message: Message, events: Sequence[SpanEvent]) -> str:
    thrown = [each.attributes for each in events if each.name == "exception"]
    if thrown:
        kind, why = str(thrown[-1].get("exception.type") or ""), str(thrown[-1].get("exception.message") or "")
        return ": ".join(part for part in (kind.rpartition(".")[2], why) if part) or "error"
    kinds = [pair.value.string_value for pair in message.attributes if pair.key == "error.type"]
    return message.status.message or next(iter(kinds), "") or "error"


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
    messages: tuple[Turn, ...] = ()
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
    merged_fields: dict[str, Any] = {}
    usage = UNCOUNTED
    found = tuple(parts)
    if len(found) == 1:
        return found[0]
    for part in found:
        usage = usage.known_or(part.usage)
        for name in _FIELDS:
            value = getattr(part, name)
            if value is not None and value != () and merged_fields.get(name) is None:
                merged_fields[name] = value
    return SpanFacts(**{**merged_fields, "usage": usage})


messages_of, replies_of = SPANS.messages, SPANS.replies
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
    value = parsed_if_json(value)
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


# Spans without what must not be kept: secrets, or all that was said.
GONE = "[redacted]"
LENGTH = "_length"
"""Ends the name of the attribute that stands for one that is not kept."""
_LONGEST = 256
"""Characters of a name, a model, an id. Whatever is longer is somebody's words."""
_SECRET = re.compile(r"(?:^|[._-])(authorization|cookie|set-cookie|password|secret|api[._-]?key|access[._-]?token)$", re.I)
_SHAPE = re.compile(
    r"(?:^|[._])(?:id|model|system|provider|name|kind|type|mime_type|finish_reasons?|finishReason|role|status|version|language"
    r"|operationId|functionId|model_name|entity_name|span_name|address|port|method|status_code|encoding_formats|service_tier"
    r"|environment|release|stop_reason)$"
    r"|^(?:service|telemetry|deployment|session|user|thread|openinference)\."
)
_WORDS = re.compile(r"(?:metadata|arguments|content|text)\b")


def redacted(row: RawSpan, text: Callable[[str], str]) -> RawSpan:
    """The span with `text` applied to every text of it, of its events and of its resource; itself where nothing changes.

    The value of an attribute whose name says that it is a secret (`http.request.header.authorization`) goes whole.
    """
    message = _message(row)
    changed = _redact(message, text)
    scope = _redacted_scope(row.scope, text)
    if not changed and scope == row.scope:
        return row
    return row._replace(body=message.SerializeToString() if changed else row.body, scope=scope)


def without_content(row: RawSpan) -> RawSpan:
    """The span without what was said: of every text that is no name, id, model or the like, only its length is left.

    Numbers stay, and the names of attributes and events; what they hold does not.
    """
    message = _message(row)
    _strip(message.attributes)
    if isinstance(message, LogRecord):
        size = _value_size(message.body)
        message.ClearField("body")
        message.attributes.add(key="body" + LENGTH).value.int_value = size
    else:
        message.status.message = message.trace_state = ""
        for event in message.events:
            _strip(event.attributes)
        for link in message.links:
            _strip(link.attributes)
            link.trace_state = ""
    return row._replace(body=message.SerializeToString(), scope=_stripped_scope(row.scope))


def _message(row: RawSpan) -> Any:
    return LogRecord.FromString(row.body) if row.span_id.startswith(LOG) else Span.FromString(row.body)


@lru_cache(maxsize=256)
def _redacted_scope(scope: bytes, text: Callable[[str], str]) -> bytes:
    shared = ResourceSpans.FromString(scope)
    changed = [_pairs(shared.resource.attributes, text), _fields(shared, ("schema_url",), text)]
    for each in shared.scope_spans:
        changed += [_pairs(each.scope.attributes, text), _fields(each, ("schema_url",), text)]
        changed.append(_fields(each.scope, ("name", "version"), text))
    without: bytes = shared.SerializeToString(deterministic=True)
    return without if any(changed) else scope


@lru_cache(maxsize=256)
def _stripped_scope(scope: bytes) -> bytes:
    shared = ResourceSpans.FromString(scope)
    _strip(shared.resource.attributes)
    for each in shared.scope_spans:
        _strip(each.scope.attributes)
    shape: bytes = shared.SerializeToString(deterministic=True)
    return shape


def _redact(message: Any, text: Callable[[str], str]) -> bool:
    changed = _pairs(message.attributes, text)
    if isinstance(message, LogRecord):
        return any([changed, _value(message.body, text), _fields(message, ("event_name", "severity_text"), text)])
    for part in (*message.events, *message.links):
        changed = _pairs(part.attributes, text) or changed
    told = [_fields(event, ("name",), text) for event in message.events]
    told += [_fields(link, ("trace_state",), text) for link in message.links]
    return any([changed, *told, _fields(message, ("name", "trace_state"), text), _fields(message.status, ("message",), text)])


def _fields(holder: Any, names: Iterable[str], text: Callable[[str], str]) -> bool:
    """Whether one of them, all texts, was changed."""
    changed = False
    for name in names:
        before = getattr(holder, name)
        if before and (after := text(before)) != before:
            setattr(holder, name, after)
            changed = True
    return changed


def _pairs(pairs: Iterable[Any], text: Callable[[str], str]) -> bool:
    changed = False
    for pair in pairs:
        changed = _fields(pair, ("key",), text) or changed
        kind = pair.value.WhichOneof("value")
        if (_SECRET.search(pair.key) and kind not in (None, "bool_value")) or (kind == "string_value" and _names_secret(pair)):
            pair.value.Clear()
            pair.value.string_value = GONE
            changed = True
        elif _value(pair.value, text):
            changed = True
    return changed


def _names_secret(pair: Any) -> bool:
    """Whether the name alone says that a text is a secret, and the text is not merely said to stand for one."""
    return _is_secret(pair.key) and not secrets.is_placeholder(pair.value.string_value)


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    return len(name) <= _LONGEST and name.lower() != "token" and secrets.is_secret_name(name)


def _value(value: AnyValue, text: Callable[[str], str]) -> bool:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        after = text(value.string_value)
        if after == value.string_value:
            return False
        value.string_value = after
        return True
    if kind == "bytes_value":
        before = value.bytes_value.decode(errors="surrogateescape")
        if (clean := text(before)) == before:
            return False
        value.bytes_value = clean.encode(errors="surrogateescape")
        return True
    if kind == "array_value":
        return any([_value(each, text) for each in value.array_value.values])
    if kind == "kvlist_value":
        return _pairs(value.kvlist_value.values, text)
    return False


def _strip(pairs: Any) -> None:
    # A name with blanks in it is somebody's words as well.
    named = [pair for pair in pairs if len(pair.key) <= _LONGEST and " " not in pair.key]
    kept = [pair for pair in named if _is_shape(pair.key, pair.value)]
    sizes = [(pair.key, _value_size(pair.value)) for pair in named if not _is_shape(pair.key, pair.value)]
    copies = [type(pair).FromString(pair.SerializeToString()) for pair in kept]
    del pairs[:]
    pairs.extend(copies)
    for key, size in sizes:
        pairs.add(key=key + LENGTH).value.int_value = size


def _is_shape(key: str, value: AnyValue) -> bool:
    kind = value.WhichOneof("value")
    if kind in ("int_value", "double_value", "bool_value", None):
        return True
    if not _SHAPE.search(key) or _WORDS.search(key):
        return False
    if kind == "string_value":
        return len(value.string_value) <= _LONGEST
    return kind == "array_value" and all(
        each.WhichOneof("value") == "string_value" and len(each.string_value) <= _LONGEST for each in value.array_value.values
    )


def _value_size(value: AnyValue) -> int:
    """Characters of a text; bytes, as protobuf writes it, of anything else."""
    return len(value.string_value) if value.WhichOneof("value") == "string_value" else value.ByteSize()
