"""`journeyman sandbox`: run code behind walls, and try to break out of them."""

import asyncio
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, BinaryIO

import click

from journeyman import sandbox
from journeyman.cli import console
from journeyman.cli.console import Column, Screen, plain, say
from journeyman.cli.shared import emit, json_option, tokens_in
from journeyman.core.errors import InputError, MissingExtra
from journeyman.io.http_server import is_loopback, listen, url_of
from journeyman.sandbox import audit
from journeyman.sandbox.audit import AttackVerdict, AuditReport
from journeyman.sandbox.audit.attacks import ATTACKS
from journeyman.sandbox.audit.traps import Attack
from journeyman.sandbox.base import LANGUAGES, Level, Limits, Program, RunOutcome

LIMIT_HIT = 124
"""As `timeout` of the shell has it."""
MAX_FILES = 64 * 1024 * 1024
_ENDINGS = {".py": "python", ".sh": "shell", ".bash": "shell", ".js": "javascript", ".mjs": "javascript"}
_DEFAULTS = Limits()
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_KINDS = {
    **dict.fromkeys(("cpu_seconds", "wall_seconds"), ("number of seconds", "2.5")),
    **dict.fromkeys(("memory", "file_size", "disk", "output"), ("size", "256M")),
}
"""What a limit is said in, where that is no count."""
_FIELDS = {"cpu": "cpu_seconds", "wall": "wall_seconds"}
"""The limits that are set under another name than they are told under."""
_STATES = {"through": ("got through", "red"), "unproven": ("proves nothing", "yellow"), "stopped": ("stopped", "green")}

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
    chosen = chosen_by(only)

    def progress(verdict: AttackVerdict) -> None:
        screen.show(screen.done + 1, state=f"{verdict.attack.name}: {verdict.state}")

    async def attacked() -> AuditReport:
        async with sandbox.started(name) as box:
            return await audit.check(box, chosen, progress=progress)

    with Screen("attacks", len(chosen), quiet=as_json) as screen:
        report = asyncio.run(attacked())
    if not as_json:
        _show(report)
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
def run(  # noqa: PLR0913 - a parameter an option
    ctx: click.Context,
    /,
    file: Path,
    arguments: Sequence[str],
    language: str | None,
    stdin: BinaryIO | None,
    files: Sequence[Path],
    limits: Sequence[str],
    name: str,
    unsafe_local: bool,
    as_json: bool,
) -> None:
    """Run one file in the sandbox.

    Files named test_*.py or *_test.py are run by pytest, unless --language says python. Stdout and stderr are printed. The
    exit code is that of the code; 124 when a limit was hit, and 128 + N when signal
    N ended it.

    \b
    Examples:
      journeyman sandbox run solution.py
      journeyman sandbox run solution.py --limit wall_seconds=5 --limit memory=256M --files data/
    """
    try:
        code = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not a text in UTF-8: {error.reason} at byte {error.start}") from error
    program = Program(
        code=code,
        language=language or language_of(file),
        files=carried(files),
        stdin=stdin.read() if stdin else b"",
        arguments=tuple(arguments),
        limits=limits_of(limits),
    )

    async def executed() -> RunOutcome:
        async with sandbox.started("unsafe-local" if unsafe_local else name) as box:
            return await box.run(program)

    try:
        outcome = asyncio.run(executed())
    except KeyboardInterrupt:
        say("journeyman: interrupted; what the code has printed so far is not shown")
        raise
    if not as_json:
        # The code wrote it: on a terminal it is shown, and none of it obeyed.
        click.echo(plain(outcome.stdout), nl=False)
        click.echo(plain(outcome.stderr), nl=False, err=True)
        if reason := ending(outcome):
            click.echo(f"journeyman: {reason}", err=True)
    emit(outcome_json(outcome), as_json=as_json)
    ctx.exit(exit_code(outcome))


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
def serve(  # noqa: PLR0913 - a parameter an option
    *,
    port: int,
    host: str,
    name: str,
    max_limits: Sequence[str],
    callback_hosts: Sequence[str],
    token_env: str | None,
    allow_anyone: bool,
    as_json: bool,
    **settings: float | None,
) -> None:
    """Run code for others over HTTP, until it is told to stop.

    SIGTERM and Ctrl-C: nothing new is taken, and what runs is finished. With --json, one line when it is ready.

    \b
    Examples:
      journeyman sandbox serve --port 8002
      journeyman sandbox serve --port 8002 --token-env CODE_TOKEN --concurrency 8
    """
    try:
        from journeyman.sandbox.service.app import serve as serve_until_told
        from journeyman.sandbox.service.state import MOST, ServiceConfig
    except ModuleNotFoundError as error:
        raise MissingExtra(f"the code service needs {error.name}: pip install 'journeyman[service]'") from error

    tokens = tokens_in(token_env) if token_env else ()
    if not tokens and not allow_anyone and not is_loopback(host):
        raise InputError(
            f"{host} can be reached by others, who could run code here: name a token with --token-env, or say --allow-anyone"
        )
    given: Mapping[str, Any] = {name: value for name, value in settings.items() if value is not None}
    config = ServiceConfig(
        **given,
        tokens=tokens,
        most=limits_of(max_limits, MOST, option="--max-limit"),
        callback_hosts=frozenset(map(callback_host, callback_hosts)),
    )
    bound = listen(host, port)
    url = url_of(bound)

    def ready(level: Level) -> None:
        say(f"journeyman: code runs at {url} (walls: {level})")
        emit({"url": url, "level": _level_json(level)}, as_json=as_json)

    serve_until_told(lambda: sandbox.opened(name), config, bound, ready)


