"""What the walls cost: runs in the sandbox beside bare processes, side by side in one run.

    python benchmarks/bench_sandbox.py [--runs 100] [--json]

Prints medians in milliseconds and ratios. The bounds: `pass` at most the cost of a bare `python -c pass`, an isolated run of
pytest at most 0.45 of a bare one.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from journeyman.sandbox import load
from journeyman.sandbox.base import Program, Sandbox

BOUNDS = {"pass": 1.0, "pytest": 0.45}
TESTS = "def test_one(): assert 1 + 1 == 2\n"
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


async def inside(sandbox: Sandbox, program: Program) -> float:
    started = time.perf_counter()
    outcome = await sandbox.run(program)
    assert outcome.ok, outcome
    return time.perf_counter() - started


def bare(folder: str, *arguments: str) -> Callable[[], float]:
    def run() -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - started

    return run


async def pairs(sandbox: Sandbox, program: Program, alone: Callable[[], float], runs: int) -> dict[str, float]:
    """In turns, so that whatever else the machine does is in both."""
    took: dict[str, list[float]] = {"sandbox": [], "bare": []}
    for _ in range(runs):
        took["sandbox"].append(await inside(sandbox, program))
        took["bare"].append(await asyncio.to_thread(alone))
    medians = {name: statistics.median(seconds) * 1000 for name, seconds in took.items()}
    return medians | {"ratio": medians["sandbox"] / medians["bare"]}


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--sandbox", default="bubblewrap")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    sandbox = load(given.sandbox)
    started = time.perf_counter()
    await sandbox.start()
    found: dict[str, object] = {"level": str(sandbox.level), "start_ms": (time.perf_counter() - started) * 1000}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_main.py").write_text(TESTS)
        tests = Program(code=TESTS, language="pytest", arguments=("-q",))
        await sandbox.run(tests)
        rows = {
            "pass": await pairs(sandbox, Program(code="pass"), bare(folder, "-c", "pass"), given.runs),
            "pytest": await pairs(
                sandbox,
                tests,
                bare(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_main.py"),
                max(1, given.runs // 4),
            ),
        }
    await sandbox.close()
    if given.json:
        print(json.dumps(found | rows))
    else:
        print(f"{found['level']}, started in {found['start_ms']:.0f} ms")
        for name, row in rows.items():
            print("{:8} {sandbox:7.1f} ms, bare {bare:7.1f} ms, ratio {ratio:.2f} (bound {})".format(name, BOUNDS[name], **row))
    return int(any(rows[name]["ratio"] > bound for name, bound in BOUNDS.items()))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
