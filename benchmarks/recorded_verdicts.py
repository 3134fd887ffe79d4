"""Do our verdicts on programs agree with those that others recorded? Every program of a folder of recorded runs, checked anew.

    JOURNEYMAN_DATA=data python benchmarks/recorded_verdicts.py                    # data/code-exec, an hour on two cores
    JOURNEYMAN_DATA=data python benchmarks/recorded_verdicts.py --files seed_humaneval
    JOURNEYMAN_DATA=data python benchmarks/recorded_verdicts.py --plain            # and what a bare run says where we differ

A row holds a task in the format of HumanEval, the `solution` of a model, and `is_solved`, its verdict on the hidden tests. With
`--plain` a program whose verdicts differ is run once more, together with its tests as one program and by its exit code, which
tells a label that does not reproduce from a mistake of ours. Ends with 1 where fewer than 99.5 % agree.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journeyman import sandbox
from journeyman.rewards.unit_tests import UnitTests, UnitTestVerdict, limits
from journeyman.sandbox.base import Program
from journeyman.tasks import rows
from journeyman.tasks.code import CodeTests

LEAST = 0.995


@dataclass(frozen=True, slots=True)
class Recorded:
    """A program, its task's tests, and what was recorded of it."""

    file: str
    task: str
    tests: CodeTests
    text: str
    solved: bool

    @property
    def program(self) -> str:
        return self.tests.program(self.text, continues=self.tests.goes_on(self.text))


def recorded(folder: Path, pattern: str) -> Iterator[Recorded]:
    """The rows that hold a program, its tests and a verdict."""
    for path in sorted(folder.rglob(f"*{pattern}*.jsonl.gz")):
        for row in rows.read(path, rows.Complaints("these rows cannot be used")):
            one = _one(path.name, row.value)
            if one is not None:
                yield one


def _one(file: str, value: dict[str, Any]) -> Recorded | None:
    solved, text, test = value.get("is_solved"), value.get("solution"), value.get("test")
    if not isinstance(solved, bool) or not isinstance(text, str) or not isinstance(test, str):
        return None
    if "def check(" not in test:
        return None
    tests = CodeTests(test=test, entry_point=str(value["entry_point"]), prompt=str(value.get("prompt", "")))
    return Recorded(file, str(value.get("task_id") or value.get("name")), tests, text, solved)


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", default="", help="only files with this in their name")
    parser.add_argument("--seconds", type=float, default=10.0, help="of computing for a program")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = list(recorded(Path(os.environ["JOURNEYMAN_DATA"]) / "code-exec" / "samples", given.files))
    box = sandbox.load()
    verifier, places = UnitTests(box, limits(given.seconds)), asyncio.Semaphore(2 * (os.cpu_count() or 1))
    begun: dict[tuple[CodeTests, str], asyncio.Task[UnitTestVerdict]] = {}

    async def check(one: Recorded) -> UnitTestVerdict:
        async with places:
            return await verifier.check(one.tests, one.program)

    async def plainly(one: Recorded) -> bool:
        whole = f"{one.program}\n{one.tests.test}\ncheck({one.tests.entry_point})\n"
        return (await box.run(Program(code=whole, limits=limits(given.seconds)))).ok

    for one in found:
        if (one.tests, one.program) not in begun:
            begun[one.tests, one.program] = asyncio.create_task(check(one))
    differing, unknown = [], 0
    for one in found:
        verdict = await begun[one.tests, one.program]
        unknown += verdict.passed is None
        if verdict.passed is not one.solved:
            differing.append((one, verdict, await plainly(one) if given.plain else None))
    await box.close()
    ours = sum(plain is one.solved for one, _, plain in differing) if given.plain else None
    share = 1 - len(differing) / max(1, len(found))
    result = {"programs": len(found), "distinct": len(begun), "agree": share, "unknown": unknown, "ours_alone": ours}
    for one, verdict, plain in differing if not given.json else ():
        print(f"{one.file} {one.task}: recorded {one.solved}, ours {verdict.passed}, plain {plain}: {verdict.evidence[:90]!r}")
    print(json.dumps(result))
    return 0 if found and share >= LEAST else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
