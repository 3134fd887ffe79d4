"""The work of `journeyman check`."""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from journeyman import sandbox as sandboxes
from journeyman.checking import check_samples
from journeyman.cli._shared import console
from journeyman.rewards.cheats import CHEATS
from journeyman.rewards.trying import try_cheats
from journeyman.rewards.unit_tests import UnitTests, limits
from journeyman.tasks.code import read_samples, read_tasks

_TIMES = 10
"""How often it is said how far it has come, where there is no terminal."""


def code(samples: Path, tasks: Path, *, ks: Sequence[int], timeout: float, workers: int | None, sandbox: str) -> dict[str, Any]:
    """Check the samples; the result as it is printed."""
    given = read_tasks(tasks)
    written = read_samples(samples, given)
    box = sandboxes.load(sandbox)

    async def run() -> dict[str, Any]:
        try:
            await box.start()
            with _progress("samples", len(written)) as done:
                checked = await check_samples(
                    given, written, UnitTests(box, limits(timeout)), workers=_at_once(workers), done=lambda _: done()
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
            with _progress("cheats", len(CHEATS) + 1) as done:
                return await try_cheats(box, workers=_at_once(None), done=lambda _: done())
        finally:
            await box.close()

    return asyncio.run(run())


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """A result of `code` for people."""
    for name in ("samples", "passed", "failed", "timeout", "unknown"):
        yield f"{name:<9}{result[name]:>8,}"
    for name, rate in result.items():
        if name.startswith("pass@"):
            yield f"{name:<9}{rate:>8.4f}"
    if result["sandbox"].startswith("none"):
        yield "run without a sandbox"


def cheat_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """A result of `cheats` for people."""
    paid = ", ".join(result["names"])
    yield f"{result['cheats']} cheats, {result['paid']} paid{f': {paid}' if paid else ''}"
    for kind, count in result["trusting"].items():
        yield f"  trusting the {kind.replace('_', ' ')} would have paid {count}"
    if not result["honest_paid"]:
        yield "but an honest solution was not paid either: this sandbox cannot tell"


def _at_once(workers: int | None) -> int:
    return workers or 2 * (os.cpu_count() or 1)


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Something to call after each: a bar on a terminal, a few lines elsewhere, on stderr."""
    screen = console()
    bar = Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=screen,
        disable=not screen.is_terminal,
    )
    row = bar.add_task(what, total=total)
    count = 0

    def done() -> None:
        nonlocal count
        count += 1
        bar.advance(row)
        if not screen.is_terminal and count * _TIMES // total > (count - 1) * _TIMES // total:
            screen.print(f"{count}/{total} {what}")

    with bar:
        yield done
