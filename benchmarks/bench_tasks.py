"""What tasks cost that are made of packages, and how many of the candidates become some.

    python -m benchmarks.bench_tasks
    python -m benchmarks.bench_tasks --packages toolz --categories bug_fix --count 100 --json

Downloads the sources with pip (by name and version) into a folder. CPU seconds are those of all that ran behind the walls
and of this process; making the environment is told apart. Budget: 100 bug tasks of toolz in 240 CPU seconds, and 75 % of the
candidates of each of four packages valid.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.honest_packages import PACKAGES, fetched
from journeyman.core import registry
from journeyman.experiments.task_generation.generate import EnvironmentOptions, generate, prepare
from journeyman.rewards.repository.suite import TIMES

NAMES = ("toolz", "more-itertools", "cachetools", "boltons")
NEEDS: Mapping[str, tuple[str, ...]] = {"boltons": ("pytest<9",)}
"""Its conftest.py is for pytest of before."""
BUDGET_SECONDS, BUDGET_YIELD = 240.0, 0.75


async def measured(source: Path, name: str, wanted: Mapping[str, int], folder: Path) -> dict[str, Any]:
    began = time.process_time()
    subject = await prepare(source, EnvironmentOptions(folder=folder / "environments", extra=NEEDS.get(name, ())))
    prepared = TIMES * subject.suite.cpu_seconds + time.process_time() - began
    rows = {}
    for category, count in wanted.items():
        began = time.process_time()
        found = (await generate(subject, {category: count}, folder / f"{name}-{category}.jsonl"))[category]
        seconds = found.cpu_seconds + time.process_time() - began
        each = {"cpu_seconds": round(seconds, 1), "cpu_seconds_a_task": round(seconds / max(1, len(found.tasks)), 2)}
        rows[category] = {**found.as_json(), "yield": round(len(found.tasks) / max(1, found.tried), 3), **each}
    return {"tests": len(subject.suite.passing), "environment_cpu_seconds": round(prepared, 1), **rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", default=",".join(NAMES))
    parser.add_argument("--categories", default="bug_fix", help="names, or all")
    parser.add_argument("--count", type=int, default=100, help="of each category")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "journeyman-packages")
    parser.add_argument("--out", type=Path, help="a folder in which the files of tasks stay")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    names = registry.names("generators") if arguments.categories == "all" else tuple(arguments.categories.split(","))
    arguments.cache.mkdir(parents=True, exist_ok=True)
    results, kept = {}, True
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for package in (each for each in PACKAGES if each.name in arguments.packages.split(",")):
            source = fetched(package, arguments.cache)
            found = asyncio.run(measured(source, package.name, dict.fromkeys(names, arguments.count), folder))
            results[package.name] = found
            if not arguments.json:
                print(package.name, json.dumps(found))
            if bug := found.get("bug_fix"):
                kept &= bug["yield"] >= BUDGET_YIELD
                kept &= package.name != "toolz" or bug["cpu_seconds"] * 100 / max(1, bug["made"]) <= BUDGET_SECONDS
    print(
        json.dumps({"results": results, "within_budget": kept}) if arguments.json else f"budget {'kept' if kept else 'missed'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
