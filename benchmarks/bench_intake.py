"""What it costs to keep what was watched, beside the bare writing of the same bytes, measured in the same run.

    python benchmarks/bench_intake.py            # a table
    python benchmarks/bench_intake.py --json     # one object

Exchanges are chats of about 2 kB, each a conversation of its own, handed over by one thread as fast as can be kept; all that is
done to them is counted: reading, joining, price, redaction, and the store (SQLite in a temporary file). Spans come in requests
of 50, each acknowledged when it is on disk, and are made into traces beside it. CPU is that of the whole process. The bare rows
are one `insert` of the same bytes for each, 50 in a transaction.
"""

import argparse
import json
import resource
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from journeyman.experiments.settings import RecordSettings
from journeyman.serving.ingest.factory import open_intake
from journeyman.serving.ingest.writer import StoreIntake
from journeyman.stores.traces.base import SpanRow
from journeyman.tracing.otel import wire
from journeyman.tracing.redaction import Redactor
from journeyman.tracing.wire.dialects import Dialect, Exchange

Row = dict[str, float | None]

AT = datetime(2026, 1, 2, tzinfo=UTC)
SENTENCE = "The customer asks whether the order of three blue mugs can be delivered to Oslo by the fifth of March. "
EXCHANGE_LIMIT = 0.4
"""Milliseconds of CPU for an exchange, all in."""
REDACT_LIMIT = 20.0
"""Microseconds for two thousand characters of ordinary text."""


def exchange(number: int) -> Exchange:
    said = [{"role": "system", "content": SENTENCE * 5}, {"role": "user", "content": f"{number}: {SENTENCE * 4}"}]
    answer = {
        "id": f"chatcmpl-{number}",
        "model": "gpt-4o-mini",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": SENTENCE * 5}}],
        "usage": {"prompt_tokens": 250, "completion_tokens": 130},
    }
    return Exchange(
        id=f"x{number}",
        dialect=Dialect.CHAT,
        request=json.dumps({"model": "gpt-4o-mini", "messages": said, "temperature": 0.2}).encode(),
        response=json.dumps(answer).encode(),
        status=200,
        started_at=AT + timedelta(seconds=number),
        first_byte_seconds=0.1,
        seconds=0.5,
        base_url="https://api.openai.com/v1",
    )


def request(number: int, size: int) -> list[SpanRow]:
    """Spans of five traces."""
    began = 1_767_312_000_000_000_000 + number * 10**9
    told = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": SENTENCE * 3}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": SENTENCE * 3}]}]),
    }
    spans = [
        {
            "traceId": f"{number * 5 + span % 5 + 1:032x}",
            "spanId": f"{number * size + span + 1:016x}",
            "name": "chat gpt-4o-mini",
            "startTimeUnixNano": str(began + span * 10**6),
            "endTimeUnixNano": str(began + span * 10**6 + 500_000),
            "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in told.items()],
        }
        for span in range(size)
    ]
    resource_ = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    body = json.dumps({"resourceSpans": [{"resource": resource_, "scopeSpans": [{"scope": {"name": "s"}, "spans": spans}]}]})
    found = wire.spans(body.encode(), wire.JSON).spans
    return [SpanRow(trace_id=e.trace_id, span_id=e.span_id, at=e.at, body=e.body, scope=e.scope) for e in found]


def timed(do: Callable[[], object]) -> tuple[float, float]:
    """Seconds of CPU, and by the clock."""
    cpu, wall = time.process_time(), time.perf_counter()
    do()
    return time.process_time() - cpu, time.perf_counter() - wall


def offered(intake: StoreIntake, exchanges: list[Exchange]) -> None:
    for each in exchanges:
        # As fast as it goes, but not faster than can be kept: nothing may be dropped.
        while intake.health().waiting > 5000:
            time.sleep(0.01)
        intake.submit(each)
    assert intake.flush(600)
    assert intake.health().dropped == 0


def sent(intake: StoreIntake, requests: list[list[SpanRow]]) -> None:
    futures = []
    for rows in requests:
        futures.append(intake.spans(rows))
        if len(futures) >= 8:
            futures.pop(0).result(60)
    for future in futures:
        future.result(60)


def bare(bodies: list[bytes], file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table row (id integer primary key, body blob)")
        for start in range(0, len(bodies), 50):
            connection.execute("begin immediate")
            connection.executemany("insert into row (body) values (?)", [(body,) for body in bodies[start : start + 50]])
            connection.execute("commit")


def exchanges(count: int, folder: Path) -> Row:
    made = [exchange(number) for number in range(count + 200)]
    with closing(open_intake(f"sqlite:///{folder / 'exchanges.db'}", folder / "spill", RecordSettings())) as intake:
        # The first ones pay for loading the list of prices.
        offered(intake, made[:200])
        cpu, wall = timed(lambda: offered(intake, made[200:]))
    floor, _ = timed(lambda: bare([each.request + each.response for each in made[200:]], folder / "bare.db"))
    return {
        "exchanges": count,
        "ms_cpu": cpu / count * 1000,
        "per_second": count / wall,
        "in_bare_inserts": cpu / floor,
        "limit_ms": EXCHANGE_LIMIT,
    }


def spans(count: int, folder: Path) -> Row:
    requests = [request(number, 50) for number in range(count // 50)]
    with closing(open_intake(f"sqlite:///{folder / 'spans.db'}", folder / "spill", RecordSettings())) as intake:
        intake.flush(60)
        stored, wall = timed(lambda: sent(intake, requests))
        digest, rest = timed(lambda: intake.flush(600))
    floor, _ = timed(lambda: bare([row.body for rows in requests for row in rows], folder / "bare-spans.db"))
    return {
        "spans": count,
        "acknowledged_per_second": count / wall,
        "with_traces_per_second": count / (wall + rest),
        "ms_cpu": (stored + digest) / count * 1000,
        "in_bare_inserts": (stored + digest) / floor,
    }


def redaction() -> Row:
    redactor = Redactor()
    text = (SENTENCE * 20)[:2000]
    body = json.dumps({"messages": [{"role": "user", "content": text[:1800]}], "max_tokens": 100}).encode()
    times = 2000
    tries: dict[str, Callable[[], object]] = {
        "text_us": lambda: redactor.text(text),
        "bytes_us": lambda: redactor.bytes(body),
        "suspects_us": lambda: redactor.suspects(body),
        "lower_us": lambda: text.lower(),
    }

    def best(do: Callable[[], object]) -> float:
        return min(timed(lambda: [do() for _ in range(times)])[0] for _ in range(5)) / times * 1e6

    return {"limit_us": REDACT_LIMIT, **{name: best(do) for name, do in tries.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--exchanges", type=int, default=5000)
    parser.add_argument("--spans", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found: dict[str, Row] = {
            "redaction": redaction(),
            "exchanges": exchanges(options.exchanges, folder),
            "spans": spans(options.spans, folder),
            "memory": {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024},
        }
    if options.json:
        print(json.dumps(found))
        return
    for part, row in found.items():
        print(part, *(f"{name} {value:,.3f}" for name, value in row.items() if value is not None), sep="\n    ")


if __name__ == "__main__":
    main()
