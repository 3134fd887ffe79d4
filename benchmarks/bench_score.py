"""How many recorded traces the static rewards score in a second of one core.

    python benchmarks/bench_score.py                        # a table
    python benchmarks/bench_score.py --traces 2000 --json   # one object
    python benchmarks/bench_score.py --data DIR             # all of tau-bench's recorded airline runs instead of four

Recorded runs are read once and replicated to 10,000, each with an id of its own. Timed is CPU, in one process, of `score_all`:
with the rewards alone, as groups of attempts at one task, with a new cache, and with a full one. A cache saves what costs more
than itself, such as running code; the static rewards are cheaper than their cache. Budget: 2,000 traces a second and core.
Reading the file is shown for comparison.
"""

import argparse
import gzip
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from journeyman import rewards
from journeyman.core.trace import ToolCall, Trace
from journeyman.experiments.scoring import ScoreCache, read_traces, score_all
from journeyman.rewards.engine import RewardEngine

BUDGET = 2000.0
SAMPLE = Path(__file__).parents[1] / "tests" / "data" / "tau-bench" / "gpt-4o-airline-sample.jsonl"


def source(data: str, folder: Path) -> Path:
    """The file of recorded runs."""
    if not data:
        return SAMPLE
    with gzip.open(Path(data) / "tau-bench" / "gpt-4o-airline.json.gz", "rt", encoding="utf-8") as file:
        rows = json.load(file)
    written = folder / "runs.jsonl"
    written.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return written


def replicated(recorded: list[Trace], number: int) -> list[Trace]:
    """So many traces, each attempt four times at a task of its own."""
    rounds = range(-(-number // len(recorded)))
    made = [replace(t, id=f"{t.id}/{n}", task_id=f"{t.task_id}/{n // 4}") for n in rounds for t in recorded]
    return made[:number]


def rate(number: int, work: Callable[[], Any]) -> float:
    """Traces in a second of CPU."""
    began = time.process_time()
    work()
    return number / (time.process_time() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--traces", type=int, default=10_000)
    parser.add_argument("--data", default=os.environ.get("JOURNEYMAN_DATA", ""))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    engine = RewardEngine([rewards.load(name) for name in rewards.STATIC])
    with tempfile.TemporaryDirectory() as folder:
        file = source(options.data, Path(folder))
        recorded = [run.trace for run in read_traces([file])]
        traces = replicated(recorded, options.traces)
        cache = ScoreCache(Path(folder) / "scores.db")
        found = {
            "read": rate(len(recorded), lambda: read_traces([file])),
            "scored": rate(len(traces), lambda: score_all(traces, engine)),
            "scored by task": rate(len(traces), lambda: score_all(traces, engine, by_task=True)),
            "scored, new cache": rate(len(traces), lambda: score_all(traces, engine, cache=cache)),
            "from a full cache": rate(len(traces), lambda: score_all(traces, engine, cache=cache)),
        }
        cache.close()
    within = found["scored"] >= BUDGET
    tools = sum(isinstance(step, ToolCall) for trace in recorded for step in trace.steps) / len(recorded)
    if options.json:
        print(json.dumps({"traces": len(traces), "a_second_and_core": found, "budget": BUDGET, "passed": within}))
        return 0 if within else 1
    print(f"{len(traces)} traces from {len(recorded)} recorded ones, {tools:.1f} tool calls each; traces a second and core:")
    for name, value in found.items():
        print(f"{name:20} {value:9,.0f}")
    print(f"budget of {BUDGET:,.0f}: {'kept' if within else 'broken'}")
    return 0 if within else 1


if __name__ == "__main__":
    raise SystemExit(main())
