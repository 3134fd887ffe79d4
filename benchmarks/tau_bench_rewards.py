"""What the rewards say of tau-bench's recorded runs, beside what tau-bench itself said of them.

    python benchmarks/tau_bench_rewards.py --data DIR [--json]

For each reward: how many runs it could tell about, its mean, and its point-biserial correlation with the recorded reward, with
a 95 % percentile interval by resampling tasks (the attempts at one task are not independent). Where a reward is the same for
all runs there is no correlation.
"""

import argparse
import gzip
import json
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from journeyman.rewards.base import RewardFunction
from journeyman.rewards.static import Goal, TaskCompletionReward, ToolSuccessReward
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.jsonl import parse
from journeyman.tracing.importers.tau_bench import CHANGES

FILES = ("gpt-4o-airline.json.gz", "fork_grok-3_retail_composite_reward.json.gz")
RESAMPLES = 5000

Row = dict[str, Any]
Floats = NDArray[np.float64]


def read(path: Path) -> list[RecordedTrace]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [parse(row, name=f"{path.name}:{number}") for number, row in enumerate(json.load(file))]


def correlation(pairs: Floats) -> float:
    """Of two columns; NaN where one of them is constant."""
    ours, theirs = pairs[:, 0] - pairs[:, 0].mean(), pairs[:, 1] - pairs[:, 1].mean()
    spread = float(np.sqrt((ours @ ours) * (theirs @ theirs)))
    return float(ours @ theirs) / spread if spread > 1e-12 else float("nan")


def measured(name: str, reward: RewardFunction, runs: Sequence[RecordedTrace], seed: int = 0) -> Row:
    """One line of the table."""
    by_task: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for run in runs:
        score = reward.compute(run.trace).score
        if score is not None and run.reward is not None:
            by_task[run.trace.task_id].append((score, run.reward))
    groups = [np.asarray(group) for group in by_task.values()]
    pairs = np.concatenate(groups)
    rng = np.random.default_rng(seed)
    resampled = [
        correlation(np.concatenate([groups[i] for i in rng.integers(len(groups), size=len(groups))])) for _ in range(RESAMPLES)
    ]
    found = correlation(pairs)
    low, high = np.nanquantile(resampled, [0.025, 0.975])
    known = not np.isnan(found)
    return {
        "reward": name,
        "runs": len(pairs),
        "mean": float(pairs[:, 0].mean()),
        "correlation": found if known else None,
        "low": float(low) if known else None,
        "high": float(high) if known else None,
    }


def line(row: Row) -> str:
    within = "none" if row["correlation"] is None else f"{row['correlation']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f})"
    return f"  {row['reward']:30} {row['runs']:4} runs  mean {row['mean']:.3f}  r {within}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default=os.environ.get("JOURNEYMAN_DATA", ""), required=not os.environ.get("JOURNEYMAN_DATA"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for file in FILES:
        runs = read(Path(options.data) / "tau-bench" / file)
        goals = {run.trace.task_id: Goal(calls=run.goal, only=CHANGES) for run in runs}
        rewards: dict[str, RewardFunction] = {
            "tool_success": ToolSuccessReward(),
            "tool_success, nothing mended": ToolSuccessReward(mending=False),
            "task_completion": TaskCompletionReward(),
            "task_completion, goals known": TaskCompletionReward(goals=goals),
        }
        rows = [measured(name, reward, runs) for name, reward in rewards.items()]
        if options.json:
            print(json.dumps({"file": file, "runs": len(runs), "rewards": rows}))
            continue
        print(f"{file}: {len(runs)} runs")
        for row in rows:
            print(line(row))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
