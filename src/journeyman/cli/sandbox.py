"""`journeyman sandbox`: run code behind walls, and try to break out of them."""

from pathlib import Path

import click

from journeyman.cli.shared import emit, json_option

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
@click.option("--only", multiple=True, metavar="TEXT", help="Only attacks with this in their name. May be given again.")
@json_option
def check(ctx: click.Context, name: str, only: tuple[str, ...], as_json: bool) -> None:
    """Attack the sandbox of this machine, and say what got through.

    Each attack is harmless when it succeeds, and is shown to succeed without walls: a probe that never gets through proves
    nothing. Exit code 0 when all were stopped, 1 otherwise.

    \b
    Examples:
      journeyman sandbox check
      journeyman sandbox check --sandbox landlock --json
    """
    from journeyman.cli.actions import sandbox

    report = sandbox.check(name, only, as_json=as_json)
    emit(report.as_json(), as_json=as_json)
    ctx.exit(0 if report.stopped == report.total else 1)


@command.command()
@click.pass_context
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.argument("arguments", nargs=-1)
@click.option("--language", metavar="NAME", help="python, pytest, shell or javascript; else by the file's name.")
@click.option("--stdin", type=click.File("rb"), metavar="FILE", help="What the code reads; - is the stdin of this command.")
@click.option(
    "--files",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    metavar="PATH",
    help="A file, or a folder with all that is in it, that lies in the working folder. May be given again.",
)
@click.option(
    "--limit", "limits", multiple=True, metavar="NAME=VALUE", help="Such as cpu_seconds=5 or memory=256M. Again for more."
)
@_SANDBOX
@click.option("--unsafe-local", is_flag=True, help="Without walls, as you: for code that you wrote yourself.")
@json_option
def run(ctx: click.Context, /, as_json: bool, **options: object) -> None:
    """Run one file in the sandbox.

    Files named test_*.py or *_test.py are run by pytest, unless --language says python. Stdout and stderr are printed. The
    exit code is that of the code; 124 when a limit was hit, and 128 + N when signal
    N ended it.

    \b
    Examples:
      journeyman sandbox run solution.py
      journeyman sandbox run solution.py --limit wall_seconds=5 --limit memory=256M --files data/
    """
    from journeyman.cli.actions import sandbox

    outcome = sandbox.run(sandbox.RunOptions(**options))  # type: ignore[arg-type]
    if not as_json:
        click.echo(outcome.stdout, nl=False)
        click.echo(outcome.stderr, nl=False, err=True)
        if said := sandbox.ending(outcome):
            click.echo(f"journeyman: {said}", err=True)
    emit(sandbox.as_json(outcome), as_json=as_json)
    ctx.exit(sandbox.exit_code(outcome))


@command.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8002, show_default=True, help="Where to listen; 0 is any free one."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--workers",
    "--concurrency",
    "concurrency",
    type=click.IntRange(1),
    metavar="N",
    help="Executions at once.  [default: the cores]",
)
@click.option("--queue", type=click.IntRange(0), metavar="N", help="Requests that may wait; one more gets 503.  [default: 256]")
@click.option("--per-client", type=click.IntRange(1), metavar="N", help="Requests of one client at once.  [default: 64]")
@click.option("--sessions", type=click.IntRange(1), metavar="N", help="Sessions alive at once.  [default: 64]")
@click.option(
    "--idle-seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="End sessions idle for so long.  [default: 600]",
)
@click.option(
    "--tool-seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="How long code waits for a tool.  [default: 60]",
)
@click.option("--max-request", type=click.IntRange(1), metavar="BYTES", help="The largest body.  [default: 16777216]")
@click.option(
    "--max-limit",
    "max_limits",
    multiple=True,
    metavar="NAME=VALUE",
    help="What a caller may ask for, such as memory=4G. Again for more.",
)
@click.option(
    "--callback-host",
    "callback_hosts",
    multiple=True,
    metavar="HOST:PORT",
    help="Where tool calls may be posted to. Again for more.",
)
@click.option(
    "--token-env",
    metavar="VAR",
    help="The environment variable that holds the bearer token; several, with blanks between, are several clients.",
)
@click.option(
    "--allow-anyone", is_flag=True, help="Listen beyond this machine without a token: whoever reaches the port runs code."
)
@_SANDBOX
@json_option
def serve(as_json: bool, **options: object) -> None:
    """Run code for others over HTTP, until it is told to stop.

    SIGTERM and Ctrl-C: nothing new is taken, and what runs is finished. With --json, one line when it is ready.

    \b
    Examples:
      journeyman sandbox serve --port 8002
      journeyman sandbox serve --port 8002 --token-env CODE_TOKEN --concurrency 8
    """
    from journeyman.cli.actions import serve as _serving

    _serving.serve_sandbox(_serving.ServiceOptions(**options), as_json=as_json)  # type: ignore[arg-type]
