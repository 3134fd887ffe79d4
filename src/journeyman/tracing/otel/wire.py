"""What an OpenTelemetry exporter sends, span by span: OTLP over HTTP, as protobuf or as JSON.

    batch = spans(body, "application/x-protobuf", encoding="gzip")
    batch.spans               what to keep, each as it came
    answer(batch, "traces")   what the exporter is told

Log records about model calls (event conventions carry the messages there) are kept beside the spans of their trace, under a
span id that begins with `LOG`. Formats: https://opentelemetry.io/docs/specs/otlp/
"""

import base64
import binascii
import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple

from journeyman.core.errors import InputError, MissingExtra

# OTLP's JSON as its protobuf messages.
#
# Not protobuf's own mapping: ids are hexadecimal, and exporters are read as they are: names in lowerCamelCase or snake_case,
# 64-bit integers as strings or numbers, enums as numbers or names, unknown fields passed over.

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
    return _encodable(found)


def _encodable(text: str) -> str:
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
    return _encodable(found)


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


def key_values(attributes: object) -> list[dict[str, Any]]:
    """Attributes as OTLP writes them in JSON."""
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
        return {"kvlistValue": {"values": key_values(value)}}
    return {} if value is None else {"stringValue": str(value)}


# OpenTelemetry's messages, from the one place that says what to install where they are missing.

try:
    from google.protobuf.message import DecodeError as DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest as ExportLogsServiceRequest
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse as ExportLogsServiceResponse
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest as ExportTraceServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTraceServiceResponse as ExportTraceServiceResponse,
    )
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue as AnyValue
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue as KeyValue
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as LogRecord
    from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans as ResourceSpans
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as Span
except ImportError as error:  # pragma: no cover - the development environment has it
    raise MissingExtra(f"reading OpenTelemetry needs {error.name}: pip install 'journeyman[serve]'") from error

LOG = "log-"
"""How the span id of a log record begins; no span's id does."""
LIMIT = 64 * 2**20
"""Bytes of a body, decompressed."""
PROTOBUF = "application/x-protobuf"
JSON = "application/json"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = 253_402_300_799 * 10**9

Signal = Literal["traces", "logs"]


class Unsupported(InputError):
    """A content type or encoding that OTLP does not have: HTTP status 415."""


class TooLarge(InputError):
    """More than the limit, once decompressed: HTTP status 413."""


class RawSpan(NamedTuple):
    """One span, or one log record, as it was reported."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits; of a log record, `LOG` and a digest of what it says."""
    at: datetime
    """When it began; of a log record, when it was written."""
    body: bytes
    """A serialised `Span` or `LogRecord`."""
    scope: bytes = b""
    """What it shares with others: a serialised `ResourceSpans` (of logs too) with resource and scope, and no spans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanBatch:
    """What came in one request."""

    spans: tuple[RawSpan, ...]
    rejected: int = 0
    """How many cannot be kept: their ids are not ids."""
    ignored: int = 0
    """Log records that tell nothing of a model call. They are accepted, and forgotten."""


def spans(body: bytes, content_type: str, *, encoding: str = "", limit: int = LIMIT) -> SpanBatch:
    """Read the body of `POST /v1/traces`.

    Raises:
        Unsupported: The content type is neither protobuf nor JSON, or the encoding not gzip, deflate or identity.
        TooLarge: It holds more than `limit` bytes once decompressed.
        InputError: It is no ExportTraceServiceRequest.
    """
    plain = unpacked(body, encoding, limit)
    request = ExportTraceServiceRequest()
    if _is_json(content_type):
        fill_spans(request.resource_spans, _json(plain))
    else:
        _parse(request, plain)
    return _spans(request)


def logs(body: bytes, content_type: str, *, encoding: str = "", limit: int = LIMIT) -> SpanBatch:
    """Read the body of `POST /v1/logs`. Raises as `spans` does."""
    plain = unpacked(body, encoding, limit)
    request = ExportLogsServiceRequest()
    if _is_json(content_type):
        fill_logs(request.resource_logs, _json(plain))
    else:
        _parse(request, plain)
    return _logs(request)


def answer(batch: SpanBatch, signal: Signal, content_type: str = PROTOBUF) -> tuple[bytes, str]:
    """The body and the content type of the answer with HTTP status 200: to whom speaks JSON, JSON."""
    text = f"{batch.rejected} without a trace id of 16 bytes and a span id of 8 could not be kept" if batch.rejected else ""
    if _is_json(content_type):
        name = "rejectedSpans" if signal == "traces" else "rejectedLogRecords"
        partial = {"partialSuccess": {name: str(batch.rejected), "errorMessage": text}} if batch.rejected else {}
        return json.dumps(partial).encode(), JSON
    response: ExportTraceServiceResponse | ExportLogsServiceResponse
    if signal == "traces":
        response = ExportTraceServiceResponse()
        if batch.rejected:
            response.partial_success.rejected_spans = batch.rejected
    else:
        response = ExportLogsServiceResponse()
        if batch.rejected:
            response.partial_success.rejected_log_records = batch.rejected
    if batch.rejected:
        response.partial_success.error_message = text
    return response.SerializeToString(), PROTOBUF


def refusal(message: str, content_type: str = PROTOBUF, *, code: int = 3) -> tuple[bytes, str]:
    """The body and the content type of an answer with an HTTP status of 400 and above: a google.rpc.Status.

    `code` is gRPC's: 3 for a request that cannot be read, 14 for a server that cannot keep it just now.
    """
    if "json" in content_type:
        return json.dumps({"code": code, "message": message}).encode(), JSON
    text = message.encode()[:8192]
    return bytes((0x08, code, 0x12)) + _varint(len(text)) + text, PROTOBUF


def unpacked(body: bytes, encoding: str, limit: int) -> bytes:
    """Undo a content-encoding, and not one byte further than `limit`.

    Raises:
        Unsupported: Another encoding than gzip, deflate or identity.
        TooLarge: There is more than `limit`.
        InputError: It is not what the encoding says.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        plain = body
    elif name in ("gzip", "x-gzip"):
        plain = _read(lambda: gzip.GzipFile(fileobj=io.BytesIO(body)).read(limit + 1), name)
    elif name == "deflate":
        # Servers and clients disagree whether deflate has zlib's header: a first byte of 0x78 says that it has.
        bits = zlib.MAX_WBITS if body[:1] == b"\x78" else -zlib.MAX_WBITS
        plain = _read(lambda: zlib.decompressobj(bits).decompress(body, limit + 1), name)
    else:
        raise Unsupported(f"content-encoding {encoding[:40]!r} is not known: send gzip, deflate or none")
    if len(plain) > limit:
        raise TooLarge(f"the request holds more than {limit:,} bytes once decompressed: send smaller batches")
    return plain


