"""Spans as a test wants them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from journeyman.core.trace import Step, Trace
from journeyman.tracing.otel.read import facts_of, nodes, steps, traces
from journeyman.tracing.otel.spans import SpanData
from journeyman.tracing.otel.wire import RawSpan, SpanBatch, of_object

TRACE = "0af7651916cd43dd8448eb211c80319c"
_BEGAN = 1_795_219_772_000_000_000


def value(found: object) -> dict[str, Any]:
    """A value as OTLP/JSON writes it."""
    if isinstance(found, bool):
        return {"boolValue": found}
    if isinstance(found, int):
        return {"intValue": str(found)}
    if isinstance(found, float):
        return {"doubleValue": found}
    if isinstance(found, list):
        return {"arrayValue": {"values": [value(each) for each in found]}}
    if isinstance(found, Mapping):
        return {"kvlistValue": {"values": pairs(found)}}
    return {"stringValue": str(found)}


def pairs(attributes: Mapping[str, object]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value(each)} for key, each in attributes.items()]


def span(
    number: int, attributes: Mapping[str, object], *, parent: int | None = None, at: float | None = None, **more: Any
) -> dict[str, Any]:
    """A span that begins `at` seconds after the first, by default its number, and takes half a second."""
    began = _BEGAN + int((number if at is None else at) * 10**9)
    return {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "parentSpanId": "" if parent is None else f"{parent:016x}",
        "name": f"span {number}",
        "startTimeUnixNano": str(began),
        "endTimeUnixNano": str(began + 5 * 10**8),
        "attributes": pairs(attributes),
        **more,
    }


def event(name: str, attributes: Mapping[str, object], *, at: float = 0) -> dict[str, Any]:
    return {"name": name, "timeUnixNano": str(_BEGAN + int(at * 10**9)), "attributes": pairs(attributes)}


def request(spans: Sequence[Mapping[str, Any]], **resource: object) -> dict[str, Any]:
    """An ExportTraceServiceRequest as JSON."""
    return {
        "resourceSpans": [
            {"resource": {"attributes": pairs(resource)}, "scopeSpans": [{"scope": {"name": "test"}, "spans": list(spans)}]}
        ]
    }


def record(number: int, name: str, body: object) -> dict[str, Any]:
    """A log record about a span."""
    return {
        "timeUnixNano": str(_BEGAN + number),
        "eventName": name,
        "body": value(body),
        "traceId": TRACE,
        "spanId": f"{1:016x}",
    }


def logs(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": list(records)}]}]}


def batch(*spans: Mapping[str, Any], **resource: object) -> SpanBatch:
    return of_object(request(spans, **resource))


def read(rows: Iterable[RawSpan]) -> list[Trace]:
    held: dict[str, list[RawSpan]] = {}
    for row in rows:
        held.setdefault(row.trace_id, []).append(row)
    return traces(held)


def trace(*spans: Mapping[str, Any], **resource: object) -> Trace:
    """The one trace of spans."""
    (only,) = read(batch(*spans, **resource).spans)
    return only


def chat(question: str, answer: str, **more: object) -> dict[str, object]:
    """Attributes of a call in today's conventions."""
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": question}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": answer}]}]),
        **more,
    }


def steps_of(attributes: Mapping[str, Any], *, id: str = "") -> tuple[Step, ...]:
    """The steps that the attributes of one span tell of."""
    span = SpanData(id=id, parent=None, name="", kind="internal", began=0, ended=0, attributes=attributes)
    return steps(nodes([span], {id: facts_of(span)}))
