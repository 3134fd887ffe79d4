"""What deleting a month costs: as `journeyman traces prune` does it on either store, and as dropping a partition would.

    python -m benchmarks.bench_retention
    python -m benchmarks.bench_retention --traces 400000 --spans 0 --json

Half of the traces and spans are of one month, half of the next. The first is deleted by the store, in batches; meanwhile
somebody else adds a trace every 50 ms, and the longest that this took is `longest_wait_seconds`. On PostgreSQL the same span
bodies then lie in a table partitioned by month, and one partition is detached and dropped. Debian's PostgreSQL with fsync off,
so the seconds are of its work and not of a disk. What a row takes on disk is told with its indexes.
"""

import argparse
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.bench_trace_store import NOON, batches, spans, traces
from journeyman.core.trace import Trace
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Pruned, SpanRow
from tests.support import postgres

LATER = timedelta(days=31)
CUT = datetime(2026, 4, 1, tzinfo=UTC)
_PARTED = """
create table parted (seq bigserial, trace text not null, span_id text not null, at timestamptz not null, body bytea not null,
  primary key (at, seq)) partition by range (at);
create index on parted (trace);
create table parted_1 partition of parted for values from ('2026-03-01') to ('2026-04-01');
create table parted_2 partition of parted for values from ('2026-04-01') to ('2026-05-01');
"""


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def size(connection: "psycopg.Connection[Any]", *tables: str) -> int:
    return sum(connection.execute("select pg_total_relation_size(%s)", [table]).fetchone()[0] for table in tables)  # type: ignore[index]


def a_month_and_the_next(trace_count: int, span_count: int) -> tuple[list[SpanRow], Iterator[Trace]]:
    rng = random.Random(0)
    half = span_count // 2
    rows = list(spans(rng, span_count)) if span_count else []
    # Spans of a trace lie in one month.
    first = {row.trace_id for row in rows[:half]}
    rows = [row._replace(at=NOON + (timedelta() if row.trace_id in first else LATER)) for row in rows]
    made = (
        replace(each, started_at=each.started_at.replace(month=3 + at % 2, day=5, hour=at % 24), ended_at=None)
        for at, each in enumerate(traces(rng, trace_count))
    )
    return rows, made


@contextmanager
def somebody_else(url: str) -> Iterator[list[float]]:
    """Adds a trace every 50 ms, in a thread; how long each took."""
    took, over = list[float](), threading.Event()
    made = traces(random.Random(1), 1_000_000)

    def add() -> None:
        with open_traces(url) as store:
            while not over.wait(0.05):
                took.append(timed(lambda: store.add([replace(next(made), started_at=CUT + LATER, ended_at=None)])))

    thread = threading.Thread(target=add)
    thread.start()
    yield took
    over.set()
    thread.join()


def measured(
    url: str, trace_count: int, span_count: int, weighed: Callable[[], dict[str, float]] = lambda: {}
) -> dict[str, float]:
    """The same of either store: adding, the dry run, the deletion, and how long somebody else waited."""
    rows, made = a_month_and_the_next(trace_count, span_count)
    gone: list[Pruned] = []

    def add_all() -> None:
        for batch in batches(rows, 500):
            store.add_spans(batch)

    with open_traces(url) as store:
        adding_spans = timed(add_all)
        adding = timed(lambda: [store.add(batch) for batch in iter(lambda: list(islice(made, 100)), [])])
        weight = weighed()
        looking = timed(lambda: store.prune(before=CUT, keep_labelled=False, dry_run=True))
        with somebody_else(url) as took:
            pruning = timed(lambda: gone.append(store.prune(before=CUT, keep_labelled=False)))
    found = gone[0]
    assert found.traces == trace_count // 2
    return {
        "span_add_us": adding_spans / max(1, span_count) * 1e6,
        "trace_add_us": adding / trace_count * 1e6,
        "pruned_traces": found.traces,
        "pruned_spans": found.spans,
        "dry_run_seconds": looking,
        "prune_seconds": pruning,
        "prune_us_a_row": pruning / max(1, found.traces + found.spans) * 1e6,
        "longest_wait_seconds": max(took, default=0.0),
        "added_meanwhile": len(took),
        **weight,
    }


def weight_on_postgresql(url: str, trace_count: int, span_count: int) -> dict[str, float]:
    with psycopg.connect(url, autocommit=True) as connection:
        span_bytes = size(connection, "spans", "span_traces")
        # All that traces lie in: the texts, the full text, what is counted.
        trace_bytes = connection.execute("select pg_database_size(current_database())").fetchone()[0] - span_bytes  # type: ignore[index]
    return {"span_bytes": span_bytes / max(1, span_count), "trace_bytes": trace_bytes / trace_count}


def partitions(url: str, span_count: int) -> dict[str, float]:
    """What dropping a partition of the same spans costs."""
    rows, _ = a_month_and_the_next(0, span_count)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_PARTED)
        with connection.cursor().copy("copy parted (trace, span_id, at, body) from stdin") as copy:
            for row in rows:
                copy.write_row([row.trace_id, row.span_id, row.at, row.body])
        dropping = timed(lambda: connection.execute("alter table parted detach partition parted_1; drop table parted_1"))
        kept = connection.execute("select count(*) from parted").fetchone()[0]  # type: ignore[index]
    return {"drop_partition_seconds": dropping, "left_in_the_other_month": kept}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--traces", type=int, default=4000)
    parser.add_argument("--spans", type=int, default=40_000)
    parser.add_argument("--store", nargs="+", choices=("sqlite", "postgresql"), default=["sqlite", "postgresql"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        if "sqlite" in options.store:
            found["sqlite"] = measured(f"{folder}/store.db", options.traces, options.spans)
        if "postgresql" in options.store:
            Path(folder).chmod(0o755)
            with postgres.cluster(Path(folder) / "cluster") as cluster, cluster.database() as url:
                of = url, options.traces, options.spans
                found["postgresql"] = measured(*of, lambda: weight_on_postgresql(*of)) | partitions(url, options.spans)
    if options.json:
        print(json.dumps(found))
        return 0
    for store, values in found.items():
        for name, value in values.items():
            print(f"{store:<10} {name:26} {value:12.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
