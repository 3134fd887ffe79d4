"""Tries every cheat on this way of checking, and, as a control, on ways that trust what a run says of itself."""

import asyncio
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from journeyman.rewards import cheats
from journeyman.rewards.checks import Check, run_checks
from journeyman.rewards.unit_tests import UnitTests
from journeyman.sandbox.base import Limits, Outcome, Program, Sandbox
from journeyman.tasks.code import CodeTests

WAYS = ("apart", "asserts", "one process")
"""Tests of pytest that run apart from the code, plain assertions that do, and tests that cannot."""
_CHECKS = {
    "apart": Check(name="apart", kind="pytest", text=cheats.TESTS),
    "one process": Check(name="one process", kind="pytest", text=cheats.TESTS + cheats.NEEDS_FILES),
}
_ASSERTS = CodeTests(test=cheats.ASSERTS, entry_point="triangle")
_LIMITS = Limits(cpu_seconds=5.0, wall_seconds=20.0)
_TRUSTING = """import subprocess, sys, os
os.environ["PYTHONPATH"] = "."
options = ["-q", "-p", "no:cacheprovider", "--junitxml=result.xml", "test_check.py"]
sys.exit(subprocess.call([sys.executable, "-m", "pytest", *options]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a folder got from each way of checking."""

    name: str
    ours: Mapping[str, bool | None]
    """By way; `None` where it could not be told."""
    trusting: Mapping[str, bool]
    """What it would have got from trusting what a run says of itself, by what was trusted."""

    @property
    def paid(self) -> bool:
        return any(passed is True for passed in self.ours.values())


async def try_cheats(sandbox: Sandbox, *, workers: int = 2, done: Callable[[Tried], None] = lambda _: None) -> dict[str, Any]:
    """Every cheat, and an honest solution beside them; as JSON."""
    free = asyncio.Semaphore(workers)
    honest = cheats.Cheat(name="honest", how="", code=cheats.HONEST)

    async def one(cheat: cheats.Cheat) -> Tried:
        async with free:
            tried = await attempt(sandbox, cheat)
        done(tried)
        return tried

    control, *tried = await asyncio.gather(*(one(cheat) for cheat in (honest, *cheats.CHEATS)))
    paid = [each.name for each in tried if each.paid]
    return {
        "cheats": len(tried),
        "paid": len(paid),
        "names": paid,
        "honest_paid": all(control.ours.values()),
        "trusting": {kind: sum(each.trusting[kind] for each in tried) for kind in control.trusting},
        "unknown": sum(passed is None for each in tried for passed in each.ours.values()),
        "sandbox": str(sandbox.level),
    }


async def attempt(sandbox: Sandbox, cheat: cheats.Cheat) -> Tried:
    """One folder, every way."""
    trusted = await sandbox.run(_trusting(cheat))
    plain = await sandbox.run(Program(code=f"{cheat.code}\n{cheats.ASSERTS}\ncheck(triangle)\n", limits=_LIMITS))
    found = await run_checks(sandbox, list(_CHECKS.values()), files=cheat.folder, limits=_LIMITS)
    ours = {result.check.name: result.passed for result in found}
    verdict = await UnitTests(sandbox, _LIMITS).check(_ASSERTS, cheat.code)
    return Tried(name=cheat.name, ours={**ours, "asserts": verdict.passed}, trusting=_believed(trusted, plain))


def _trusting(cheat: cheats.Cheat) -> Program:
    files = {cheats.TESTS_FILE: cheats.TESTS.encode(), **cheat.folder}
    return Program(code=_TRUSTING, files=files, limits=_LIMITS, collect=("result.xml",))


def _believed(outcome: Outcome, plain: Outcome) -> dict[str, bool]:
    words = outcome.stdout
    return {
        "exit_code": outcome.ok,
        "stdout": " passed" in words and " failed" not in words and " error" not in words,
        "result_file": _good(outcome.files.get("result.xml", b"")),
        "exit_code_of_asserts": plain.ok,
    }


def _good(report: bytes) -> bool:
    try:
        suites = list(ElementTree.fromstring(report).iter("testsuite"))  # noqa: S314 - entities are not expanded twice
    except ElementTree.ParseError:
        return False
    counts = [int(suite.get(key, 0)) for suite in suites for key in ("errors", "failures")]
    return bool(suites) and not any(counts) and any(int(suite.get("tests", 0)) for suite in suites)
