"""Forty small programs with one bug each, and the same without it (QuixBugs, MIT), against their own tests."""

import asyncio
import gzip
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from journeyman.rewards import unit_tests
from journeyman.rewards.unit_tests import CodeUnderTest, UnitTestVerdict, examine
from journeyman.sandbox.base import Limits, Sandbox
from tests.support.walled import walled

DATA = os.environ.get("JOURNEYMAN_DATA")
pytestmark = [pytest.mark.service, pytest.mark.skipif(not DATA, reason="JOURNEYMAN_DATA is not set")]

LIMITS = {"fixed": Limits(cpu_seconds=10.0, wall_seconds=30.0), "buggy": Limits(cpu_seconds=2.0, wall_seconds=10.0)}
"""Some bugs are loops without end, which fail the sooner."""
SLOW = {"levenshtein"}
"""Slow by design: its fixed version runs out of time too."""


@pytest.fixture
async def box() -> AsyncIterator[Sandbox]:
    async with walled() as found:
        yield found


def programs() -> list[dict[str, Any]]:
    with gzip.open(Path(DATA or "") / "quixbugs" / "quixbugs_python.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def with_its_tests(row: dict[str, Any]) -> unit_tests.Tests:
    """Its own, with the switches of their conftest set, and the cases where they are looked for."""
    helpers = json.loads((Path(DATA or "") / "quixbugs" / "helpers.json").read_text())
    switches = "import pytest\npytest.use_correct = pytest.run_slow = False\n"
    data = f"CASES = {row['json_testcases']!r}\n\ndef load_json_testcases(name):\n    return CASES\n"
    files = {"test_it.py": switches + row["pytest"], "node.py": helpers["node"], "load_testdata.py": data}
    return unit_tests.Tests(file="test_it.py", files={name: text.encode() for name, text in files.items()}, runner="pytest")


async def verdicts(box: Sandbox, key: str) -> dict[str, UnitTestVerdict]:
    free = asyncio.Semaphore(2)

    async def one(row: dict[str, Any]) -> tuple[str, UnitTestVerdict]:
        files = {f"python_programs/{row['name']}.py": row[key].encode(), "python_programs/__init__.py": b""}
        async with free:
            return row["name"], await examine(box, with_its_tests(row), CodeUnderTest(files=files, limits=LIMITS[key]))

    return dict(await asyncio.gather(*(one(row) for row in programs())))


async def test_every_program_with_a_bug_fails_its_tests(box: Sandbox) -> None:
    found = await verdicts(box, "buggy")
    assert len(found) == 40
    assert {name: verdict.passed for name, verdict in found.items()} == dict.fromkeys(found, False)


async def test_every_program_without_its_bug_passes(box: Sandbox) -> None:
    found = await verdicts(box, "fixed")
    assert {name for name, verdict in found.items() if not verdict.passed} <= SLOW
    assert not any(verdict.needs_one_process for verdict in found.values())
    assert sum(verdict.tests_passed or 0 for name, verdict in found.items() if name not in SLOW) >= 260
