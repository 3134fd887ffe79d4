"""One trace's spans as plain values: attributes, events, and the log records that belong to them."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from journeyman.tracing.otel.wire import LOG, AnyValue, KeyValue, LogRecord, ResourceSpans, moment
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
