"""How much sooner two workers are done than one process, and whether a killed one costs anything but time.

    python -m benchmarks.bench_workers
    python -m benchmarks.bench_workers --workers local:2 --work code --json

Two kinds of work. `static`: recorded runs, some of them many times over, scored with the static rewards, which take less than
it takes to hand a trace over: nobody can be quicker, and nobody should be slower. `code`: replies whose code runs in the
sandbox, for about 20 ms of CPU each. Each is done by this process and by two workers: of this machine, of Ray, of PostgreSQL
(two `journeyman worker run`). All are begun and asked once before the clock runs. What is told is the ratio of the wall-clock
times in one run, and whether the verdicts have the same digest. It needs two idle cores.
"""

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.bench_score import SAMPLE, replicated
from journeyman import rewards
from journeyman.core.trace import ModelCall, Trace
from journeyman.experiments.scoring import read_traces, reports, score_all
from journeyman.io import executors
from journeyman.rewards.engine import RewardEngine
from journeyman.tracing.base import NO_TIME
from tests.support import jobs, postgres


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


def static(number: int) -> list[Trace]:
    return replicated([run.trace for run in read_traces([SAMPLE])], number)


def code(number: int) -> list[Trace]:
    """Attempts whose replies are programs, each another."""
    text = "```python\ntotal = sum(i * i for i in range({}))\nassert total\n```"
    return [
        Trace(
            id=str(at),
            task_id=str(at // 4),
            candidate_id="base",
            started_at=NO_TIME,
            steps=(ModelCall(model="m", prompt="user: Sum up", reply=text.format(250_000 + at)),),
        )
        for at in range(number)
    ]


WORK: dict[str, tuple[Callable[[int], list[Trace]], tuple[str, ...], int]] = {
    "static": (static, rewards.STATIC, 4000),
    "code": (code, rewards.DEFAULTS, 150),
}
"""What makes the traces, the rewards, and how many."""


def scored(traces: list[Trace], engine: RewardEngine, pool: executors.Workers | None) -> tuple[float, str]:
    """Seconds, and the digest of the verdicts."""
    began = time.perf_counter()
    found = score_all(traces, engine, workers=pool, by_task=True)
    seconds = time.perf_counter() - began
    rows = json.dumps(list(reports(traces, found, engine)), sort_keys=True)
    return seconds, hashlib.sha256(rows.encode()).hexdigest()[:16]


def measured(work: str, items: int | None, times: int, pool: executors.Workers) -> dict[str, Any]:
    make, names, number = WORK[work]
    traces = make(items or number)
    with closing(RewardEngine([rewards.load(name) for name in names])) as engine:
        for who in (None, pool):
            scored(traces[:8], engine, who)
        alone, there = zip(*((scored(traces, engine, None), scored(traces, engine, pool)) for _ in range(times)), strict=True)
    here_seconds, there_seconds = (min(seconds for seconds, _ in each) for each in (alone, there))
    return {
        "work": work,
        "traces": len(traces),
        "here": here_seconds,
        "there": there_seconds,
        "ratio": here_seconds / there_seconds,
        "same": len({digest for _, digest in (*alone, *there)}) == 1,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", default="local:2,ray,postgres")
    parser.add_argument("--work", choices=WORK, nargs="+", default=list(WORK))
    parser.add_argument("--items", type=int, help="traces, instead of 4,000 and 150")
    parser.add_argument("--times", type=int, default=3, help="the quickest of so many counts")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in options.workers.split(","):
        with workers(name) as pool:
            rows += [{"workers": name, **measured(work, options.items, options.times, pool)} for work in options.work]
    if options.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            times = f"here {row['here']:.2f} s, there {row['there']:.2f} s: {row['ratio']:.2f}x"
            print(f"{row['workers']:10} {row['work']:7} {row['traces']:5} {times}, same {row['same']}")
    return 0 if all(row["same"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
