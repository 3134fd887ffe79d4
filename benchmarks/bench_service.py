"""What the code service adds to a run in the sandbox of this machine: the same program, the same walls, in turns.

    python benchmarks/bench_service.py
    python benchmarks/bench_service.py --sandbox unsafe-local --json

The service is a process of its own. Budget: 3 ms at the median.
"""

import argparse
import asyncio
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from journeyman import sandbox
from journeyman.sandbox.base import Program, Sandbox

BUDGET_MS = 3.0
PROGRAM = Program(code="import json\nprint(json.dumps({'sum': sum(range(1000))}))")


@contextmanager
def service(name: str) -> Iterator[str]:
    command = [sys.executable, "-m", "journeyman", "sandbox", "serve", "--port", "0", "--json", "--sandbox", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield str(json.loads(process.stdout.readline())["url"])
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)


async def ran(box: Sandbox) -> float:
    began = time.perf_counter()
    outcome = await box.run(PROGRAM)
    seconds = time.perf_counter() - began
    assert outcome.stdout == '{"sum": 499500}\n', outcome
    return 1000 * seconds


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of each run, in pairs."""

    local: list[float]
    served: list[float]

    def added(self) -> dict[str, float]:
        """By the service: the difference of the medians, of the 95th percentiles, and the median of the differences."""
        late = [sorted(times)[int(0.95 * len(times))] for times in (self.local, self.served)]
        return {
            "local_p50_ms": statistics.median(self.local),
            "served_p50_ms": statistics.median(self.served),
            "added_p50_ms": statistics.median(self.served) - statistics.median(self.local),
            "added_p95_ms": late[1] - late[0],
            "paired_p50_ms": statistics.median(served - local for local, served in zip(self.local, self.served, strict=True)),
        }


async def measured(name: str, url: str, runs: int) -> Times:
    local, served = sandbox.load(name), sandbox.load(url)
    times = Times([], [])
    for number in range(runs + 10):
        pair = [(local, times.local), (served, times.served)]
        # Whoever goes first finds the caches cold.
        for box, kept in pair if number % 2 else reversed(pair):
            kept.append(await ran(box))
    await local.close()
    await served.close()
    return Times(times.local[10:], times.served[10:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--sandbox", default="bubblewrap")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with service(options.sandbox) as url:
        added = asyncio.run(measured(options.sandbox, url, options.runs)).added()
    within = added["added_p50_ms"] < BUDGET_MS
    if options.json:
        print(json.dumps({**added, "budget_ms": BUDGET_MS, "passed": within}))
        return 0 if within else 1
    for name, value in added.items():
        print(f"{name:16} {value:7.2f}")
    print(f"budget: {BUDGET_MS:g} ms at the median, {'kept' if within else 'broken'}")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
