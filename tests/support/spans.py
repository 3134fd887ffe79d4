"""Spans as an exporter sends them."""

import json
from typing import Any

from journeyman.stores.traces.base import SpanRow
from journeyman.stores.traces.codec import pack
from journeyman.tracing.otel import wire

BEGAN = 1_767_312_000_000_000_000


def call(trace: int, span: int, said: str = "Hello", **attributes: Any) -> dict[str, Any]:
    """A span of a chat with a model."""
    told = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": said}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": f"{said}!"}]}]),
        **attributes,
    }
    return {
        "traceId": f"{trace:032x}",
        "spanId": f"{span:016x}",
        "name": "chat gpt-4o-mini",
        "kind": 3,
        "startTimeUnixNano": str(BEGAN + span * 1_000_000),
        "endTimeUnixNano": str(BEGAN + span * 1_000_000 + 500_000),
        "attributes": [
            {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
            for key, value in told.items()
        ],
    }


def body(*spans: dict[str, Any]) -> bytes:
    """An export request in JSON."""
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    return json.dumps(
        {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "s"}, "spans": spans}]}]}
    ).encode()


def rows(*spans: dict[str, Any]) -> list[SpanRow]:
    """The same, as the gateway hands them over."""
    return [SpanRow(*each, packed=pack(each.body)) for each in wire.spans(body(*spans), wire.JSON).spans]
