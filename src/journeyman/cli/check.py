"""`journeyman check`: solutions against the tests of their tasks, and this way of checking against those who cheat."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import bar, write
from journeyman.cli.shared import emit, json_option

if TYPE_CHECKING:
    from journeyman.sandbox.base import Sandbox

_SHOWN = 10
"""Ids of tasks, for people; `--json` has all."""
_FILE = click.Path(path_type=Path)


@click.group()
def command() -> None:
    """Run solutions against tests that they cannot reach.

    \b
    Example:
      journeyman check code --samples samples.jsonl --tasks HumanEval.jsonl.gz
    """


def _numbers(_context: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) for part in parts):
        raise click.BadParameter(f"{text!r} is no list of numbers such as 1,10,100")
    return tuple(int(part) for part in parts)


_sandbox = click.option(
    "--sandbox", default="auto", help="bubblewrap, landlock, or the URL of a service.  [default: the strongest that works here]"
)

_workers = click.option(
    "--workers",
    type=click.IntRange(min=1),
    callback=lambda _context, _option, number: number or 2 * (os.cpu_count() or 1),
    help="Programs at once.  [default: twice the processors]",
)


def _checked(
    sandbox: str, what: str, total: int, check: "Callable[[Sandbox, Callable[[object], None]], Awaitable[dict[str, Any]]]"
) -> dict[str, Any]:
    """What `check` finds in a sandbox that is started for it, with a bar of how many it has done."""
    from journeyman.sandbox import started

    async def run() -> dict[str, Any]:
        async with started(sandbox) as box:
            with bar(what, total) as done:
                return await check(box, lambda _: done(1))

    return asyncio.run(run())


@command.command()
@click.option("--samples", type=_FILE, required=True, help="What models wrote: task_id with completion or solution.")
@click.option("--tasks", type=_FILE, required=True, help="The tasks, in the format of HumanEval or MBPP.")
@click.option("--k", "ks", default="1,10,100", callback=_numbers, help="For which k to report pass@k.  [default: 1,10,100]")
@click.option(
    "--timeout", type=click.FloatRange(0.1, 600), default=5.0, help="Seconds a program may compute for all tests.  [default: 5]"
)
@_workers
@_sandbox
@click.option("--unsafe-local", is_flag=True, help="Without a sandbox: for code of your own.")
@json_option
def code(  # noqa: PLR0913 - a parameter an option
    *,
    samples: Path,
    tasks: Path,
    ks: tuple[int, ...],
    timeout: float,
    workers: int,
    sandbox: str,
    unsafe_local: bool,
    as_json: bool,
) -> None:
    """Execute samples of programs in the formats of HumanEval and MBPP.

    The tests run in one sandbox and the program in another; what the program gives back crosses as data. Equal programs run
    once. A verdict is true, false, or null where it could not be told.

    \b
    Example:
      journeyman check code --samples samples.jsonl --tasks HumanEval.jsonl.gz --json
    """
    from journeyman.rewards.unit_tests import UnitTests, check_samples, limits
    from journeyman.tasks.code import read_samples, read_tasks

    given = read_tasks(tasks)
    written = read_samples(samples, given)

    async def check(box: "Sandbox", done: Callable[[object], None]) -> dict[str, Any]:
        tests = UnitTests(box, limits(timeout))
        checked = await check_samples(given, written, tests, workers=workers, done=done)
        return {**checked.json(ks), "sandbox": str(box.level)}

    result = _checked("unsafe-local" if unsafe_local else sandbox, "samples", len(written), check)
    if not as_json:
        write(*lines(result, ks))
    emit(result, as_json=as_json)


@command.command()
@_workers
@_sandbox
@click.option("--unsafe-local", is_flag=True, help="Without a sandbox: the cheats then run on your machine.")
@json_option
@click.pass_context
def cheats(context: click.Context, *, workers: int, sandbox: str, unsafe_local: bool, as_json: bool) -> None:
    """Try known ways to cheat tests; none may be paid. Exit code 1 when one was, or when an honest solution was not.

    Beside it stands how many of them trusting the exit code, the printed words, or the result file would have paid.

    \b
    Example:
      journeyman check cheats
    """
    from journeyman.rewards.reward_hacking import CHEATS, try_cheats

    result = _checked(
        "unsafe-local" if unsafe_local else sandbox,
        "cheats",
        len(CHEATS) + 1,
        lambda box, done: try_cheats(box, workers=workers, done=done),
    )
    if not as_json:
        write(*cheat_lines(result))
    emit(result, as_json=as_json)
    context.exit(1 if result["paid"] or not result["honest_paid"] else 0)


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
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more


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
