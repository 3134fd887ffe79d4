"""No walls: a process in a temporary folder, with limits. For one's own code, never for a model's."""

import asyncio
import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from journeyman.sandbox import inside
from journeyman.sandbox.base import Level, Limits, Outcome, Program, Tool
from journeyman.sandbox.sessions import LocalSession
from journeyman.sandbox.talk import Talk, request

PROGRAMS = Path(inside.__file__).parent
ENVIRONMENT = ("PATH", "SYSTEMROOT")
"""All that the code sees of the caller's."""


class Unsafe:
    """The protocol without its promise: the code can do whatever you can do."""

    level = Level("none", holds=(), lacks=("no_network", "read_only_system", "private_files", "own_processes", "seccomp"))

    def __init__(self) -> None:
        self._open: set[contextlib.AsyncExitStack] = set()

    async def start(self) -> None:
        """There are no walls to test."""

    async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> Outcome:
        message, blobs = request(program, tools or {})
        async with self._warden() as talk:
            await talk.send(message, blobs)
            outcome, _ = await talk.outcome(tools or {})
            return outcome

    async def session(
        self, *, limits: Limits | None = None, files: Mapping[str, bytes] | None = None, idle_seconds: float = 600.0
    ) -> LocalSession:
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
                    "warden",
                    folder,
                    stdin=theirs.fileno(),
                    stdout=asyncio.subprocess.DEVNULL,
                    env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
                    start_new_session=True,
                )
            talk = await Talk.open(ours, self.level)
            try:
                yield talk
            finally:
                await talk.close()
                # It ends by itself once nobody listens, and takes what it started with it.
                await asyncio.shield(process.wait())
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
