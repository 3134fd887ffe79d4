"""Attacks a sandbox, and says what got through."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from journeyman.sandbox.attacks.bare import run_bare
from journeyman.sandbox.attacks.base import Attack, Report, Seen, State, Untried, Verdict
from journeyman.sandbox.attacks.table import ATTACKS
from journeyman.sandbox.attacks.traps import token
from journeyman.sandbox.base import Limits, Outcome, Program, Sandbox

AT_ONCE = 3
LATE_SECONDS = 30.0
"""After its time is over, in which a run must come back: one that does not has taken its sandbox with it."""
MEETINGS = 4
"""Tries of two runs to be there at the same time."""
PLANTED = "JOURNEYMAN_SECRET_OF_THE_HOST"
_MAIN = "from probes.common import main\nmain()\n"


async def check(
    sandbox: Sandbox, attacks: Sequence[Attack] = ATTACKS, *, progress: Callable[[Verdict], None] | None = None
) -> Report:
    """Try every attack within the sandbox, and without walls where that is its control.

    The sandbox is started here, if it was not: what its own processes inherit is then looked at, too.

    Raises:
        SandboxError: The sandbox could not run something.
    """
    with _planted():
        await sandbox.start()
        verdicts = {verdict.attack.name: verdict async for verdict in _verdicts(sandbox, attacks, progress)}
    return Report(sandbox.level, tuple(verdicts[attack.name] for attack in attacks))


@contextmanager
def _planted() -> Iterator[None]:
    """At least one secret is in the environment."""
    os.environ[PLANTED] = token()
    try:
        yield
    finally:
        del os.environ[PLANTED]


async def _verdicts(
    sandbox: Sandbox, attacks: Sequence[Attack], progress: Callable[[Verdict], None] | None
) -> AsyncIterator[Verdict]:
    few = asyncio.Semaphore(AT_ONCE)

    async def one(attack: Attack) -> Verdict:
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


async def judge(sandbox: Sandbox, attack: Attack) -> Verdict:
    """Try one attack within, and its control.

    Raises:
        SandboxError: The sandbox could not run it.
    """
    try:
        did, seen = await _try(sandbox.run, attack, attack.limits)
        if did:
            return Verdict(attack=attack, state="through", why=did)
        if not seen.said("trying"):
            return Verdict(attack=attack, state="unproven", why=f"the attack did not even start: {_end(seen.outcome)}")
        works, free = await _control(sandbox, attack)
    except Untried as error:
        return Verdict(attack=attack, state="untried", why=str(error))
    except TimeoutError:
        return Verdict(attack=attack, state="through", why="the sandbox did not come back in its time")
    if works:
        return Verdict(attack=attack, state="stopped", why=_refusal(seen))
    state: State = "untried" if attack.privileged else "unproven"
    where = "with more granted" if attack.lifted else "without walls"
    return Verdict(attack=attack, state=state, why=f"it fails {where}, too: {_refusal(free) or _end(free.outcome)}")


_Run = Callable[[Program], Awaitable[Outcome]]


async def _control(sandbox: Sandbox, attack: Attack) -> tuple[str | None, Seen]:
    """The same where it ought to get through. On a busy machine two runs can miss each other, so those may try again."""
    if attack.lifted:
        return await _try(sandbox.run, attack, attack.lifted)
    for _ in range(MEETINGS if attack.beside else 1):
        works, free = await _try(run_bare, attack, attack.limits)
        if works:
            break
    return works, free


async def _try(run: _Run, attack: Attack, limits: Limits) -> tuple[str | None, Seen]:
    """What it did, if anything, and what was seen of it. Setting a trap is quick, so it is set right here."""
    with attack.trap() as trap:
        program = program_of(attack, attack.probe, trap.bait, limits)
        programs = [program]
        if attack.beside is not None:
            programs.append(program_of(attack, attack.beside, trap.bait, limits))
        async with asyncio.timeout(limits.wall_seconds + LATE_SECONDS):
            outcomes = await asyncio.gather(*map(run, programs))
        seen = Seen(outcome=outcomes[0], beside=outcomes[-1] if attack.beside else None)
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


def _refusal(seen: Seen) -> str:
    if seen.outcome.limit:
        return f"limit on {seen.outcome.limit}"
    return next(iter(seen.said("refused")), "")


def _end(outcome: Outcome) -> str:
    last = outcome.stderr.strip().splitlines()[-1:] or ["it said nothing"]
    how = outcome.signal or f"exit code {outcome.exit_code}"
    return f"{how}, {last[0]}"
