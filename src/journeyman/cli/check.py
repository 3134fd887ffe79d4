"""`journeyman check`: solutions against the tests of their tasks, and this way of checking against those who cheat."""

from pathlib import Path
from typing import Any

import click

from journeyman.cli.shared import emit, json_option

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


@command.command()
@click.option("--samples", type=_FILE, required=True, help="What models wrote: task_id with completion or solution.")
@click.option("--tasks", type=_FILE, required=True, help="The tasks, in the format of HumanEval or MBPP.")
@click.option("--k", "ks", default="1,10,100", callback=_numbers, help="For which k to report pass@k.  [default: 1,10,100]")
@click.option(
    "--timeout", type=click.FloatRange(0.1, 600), default=5.0, help="Seconds a program may compute for all tests.  [default: 5]"
)
@click.option("--workers", type=click.IntRange(min=1), help="Programs at once.  [default: twice the processors]")
@_sandbox
@click.option("--unsafe-local", is_flag=True, help="Without a sandbox: for code of your own.")
@json_option
def code(
    *,
    samples: Path,
    tasks: Path,
    ks: tuple[int, ...],
    as_json: bool,
    **how: Any,
) -> None:
    """Execute samples of programs in the formats of HumanEval and MBPP.

    The tests run in one sandbox and the program in another; what the program gives back crosses as data. Equal programs run
    once. A verdict is true, false, or null where it could not be told.

    \b
    Example:
      journeyman check code --samples samples.jsonl --tasks HumanEval.jsonl.gz --json
    """
    from journeyman.cli.actions import check

    if how.pop("unsafe_local"):
        how["sandbox"] = "unsafe-local"
    result = check.code(samples, tasks, ks=ks, **how)
    if not as_json:
        click.echo("\n".join(check.lines(result, ks)))
    emit(result, as_json=as_json)


@command.command()
@_sandbox
@click.option("--unsafe-local", is_flag=True, help="Without a sandbox: the cheats then run on your machine.")
@json_option
@click.pass_context
def cheats(context: click.Context, *, sandbox: str, unsafe_local: bool, as_json: bool) -> None:
    """Try known ways to cheat tests; none may be paid. Exit code 1 when one was, or when an honest solution was not.

    Beside it stands how many of them trusting the exit code, the printed words, or the result file would have paid.

    \b
    Example:
      journeyman check cheats
    """
    from journeyman.cli.actions import check

    result = check.cheats("unsafe-local" if unsafe_local else sandbox)
    if not as_json:
        click.echo("\n".join(check.cheat_lines(result)))
    emit(result, as_json=as_json)
    context.exit(1 if result["paid"] or not result["honest_paid"] else 0)
