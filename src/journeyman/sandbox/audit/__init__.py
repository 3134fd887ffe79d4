"""Ways out of a sandbox, tried on this machine. Each is harmless when it succeeds, and shown to succeed without walls."""

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from journeyman.sandbox.audit.attacks import ATTACKS
from journeyman.sandbox.audit.traps import Attack, AttackEvidence, Untried, token
from journeyman.sandbox.base import Level, Limits, Program, RunOutcome, Sandbox

__all__ = ["AttackVerdict", "AuditReport", "check", "judge", "program_of", "run_bare"]

# What came of the attacks.

State = Literal["stopped", "through", "unproven", "untried"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackVerdict:
    """What came of one attack."""

    attack: Attack
    state: State
    """`unproven`: the probe gets through nowhere, so that it did not here proves nothing. `untried`: this machine has no such
    thing, or not even root's own process may do it."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What came of them all."""

    level: Level
    verdicts: tuple[AttackVerdict, ...] = field(default=())

    @property
    def stopped(self) -> int:
        return sum(verdict.state == "stopped" for verdict in self.verdicts)

    @property
    def total(self) -> int:
        """Of those that could be tried here."""
        return sum(verdict.state != "untried" for verdict in self.verdicts)

    @property
    def not_stopped(self) -> tuple[AttackVerdict, ...]:
        """Those that got through, and those that prove nothing."""
        return tuple(verdict for verdict in self.verdicts if verdict.state in ("through", "unproven"))

    @property
    def untried(self) -> tuple[AttackVerdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.state == "untried")

    def as_json(self) -> dict[str, Any]:
        return {
            "stopped": self.stopped,
            "total": self.total,
            "not_stopped": [
                {"name": verdict.attack.name, "tried": verdict.attack.tried, "why": verdict.why} for verdict in self.not_stopped
            ],
            "untried": [{"name": verdict.attack.name, "why": verdict.why} for verdict in self.untried],
            "level": {"name": self.level.name, "holds": list(self.level.holds), "lacks": list(self.level.lacks)},
        }


# No walls at all: a plain subprocess that shows whether a probe gets through where nothing stops it.

NONE = Level("none")
READ_SECONDS = 1.0


async def run_bare(program: Program) -> RunOutcome:
    """Run Python code with no more care than a beginner's: files are fetched wherever a link leads.

    Only for the probes of this suite, which are bounded by themselves.
    """
    with _folder_of_a_beginner() as folder:
        for name, content in program.files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        Path(folder, "main.py").write_text(program.code)
        command = [sys.executable, "-S", "-B", "main.py", *program.arguments]
        start = time.monotonic()
        code, out, err = await _run(command, folder, program.limits.wall_seconds)
        fetched = [await _fetch(path) for pattern in program.collect for path in sorted(Path(folder).glob(pattern))]
        return RunOutcome(
            level=NONE,
            exit_code=code,
            limit=None if None not in fetched else "wall",
            stdout=out.decode(errors="replace"),
            stderr=err.decode(errors="replace"),
            files={str(number): content for number, content in enumerate(fetched) if content is not None},
            wall_seconds=time.monotonic() - start,
        )


@contextmanager
def _folder_of_a_beginner() -> Iterator[str]:
    """Removed by calls within calls, and left where those go too deep."""
    folder = tempfile.mkdtemp()
    try:
        yield folder
    finally:
        with suppress(OSError, RecursionError):
            _remove(Path(folder))


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            _remove(path)
        else:
            path.unlink()
    folder.rmdir()


async def _run(command: list[str], folder: str, seconds: float) -> tuple[int | None, bytes, bytes]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        close_fds=False,
        start_new_session=True,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), seconds)
    except TimeoutError:
        out, err = b"", b""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return await process.wait(), out, err


