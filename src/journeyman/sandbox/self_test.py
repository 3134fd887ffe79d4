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
from collections.abc import Awaitable, Callable
from pathlib import Path

from journeyman.core.errors import SandboxError
from journeyman.sandbox import inside
from journeyman.sandbox.base import MIB, Limits, Program, RunOutcome

PROGRAM = Path(inside.__file__).parent / "probing.py"
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
    found: dict[str, bool] = json.loads(outcome.stdout)
    return found


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
    found: dict[str, bool] = json.loads(stdout)
    return found
