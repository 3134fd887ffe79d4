"""`journeyman sandbox`: run code behind walls, and try to break out of them."""

from pathlib import Path

import click

from journeyman.cli._shared import emit, json_option

_SANDBOX = click.option(
    "--sandbox",
    "name",
    default="auto",
    show_default=True,
    metavar="NAME|URL",
    help="bubblewrap, landlock, unsafe-local, or the address of a code service; auto takes the strongest that works here.",
)


@click.group()
def command() -> None:
    """Run code behind walls, and try to break out of them.

    \b
    Example:
      journeyman sandbox check
    """


@command.command()
@click.pass_context
@_SANDBOX
@json_option
def check(ctx: click.Context, name: str, as_json: bool) -> None:
    """Attack the sandbox of this machine, and say what got through.

    Each attack is harmless when it succeeds, and is shown to succeed without walls: a probe that never gets through proves
    nothing. Exit code 0 when all were stopped, 1 otherwise.

    \b
    Examples:
      journeyman sandbox check
      journeyman sandbox check --sandbox landlock --json
    """
    from journeyman.cli import _sandboxing

    report = _sandboxing.check(name, as_json=as_json)
    emit(report.as_json(), as_json=as_json)
    ctx.exit(0 if report.stopped == report.total else 1)


@command.command()
@click.pass_context
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.argument("arguments", nargs=-1)
@click.option("--language", metavar="NAME", help="python, pytest, shell or javascript; else by the end of the file's name.")
@click.option("--stdin", type=click.File("rb"), metavar="FILE", help="What the code reads; - is the stdin of this command.")
@click.option(
    "--files",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    metavar="PATH",
    help="A file, or a folder with all that is in it, that lies in the working folder. May be given again.",
)
@click.option("--limit", "limits", multiple=True, metavar="NAME=VALUE", help="Such as cpu_seconds=5 or memory=256M. Again for more.")
@_SANDBOX
@click.option("--unsafe-local", is_flag=True, help="Without walls, as you: for code that you wrote yourself.")
@json_option
def run(ctx: click.Context, as_json: bool, **options: object) -> None:
    """Run one file in the sandbox.

    Its stdout and stderr are printed. The exit code is that of the code; 124 when a limit was hit, and 128 + N when signal
    N ended it.

    \b
    Examples:
      journeyman sandbox run solution.py
      journeyman sandbox run solution.py --limit wall_seconds=5 --limit memory=256M --files data/
    """
    from journeyman.cli import _sandboxing

    outcome = _sandboxing.run(_sandboxing.Wish(**options))  # type: ignore[arg-type]
    if not as_json:
        click.echo(outcome.stdout, nl=False)
        click.echo(outcome.stderr, nl=False, err=True)
        if outcome.limit:
            click.echo(f"journeyman: stopped by the limit on {outcome.limit}", err=True)
    emit(_sandboxing.as_json(outcome), as_json=as_json)
    ctx.exit(_sandboxing.exit_code(outcome))
