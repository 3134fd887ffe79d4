"""What `journeyman --help` costs, beside a Python that does nothing, in the same run.

    python benchmarks/bench_startup.py
    python benchmarks/bench_startup.py --json

CPU time of the child process (user and system), the least of several runs: the machine's noise only ever adds. Budget: 250 ms.
"""

import argparse
import json
import resource
import subprocess
import sys

BUDGET_MS = 250.0
CASES = {
    "python -c pass": ["-c", "pass"],
    "import click": ["-c", "import click"],
    "import journeyman": ["-c", "import journeyman"],
    "journeyman --version": ["-m", "journeyman", "--version"],
    "journeyman --help": ["-m", "journeyman", "--help"],
    "journeyman train playbook --help": ["-m", "journeyman", "train", "playbook", "--help"],
}


def children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_ms(arguments: list[str]) -> float:
    before = children()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return 1000 * (children() - before)


def measured(runs: int) -> dict[str, float]:
    """Milliseconds a case. The cases take turns, so that a busy minute of the machine hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(runs):
        for name, arguments in CASES.items():
            times[name].append(cpu_ms(arguments))
    return {name: min(found) for name, found in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measured(options.runs)
    bare = found["python -c pass"]
    within = found["journeyman --help"] < BUDGET_MS
    if options.json:
        print(json.dumps({"cpu_ms": found, "budget_ms": BUDGET_MS, "passed": within}))
        return 0 if within else 1
    for name, value in found.items():
        print(f"{name:34} {value:7.0f} ms CPU {value / bare:6.1f}x")
    print(f"budget of --help: {BUDGET_MS:.0f} ms CPU, {'kept' if within else 'broken'}")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
