"""What two rewards do on real calls: the documented one, with latency in milliseconds and in seconds, and the utility.

    python benchmarks/bench_reward.py DATA

Two sets with recorded successes and latencies. BFCL's simple calls: 400 each of claude-sonnet-4-5 and DeepSeek-V3.1-Terminus,
tokens and latency as recorded, prices as listed (US dollars for a million tokens). tau2-bench's airline runs: four agents, 50
tasks each, duration of the whole run and the agent's cost where it is recorded; the median stands in where it is not.
RouterArena's 809 calls each of two models have costs and no latencies: the documented reward cannot be told there, and says so.

Exits with 1 unless the documented reward in milliseconds is warned of on both sets, and the utility prefers the most accurate.
"""

import argparse
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError
from journeyman.core.policy import Outcome
from journeyman.rewards.utility import RewardReport, RunReward, Runs, Utility, WeightedSumReward, lint

PRICES = {"claude-sonnet-4-5": (3.0, 15.0), "DeepSeek-V3.1-Terminus": (0.27, 1.0)}
BFCL = {
    "claude-sonnet-4-5": ("result_claude_fix", "eval_claude_fix__claude-sonnet-4-5-20250929-FC"),
    "DeepSeek-V3.1-Terminus": ("result_deepseek", "eval_deepseek__DeepSeek-V3.1-Terminus-FC"),
}
TAU2 = {
    "button": "button-claude-opus-4-6_distyl-ai_2026-03-04/airline.json.gz",
    "toolorchestra": "toolorchestra_nvidia_2025-12-02/toolorchestra_airline_gpt-5_1trial.json.gz",
    "gpt-oss-120b": "gpt-oss-120b_openai_2025-11-26/langchain_agent_airline_2025-11-26_00-37-06.json.gz",
    "claude-sonnet-4-5": "claude-sonnet-4-5_aide-platform_2025-10-31/claude-sonnet-4-5_airline_default_gpt4.1_1trials.json.gz",
}


def lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def bfcl(data: Path) -> Runs:
    calls = []
    for name, (results, verdicts) in BFCL.items():
        folder = data / "bfcl" / "v4_runs_pr"
        wrong = {row["id"] for row in lines(folder / f"{verdicts}__non_live__BFCL_v4_simple_python_score.jsonl.gz")[1:]}
        for row in lines(folder / f"{results}__BFCL_v4_simple_python_result.jsonl.gz"):
            price = PRICES[name]
            cost = (row["input_token_count"] * price[0] + row["output_token_count"] * price[1]) / 1e6
            calls.append((name, Outcome(success=float(row["id"] not in wrong), cost=cost, seconds=row["latency"])))
    return Runs.of(calls)


def tau2(data: Path) -> Runs:
    calls = []
    for name, path in TAU2.items():
        with gzip.open(data / "tau2-bench" / "submissions" / path, "rt") as file:
            for run in json.load(file)["simulations"]:
                success = (run.get("reward_info") or {}).get("reward")
                calls.append((name, Outcome(success=success, cost=run.get("agent_cost"), seconds=run["duration"])))
    return Runs.of(calls)


def arena(data: Path) -> Runs:
    rows = lines(data / "routerarena_sub10" / "rows.jsonl.gz")
    return Runs.of((row["model"], Outcome(success=row["score"], cost=row["cost"])) for row in rows)


def told(report: RewardReport) -> str:
    terms = ", ".join(f"{share.term} {share.mean:+.4f} ({share.share:.0%}, r² {share.r2 or 0:.3f})" for share in report.shares)
    with_accuracy = "" if report.with_accuracy is None else f"{report.with_accuracy:+.2f}"
    with_speed = "" if report.with_speed is None else f"{report.with_speed:+.2f}"
    preferred = f"{report.preferred} ({report.accuracy[report.preferred]:.3f})"
    best = f"{report.most_accurate} ({report.accuracy[report.most_accurate]:.3f})"
    return f"{report.runs} | {terms} | {with_accuracy} | {with_speed} | {preferred} | {best} | {len(report.warnings)}"


def rewards(runs: Runs) -> Sequence[tuple[str, RunReward]]:
    utility = Utility.of(runs)
    return (
        ("documented, ms", WeightedSumReward()),
        ("documented, s", WeightedSumReward(gamma_latency=1e-5)),
        ("utility", utility),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    print("| set | reward | runs | mean of each term (share, r²) | with accuracy | with speed | prefers | best | warnings |")
    print("|---" * 9 + "|")
    kept = True
    for name, runs in (("BFCL", bfcl(data)), ("tau2 airline", tau2(data)), ("RouterArena", arena(data))):
        for kind, reward in rewards(runs):
            try:
                report = lint(reward, runs)
            except InputError as error:
                print(f"| {name} | {kind} | {error} | | | | | | |")
                kept &= name == "RouterArena"
                continue
            print(f"| {name} | {kind} | {told(report)} |")
            for warning in report.warnings:
                print(f"|  |  | | {warning} | | | | | |")
            kept &= kind != "documented, ms" or bool(report.warnings)
            kept &= kind != "utility" or report.preferred == report.most_accurate
    print(f"\ntargets kept: {'yes' if kept else 'NO'}")
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
