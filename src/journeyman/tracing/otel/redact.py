"""Spans without what must not be kept: secrets, or all that was said."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from journeyman.tracing import secrets
from journeyman.tracing.otel.wire import LOG, AnyValue, LogRecord, RawSpan, ResourceSpans, Span

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
    return replace(row, body=message.SerializeToString() if changed else row.body, scope=scope)


def without_content(row: RawSpan) -> RawSpan:
    """The span without what was said: of every text that is no name, id, model or the like, only its length is left.

    Numbers stay, and the names of attributes and events; what they hold does not.
    """
    message = _message(row)
    _strip(message.attributes)
    if isinstance(message, LogRecord):
        size = _size(message.body)
        message.ClearField("body")
        message.attributes.add(key="body" + LENGTH).value.int_value = size
    else:
        message.status.message = message.trace_state = ""
        for event in message.events:
            _strip(event.attributes)
        for link in message.links:
            _strip(link.attributes)
            link.trace_state = ""
    return replace(row, body=message.SerializeToString(), scope=_stripped_scope(row.scope))


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
    sizes = [(pair.key, _size(pair.value)) for pair in named if not _is_shape(pair.key, pair.value)]
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


def _size(value: AnyValue) -> int:
    """Characters of a text; bytes, as protobuf writes it, of anything else."""
    return len(value.string_value) if value.WhichOneof("value") == "string_value" else value.ByteSize()
