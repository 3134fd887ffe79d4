"""Recorded files as the traces that are read from them, written out whole: what must not change while the code that reads them
does."""

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from journeyman.core.errors import TraceError
from journeyman.core.trace import Trace
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers import finetuning, jsonl
from journeyman.tracing.importers.reading import read
from journeyman.tracing.wire.assembler import ConversationAssembler
from journeyman.tracing.wire.dialects import Dialect, Exchange

_DIALECTS = {
    "/chat/completions": Dialect.CHAT,
    "/responses": Dialect.RESPONSES,
    "/embeddings": Dialect.EMBEDDINGS,
    "/messages": Dialect.MESSAGES,
}
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def of_file(path: Path, name: str) -> Iterator[str]:
    """Every trace and problem of a file, a line each, and the fine-tuning lines of each trace below it."""
    for found in read(path):
        if isinstance(found, RecordedTrace):
            where = found.where.replace(str(path), name)
            told = {"reward": found.reward, "goal": found.goal, "name": found.name, "where": where, "format": found.format}
            yield json.dumps(told, sort_keys=True, default=str)
            yield from _written(found.trace)
        else:
            yield f"{found.where.replace(str(path), name)} {found.why}"


def of_line(record: Any) -> Iterator[str]:
    """A record as `jsonl` reads it: natively, as a transcript, as a run of tau-bench."""
    try:
        found = jsonl.parse(record, name="recorded")
    except TraceError as error:
        yield str(error)
        return
    yield from _written(found.trace)


def of_exchanges(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Every trace that recorded HTTP exchanges become, joined in their order."""
    joiner = ConversationAssembler(price=_price)
    traces: dict[str, Trace] = {}
    for number, row in enumerate(rows):
        given = _exchange(row, number)
        if given is not None:
            trace = joiner.join(given)
            traces[trace.id] = trace
    for trace in traces.values():
        yield from _written(trace)


def _price(server: str, model: str, usage: Any) -> float:
    """A number that differs wherever one of the counts does."""
    return sum(factor * (count or 0) for factor, count in zip((1, 10, 100, 1000), usage, strict=True)) / 7


def _written(trace: Trace) -> Iterator[str]:
    yield jsonl.line(trace)
    losses = finetuning.Losses()
    yield from finetuning.lines(trace, losses)
    yield from losses


def _exchange(row: dict[str, Any], number: int) -> Exchange | None:
    path = urlparse(row["uri"]).path
    dialect = next((dialect for end, dialect in _DIALECTS.items() if path.endswith(end)), None)
    if dialect is None or row["method"].upper() != "POST" or "/threads/" in path:
        return None
    return Exchange(
        id=f"exchange-{number}",
        dialect=dialect,
        request=(row["request_body"] or "").encode(),
        response=(row["response_body"] or "").encode(),
        status=row["status"],
        started_at=_BEGIN + timedelta(seconds=number),
        seconds=0.5,
    )


def digests(lines: Iterator[str]) -> list[str]:
    """A short digest of each line: a difference is found by its place."""
    return [hashlib.sha256(line.encode(errors="surrogatepass")).hexdigest()[:12] for line in lines]
