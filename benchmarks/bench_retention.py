"""What deleting a month costs on PostgreSQL: as `journeyman traces prune` does it, and as dropping a partition would.

    python -m benchmarks.bench_retention
    python -m benchmarks.bench_retention --traces 5000 --spans 50000 --json

Half of the traces and spans are of one month, half of the next. The first is deleted by the store, row by row; then the same
span bodies lie in a table partitioned by month, and one partition is detached and dropped. Debian's PostgreSQL with fsync off,
so the seconds are of its work and not of a disk. What a row takes on disk is told with its indexes.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.bench_trace_store import NOON, batches, spans, traces
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Pruned
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


def measured(url: str, trace_count: int, span_count: int) -> dict[str, float]:
    rng = random.Random(0)
    half = span_count // 2
    rows = [row._replace(at=row.at + (LATER if at >= half else timedelta())) for at, row in enumerate(spans(rng, span_count))]
    # Spans of a trace lie in one month.
    first = {row.trace_id for row in rows[:half]}
    rows = [row._replace(at=NOON + (timedelta() if row.trace_id in first else LATER)) for row in rows]
    made = [
        replace(each, started_at=each.started_at.replace(month=3 + at % 2, day=5), ended_at=None)
        for at, each in enumerate(traces(rng, trace_count))
    ]

    def add_all() -> None:
        for batch in batches(rows, 500):
            store.add_spans(batch)

    with open_traces(url) as store, psycopg.connect(url, autocommit=True) as connection:
        adding_spans = timed(add_all)
        span_bytes = size(connection, "spans", "span_traces")
        adding = timed(lambda: [store.add(batch) for batch in batches(made, 100)])
        # All that traces lie in: the texts, the full text, what is counted.
        trace_bytes = connection.execute("select pg_database_size(current_database())").fetchone()[0] - span_bytes  # type: ignore[index]
        gone: list[Pruned] = []
        pruning = timed(lambda: gone.append(store.prune(before=CUT, keep_labelled=False)))
        connection.execute(_PARTED)
        with connection.cursor().copy("copy parted (trace, span_id, at, body) from stdin") as copy:
            for row in rows:
                copy.write_row([row.trace_id, row.span_id, row.at, row.body])
        dropping = timed(lambda: connection.execute("alter table parted detach partition parted_1; drop table parted_1"))
        kept = connection.execute("select count(*) from parted").fetchone()[0]  # type: ignore[index]
    found = gone[0]
    return {
        "span_add_us": adding_spans / span_count * 1e6,
        "trace_add_us": adding / trace_count * 1e6,
        "span_bytes": span_bytes / span_count,
        "trace_bytes": trace_bytes / trace_count,
        "pruned_traces": found.traces,
        "pruned_spans": found.spans,
        "prune_seconds": pruning,
        "prune_us_a_row": pruning / max(1, found.traces + found.spans) * 1e6,
        "drop_partition_seconds": dropping,
        "left_in_the_other_month": kept,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--traces", type=int, default=4000)
    parser.add_argument("--spans", type=int, default=40_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with postgres.cluster(Path(folder) / "cluster") as cluster, cluster.database() as url:
            found = measured(url, options.traces, options.spans)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:26} {value:12.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
