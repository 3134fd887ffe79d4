"""What `journeyman sandbox check` and `journeyman sandbox run` do."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from journeyman import sandbox
from journeyman.cli.shared import console
from journeyman.core.errors import InputError
from journeyman.sandbox import audit
from journeyman.sandbox.audit import Attack, AttackVerdict, AuditReport
from journeyman.sandbox.base import LANGUAGES, Limits, Program, RunOutcome, Sandbox

LIMIT_HIT = 124
"""As `timeout` of the shell has it."""
MAX_FILES = 64 * 1024 * 1024
_ENDINGS = {".py": "python", ".sh": "shell", ".bash": "shell", ".js": "javascript", ".mjs": "javascript"}
DEFAULTS = Limits()
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_KINDS = {
    **dict.fromkeys(("cpu_seconds", "wall_seconds"), ("number of seconds", "2.5")),
    **dict.fromkeys(("memory", "file_size", "disk", "output"), ("size", "256M")),
}
"""What a limit is said in, where that is no count."""
_FIELDS = {"cpu": "cpu_seconds", "wall": "wall_seconds"}
"""The limits that are set under another name than they are told under."""
_SIGNS = {"through": "[red]got through[/]", "unproven": "[yellow]proves nothing[/]", "stopped": "[green]stopped[/]"}

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `run` as they were typed."""

    file: Path
    arguments: Sequence[str]
    language: str | None
    stdin: BinaryIO | None
    files: Sequence[Path]
    limits: Sequence[str]
    name: str
    unsafe_local: bool

    def program(self) -> Program:
        """Raises `InputError` for what cannot be read or meant."""
        try:
            code = self.file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{self.file}: not a text in UTF-8: {error.reason} at byte {error.start}") from error
        return Program(
            code=code,
            language=self.language or language_of(self.file),
            files=carried(self.files),
            stdin=self.stdin.read() if self.stdin else b"",
            arguments=tuple(self.arguments),
            limits=limits_of(self.limits),
        )


def check(name: str, only: Sequence[str], *, as_json: bool) -> AuditReport:
    """Attack a sandbox, with a line for people on how far it is.

    Raises:
        InputError: No attack has such a name.
    """
    screen, chosen = console(), chosen_by(only)
    count = 0

    def progress(verdict: AttackVerdict) -> None:
        nonlocal count
        count += 1
        waiting.update(f"{count} of {len(chosen)} tried; {verdict.attack.name}: {verdict.state}")

    with screen.status("starting the sandbox") as waiting:
        report = _with(name, lambda box: audit.check(box, chosen, progress=progress))
    if not as_json:
        _show(report)
    return report


def chosen_by(only: Sequence[str]) -> tuple[Attack, ...]:
    """The attacks with one of these texts in their name; all, when nothing was asked for."""
    for text in only:
        if not any(text in attack.name for attack in audit.ATTACKS):
            raise InputError(f"--only {text}: there are {', '.join(attack.name for attack in audit.ATTACKS)}")
    return tuple(attack for attack in audit.ATTACKS if not only or any(text in attack.name for text in only))


def _show(report: AuditReport) -> None:
    """The table is data, and goes where data goes."""
    from rich.console import Console
    from rich.table import Table

    table = Table("", "attack", "the code …", title=f"walls: {report.level}", title_justify="left")
    reasons = [verdict.why if verdict.state != "stopped" else "" for verdict in report.verdicts]
    if any(reasons):
        table.add_column("why")
    for verdict, why in zip(report.verdicts, reasons, strict=True):
        row = (_SIGNS.get(verdict.state, "[dim]not here[/]"), verdict.attack.name, verdict.attack.tried, why)
        table.add_row(*row[: len(table.columns)])
    screen = Console(highlight=False)
    screen.print(table)
    left = f"; {len(report.untried)} cannot be tried here" if report.untried else ""
    screen.print(f"Attacks that were stopped: {report.stopped} of {report.total}{left}.")


def run(wish: RunOptions) -> RunOutcome:
    """Run one file."""
    program = wish.program()
    try:
        return _with("unsafe-local" if wish.unsafe_local else wish.name, lambda box: box.run(program))
    except KeyboardInterrupt:
        console().print("journeyman: interrupted; what the code has printed so far is not shown", soft_wrap=True)
        raise


def _with(name: str, use: Callable[[Sandbox], Coroutine[Any, Any, _Made]]) -> _Made:
    async def main() -> _Made:
        box = await opened(name)
        try:
            return await use(box)
        finally:
            await box.close()

    return asyncio.run(main())


async def opened(name: str) -> Sandbox:
    """A sandbox that was started.

    Raises:
        SandboxError: It cannot run here; the message says what to do.
    """
    box = sandbox.load(name)
    await box.start()
    return box


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


def limits_of(given: Sequence[str], usual: Limits = DEFAULTS, *, option: str = "--limit") -> Limits:
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


def as_json(outcome: RunOutcome) -> dict[str, Any]:
    """All but the files, which may be no text."""
    level = outcome.level
    told = {field.name: getattr(outcome, field.name) for field in fields(RunOutcome) if field.name not in ("files", "level")}
    return told | {"level": {"name": level.name, "holds": list(level.holds), "lacks": list(level.lacks)}}
