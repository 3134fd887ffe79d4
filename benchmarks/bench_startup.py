"""What `journeyman --help` costs, and commands that only look, beside a Python that does nothing, in the same run.

    python benchmarks/bench_startup.py
    python benchmarks/bench_startup.py --json

CPU time of the child process (user and system), the least of several runs: the machine's noise only ever adds. Bytecode is
kept, as where something was installed, whatever the environment says: to compile our files anew takes a third of a look.
Budget of --help: 250 ms; of a look at a store of 50 traces, or at a playbook of 40 bullets: 500 ms.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.trace import ModelCall, Trace
from journeyman.optimizers.playbook import files
from journeyman.stores.traces import open_traces

BUDGET_MS = 250.0
LOOK_MS = 500.0
CASES = {
    "python -c pass": ["-c", "pass"],
    "import click": ["-c", "import click"],
    "import journeyman": ["-c", "import journeyman"],
    "journeyman --version": ["-m", "journeyman", "--version"],
    "journeyman --help": ["-m", "journeyman", "--help"],
    "journeyman train playbook --help": ["-m", "journeyman", "train", "playbook", "--help"],
    "import sqlalchemy": ["-c", "import sqlalchemy"],
}
LOOKS = {
    "journeyman traces list": ["-m", "journeyman", "traces", "list"],
    "journeyman runs list": ["-m", "journeyman", "runs", "list"],
    "journeyman playbook show": ["-m", "journeyman", "playbook", "show", "playbook.json"],
}


def project(folder: Path) -> None:
    """Something to look at."""
    (folder / "journeyman.toml").touch()
    began = datetime(2026, 1, 1, tzinfo=UTC)
    call = ModelCall(model="m", prompt="user: Where is order 7?", reply="In Oslo.")
    traces = [
        Trace(id=f"t{n}", task_id="t", candidate_id="base", started_at=began + timedelta(hours=n), steps=(call,))
        for n in range(50)
    ]
    with open_traces(folder / ".journeyman" / "journeyman.db") as store:
        store.add(traces)
    bullets = tuple(Bullet(id=f"b-{n}", content=f"Write amount {n} in cents.") for n in range(40))
    files.save(Playbook(bullets=bullets), folder / "playbook.json")


def children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_ms(arguments: list[str], folder: Path) -> float:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    before = children()
    subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return 1000 * (children() - before)


def measured(runs: int) -> dict[str, float]:
    """Milliseconds a case. The cases take turns, so that a busy minute of the machine hits all of them."""
    cases = {**CASES, **LOOKS}
    times: dict[str, list[float]] = {name: [] for name in cases}
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = Path(name_of_folder)
        project(folder)
        for arguments in cases.values():
            # The first run writes the bytecode.
            cpu_ms(arguments, folder)
        for _ in range(runs):
            for name, arguments in cases.items():
                times[name].append(cpu_ms(arguments, folder))
    return {name: min(found) for name, found in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measured(options.runs)
    bare = found["python -c pass"]
    within = found["journeyman --help"] < BUDGET_MS
    looks = {name: found[name] < LOOK_MS for name in LOOKS}
    if options.json:
        print(json.dumps({"cpu_ms": found, "budget_ms": BUDGET_MS, "look_ms": LOOK_MS, "looks": looks, "passed": within}))
        return 0 if within else 1
    for name, value in found.items():
        print(f"{name:34} {value:7.0f} ms CPU {value / bare:6.1f}x")
    print(f"budget of --help: {BUDGET_MS:.0f} ms CPU, {'kept' if within else 'broken'}")
    for name, kept in looks.items():
        print(f"budget of {name}: {LOOK_MS:.0f} ms CPU, {'kept' if kept else 'broken'}")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
