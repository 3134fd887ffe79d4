"""Walls by the kernel's namespaces: bubblewrap around a warm fork server, and around each run walls of its own within.

A run shares nothing with the one before it but the libraries that both only read. See `inside/__init__.py` for who does what.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping

from journeyman.core.errors import SandboxError
from journeyman.sandbox.base import Interpreter, Level, Limits, Program, RunOutcome, Tool
from journeyman.sandbox.fork_server_host import ForkServerHost
from journeyman.sandbox.run_channel import LocalSession, RunChannel, request
from journeyman.sandbox.self_test import Tested

NAME = "bubblewrap"
MUST_HOLD = frozenset(
    {"no_network", "private_files", "own_processes", "read_only_system", "no_host_environment", "no_capabilities"}
)
"""Without one of these it is no sandbox."""
BUSY_SECONDS = 0.001


class Bubblewrap(Tested):
    """The default on Linux."""

    def __init__(self, interpreter: Interpreter = Interpreter()) -> None:  # noqa: B008 - frozen
        super().__init__()
        self._interpreter = interpreter
        self._fork_server: ForkServerHost | None = None
        self._starting: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._channels: set[RunChannel] = set()

    async def start(self) -> None:
        async with self._lock():
            if self._fork_server is None or not self._fork_server.alive:
                await self._begin()

    async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> RunOutcome:
        message, blobs = request(program, tools or {})
        await self.start()
        return await self._run(message, blobs, tools or {})

    async def session(
        self, *, limits: Limits | None = None, files: Mapping[str, bytes] | None = None, idle_seconds: float = 600.0
    ) -> LocalSession:
        await self.start()
        channel = await self._open_channel()

        async def ended() -> None:
            self._channels.discard(channel)

        session = LocalSession(channel, idle_seconds=idle_seconds, limits=limits or Limits(), ended=ended)
        await session.begin(files or {})
        return session

    async def close(self) -> None:
        for channel in list(self._channels):
            await channel.close()
        if self._fork_server is not None:
            await asyncio.to_thread(self._fork_server.end)
            self._fork_server = None

    async def _begin(self) -> None:
        if self._fork_server is not None:
            self._fork_server.end()
        self._fork_server = fork_server = ForkServerHost(self._interpreter)
        try:
            await fork_server.ready()
            self._level = Level(NAME)
            self._level = await self._tested()
        except BaseException:
            self._fork_server = None
            fork_server.end()
            raise

    async def _tested(self) -> Level:
        """What holds, as seen from within."""

        async def run(program: Program) -> RunOutcome:
            return await self._run(*request(program, {}), {})

        held, not_held = await self.test(run, MUST_HOLD, "bubblewrap started")
        counted = self._fork_server.controllers if self._fork_server else frozenset()
        for wall, controller in (("memory_group", "memory"), ("process_group", "pids")):
            (held if controller in counted else not_held).append(wall)
        return Level(NAME, tuple(held), tuple(not_held))

    async def _run(self, message: dict[str, object], blobs: tuple[bytes, ...], tools: Mapping[str, Tool]) -> RunOutcome:
        channel = await self._open_channel(pytest=message["warm"] == "pytest")
        try:
            await channel.send(message, blobs)
            outcome, _ = await channel.outcome(tools)
            return outcome
        finally:
            self._channels.discard(channel)
            await channel.close()

    async def _open_channel(self, *, pytest: bool = False) -> RunChannel:
        """A supervisor, fresh from the fork server."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                while not (self._fork_server or _gone()).give(theirs, pytest=pytest):
                    await asyncio.sleep(BUSY_SECONDS)
                channel = await RunChannel.open(ours, self.level)
            except BaseException:
                ours.close()
                raise
        self._channels.add(channel)
        return channel

    def _lock(self) -> asyncio.Lock:
        """Of this event loop: a sandbox may outlive one."""
        loop = asyncio.get_running_loop()
        if self._starting is None or self._starting[0] is not loop:
            self._starting = loop, asyncio.Lock()
        return self._starting[1]


def _gone() -> ForkServerHost:
    raise SandboxError("the sandbox was closed")


def installed() -> bool:
    """Whether bubblewrap is there at all."""
    with contextlib.suppress(SandboxError):
        return bool(os.fspath(ForkServerHost.program()))
    return False
