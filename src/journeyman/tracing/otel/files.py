"""Files of exported spans: what the collector's file exporter writes, saved requests, and what SDKs dump."""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError
from journeyman.core.trace import Trace
from journeyman.tracing.importers.source import JsonRecord, JsonSource, Problem
from journeyman.tracing.otel.dumps import as_otlp, is_dump
from journeyman.tracing.otel.read import once, traces
from journeyman.tracing.otel.wire import RawSpan, SpanBatch, of_object, of_request

LARGEST = 2**30
"""Bytes of a protobuf file, decompressed. Files of JSON lines may be of any size."""
_NAMES = ("resourceSpans", "resource_spans", "resourceLogs", "resource_logs")
_START = 4096


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
    """
    held: dict[str, list[RawSpan]] = {}
    problems: list[Problem] = []
    number = 0
    for path in paths:
        for found in batches(path):
            if isinstance(found, Problem):
                problems.append(found)
                continue
            number += len(found.spans)
            for span in found.spans:
                held.setdefault(span.trace_id, []).append(span)
    return SpanFiles(traces=tuple(once(traces(held))), problems=tuple(problems), spans=number)


class _Broken(InputError):
    """A file that can be opened, and not read to its end."""


def is_otlp(value: object) -> bool:
    """Whether a JSON value is an OTLP request, or a span of an SDK."""
    return is_dump(value) or (isinstance(value, dict) and any(isinstance(value.get(name), list) for name in _NAMES))


def batches(path: Path) -> Iterator[SpanBatch | Problem]:
    """The requests of one file, in order."""
    try:
        is_text = _is_text(path)
    except _Broken as error:
        yield Problem(str(path), str(error))
        return
    if is_text:
        with JsonSource(path) as source:
            for record in source.records():
                yield record if isinstance(record, Problem) else _of_json(record)
        return
    try:
        whole = _unpacked(path)
    except _Broken as error:
        yield Problem(str(path), str(error))
        return
    yield from _of_protobuf(path, whole)


def _of_json(record: JsonRecord) -> SpanBatch | Problem:
    value: Any = record.value
    if not is_otlp(value):
        return Problem(record.where, "is neither an OTLP request nor a span of an SDK")
    try:
        found = of_object(as_otlp([value]) if is_dump(value) else value)
    except InputError as error:
        return Problem(record.where, str(error))
    return _told(record.where, found)


def _told(where: str, found: SpanBatch) -> SpanBatch | Problem:
    if found.rejected and not found.spans:
        return Problem(where, f"{found.rejected} spans have no trace id of 16 bytes and span id of 8")
    return found


def _of_protobuf(path: Path, whole: bytes) -> Iterator[SpanBatch | Problem]:
    """One request, or else many, each behind its length."""
    try:
        yield _told(str(path), of_request(whole))
        return
    except InputError as error:
        why = str(error)
    for lengths in (_fixed, _varints):
        parts = lengths(whole)
        if parts:
            for number, part in enumerate(parts, 1):
                where = f"{path} message {number}"
                try:
                    yield _told(where, of_request(part))
                except InputError as error:
                    yield Problem(where, str(error))
            return
    yield Problem(str(path), f"is no OTLP: {why}")


def _fixed(whole: bytes) -> list[bytes]:
    """Messages behind four bytes of length, big end first, as the collector's file exporter writes them; none where the lengths
    do not fit. A last message that was cut off is left out."""
    found: list[bytes] = []
    at = 0
    while at + 4 <= len(whole):
        size = int.from_bytes(whole[at : at + 4], "big")
        if size == 0 or (at + 4 + size > len(whole) and not found):
            return []
        found.append(whole[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def _varints(whole: bytes) -> list[bytes]:
    """Messages behind protobuf's own varint of length."""
    found: list[bytes] = []
    at = 0
    while at < len(whole):
        size = shift = 0
        while at < len(whole) and shift < 35:
            byte = whole[at]
            size |= (byte & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if byte < 0x80:
                break
        if size == 0 or (at + size > len(whole) and not found):
            return []
        found.append(whole[at : at + size])
        at += size
    return found


def _is_text(path: Path) -> bool:
    """JSON begins with a bracket, and has no control characters; a request in protobuf may begin like one, but has them."""
    start = _read(path, _START)
    plain = start.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
    return plain[:1] in (b"{", b"[") and not any(byte < 0x20 and byte not in b"\t\r\n" for byte in plain)


def _unpacked(path: Path) -> bytes:
    whole = _read(path, LARGEST + 1)
    if len(whole) > LARGEST:
        raise _Broken(f"holds more than {LARGEST >> 30} GiB: export it as JSON lines, or in several files")
    return whole


def _read(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            if file.read(2) != b"\x1f\x8b":
                file.seek(0)
                return file.read(most)
        with gzip.open(path) as packed:
            return packed.read(most)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _Broken(f"is a broken archive: {error}") from None
    except OSError as error:
        raise InputError(f"{path} could not be read: {error.strerror or error}") from None
