"""What tasks cost that are made of packages, and how many of the candidates become some.

    python -m benchmarks.bench_tasks
    python -m benchmarks.bench_tasks --packages toolz --categories bug_fix --count 100 --json
    python -m benchmarks.bench_tasks --packages toolz --validate --load 4
    python -m benchmarks.bench_tasks --packages toolz --categories performance --count 5 --repeats 20 --load 0 --load 16
    python -m benchmarks.bench_tasks --history ../more-itertools --count 60

`--validate` tries each kind of cheat on every task, and the reference three times, while as many processes as `--load` says
compute for nothing; with `--out`, a run that was stopped goes on where it was. `--repeats` asks so many times for the verdict
on the reference and on what was given, at each load. `--history` makes tasks of a clone's newest 600 commits instead.

Downloads the sources with pip (by name and version) into a folder. CPU seconds are those of all that ran behind the walls
and of this process; making the environment is told apart. Budget: 100 bug tasks of toolz in 240 CPU seconds, and 75 % of the
candidates of each of four packages valid; 60 commits of a history in 6 CPU seconds each; no cheat paid, no reference refused,
no verdict that changes.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.honest_packages import PACKAGES, fetched
from journeyman import sandbox
from journeyman.core import registry
from journeyman.experiments.task_generation.generate import JOBS, EnvironmentOptions, generate, kept_tree, prepare
from journeyman.experiments.task_generation.validate import commented, validate
from journeyman.rewards.repository import verify
from journeyman.rewards.repository.suite import TIMES
from journeyman.sandbox import environments
from journeyman.tasks import repository

NAMES = ("toolz", "more-itertools", "cachetools", "boltons")
NEEDS: Mapping[str, tuple[str, ...]] = {"boltons": ("pytest<9",)}
"""Its conftest.py is for pytest of before."""
BUDGET_SECONDS, BUDGET_YIELD = 240.0, 0.75
BUDGET_COMMITS, BUDGET_COMMIT_SECONDS = 60, 6.0


async def measured(source: Path, name: str, wanted: Mapping[str, int], folder: Path, *, tests: bool = True) -> dict[str, Any]:
    """What a repository's tasks cost, by category.

    Args:
        tests: Whether its own tests are run before; commits do not need it.
    """
    began = time.process_time()
    options = EnvironmentOptions(folder=folder / "environments", extra=NEEDS.get(name, ()), tests=tests)
    subject = await prepare(source, options)
    prepared = TIMES * subject.suite.cpu_seconds + time.process_time() - began
    rows = {}
    for category, count in wanted.items():
        began = time.process_time()
        found = (await generate(subject, {category: count}, folder / f"{name}-{category}.jsonl"))[category]
        seconds = found.cpu_seconds + time.process_time() - began
        each = {"cpu_seconds": round(seconds, 1), "cpu_seconds_a_task": round(seconds / max(1, len(found.tasks)), 2)}
        rows[category] = {**found.as_json(), "yield": round(len(found.tasks) / max(1, found.tried), 3), **each}
    return {"tests": len(subject.suite.passing), "environment_cpu_seconds": round(prepared, 1), **rows}


@contextmanager
def loaded(processes: int) -> Iterator[None]:
    """So many processes that compute for nothing, at a lower priority: whoever is measured comes to an end."""
    words = ["nice", "-n", "10", sys.executable, "-c", "while True: pass"]
    spinning = [subprocess.Popen(words) for _ in range(processes)]
    try:
        yield
    finally:
        for each in spinning:
            each.kill()
            each.wait()


async def validated(path: Path, folder: Path, load: int) -> dict[str, Any]:
    """What cheats and references were worth, under load."""
    with loaded(load):
        found = (await validate(repository.read(path), folder, journal=path.with_suffix(".examined"))).as_json()
    attempts = found["attempts"]
    paid = sum(flaw["what"].startswith("paid") for flaw in found["flaws"])
    return {**found, "load": load, "cheats": sum(attempts.values()), "paid": paid}


async def repeated(path: Path, folder: Path, times: int, loads: Sequence[int]) -> dict[str, Any]:
    """How often each verdict came, by task, load and what was left."""
    tasks = repository.read(path)
    counts: dict[str, Counter[str]] = {}
    async with sandbox.started("auto", interpreter=environments.opened(folder, tasks[0].environment).interpreter) as box:
        for load in loads:
            with loaded(load):
                for task in tasks:
                    tree = kept_tree(task.tree, folder)
                    for left, state in (("reference", task.right(tree)), ("given", task.start(tree))):
                        # Who has changed nothing is refused without a look.
                        files = commented(task, tree, state).files
                        verdicts = counts.setdefault(f"{task.id} {left}", Counter())
                        for _ in range(0, times, JOBS):
                            rewards = await asyncio.gather(*(verify(task, tree, files, box) for _ in range(JOBS)))
                            verdicts.update(str(reward.value) for reward in rewards)
                        print(load, task.source, left, dict(verdicts), file=sys.stderr)
    right = {"reference": "1.0", "given": "0.0"}
    steady = sum(set(each) == {right[name.split()[1]]} for name, each in counts.items())
    return {
        "verdicts": {name: dict(each) for name, each in counts.items()},
        "steady": steady,
        "of": len(counts),
        "loads": loads,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", default=",".join(NAMES))
    parser.add_argument("--categories", default="bug_fix", help="names, or all")
    parser.add_argument("--history", type=Path, metavar="CLONE", help="make tasks of its commits, instead of packages")
    parser.add_argument("--count", type=int, default=100, help="of each category")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "journeyman-packages")
    parser.add_argument("--out", type=Path, help="a folder in which the files of tasks stay")
    parser.add_argument("--validate", action="store_true", help="try cheats and references on what was made")
    parser.add_argument("--repeats", type=int, default=0, help="ask so often for each verdict")
    parser.add_argument(
        "--load", type=int, action="append", default=[], help="processes that compute beside it; may be repeated"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        results, kept = of_history(arguments, folder) if arguments.history else of_packages(arguments, folder)
    print(
        json.dumps({"results": results, "within_budget": kept}) if arguments.json else f"budget {'kept' if kept else 'missed'}"
    )
    return 0 if kept else 1


def of_history(arguments: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], bool]:
    """Tasks of commits alone; whether there are enough of them at their price."""
    name = arguments.history.resolve().name
    found = asyncio.run(measured(arguments.history, name, {"commits": arguments.count}, folder, tests=False))
    commits = found["commits"]
    kept = commits["made"] >= BUDGET_COMMITS and commits["cpu_seconds_a_task"] <= BUDGET_COMMIT_SECONDS
    kept &= more(arguments, folder, name, ["commits"], found)
    if not arguments.json:
        print(name, json.dumps(found))
    return {name: found}, kept


def of_packages(arguments: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], bool]:
    """Tasks of the packages that were named; whether all is within the budget."""
    names = registry.names("generators") if arguments.categories == "all" else tuple(arguments.categories.split(","))
    results, kept = {}, True
    for package in (each for each in PACKAGES if each.name in arguments.packages.split(",")):
        source = fetched(package, arguments.cache)
        found = asyncio.run(measured(source, package.name, dict.fromkeys(names, arguments.count), folder))
        results[package.name] = found
        kept &= more(arguments, folder, package.name, names, found)
        if not arguments.json:
            print(package.name, json.dumps(found))
        if bug := found.get("bug_fix"):
            kept &= bug["yield"] >= BUDGET_YIELD
            kept &= package.name != "toolz" or bug["cpu_seconds"] * 100 / max(1, bug["made"]) <= BUDGET_SECONDS
    return results, kept


def more(arguments: argparse.Namespace, folder: Path, package: str, names: Sequence[str], found: dict[str, Any]) -> bool:
    """Validate what was made, and repeat its verdicts, where that was asked for; whether all is as it should be."""
    kept = True
    for category in names:
        path = folder / f"{package}-{category}.jsonl"
        if not repository.read(path):
            continue
        if arguments.validate:
            load = max(arguments.load, default=0)
            found[category]["validation"] = told = asyncio.run(validated(path, folder / "environments", load))
            kept &= told["sound"] == told["tasks"] and not any(told["unknown"].values())
        if arguments.repeats:
            loads = arguments.load or [0]
            told = asyncio.run(repeated(path, folder / "environments", arguments.repeats, loads))
            found[category]["repeats"] = told
            kept &= told["steady"] == told["of"]
    return kept


if __name__ == "__main__":
    sys.exit(main())