def of_request(request: bytes) -> SpanBatch:
    """The spans of a serialised ExportTraceServiceRequest, or else the records of an ExportLogsServiceRequest.

    Both have the same shape on the wire, and only reading both tells which of them has ids in the right places.
    """
    traces = ExportTraceServiceRequest()
    try:
        _parse(traces, request)
        found = _spans(traces)
    except InputError:
        found = SpanBatch(spans=())
    if found.spans:
        return found
    records = ExportLogsServiceRequest()
    _parse(records, request)
    as_logs = _logs(records)
    return as_logs if as_logs.spans or as_logs.ignored > found.rejected else found


def of_object(value: object) -> SpanBatch:
    """The spans and log records of one JSON value with "resourceSpans" or "resourceLogs"."""
    traces, records = ExportTraceServiceRequest(), ExportLogsServiceRequest()
    fill_spans(traces.resource_spans, value)
    fill_logs(records.resource_logs, value)
    first, second = _spans(traces), _logs(records)
    return SpanBatch(
        spans=first.spans + second.spans, rejected=first.rejected + second.rejected, ignored=first.ignored + second.ignored
    )


def _spans(request: ExportTraceServiceRequest) -> SpanBatch:
    spans: list[RawSpan] = []
    rejected = 0
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            shared = ResourceSpans(resource=resource.resource, schema_url=resource.schema_url)
            shared.scope_spans.add(scope=scope.scope, schema_url=scope.schema_url)
            about = shared.SerializeToString(deterministic=True)
            for span in scope.spans:
                trace, id = span.trace_id, span.span_id
                if len(trace) != 16 or len(id) != 8 or not any(trace) or not any(id):
                    rejected += 1
                    continue
                at = moment(span.start_time_unix_nano)
                body = span.SerializeToString()
                spans.append(RawSpan(trace_id=trace.hex(), span_id=id.hex(), at=at, body=body, scope=about))
    return SpanBatch(spans=tuple(spans), rejected=rejected)


def _logs(request: ExportLogsServiceRequest) -> SpanBatch:
    records: list[RawSpan] = []
    rejected = ignored = 0
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            shared = ResourceSpans(resource=resource.resource, schema_url=resource.schema_url)
            shared.scope_spans.add(scope=scope.scope, schema_url=scope.schema_url)
            about = shared.SerializeToString(deterministic=True)
            for record in scope.log_records:
                if not _tells_of_a_call(record):
                    ignored += 1
                elif len(record.trace_id) != 16 or not any(record.trace_id):
                    rejected += 1
                else:
                    records.append(_log(record, about))
    return SpanBatch(spans=tuple(records), rejected=rejected, ignored=ignored)


def _log(record: LogRecord, about: bytes) -> RawSpan:
    at = record.time_unix_nano or record.observed_time_unix_nano
    body = record.SerializeToString()
    # When it was collected is no part of what it says: a record that is sent twice is one record.
    content = LogRecord()
    content.CopyFrom(record)
    content.ClearField("observed_time_unix_nano")
    digest = hashlib.sha256(content.SerializeToString(deterministic=True)).hexdigest()[:16]
    return RawSpan(trace_id=record.trace_id.hex(), span_id=LOG + digest, at=moment(at), body=body, scope=about)


def _tells_of_a_call(record: LogRecord) -> bool:
    """The name of an event is a field since OTLP 1.5, and was an attribute before."""
    if record.event_name:
        return record.event_name.startswith("gen_ai.")
    return any(pair.key == "event.name" and pair.value.string_value.startswith("gen_ai.") for pair in record.attributes)


def moment(nanoseconds: int) -> datetime:
    """A time of the wire, to the microsecond; the epoch for what no calendar has."""
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000) if nanoseconds <= _LATEST else _EPOCH


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in (PROTOBUF, "application/protobuf", JSON):
        raise Unsupported(f"content type {content_type[:60]!r} is not known: send {PROTOBUF} or {JSON}")
    return kind == JSON


def _parse(request: ExportTraceServiceRequest | ExportLogsServiceRequest, body: bytes) -> None:
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise InputError(f"the body is no {type(request).__name__} in protobuf: {error}") from None


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is no JSON: {error}") from None


def _read(read: Callable[[], bytes], name: str) -> bytes:
    try:
        return read()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"the body is not {name}, as its content-encoding says: {error}") from None


def _varint(value: int) -> bytes:
    return bytes(_septets(value))


def _septets(value: int) -> Iterator[int]:
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value
