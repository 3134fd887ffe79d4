"""OTLP's JSON as its protobuf messages.

Not protobuf's own mapping: ids are hexadecimal, and exporters are read as they are: names in lowerCamelCase or snake_case,
64-bit integers as strings or numbers, enums as numbers or names, unknown fields passed over.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from journeyman.errors import InputError

_DEEPEST = 64
"""Values within values; protobuf itself reads no more than 100 messages within messages."""
_KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_STATUS = ("UNSET", "OK", "ERROR")


def fill_spans(into: Any, value: object) -> None:
    """Add what stands under "resourceSpans" of a JSON value to a repeated ResourceSpans.

    Raises:
        InputError: Something in it is not what OTLP says; the message names the place.
    """
    for resource in _rows(_object(value, "the request"), "resourceSpans"):
        one = into.add(schema_url=_text(resource, "schemaUrl"))
        _resource(one.resource, resource)
        for scope in _rows(resource, "scopeSpans") or _rows(resource, "instrumentationLibrarySpans"):
            found = one.scope_spans.add(schema_url=_text(scope, "schemaUrl"))
            _scope(found.scope, scope)
            for span in _rows(scope, "spans"):
                _span(found.spans.add(), span)


def fill_logs(into: Any, value: object) -> None:
    """Add what stands under "resourceLogs" of a JSON value to a repeated ResourceLogs. Raises as `fill_spans` does."""
    for resource in _rows(_object(value, "the request"), "resourceLogs"):
        one = into.add(schema_url=_text(resource, "schemaUrl"))
        _resource(one.resource, resource)
        for scope in _rows(resource, "scopeLogs"):
            found = one.scope_logs.add(schema_url=_text(scope, "schemaUrl"))
            _scope(found.scope, scope)
            for record in _rows(scope, "logRecords"):
                _record(found.log_records.add(), record)


def attributes(into: Any, rows: Sequence[Mapping[str, Any]], depth: int = 0) -> None:
    """Add key-value pairs to a repeated KeyValue."""
    for pair in rows:
        one = into.add(key=_text(pair, "key"))
        value = pair.get("value")
        if value is None:
            continue
        # Most are texts: what is said here once is said in `_any` for whatever else there is.
        text = value.get("stringValue") if type(value) is dict and len(value) == 1 else None
        if type(text) is str and text.isascii():
            one.value.string_value = text
        else:
            _any(one.value, _object(value, "an attribute's value"), depth)


def _resource(into: Any, holder: Mapping[str, Any]) -> None:
    attributes(into.attributes, _rows(_object(holder.get("resource") or {}, "a resource"), "attributes"))


def _scope(into: Any, holder: Mapping[str, Any]) -> None:
    scope = _object(holder.get("scope") or holder.get("instrumentationLibrary") or {}, "a scope")
    into.name, into.version = _text(scope, "name"), _text(scope, "version")
    attributes(into.attributes, _rows(scope, "attributes"))


def _span(into: Any, span: Mapping[str, Any]) -> None:
    into.trace_id, into.span_id, into.parent_span_id = (_id(span, key) for key in ("traceId", "spanId", "parentSpanId"))
    into.name, into.trace_state = _text(span, "name"), _text(span, "traceState")
    into.kind = _enum(_get(span, "kind"), "SPAN_KIND_", _KINDS)
    into.start_time_unix_nano, into.end_time_unix_nano = _uint(span, "startTimeUnixNano"), _uint(span, "endTimeUnixNano")
    attributes(into.attributes, _rows(span, "attributes"))
    for event in _rows(span, "events"):
        one = into.events.add(name=_text(event, "name"), time_unix_nano=_uint(event, "timeUnixNano"))
        attributes(one.attributes, _rows(event, "attributes"))
    for link in _rows(span, "links"):
        to = into.links.add(trace_id=_id(link, "traceId"), span_id=_id(link, "spanId"), trace_state=_text(link, "traceState"))
        attributes(to.attributes, _rows(link, "attributes"))
    into.flags = _uint(span, "flags") & 0xFFFFFFFF
    into.dropped_attributes_count = _uint(span, "droppedAttributesCount") & 0xFFFFFFFF
    into.dropped_events_count = _uint(span, "droppedEventsCount") & 0xFFFFFFFF
    if span.get("status") is not None:
        status = _object(span["status"], "a status")
        into.status.SetInParent()
        into.status.code = _enum(_get(status, "code"), "STATUS_CODE_", _STATUS)
        into.status.message = _text(status, "message")


def _record(into: Any, record: Mapping[str, Any]) -> None:
    into.trace_id, into.span_id = _id(record, "traceId"), _id(record, "spanId")
    into.time_unix_nano = _uint(record, "timeUnixNano")
    into.observed_time_unix_nano = _uint(record, "observedTimeUnixNano")
    into.event_name, into.severity_text = _text(record, "eventName"), _text(record, "severityText")
    if record.get("body") is not None:
        _any(into.body, _object(record["body"], "a body"), 0)
    attributes(into.attributes, _rows(record, "attributes"))


def _any(into: Any, value: Mapping[str, Any], depth: int) -> None:
    if depth > _DEEPEST:
        raise InputError(f"an attribute's value is nested deeper than {_DEEPEST}")
    for name, found in value.items():
        kind = _kind(name)
        if found is None:
            continue
        if kind in _PLAIN:
            field, read = _PLAIN[kind]
            setattr(into, field, _plain(read, found, name))
        elif kind == "arrayvalue":
            into.array_value.SetInParent()
            for each in _rows(_object(found, name), "values"):
                _any(into.array_value.values.add(), each, depth + 1)
        elif kind == "kvlistvalue":
            into.kvlist_value.SetInParent()
            attributes(into.kvlist_value.values, _rows(_object(found, name), "values"), depth + 1)


@lru_cache(maxsize=64)
def _kind(name: str) -> str:
    """The name of a kind of value, however it is spelled."""
    return name.replace("_", "").lower()


def _plain(read: Any, found: object, name: str) -> Any:
    try:
        return read(found)
    except (TypeError, ValueError, OverflowError, binascii.Error):
        raise InputError(f"{name} cannot be {str(found)[:60]!r}") from None


def _string(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError
    return _whole(found)


def _whole(text: str) -> str:
    """Protobuf's strings are UTF-8, and JSON can spell halves of characters that UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _integer(found: Any) -> int:
    number = int(found)
    if not -(2**63) <= number < 2**63:
        raise OverflowError
    return number