async def _fetch(path: Path) -> bytes | None:
    """What a reader gets, or `None` when it waits for ever."""
    process = await asyncio.create_subprocess_exec(
        "cat", str(path), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        return (await asyncio.wait_for(process.communicate(), READ_SECONDS))[0]
    except TimeoutError:
        process.kill()
        await process.wait()
        return None


# Attacks a sandbox, and says what got through.

AT_ONCE = 3
LATE_SECONDS = 30.0
"""After its time is over, in which a run must come back: one that does not has taken its sandbox with it."""
MEETINGS = 4
"""Tries of two runs to be there at the same time."""
PLANTED = "JOURNEYMAN_SECRET_OF_THE_HOST"
_MAIN = "from probes import main\nmain()\n"


async def check(
    sandbox: Sandbox, attacks: Sequence[Attack] = ATTACKS, *, progress: Callable[[AttackVerdict], None] | None = None
) -> AuditReport:
    """Try every attack within the sandbox, and without walls where that is its control.

    The sandbox is started here, if it was not: what its own processes inherit is then looked at, too.

    Raises:
        SandboxError: The sandbox could not run something.
    """
    with _planted():
        await sandbox.start()
        verdicts = {verdict.attack.name: verdict async for verdict in _verdicts(sandbox, attacks, progress)}
    return AuditReport(sandbox.level, tuple(verdicts[attack.name] for attack in attacks))


@contextmanager
def _planted() -> Iterator[None]:
    """At least one secret is in the environment."""
    os.environ[PLANTED] = token()
    try:
        yield
    finally:
        del os.environ[PLANTED]


async def _verdicts(
    sandbox: Sandbox, attacks: Sequence[Attack], progress: Callable[[AttackVerdict], None] | None
) -> AsyncIterator[AttackVerdict]:
    few = asyncio.Semaphore(AT_ONCE)

    async def one(attack: Attack) -> AttackVerdict:
        async with few:
            return await judge(sandbox, attack)

    together = [asyncio.create_task(one(attack)) for attack in attacks if not attack.alone]
    try:
        for done in asyncio.as_completed(together):
            verdict = await done
            if progress:
                progress(verdict)
            yield verdict
        for attack in [attack for attack in attacks if attack.alone]:
            verdict = await judge(sandbox, attack)
            if progress:
                progress(verdict)
            yield verdict
    finally:
        for task in together:
            task.cancel()


async def judge(sandbox: Sandbox, attack: Attack) -> AttackVerdict:
    """Try one attack within, and its control.

    Raises:
        SandboxError: The sandbox could not run it.
    """
    try:
        did, seen = await _try(sandbox.run, attack, attack.limits)
        if did:
            return AttackVerdict(attack=attack, state="through", why=did)
        if not seen.reported("trying"):
            return AttackVerdict(attack=attack, state="unproven", why=f"the attack did not even start: {_end(seen.outcome)}")
        works, free = await _control(sandbox, attack)
    except Untried as error:
        return AttackVerdict(attack=attack, state="untried", why=str(error))
    except TimeoutError:
        return AttackVerdict(attack=attack, state="through", why="the sandbox did not come back in its time")
    except RecursionError as error:
        return AttackVerdict(attack=attack, state="through", why=f"it ended who ran it: {error}")
    if works:
        return AttackVerdict(attack=attack, state="stopped", why=_refusal(seen))
    state: State = "untried" if attack.privileged else "unproven"
    where = "with more granted" if attack.lifted else "without walls"
    return AttackVerdict(attack=attack, state=state, why=f"it fails {where}, too: {_refusal(free) or _end(free.outcome)}")


_Run = Callable[[Program], Awaitable[RunOutcome]]


async def _control(sandbox: Sandbox, attack: Attack) -> tuple[str | None, AttackEvidence]:
    """The same where it ought to get through. On a busy machine two runs can miss each other, so those may try again."""
    if attack.lifted:
        return await _try(sandbox.run, attack, attack.lifted)
    for _ in range(MEETINGS if attack.beside else 1):
        works, free = await _try(run_bare, attack, attack.limits)
        if works:
            break
    return works, free


async def _try(run: _Run, attack: Attack, limits: Limits) -> tuple[str | None, AttackEvidence]:
    """What it did, if anything, and what was seen of it. Setting a trap is quick, so it is set right here."""
    with attack.trap() as trap:
        program = program_of(attack, attack.probe, trap.bait, limits)
        programs = [program]
        if attack.beside is not None:
            programs.append(program_of(attack, attack.beside, trap.bait, limits))
        async with asyncio.timeout(limits.wall_seconds + LATE_SECONDS):
            outcomes = await asyncio.gather(*map(run, programs))
        seen = AttackEvidence(outcome=outcomes[0], beside=outcomes[-1] if attack.beside else None)
        return trap.sprung(seen), seen


def program_of(attack: Attack, probe: str, bait: Mapping[str, Any], limits: Limits) -> Program:
    """A probe as a program: all probes lie beside it, and it is told which one to be."""
    room, _, name = probe.rpartition(".")
    arguments = (room or attack.category, name, json.dumps(bait))
    return Program(code=_MAIN, files=_probes(), arguments=arguments, limits=limits, collect=attack.collect)


@cache
def _probes() -> Mapping[str, bytes]:
    here = Path(__file__).with_name("probes")
    return {f"probes/{path.name}": path.read_bytes() for path in here.glob("*.py")}


def _refusal(seen: AttackEvidence) -> str:
    if seen.outcome.limit:
        return f"limit on {seen.outcome.limit}"
    return next(iter(seen.reported("refused")), "")


def _end(outcome: RunOutcome) -> str:
    last = outcome.stderr.strip().splitlines()[-1:] or ["it said nothing"]
    how = outcome.signal or f"exit code {outcome.exit_code}"
    return f"{how}, {last[0]}"
