"""The test of a sandbox by itself: the same probes within its walls, and where there are none.

A probe that gets through nowhere proves nothing: a wall holds only when its probe was stopped within and got through without.
"""

import asyncio
import json
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Set
from pathlib import Path

from journeyman.core.errors import SandboxError
from journeyman.sandbox import inside
from journeyman.sandbox.base import MIB, Level, Limits, Program, RunOutcome

PROGRAM = Path(inside.__file__).parent / "probes.py"
WALLS = {
    "network": "no_network",
    "private_file": "private_files",
    "process": "own_processes",
    "environment": "no_host_environment",
    "writing": "read_only_system",
    "capabilities": "no_capabilities",
    "privileges": "no_new_privileges",
    "filtered": "seccomp",
    "disk": "disk_limit",
    "inodes": "inode_limit",
}
LIMITS = Limits(disk=MIB, inodes=64)


class Tested:
    """A sandbox whose level is what its own test measured."""

    def __init__(self) -> None:
        super().__init__()
        self._level: Level | None = None

    @property
    def level(self) -> Level:
        if self._level is None:
            raise SandboxError("the sandbox was not started yet, and its walls are not known before they were tested")
        return self._level

    async def test(
        self, run: Callable[[Program], Awaitable[RunOutcome]], must_hold: Set[str], state: str
    ) -> tuple[list[str], list[str]]:
        """The walls that hold, and those that do not or could not be proven.

        Args:
            must_hold: The walls without one of which it is no sandbox.
            state: What is true of it all the same, as the beginning of the sentence that says which of them are missing.

        Raises:
            SandboxError: One of `must_hold` does not, or the probes themselves could not be run.
        """
        held, not_held = await test(run)
        if broken := must_hold - set(held):
            raise SandboxError(
                f"{state}, but its walls do not hold on this machine ({', '.join(sorted(broken))}); nothing was run. "
                "Use another machine or the service of one"
            )
        return held, not_held


async def test(run: Callable[[Program], Awaitable[RunOutcome]]) -> tuple[list[str], list[str]]:
    """The walls that hold, and those that do not or could not be proven.

    Raises:
        SandboxError: The probes themselves could not be run.
    """
    with tempfile.TemporaryDirectory(prefix="journeyman-") as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        canary = secrets.token_hex(16)
        (Path(folder) / "secret").write_text(canary)
        given = {
            "port": listener.getsockname()[1],
            "file": f"{folder}/secret",
            "folder": folder,
            "canary": canary,
            "pid": os.getpid(),
            "started": Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19],
            "inodes": LIMITS.inodes,
        }
        within, without = await asyncio.gather(_within(run, given), _without(given, folder))
    held = [wall for probe, wall in WALLS.items() if without[probe] and not within[probe]]
    return held, [wall for wall in WALLS.values() if wall not in held]


async def _within(run: Callable[[Program], Awaitable[RunOutcome]], given: dict[str, object]) -> dict[str, bool]:
    outcome = await run(Program(code=PROGRAM.read_text(), stdin=json.dumps(given).encode(), limits=LIMITS))
    if not outcome.ok:
        raise SandboxError(f"the sandbox cannot run its own test: {outcome.stderr.strip() or outcome.limit or outcome.signal}")
    return dict(json.loads(outcome.stdout))


async def _without(given: dict[str, object], folder: str) -> dict[str, bool]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=folder,
        env={"CANARY": str(given["canary"])},
    )
    stdout, _ = await process.communicate(json.dumps(given).encode())
    return dict(json.loads(stdout))