def _bytes(found: Any) -> bytes:
    return base64.b64decode(found, altchars=b"-_" if "-" in found or "_" in found else None)


_PLAIN = {
    "stringvalue": ("string_value", _string),
    "boolvalue": ("bool_value", bool),
    "intvalue": ("int_value", _integer),
    "doublevalue": ("double_value", float),
    "bytesvalue": ("bytes_value", _bytes),
}


@cache
def _snake(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)


def _get(holder: Mapping[str, Any], name: str) -> Any:
    found = holder.get(name)
    return holder.get(_snake(name)) if found is None else found


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{what} must be an object, and is {str(value)[:60]!r}")
    return value


def _rows(holder: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    found = _get(holder, name)
    if found is None:
        return ()
    if not isinstance(found, list) or set(map(type, found)) - {dict}:
        raise InputError(f"{name} must be a list of objects, and is {str(found)[:60]!r}")
    return found


def _text(holder: Mapping[str, Any], name: str) -> str:
    found = _get(holder, name)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise InputError(f"{name} must be a text, and is {str(found)[:60]!r}")
    return _whole(found)


def _id(holder: Mapping[str, Any], name: str) -> bytes:
    """Hexadecimal, as OTLP says; base64, as protobuf's own mapping writes it, has another length and is told apart by that."""
    text = _text(holder, name)
    try:
        return bytes.fromhex(text) if len(text) in (0, 16, 32) else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise InputError(f"{name} must be hexadecimal, and is {text[:60]!r}") from None


def _uint(holder: Mapping[str, Any], name: str) -> int:
    found = _get(holder, name)
    number = 0 if found in (None, "") else _plain(int, found, name)
    if not 0 <= number < 2**64:
        raise InputError(f"{name} cannot be {number}")
    return int(number)


def _enum(found: object, prefix: str, names: Sequence[str]) -> int:
    """An unknown value is the first, which every enum of OTLP has for that."""
    if isinstance(found, str) and found.removeprefix(prefix) in names:
        return names.index(found.removeprefix(prefix))
    if isinstance(found, str) and found.isdigit():
        found = int(found)
    return found if isinstance(found, int) and 0 <= found < len(names) else 0
