"""Spans as SDKs dump them, which is not OTLP: JavaScript's ReadableSpan, Python's ConsoleSpanExporter."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from journeyman.core.errors import InputError


def is_dump(value: object) -> bool:
    """Whether a JSON value is one span of an SDK."""
    return isinstance(value, Mapping) and isinstance(value.get("attributes"), Mapping) and _context(value) is not None


def as_otlp(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The same spans as an OTLP request in JSON."""
    return {"resourceSpans": [_one(value) for value in values]}


def _context(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = value.get("spanContext", value.get("context", value if "traceId" in value and "id" in value else None))
    return found if isinstance(found, Mapping) else None


def _one(value: Mapping[str, Any]) -> dict[str, Any]:
    context = _context(value) or {}
    parent = value.get("parentSpanId") or value.get("parentId") or value.get("parent_id")
    if isinstance(of := value.get("parentSpanContext"), Mapping):
        parent = of.get("spanId")
    status = value["status"] if isinstance(value.get("status"), Mapping) else {}
    span = {
        "traceId": _id(context.get("traceId") or context.get("trace_id"), 32),
        "spanId": _id(context.get("spanId") or context.get("span_id") or context.get("id"), 16),
        "parentSpanId": _id(parent, 16) if parent else "",
        "name": str(value.get("name") or ""),
        "startTimeUnixNano": _nanoseconds(value.get("startTime") or value.get("start_time") or value.get("timestamp")),
        "endTimeUnixNano": _nanoseconds(value.get("endTime") or value.get("end_time")),
        "attributes": _pairs(value.get("attributes")),
        "events": [
            {
                "name": str(event.get("name") or ""),
                "timeUnixNano": _nanoseconds(event.get("time") or event.get("timestamp")),
                "attributes": _pairs(event.get("attributes")),
            }
            for event in value.get("events") or ()
            if isinstance(event, Mapping)
        ],
        "status": {
            "code": _status(status.get("code", status.get("status_code"))),
            "message": str(status.get("message") or status.get("description") or ""),
        },
    }
    resource = value.get("resource")
    of_resource = resource.get("attributes") if isinstance(resource, Mapping) else None
    scope = value.get("instrumentationScope")
    name = scope.get("name") if isinstance(scope, Mapping) else None
    about = {"name": name if isinstance(name, str) else ""}
    return {"resource": {"attributes": _pairs(of_resource)}, "scopeSpans": [{"scope": about, "spans": [span]}]}


def _status(code: object) -> int:
    """SDKs write a number, or a name, which Python's puts behind its class."""
    if isinstance(code, str):
        return {"OK": 1, "ERROR": 2}.get(code.rpartition(".")[2].upper(), 0)
    return code if isinstance(code, int) else 0


def _id(value: object, digits: int) -> str:
    text = str(value or "").removeprefix("0x")
    if len(text) != digits:
        raise InputError(f"a span's id must have {digits} hexadecimal digits, and is {text[:40]!r}")
    return text


def _nanoseconds(value: object) -> int:
    """A time: [seconds, nanoseconds], an ISO text, or microseconds since 1970."""
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, int) for part in value):
        return int(value[0]) * 10**9 + int(value[1])
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            raise InputError(f"a span's time cannot be {value[:40]!r}") from None
        since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        return max(0, (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000)
    return value * 1000 if isinstance(value, int) and value > 0 else 0


def _pairs(attributes: object) -> list[dict[str, Any]]:
    found = attributes if isinstance(attributes, Mapping) else {}
    return [{"key": str(key), "value": _value(value)} for key, value in found.items()]


def _value(value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return {"intValue": value}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(each) for each in value]}}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": _pairs(value)}}
    return {} if value is None else {"stringValue": str(value)}
