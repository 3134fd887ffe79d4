"""The second choice, where this machine forbids the namespaces that bubblewrap needs: Landlock, filters, limits, and a watch.

Slower, since nothing is warm, and weaker: its level says in what.
"""

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

from journeyman.errors import SandboxError
from journeyman.sandbox import inside, probes
from journeyman.sandbox.base import Level, Limits, Outcome, Program, Tool
from journeyman.sandbox.inside import landlock_rules
from journeyman.sandbox.nursery import ETC, SYSTEM, UIDS
from journeyman.sandbox.sessions import LocalSession
from journeyman.sandbox.talk import Talk, request

NAME = "landlock"
PROGRAMS = Path(inside.__file__).parent
MUST_HOLD = frozenset(
    {"no_network", "private_files", "own_processes", "read_only_system", "no_host_environment", "no_new_privileges", "seccomp"}
)
"""Without one of these it is no sandbox."""
LACKS = ("hidden_names", "own_tmp", "limits_at_once")
"""By its nature: that a file is there can be seen, /tmp cannot be used (TMPDIR can), disk and inodes are only watched."""
_uids = itertools.count(os.getpid())


class Landlock:
    """Needs a kernel of 5.13 or newer with Landlock switched on, and no right at all."""

    def __init__(self) -> None:
        self._level: Level | None = None
        self._open: set[contextlib.AsyncExitStack] = set()

    @property
    def level(self) -> Level:
        if self._level is None:
            raise SandboxError("the sandbox was not started yet, and its walls are not known before they were tested")
        return self._level

    async def start(self) -> None:
        if self._level is not None:
            return
        if problem := missing():
            raise SandboxError(problem)
        held, not_held = await probes.test(self._probe)
        if broken := MUST_HOLD - set(held):
            raise SandboxError(
                f"Landlock is there, but its walls do not hold on this machine ({', '.join(sorted(broken))}); nothing was run. "
                "Use another machine or the service of one"
            )
        self._level = Level(NAME, tuple(held), (*not_held, *LACKS))

    async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> Outcome:
        await self.start()
        return await self._run(program, tools or {})

    async def session(
        self, *, limits: Limits | None = None, files: Mapping[str, bytes] | None = None, idle_seconds: float = 600.0
    ) -> LocalSession:
        await self.start()
        stack = contextlib.AsyncExitStack()
        talk = await stack.enter_async_context(self._warden())
        self._open.add(stack)

        async def ended() -> None:
            self._open.discard(stack)
            await stack.aclose()

        session = LocalSession(talk, idle_seconds=idle_seconds, limits=limits or Limits(), ended=ended)
        await session.begin(files or {})
        return session

    async def close(self) -> None:
        for stack in list(self._open):
            await stack.aclose()
        self._open.clear()

    async def _probe(self, program: Program) -> Outcome:
        """The probes of disk and inodes are to end by themselves. That they get through is known: nothing refuses at once."""
        return await self._run(replace(program, limits=Limits()), {})

    async def _run(self, program: Program, tools: Mapping[str, Tool]) -> Outcome:
        message, blobs = request(program, tools)
        async with self._warden() as talk:
            await talk.send(message, blobs)
            outcome, _ = await talk.outcome(tools)
            return outcome

    @contextlib.asynccontextmanager
    async def _warden(self) -> AsyncIterator[Talk]:
        """A warden of one run in a folder of its own, both gone afterwards."""
        folder = tempfile.mkdtemp(prefix="journeyman-")
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-I",
                    str(PROGRAMS),
                    "landlock_warden",
                    json.dumps(given(folder)),
                    stdin=theirs.fileno(),
                    stdout=asyncio.subprocess.DEVNULL,
                    env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
                    start_new_session=True,
                )
            talk = await Talk.open(ours, self._level or Level(NAME))
            try:
                yield talk
            finally:
                await talk.close()
                # It ends by itself once nobody listens, and takes what it started with it.
                await asyncio.shield(process.wait())
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def given(folder: str) -> dict[str, object]:
    """What the warden of one run is told: where it may write, what it may read, and whom it is to be."""
    roots = dict.fromkeys((sys.base_prefix, sys.prefix))
    uid = None
    if os.geteuid() == 0:
        uid = UIDS[next(_uids) % len(UIDS)]
        Path(folder).chmod(0o711)
    return {
        "folder": folder,
        "readable": [*(f"/{name}" for name in SYSTEM), *roots, *(f"/etc/{name}" for name in ETC), str(PROGRAMS)],
        "uid": uid,
        # Landlock still holds it to what is readable here.
        "reads_all": uid is not None and not all(_open_to_all(Path(root)) for root in roots),
    }


def _open_to_all(path: Path) -> bool:
    return all(place.stat().st_mode & 0o001 for place in (path.resolve(), *path.resolve().parents))


def missing() -> str | None:
    """Why Landlock cannot be used here and what to do, if it cannot."""
    if sys.platform != "linux":
        return "the sandbox needs Linux; use the service of a Linux machine, or --unsafe-local for your own code"
    if not landlock_rules.version():
        return (
            "this kernel has no Landlock, or it is switched off: a kernel of 5.13 or newer started with lsm=landlock,… has it, "
            "and a container must not filter its system calls"
        )
    return None