def callback_host(text: str) -> str:
    """`host:port`, as callbacks are compared."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise InputError(f"--callback-host {text}: should be host:port, such as tools.example.org:443")
    return f"{host.lower()}:{int(port)}"


def chosen_by(only: Sequence[str]) -> tuple[Attack, ...]:
    """The attacks with one of these texts in their name; all, when nothing was asked for."""
    for text in only:
        if not any(text in attack.name for attack in ATTACKS):
            raise InputError(f"--only {text}: there are {', '.join(attack.name for attack in ATTACKS)}")
    return tuple(attack for attack in ATTACKS if not only or any(text in attack.name for text in only))


def _show(report: AuditReport) -> None:
    rows, styles = [], []
    for verdict in report.verdicts:
        state, style = _STATES.get(verdict.state, ("not here", "dim"))
        rows.append((state, verdict.attack.name, verdict.attack.tried, "" if verdict.state == "stopped" else verdict.why))
        styles.append(None if style == "green" else style)
    columns = (
        Column(name="", words=True),
        Column(name="attack", words=True, least=30),
        Column(name="the code …", words=True, wraps=True),
        Column(name="why", words=True, wraps=True, spare=1),
    )
    console.table(columns, rows, styles=styles, title=f"walls: {report.level}")
    untried = f"; {len(report.untried)} cannot be tried here" if report.untried else ""
    click.echo(f"Attacks that were stopped: {report.stopped} of {report.total}{untried}.")


def language_of(file: Path) -> str:
    """By the end of its name; tests are test_*.py and *_test.py, as for pytest."""
    found = _ENDINGS.get(file.suffix)
    if found is None:
        raise InputError(f"{file}: no language has such names; say --language, one of {', '.join(LANGUAGES)}")
    is_test = file.name.startswith("test_") or file.name.endswith("_test.py")
    return "pytest" if found == "python" and is_test else found


def carried(paths: Iterable[Path]) -> dict[str, bytes]:
    """Files under their names, and folders with all that is in them under theirs. Links are not followed."""
    found: dict[str, bytes] = {}
    size = 0
    for given in paths:
        for path in sorted(given.rglob("*")) if given.is_dir() else [given]:
            if path.is_symlink() or not path.is_file():
                continue
            size += path.stat().st_size
            if size > MAX_FILES:
                raise InputError(f"--files {given}: more than {MAX_FILES >> 20} MiB; give fewer files")
            found[str(path.relative_to(given.parent))] = path.read_bytes()
    return found


def limits_of(given: Sequence[str], usual: Limits = _DEFAULTS, *, option: str = "--limit") -> Limits:
    """What is usual, with what was said otherwise. Sizes may have K, M or G behind them."""
    known = [field.name for field in fields(Limits)]
    changed: dict[str, Any] = {}
    for one in given:
        name, _, text = one.partition("=")
        name = name.strip().replace("-", "_")
        if name not in known:
            raise InputError(f"{option} {one}: should be NAME=VALUE with one of {', '.join(known)}, such as memory=256M")
        value = _number(text)
        if not 0 < value < float("inf"):
            kind, example = _KINDS.get(name, ("number", "64"))
            raise InputError(f"{option} {one}: {text!r} is no {kind} such as {example}")
        changed[name] = value if name.endswith("seconds") else int(value)
    return replace(usual, **changed)


def _number(text: str) -> float:
    """Of a size with or without its unit; 0 for what is none."""
    unit = _UNITS.get(text[-1:].upper(), 1)
    try:
        return float(text[:-1] if unit > 1 else text) * unit
    except ValueError:
        return 0.0


def ending(outcome: RunOutcome) -> str | None:
    """How it ended where its exit code alone does not say so, and what option changes that."""
    if outcome.limit:
        met = "stopped by the limit on {}" if exit_code(outcome) == LIMIT_HIT else "the limit on {} was met"
        return f"{met.format(outcome.limit)}; --limit {_FIELDS.get(outcome.limit, outcome.limit)}=… sets it"
    return f"ended by {outcome.signal}" if outcome.signal else None


def exit_code(outcome: RunOutcome) -> int:
    """Of this command: a limit comes first, since how the code ended follows from it."""
    if outcome.limit in {"cpu", "wall", "memory", "processes", "disk", "inodes"} or (
        outcome.exit_code is None and outcome.limit
    ):
        return LIMIT_HIT
    if outcome.exit_code is not None:
        return outcome.exit_code
    return 128 + getattr(signal.Signals, outcome.signal or "", signal.SIGKILL)


def outcome_json(outcome: RunOutcome) -> dict[str, Any]:
    """All but the files, which may be no text."""
    names = (field.name for field in fields(RunOutcome) if field.name not in ("files", "level"))
    return {name: getattr(outcome, name) for name in names} | {"level": _level_json(outcome.level)}


def _level_json(level: Level) -> dict[str, Any]:
    return {"name": level.name, "holds": list(level.holds), "lacks": list(level.lacks)}
