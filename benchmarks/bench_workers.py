"""How much sooner two workers are done than one process, and whether a killed one costs anything but time.

    python -m benchmarks.bench_workers
    python -m benchmarks.bench_workers --workers local:2 --items 200 --json

Recorded runs are scored with the static rewards, some of them many times over, by this process and by two workers: of this
machine, of Ray, of PostgreSQL (two `journeyman worker run`). Each is begun and asked once before the clock runs. What is told
is the ratio of the wall-clock times in one run, and whether the verdicts have the same digest. It needs two idle cores.
"""

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.bench_score import SAMPLE, replicated
from journeyman import rewards
from journeyman.core.trace import Trace
from journeyman.experiments.scoring import read_traces, reports, score_all
from journeyman.io import executors
from journeyman.rewards.engine import RewardEngine
from tests.support import jobs, postgres

BAR = 1.6
TIMES = 3


@contextmanager
def workers(name: str) -> Iterator[executors.Workers]:
    if name != "postgres":
        with executors.load(name) as pool:
            yield pool
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with (
            postgres.cluster(Path(folder) / "cluster") as cluster,
            cluster.database() as url,
            jobs.worker(url, "--processes", "1"),
            jobs.worker(url, "--processes", "1"),
            executors.load(f"postgres:{url}") as pool,
        ):
            yield pool


def scored(traces: list[Trace], pool: executors.Workers | None) -> tuple[float, str]:
    """Seconds, and the digest of the verdicts."""
    engine = RewardEngine([rewards.load(name) for name in rewards.STATIC])
    began = time.perf_counter()
    found = score_all(traces, engine, workers=pool, by_task=True)
    seconds = time.perf_counter() - began
    rows = json.dumps(list(reports(traces, found, engine)), sort_keys=True)
    return seconds, hashlib.sha256(rows.encode()).hexdigest()[:16]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", default="local:2,ray,postgres")
    parser.add_argument("--items", type=int, default=4000, help="traces")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    traces = replicated([run.trace for run in read_traces([SAMPLE])], options.items)
    rows: list[dict[str, Any]] = []
    for name in options.workers.split(","):
        with workers(name) as pool:
            scored(traces[:64], pool)
            alone, there = zip(*((scored(traces, None), scored(traces, pool)) for _ in range(TIMES)), strict=True)
        rows.append(
            {
                "workers": name,
                "here": min(seconds for seconds, _ in alone),
                "there": min(seconds for seconds, _ in there),
                "ratio": min(seconds for seconds, _ in alone) / min(seconds for seconds, _ in there),
                "same": len({digest for _, digest in (*alone, *there)}) == 1,
            }
        )
    if options.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            times = f"here {row['here']:.2f} s, there {row['there']:.2f} s: {row['ratio']:.2f}x"
            print(f"{row['workers']:10} {times}, same {row['same']}")
    return 0 if all(row["same"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
