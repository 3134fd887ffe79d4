"""A warden in a process of its own for each run: what the sandboxes have in common that keep nothing warm."""

import asyncio
import contextlib
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from journeyman.sandbox import inside
from journeyman.sandbox.base import Level, Limits, Program, RunOutcome, Tool
from journeyman.sandbox.run_channel import LocalSession, RunChannel, request

PROGRAMS = Path(inside.__file__).parent


@dataclass(frozen=True, slots=True)
class Start:
    """How a warden is started."""

    arguments: tuple[str, ...]
    """The name of its program within `inside`, and what that is told."""
    environment: Mapping[str, str]


class Wardens:
    """Starts them, and ends those that are left."""

    def __init__(self, start: Callable[[str], Start]) -> None:
        """`start` is given the folder of a run, which is gone after it."""
        self._start = start
        self._open: set[contextlib.AsyncExitStack] = set()

    async def run(self, program: Program, tools: Mapping[str, Tool], level: Level) -> RunOutcome:
        message, blobs = request(program, tools)
        async with self._warden(level) as talk:
            await talk.send(message, blobs)
            outcome, _ = await talk.outcome(tools)
            return outcome

    async def session(self, level: Level, *, limits: Limits, files: Mapping[str, bytes], idle_seconds: float) -> LocalSession:
        stack = contextlib.AsyncExitStack()
        talk = await stack.enter_async_context(self._warden(level))
        self._open.add(stack)

        async def ended() -> None:
            self._open.discard(stack)
            await stack.aclose()

        session = LocalSession(talk, idle_seconds=idle_seconds, limits=limits, ended=ended)
        await session.begin(files)
        return session

    async def close(self) -> None:
        """End the sessions."""
        for stack in list(self._open):
            await stack.aclose()
        self._open.clear()

    @contextlib.asynccontextmanager
    async def _warden(self, level: Level) -> AsyncIterator[RunChannel]:
        folder = tempfile.mkdtemp(prefix="journeyman-")
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                start = self._start(folder)
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-I",
                    str(PROGRAMS),
                    *start.arguments,
                    stdin=theirs.fileno(),
                    stdout=asyncio.subprocess.DEVNULL,
                    env=start.environment,
                    start_new_session=True,
                )
            talk = await RunChannel.open(ours, level)
            try:
                yield talk
            finally:
                await talk.close()
                # It ends by itself once nobody listens, and takes what it started with it.
                await asyncio.shield(process.wait())
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
