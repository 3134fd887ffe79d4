"""What an OpenTelemetry exporter sends, span by span: OTLP over HTTP, as protobuf or as JSON.

    batch = spans(body, "application/x-protobuf", encoding="gzip")
    batch.spans               what to keep, each as it came
    answer(batch, "traces")   what the exporter is told

Log records about model calls (event conventions carry the messages there) are kept beside the spans of their trace, under a
span id that begins with `LOG`. Formats: https://opentelemetry.io/docs/specs/otlp/
"""

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from journeyman.capture.otlp import otlpjson
from journeyman.capture.otlp.proto import (
    DecodeError,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
    LogRecord,
    ResourceSpans,
)
from journeyman.errors import InputError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RawSpan:
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
class Batch:
    """What came in one request."""

    spans: tuple[RawSpan, ...]
    rejected: int = 0
    """How many cannot be kept: their ids are not ids."""
    ignored: int = 0
    """Log records that tell nothing of a model call. They are accepted, and forgotten."""


def spans(body: bytes, content_type: str, *, encoding: str = "", limit: int = LIMIT) -> Batch:
    """Read the body of `POST /v1/traces`.

    Raises:
        Unsupported: The content type is neither protobuf nor JSON, or the encoding not gzip, deflate or identity.
        TooLarge: It holds more than `limit` bytes once decompressed.
        InputError: It is no ExportTraceServiceRequest.
    """
    plain = unpacked(body, encoding, limit)
    request = ExportTraceServiceRequest()
    if _is_json(content_type):
        otlpjson.fill_spans(request.resource_spans, _json(plain))
    else:
        _parse(request, plain)
    return _spans(request)


def logs(body: bytes, content_type: str, *, encoding: str = "", limit: int = LIMIT) -> Batch:
    """Read the body of `POST /v1/logs`. Raises as `spans` does."""
    plain = unpacked(body, encoding, limit)
    request = ExportLogsServiceRequest()
    if _is_json(content_type):
        otlpjson.fill_logs(request.resource_logs, _json(plain))
    else:
        _parse(request, plain)
    return _logs(request)


def answer(batch: Batch, signal: Signal, content_type: str = PROTOBUF) -> tuple[bytes, str]:
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


def of_request(request: bytes) -> Batch:
    """The spans of a serialised ExportTraceServiceRequest, or else the records of an ExportLogsServiceRequest.

    Both have the same shape on the wire, and only reading both tells which of them has ids in the right places.
    """
    traces = ExportTraceServiceRequest()
    try:
        _parse(traces, request)
        found = _spans(traces)
    except InputError:
        found = Batch(spans=())
    if found.spans:
        return found
    records = ExportLogsServiceRequest()
    _parse(records, request)
    as_logs = _logs(records)
    return as_logs if as_logs.spans or as_logs.ignored > found.rejected else found


def of_object(value: object) -> Batch:
    """The spans and log records of one JSON value with "resourceSpans" or "resourceLogs"."""
    traces, records = ExportTraceServiceRequest(), ExportLogsServiceRequest()
    otlpjson.fill_spans(traces.resource_spans, value)
    otlpjson.fill_logs(records.resource_logs, value)
    first, second = _spans(traces), _logs(records)
    return Batch(
        spans=first.spans + second.spans, rejected=first.rejected + second.rejected, ignored=first.ignored + second.ignored
    )


def _spans(request: ExportTraceServiceRequest) -> Batch:
    kept: list[RawSpan] = []
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
                kept.append(RawSpan(trace_id=trace.hex(), span_id=id.hex(), at=at, body=body, scope=about))
    return Batch(spans=tuple(kept), rejected=rejected)


def _logs(request: ExportLogsServiceRequest) -> Batch:
    kept: list[RawSpan] = []
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
                    kept.append(_log(record, about))
    return Batch(spans=tuple(kept), rejected=rejected, ignored=ignored)


def _log(record: LogRecord, about: bytes) -> RawSpan:
    at = record.time_unix_nano or record.observed_time_unix_nano
    body = record.SerializeToString()
    # When it was collected is no part of what it says: a record that is sent twice is one record.
    said = LogRecord()
    said.CopyFrom(record)
    said.ClearField("observed_time_unix_nano")
    digest = hashlib.sha256(said.SerializeToString(deterministic=True)).hexdigest()[:16]
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
