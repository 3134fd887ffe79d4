"""What a function costs, in instructions of the processor: the same on a machine that is busy, as no time is.

Counted by valgrind's callgrind in the sandbox, for each size in a process forked from one that has imported the code, less what
one takes that calls nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from journeyman.rewards.repository.suite import limits_for
from journeyman.rewards.unit_tests import PACKAGE, carried, ended_by
from journeyman.sandbox.base import Program, Sandbox
from journeyman.tasks.repository.tree import Tree, in_tests

SIZES = (1000, 4000)
_SECONDS = 240.0
_TELL_SECONDS = 20.0
"""For what it gives alone: counting takes some fifty times as long."""
MOST = 1.15
"""Times what the reference takes."""
_NOISE = 500_000
"""Instructions by which two runs of the same may differ, with room."""
MISSING = "valgrind is not installed where the check runs, so what the code costs cannot be told: apt install valgrind"

_COUNT = f"""import hashlib, json, os, secrets, shutil, subprocess, sys, tempfile
valgrind, sizes, folder = None if TELL else shutil.which("valgrind"), [0, *SIZES], tempfile.mkdtemp()
# The code under it does not know where that is written. It is written after it has ended, and read before it is run again.
place = os.path.join("/tmp", secrets.token_hex(16))
counting = [valgrind, "--tool=callgrind", f"--callgrind-out-file={{place}}.%p"] if valgrind else []
program, spec = os.path.abspath("{PACKAGE}/workload.py"), os.path.abspath("{PACKAGE}/workload.json")
words = [*counting, sys.executable, "-I", "-S", program, spec, folder, *map(str, sizes)]
settings = {{"PATH": os.environ.get("PATH", ""), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}}

def count(process):
    path = f"{{place}}.{{process}}"
    with open(path) as file:
        (found,) = {{int(line.split()[1]) for line in file if line.startswith(("summary:", "totals:"))}}
    os.unlink(path)
    return found

def ran(said):
    base, pipes = 0, {{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": said}}
    with subprocess.Popen(words, **pipes, env=settings, text=True, bufsize=1) as process:
        for size in sizes:
            process.stdin.write("+")
            process.stdin.flush()
            ended = int(process.stdout.readline())
            with open(f"{{folder}}/{{size}}", "rb") as file:
                # What is large is known by its digest.
                taken, gave = count(ended) if valgrind else 0, hashlib.sha256(file.read()).hexdigest()
            base = base if size else taken
            yield taken - base, gave
            # What is larger takes longer still, and is not needed to know it.
            if size in MOST and taken - base > MOST[size]:
                process.kill()
                return

if valgrind is None and not TELL:
    tools.report(json.dumps({{"missing": True}}))
else:
    with tempfile.TemporaryFile("w+") as said:
        try:
            _, *found = ran(said)
            told = {{"gave": [each for _, each in found], "counts": [each for each, _ in found]}}
        except (OSError, ValueError):
            said.seek(0)
            told = {{"broken": f"it came to no end: {{said.read()[-300:]}}"}}
    tools.report(json.dumps(told))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedCalls:
    """How a function is called."""

    module: str
    function: str
    calls: tuple[Any, ...]
    """As `inside.workload` takes them."""
    sizes: tuple[int, ...] = SIZES

    @classmethod
    def of(cls, measure: Mapping[str, Any]) -> "CountedCalls":
        calls, sizes = tuple(measure["calls"]), tuple(map(int, measure["sizes"]))
        return cls(module=measure["module"], function=measure["function"], calls=calls, sizes=sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionCost:
    """What it gave and took, by size."""

    gave: tuple[str, ...] = ()
    """A digest of it."""
    instructions: tuple[int, ...] = ()
    broken: str = ""
    """Why it came to no end."""
    missing: str = ""
    """Why nothing can be told."""


def most(its: int) -> float:
    """Instructions that code may take where a reference takes `its`."""
    return MOST * its + _NOISE


def as_fast(mine: Sequence[int], its: Sequence[int]) -> bool:
    """Whether instructions, by size, are as few as those of a reference; whoever was stopped before the last is not."""
    return len(mine) == len(its) and all(one <= most(other) for one, other in zip(mine, its, strict=True))


async def cost(
    box: Sandbox,
    tree: Tree,
    workload: CountedCalls,
    *,
    count: bool = True,
    seconds: float = _SECONDS,
    beside: Sequence[int] = (),
) -> InstructionCost:
    """
    Args:
        count: Whether to count; else only what it gives is told, which is cheap.
        beside: The reference's instructions by size. Where more are taken than that allows, larger sizes are not counted.
        seconds: Of computing, at most.

    Raises:
        SandboxError: The sandbox itself failed.
    """
    told: list[str] = []

    async def tell(arguments: Mapping[str, Any]) -> None:
        told.append(str(arguments["0"]))

    spec = {
        "module": workload.module,
        "function": workload.function,
        "calls": workload.calls,
        "roots": [f"{tree.root}" or "."],
    }
    code = {path: data for path, data in tree.files.items() if not in_tests(path)}
    files = {**code, **carried("workload"), f"{PACKAGE}/workload.json": json.dumps(spec).encode()}
    seconds = seconds if count else min(seconds, _TELL_SECONDS)
    limits = replace(limits_for(tree, seconds), wall_seconds=4 * seconds)
    allowed = {size: most(its) for size, its in zip(workload.sizes, beside, strict=False)}
    head = f"SIZES, TELL, MOST = {workload.sizes!r}, {not count}, {allowed!r}\n"
    program = Program(code=head + _COUNT, files=files, limits=limits)
    outcome = await box.run(program, tools={"report": tell})
    if not outcome.ok or len(told) != 1:
        return InstructionCost(broken=f"{ended_by(outcome)}: {outcome.stderr[-300:]}")
    found = json.loads(told[0])
    if found.get("missing"):
        return InstructionCost(missing=MISSING)
    if "broken" in found:
        return InstructionCost(broken=str(found["broken"]))
    return InstructionCost(gave=tuple(found["gave"]), instructions=tuple(found["counts"] or ()))
