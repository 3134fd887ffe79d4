"""What it costs to check every reference solution of HumanEval, beside the same in bare subprocesses, in one run.

    python benchmarks/bench_humaneval.py --tasks HumanEval.jsonl.gz            # a table
    python benchmarks/bench_humaneval.py --tasks HumanEval.jsonl.gz --json     # one object

Three ways with equally many at once: a bare `python program.py` for each program with its tests, without any isolation; the
same program as one run of the sandbox; and the check that is used, with the tests in one sandbox and the program in another.
The ways take turns, so that all see the same machine; times are medians of the rounds. All 164 must pass in each.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from journeyman import sandbox
from journeyman.rewards.unit_tests import UnitTests, limits
from journeyman.sandbox.base import Program, Sandbox
from journeyman.tasks.code import CodeTests, code_tests, read_tasks

Work = tuple[CodeTests, str]
LIMIT = 0.5
"""What a run in the sandbox may cost, in bare ones."""


def solutions(path: Path) -> list[Work]:
    """Each task's tests with its reference solution."""
    from journeyman.tasks import rows

    written = [row.value["canonical_solution"] for row in rows.read(path, rows.Complaints("these tasks cannot be used"))]
    tests = [code_tests(task) for task in read_tasks(path)]
    return [(each, each.program(text, continues=True)) for each, text in zip(tests, written, strict=True)]


def whole(tests: CodeTests, program: str) -> str:
    return f"{program}\n{tests.test}\ncheck({tests.entry_point})\n"


async def seconds(work: Sequence[Work], at_once: int, check: Callable[[CodeTests, str], Awaitable[bool]]) -> float:
    free = asyncio.Semaphore(at_once)

    async def one(tests: CodeTests, program: str) -> bool:
        async with free:
            return await check(tests, program)

    started = time.perf_counter()
    passed = await asyncio.gather(*(one(*each) for each in work))
    took = time.perf_counter() - started
    if not all(passed):
        raise SystemExit(f"{passed.count(False)} reference solutions did not pass: nothing was measured")
    return took


def bare(folder: Path) -> Callable[[CodeTests, str], Awaitable[bool]]:
    async def check(tests: CodeTests, program: str) -> bool:
        path = folder / f"{tests.entry_point}_{abs(hash(program))}.py"
        path.write_text(whole(tests, program), encoding="utf-8")
        process = await asyncio.create_subprocess_exec(sys.executable, str(path))
        return await process.wait() == 0

    return check


def in_one(box: Sandbox) -> Callable[[CodeTests, str], Awaitable[bool]]:
    async def check(tests: CodeTests, program: str) -> bool:
        return (await box.run(Program(code=whole(tests, program), limits=limits()))).ok

    return check


def apart(box: Sandbox) -> Callable[[CodeTests, str], Awaitable[bool]]:
    async def check(tests: CodeTests, program: str) -> bool:
        return (await UnitTests(box).check(tests, program)).passed is True

    return check


async def measure(path: Path, rounds: int, at_once: int, name: str) -> dict[str, object]:
    work, box = solutions(path), sandbox.load(name)
    await box.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            ways = {"bare": bare(Path(folder)), "sandbox": in_one(box), "apart": apart(box)}
            times: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(rounds):
                for way, check in ways.items():
                    times[way].append(await seconds(work, at_once, check))
    finally:
        await box.close()
    took = {way: statistics.median(found) for way, found in times.items()}
    return {
        "programs": len(work),
        "at_once": at_once,
        "rounds": rounds,
        "sandbox": str(box.level),
        "seconds": took,
        "ratio": took["sandbox"] / took["bare"],
        "ratio_apart": took["apart"] / took["bare"],
        "limit": LIMIT,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="What checking all of HumanEval costs beside bare subprocesses.")
    default = os.environ.get("JOURNEYMAN_DATA", "")
    parser.add_argument("--tasks", type=Path, default=Path(default, "code-exec/tasks/HumanEval.jsonl.gz"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sandbox", default="bubblewrap")
    parser.add_argument("--json", action="store_true", help="print one object instead of a table")
    options = parser.parse_args()
    found = asyncio.run(measure(options.tasks, options.rounds, options.at_once, options.sandbox))
    took = found["seconds"]
    assert isinstance(took, dict)
    kept = took["sandbox"] <= LIMIT * took["bare"]
    if options.json:
        print(json.dumps(found))
        return 0 if kept else 1
    print(f"{found['programs']} programs, {found['at_once']} at once, median of {found['rounds']}, sandbox: {found['sandbox']}")
    for way, seconds_ in took.items():
        print(f"  {way:<8} {seconds_:8.2f} s   {seconds_ / took['bare']:.2f} of bare")
    print(f"  the sandbox may cost {LIMIT} of bare: {'kept' if kept else 'broken'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
