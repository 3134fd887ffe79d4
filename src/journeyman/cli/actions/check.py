"""The work of `journeyman check`."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from journeyman import sandbox as sandboxes
from journeyman.cli.console import bar
from journeyman.rewards.reward_hacking import CHEATS, check_samples, try_cheats
from journeyman.rewards.unit_tests import UnitTests, limits
from journeyman.tasks.code import read_samples, read_tasks

SHOWN = 10
"""Ids of tasks, for people; `--json` has all."""


def code(samples: Path, tasks: Path, *, ks: Sequence[int], timeout: float, workers: int | None, sandbox: str) -> dict[str, Any]:
    """Check the samples; the result as it is printed."""
    given = read_tasks(tasks)
    written = read_samples(samples, given)
    box = sandboxes.load(sandbox)

    async def run() -> dict[str, Any]:
        try:
            await box.start()
            with bar("samples", len(written)) as done:
                checked = await check_samples(
                    given, written, UnitTests(box, limits(timeout)), workers=_at_once(workers), done=lambda _: done(1)
                )
            return {**checked.json(ks), "sandbox": str(box.level)}
        finally:
            await box.close()

    return asyncio.run(run())


def cheats(sandbox: str) -> dict[str, Any]:
    """Try them all; the result as it is printed."""
    box = sandboxes.load(sandbox)

    async def run() -> dict[str, Any]:
        try:
            await box.start()
            with bar("cheats", len(CHEATS) + 1) as done:
                return await try_cheats(box, workers=_at_once(None), done=lambda _: done(1))
        finally:
            await box.close()

    return asyncio.run(run())


def lines(result: Mapping[str, Any], ks: Sequence[int]) -> Iterator[str]:
    """A result of `code` for people, who asked for these `ks`."""
    for name in ("samples", "passed", "failed", "timeout", "unknown"):
        yield f"{name:<9}{result[name]:>8,}"
    for k in ks:
        name = f"pass@{k}"
        few = f"{name}: fewer than {k} samples with a verdict for some task"
        yield f"{name:<9}{result[name]:>8.4f}" if name in result else few
    unsolved = [id for id, verdicts in result["verdicts"].items() if False in verdicts and True not in verdicts]
    if unsolved:
        yield f"tasks that no sample passed: {_first(unsolved)}"
    unsafe = result["sandbox"].startswith("none")
    yield "run without a sandbox" if unsafe else f"sandbox: {result['sandbox']}"


def _first(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - SHOWN:,} more" if len(ids) > SHOWN else ""
    return ", ".join(ids[:SHOWN]) + more


def cheat_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """A result of `cheats` for people."""
    paid = ", ".join(result["names"])
    yield f"{result['cheats']} cheats, {result['paid']} paid{f': {paid}' if paid else ''}"
    if result["unknown"]:
        yield f"  {result['unknown']} could not be told, and were paid nothing"
    for kind, count in result["trusting"].items():
        yield f"  trusting the {kind.replace('_', ' ')} would have paid {count}"
    if not result["honest_paid"]:
        yield "but an honest solution was not paid either: this sandbox cannot tell"


def _at_once(workers: int | None) -> int:
    return workers or 2 * (os.cpu_count() or 1)
