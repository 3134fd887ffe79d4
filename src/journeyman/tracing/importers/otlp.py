"""Files of exported spans: what OpenTelemetry's collector writes, saved requests, and what SDKs dump.

The libraries of OpenTelemetry are loaded when a file of spans is read, and not before.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from journeyman.core.errors import InputError, MissingExtra
from journeyman.core.trace import Trace
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.source import FileHead, Format, JsonRecord, JsonSource, Problem, WholeFile

if TYPE_CHECKING:
    from journeyman.tracing.otel.wire import RawSpan, SpanBatch

_NAMES = frozenset({"resourceSpans", "resource_spans", "resourceLogs", "resource_logs"})
_START = 4096
LARGEST = 2**30
"""Bytes of a file of protobuf, which can only be read whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanFiles:
    """What files held."""

    traces: tuple[Trace, ...]
    """Oldest first, each once."""
    problems: tuple[Problem, ...]
    """Every place that could not be read."""
    spans: int
    """How many spans and log records there were, repeated ones too."""


def read_files(paths: Iterable[Path]) -> SpanFiles:
    """Read exported spans; those of one trace may stand in several files.

    Formats are known by what a file holds: OTLP as JSON (one request, JSON lines, or a list), OTLP as protobuf (one request,
    or many, each behind its length), spans as SDKs dump them; each also gzipped. What is broken is named, and what is whole
    comes in.

    Raises:
        InputError: A file cannot be opened.
        MissingExtra: The libraries of OpenTelemetry are not installed.
    """
    from journeyman.tracing.otel.read import traces, without_duplicates

    by_trace: dict[str, list[RawSpan]] = {}
    problems: list[Problem] = []
    number = 0
    for path in paths:
        for found in batches(path):
            if isinstance(found, Problem):
                problems.append(found)
                continue
            number += len(found.spans)
            for span in found.spans:
                by_trace.setdefault(span.trace_id, []).append(span)
    return SpanFiles(traces=tuple(without_duplicates(traces(by_trace))), problems=tuple(problems), spans=number)


def is_otlp(value: object) -> bool:
    """Whether a JSON value is an OTLP request, or a span of an SDK."""
    return isinstance(value, dict) and (not _NAMES.isdisjoint(value) or is_dump(value))


def batches(path: Path) -> Iterator["SpanBatch | Problem"]:
    """The requests of one file, in order."""
    with JsonSource(path) as source:
        try:
            if _is_text(source.head(_START)):
                for record in source.records():
                    yield record if isinstance(record, Problem) else _of_json(record)
            else:
                yield from _of_protobuf(path, source.whole(LARGEST))
        except InputError as error:
            yield Problem(str(path), str(error).removeprefix(f"{path} "))


def _is_text(start: bytes) -> bool:
    """JSON begins with a bracket, and has no control characters; a request in protobuf may begin like one, but has them."""
    plain = start.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
    return plain[:1] in (b"{", b"[") and not any(byte < 0x20 and byte not in b"\t\r\n" for byte in plain)


def _of_json(record: JsonRecord) -> "SpanBatch | Problem":
    from journeyman.tracing.otel.wire import of_object

    value: Any = record.value
    if not is_otlp(value):
        return Problem(record.where, "is neither an OTLP request nor a span of an SDK")
    try:
        return _checked(record.where, of_object(as_otlp([value]) if is_dump(value) else value))
    except InputError as error:
        return Problem(record.where, str(error))


def _checked(where: str, found: "SpanBatch") -> "SpanBatch | Problem":
    if found.rejected and not found.spans:
        return Problem(where, f"{found.rejected} spans have no trace id of 16 bytes and span id of 8")
    return found


def _of_protobuf(path: Path, whole: bytes) -> Iterator["SpanBatch | Problem"]:
    """One request, or else many, each behind its length."""
    from journeyman.tracing.otel.wire import of_request

    try:
        yield _checked(str(path), of_request(whole))
        return
    except InputError as error:
        why = str(error)
    for lengths in (_fixed, _varints):
        parts = lengths(whole)
        if parts:
            for number, part in enumerate(parts, 1):
                where = f"{path} message {number}"
                try:
                    yield _checked(where, of_request(part))
                except InputError as error:
                    yield Problem(where, str(error))
            return
    yield Problem(str(path), f"is no OTLP: {why}")


def _fixed(whole: bytes) -> list[bytes]:
    """Messages behind four bytes of length, big end first, as the collector's file exporter writes them; none where the lengths
    do not fit. A last message that was cut off is left out."""
    messages: list[bytes] = []
    at = 0
    while at + 4 <= len(whole):
        size = int.from_bytes(whole[at : at + 4], "big")
        if size == 0 or (at + 4 + size > len(whole) and not messages):
            return []
        messages.append(whole[at + 4 : at + 4 + size])
        at += 4 + size
    return messages


def _varints(whole: bytes) -> list[bytes]:
    """Messages behind protobuf's own varint of length."""
    messages: list[bytes] = []
    at = 0
    while at < len(whole):
        size = shift = 0
        while at < len(whole) and shift < 35:
            byte = whole[at]
            size |= (byte & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if byte < 0x80:
                break
        if size == 0 or (at + size > len(whole) and not messages):
            return []
        messages.append(whole[at : at + size])
        at += size
    return messages


def _read(paths: Sequence[Path]) -> Iterator[RecordedTrace | Problem]:
    collected = read_files(paths)
    yield from (RecordedTrace(trace=trace) for trace in collected.traces)
    yield from collected.problems


def _knows(head: FileHead) -> bool:
    if head.is_binary and not head.like_json:
        return head.path.stat().st_size <= LARGEST and _holds_protobuf(head.path)
    return head.first is not None and is_otlp(head.first.value)


def _holds_protobuf(path: Path) -> bool:
    """Whether a binary file holds spans; without the libraries for it, none does."""
    try:
        return any(not isinstance(one, Problem) and one.spans for one in batches(path))
    except MissingExtra:
        return False


# Spans as SDKs dump them, which is not OTLP: JavaScript's ReadableSpan, Python's ConsoleSpanExporter.


def is_dump(value: object) -> bool:
    """Whether a JSON value is one span of an SDK."""
    return isinstance(value, Mapping) and isinstance(value.get("attributes"), Mapping) and _context(value) is not None


def as_otlp(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The same spans as an OTLP request in JSON."""
    return {"resourceSpans": [_as_resource_spans(value) for value in values]}


def _context(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = value.get("spanContext", value.get("context", value if "traceId" in value and "id" in value else None))
    return found if isinstance(found, Mapping) else None


def _as_resource_spans(value: Mapping[str, Any]) -> dict[str, Any]:
    from journeyman.tracing.otel.wire import key_values

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
        "attributes": key_values(value.get("attributes")),
        "events": [
            {
                "name": str(event.get("name") or ""),
                "timeUnixNano": _nanoseconds(event.get("time") or event.get("timestamp")),
                "attributes": key_values(event.get("attributes")),
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
    return {"resource": {"attributes": key_values(of_resource)}, "scopeSpans": [{"scope": about, "spans": [span]}]}


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


FORMAT = Format(name="otlp", recognises=is_otlp, whole=WholeFile(knows=_knows, read=_read))
