"""What keeping traces and raw spans costs, beside the bare database writing the same bytes in the same run.

    python benchmarks/bench_trace_store.py                    # a table
    python benchmarks/bench_trace_store.py --json             # one object
    python benchmarks/bench_trace_store.py --spans 100000 --traces 100000

Spans have a body of about 1.5 kB and come in batches of 500, ten of a trace; traces are as the gateway records them: one or two
steps, a system prompt of 3 kB that twenty agents share, in batches of 100. The floor of both is `sqlite3.executemany` of the
same bodies into one table with a unique key, as often committed and synced. `added` is CPU time of the process; on a busy
machine look at the ratios. Then 100 traces' spans are read out of all of them (the median of 20 times).
"""

import argparse
import json
import os
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from journeyman.core.trace import Message, ModelCall, ToolCall, Trace, spoken
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import SpanRow, TraceStore

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)
Row = dict[str, Any]
T = TypeVar("T")


def words(rng: random.Random, known: Sequence[str], size: int) -> str:
    said: list[str] = []
    while size > 0:
        said.append(rng.choice(known))
        size -= len(said[-1]) + 1
    return " ".join(said)


def vocabulary(rng: random.Random) -> Sequence[str]:
    return ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(3000)]


def spans(rng: random.Random, count: int) -> Sequence[SpanRow]:
    known = vocabulary(rng)
    bodies = [
        json.dumps({"name": "chat", "input": words(rng, known, 800), "output": words(rng, known, 600)}).encode()
        for _ in range(1000)
    ]
    ids = [rng.randbytes(16).hex() for _ in range(max(1, count // 10))]
    rows = [
        SpanRow(
            trace_id=ids[number // 10],
            span_id=rng.randbytes(8).hex(),
            at=NOON + timedelta(milliseconds=number),
            body=rng.choice(bodies),
            scope=b'{"service.name": "bench"}',
        )
        for number in range(count)
    ]
    # Traces run side by side, so that their spans lie apart.
    for begin in range(0, count, 1000):
        part = rows[begin : begin + 1000]
        rng.shuffle(part)
        rows[begin : begin + 1000] = part
    return rows


def traces(rng: random.Random, count: int) -> Iterator[Trace]:
    known = vocabulary(rng)
    system = [words(rng, known, 3000) for _ in range(20)]
    said = [words(rng, known, 400) for _ in range(1000)]
    for number in range(count):
        at, messages = NOON + timedelta(seconds=number), (("system", rng.choice(system)), ("user", rng.choice(said)))
        new = tuple(Message(role=role, text=text) for role, text in messages)
        call = ModelCall(
            model=rng.choice(["gpt-5-mini", "claude-sonnet-4-5"]),
            prompt=spoken(new),
            reply=rng.choice(said),
            messages=new,
            input_tokens=700,
            output_tokens=100,
            cost=0.001,
            started_at=at,
            seconds=1.5,
            finish="stop",
            response_id=f"chatcmpl-{rng.getrandbits(64):x}",
            id="call",
            raw={"temperature": 0.7, "path": "/v1/chat/completions", "max_tokens": 512},
        )
        tool = ToolCall(
            tool="get_weather", arguments='{"city":"Oslo"}', result=rng.choice(said)[:150], id="tool", parent="call"
        )
        steps = (call, tool) if number % 2 else (call,)
        id = f"{rng.getrandbits(128):032x}"
        yield Trace(
            id=id,
            task_id="",
            candidate_id="base",
            started_at=at,
            ended_at=at,
            steps=steps,
            agent="bot",
            session=f"s{number // 5}",
            source="gateway",
        )


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[begin : begin + size] for begin in range(0, len(items), size))


def timed(count: int, work: Callable[[], object]) -> Row:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"per_second": count / wall, "microseconds_cpu": cpu / count * 1e6}


def floor(file: Path, bodies: Sequence[tuple[str, bytes]], size: int) -> Row:
    """The same bytes straight into SQLite."""
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("pragma journal_mode = wal")
    db.execute("pragma synchronous = full")
    db.execute("create table bare (seq integer primary key, id text unique, body blob)")

    def write() -> None:
        for batch in batches(bodies, size):
            db.execute("begin immediate")
            db.executemany("insert or ignore into bare (id, body) values (?, ?)", batch)
            db.execute("commit")

    try:
        return timed(len(bodies), write)
    finally:
        db.close()


def add_spans(store: TraceStore, rows: Sequence[SpanRow]) -> None:
    for batch in batches(rows, 500):
        store.add_spans(batch)


def of_spans(store: TraceStore, folder: Path, rng: random.Random, count: int) -> Row:
    rows = spans(rng, count)
    bare = floor(folder / "bare-spans.db", [(row.trace_id + row.span_id, row.body) for row in rows], 500)
    added = timed(count, lambda: add_spans(store, rows))
    ids = list({row.trace_id for row in rows})
    wall, cpu = [], []
    for _ in range(20):
        asked = rng.sample(ids, min(100, len(ids)))
        began = time.perf_counter(), time.process_time()
        found = store.spans(asked)
        wall.append((time.perf_counter() - began[0]) * 1e3)
        cpu.append((time.process_time() - began[1]) * 1e3)
        assert sum(map(len, found.values())) == 10 * len(asked)
    read = {"milliseconds": statistics.median(wall), "milliseconds_cpu": statistics.median(cpu)}
    return {"added": added, "floor": bare, "read_100_traces": read}


def of_traces(store: TraceStore, folder: Path, rng: random.Random, count: int) -> Row:
    rows = list(traces(rng, count))
    bodies = [(row.id, repr(row).encode()) for row in rows]
    bare = floor(folder / "bare-traces.db", bodies, 100)
    added = timed(count, lambda: [store.add(batch) for batch in batches(rows, 100)])
    again = timed(count, lambda: [store.add(batch) for batch in batches(rows[: count // 5], 100)])
    return {"added": added, "floor": bare, "added_again": {**again, "microseconds_cpu": again["microseconds_cpu"] * 5}}


def measure(spans_: int, traces_: int, url: str | None) -> Row:
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_traces(url or folder / "traces.db") as store:
            found = {"spans": of_spans(store, folder, rng, spans_), "traces": of_traces(store, folder, rng, traces_)}
        return {**found, "megabytes": sum(file.stat().st_size for file in folder.glob("traces.db*")) / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=20_000)
    parser.add_argument("--traces", type=int, default=5_000)
    parser.add_argument("--url", help="another store, for example postgresql://…; it is written to")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = measure(asked.spans, asked.traces, asked.url)
    if asked.json:
        print(json.dumps(found))
        return
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for kind in ("spans", "traces"):
        added, bare = found[kind]["added"], found[kind]["floor"]
        ratio = added["microseconds_cpu"] / bare["microseconds_cpu"]
        print(f"{kind}: {added['per_second']:,.0f}/s, {added['microseconds_cpu']:.0f} µs CPU each")
        print(f"  bare database: {bare['per_second']:,.0f}/s, {bare['microseconds_cpu']:.0f} µs CPU each: 1 to {ratio:.1f}")
    read = found["spans"]["read_100_traces"]
    print(f"spans of 100 traces: {read['milliseconds']:.1f} ms, {read['milliseconds_cpu']:.1f} ms CPU")
    print(f"traces that are there already: {found['traces']['added_again']['microseconds_cpu']:.0f} µs CPU each")
    print(f"{found['megabytes']:.0f} MB")


if __name__ == "__main__":
    main()
