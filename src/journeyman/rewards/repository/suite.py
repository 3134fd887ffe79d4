"""The tests of a repository, run behind walls in its environment."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from journeyman.rewards.unit_tests import PACKAGE, carried, ended_by
from journeyman.sandbox.base import MIB, Limits, Program, RunOutcome, Sandbox
from journeyman.tasks.repository.tree import Tree

SUITE_SECONDS = 600.0
"""A suite that takes longer is none that tasks could be checked with."""

TIMES = 3
"""How often a suite is run before its tests are believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """What became of tests."""

    became: Mapping[str, str] = field(default_factory=dict)
    """By test function (`file::Class::test`): passed, failed, skipped. Of several cases of one, the worst."""
    why: Mapping[str, str] = field(default_factory=dict)
    """What a test said when it failed, and a file that could not be imported."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    lines: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    """By file and test the lines that it came by, where that was asked for."""
    cpu_seconds: float = 0.0
    broken: str = ""
    """Why it did not come to its end; empty when it did."""
    outcome: RunOutcome | None = None

    def passed(self, test: str) -> bool:
        return self.became.get(test) == "passed"


def limits_for(tree: Tree, seconds: float) -> Limits:
    """Room for the files of a repository, and for what its tests write."""
    size = sum(map(len, tree.files.values()))
    return Limits(
        cpu_seconds=seconds,
        wall_seconds=2 * seconds + 10,
        memory=1024 * MIB + size,
        disk=128 * MIB + 3 * size,
        inodes=8192 + 3 * len(tree.files),
        processes=256,
        open_files=1024,
    )


async def run_suite(
    box: Sandbox, tree: Tree, tests: Sequence[str] = (), *, seconds: float = 60.0, plugins: Sequence[str] = (), cover: str = ""
) -> SuiteRun:
    """Run tests of a repository.

    Args:
        tests: Files or functions; none is all.
        seconds: Of CPU time; twice as much and ten more may pass.
        plugins: Of pytest, by module.
        cover: Where the lines that each test comes by are wanted, the folder whose files they are of: "." for all.

    Raises:
        SandboxError: The sandbox itself failed.
    """
    asked = f"{list(tests or tree.tests)!r}, plugins={list(plugins)!r}, cover={cover!r}"
    outcome, told = await reported(box, tree, "suite", asked, seconds=seconds)
    found = _read(told)
    if found is None or not outcome.ok:
        said = f"{ended_by(outcome)}\n{outcome.stderr[-500:]}".strip()
        return SuiteRun(broken=f"the tests did not come to their end: {said}", outcome=outcome)
    return replace(found, outcome=outcome)


async def reported(box: Sandbox, tree: Tree, program: str, asked: str, *, seconds: float) -> tuple[RunOutcome, list[str]]:
    """Run a program of `rewards.inside` among the files of a repository; what happened, and all that it reported.

    Args:
        asked: The arguments of its `run`, as Python, but for where to report and where the modules lie.

    Raises:
        SandboxError: The sandbox itself failed.
    """
    told: list[str] = []

    async def tell(arguments: Mapping[str, Any]) -> None:
        told.append(str(arguments["0"]))

    roots = [tree.root or ".", *(["."] if tree.root else [])]
    code = f"from {PACKAGE} import {program}\n{program}.run(lambda text: tools.report(text), {asked}, roots={roots!r})\n"
    files = {**tree.files, **carried(program)}
    run = Program(code=code, files=files, limits=limits_for(tree, seconds), warm="pytest")
    return await box.run(run, tools={"report": tell}), told


def _read(told: Sequence[str]) -> SuiteRun | None:
    """The one report. It comes from where the code is, and may be anything."""
    try:
        (text,) = told
        found = json.loads(text)
        return SuiteRun(
            became={str(node): str(what) for node, what in found["became"].items()},
            why={str(node): str(line) for node, line in found["why"].items()},
            seconds={str(node): float(value) for node, value in found["seconds"].items()},
            lines={
                str(path): {str(test): tuple(map(int, lines)) for test, lines in by_test.items()}
                for path, by_test in found.get("lines", {}).items()
            },
            cpu_seconds=float(found["cpu_seconds"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """What a suite does, run several times."""

    passing: tuple[str, ...]
    """Tests that passed each time."""
    flaky: tuple[str, ...]
    """Tests that did now this, now that."""
    failing: tuple[str, ...]
    cpu_seconds: float
    """Of one run, the mean."""
    run: SuiteRun
    """The last, with lines."""


async def steady(
    box: Sandbox, tree: Tree, *, times: int = TIMES, seconds: float = SUITE_SECONDS, plugins: Sequence[str] = ()
) -> Steady:
    """Run a suite several times, each in another order of files; the last time the lines of each test are measured.

    Raises:
        SandboxError: The sandbox itself failed.
    """
    runs, chance = list[SuiteRun](), random.Random(0)
    for number in range(times):
        files = list(tree.tests)
        if number:
            chance.shuffle(files)
        cover = (tree.root.rstrip("/") or ".") if number == times - 1 else ""
        run = await run_suite(box, tree, files, seconds=seconds, plugins=plugins, cover=cover)
        if run.broken:
            return Steady(passing=(), flaky=(), failing=(), cpu_seconds=run.cpu_seconds, run=run)
        runs.append(run)
    became = {
        test: {run.became.get(test, "absent") for run in runs} for test in dict.fromkeys(t for run in runs for t in run.became)
    }
    return Steady(
        passing=tuple(sorted(test for test, what in became.items() if what == {"passed"})),
        flaky=tuple(sorted(test for test, what in became.items() if len(what) > 1)),
        failing=tuple(sorted(test for test, what in became.items() if what == {"failed"})),
        cpu_seconds=sum(run.cpu_seconds for run in runs) / len(runs),
        run=runs[-1],
    )
