"""Walls by the kernel's namespaces: bubblewrap around a warm nursery, and around each run walls of its own within.

A run shares nothing with the one before it but the libraries that both only read. See `inside/__init__.py` for who does what.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping

from journeyman.core.errors import SandboxError
from journeyman.sandbox import self_test
from journeyman.sandbox.base import Level, Limits, Program, RunOutcome, Tool
from journeyman.sandbox.fork_server import ForkServer
from journeyman.sandbox.run_channel import LocalSession, RunChannel, request

NAME = "bubblewrap"
MUST_HOLD = frozenset(
    {"no_network", "private_files", "own_processes", "read_only_system", "no_host_environment", "no_capabilities"}
)
"""Without one of these it is no sandbox."""
BUSY_SECONDS = 0.001


class Bubblewrap:
    """The default on Linux."""

    def __init__(self) -> None:
        self._nursery: ForkServer | None = None
        self._level: Level | None = None
        self._starting: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._talks: set[RunChannel] = set()

    @property
    def level(self) -> Level:
        if self._level is None:
            raise SandboxError("the sandbox was not started yet, and its walls are not known before they were tested")
        return self._level

    async def start(self) -> None:
        async with self._lock():
            if self._nursery is None or not self._nursery.alive:
                await self._begin()

    async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> RunOutcome:
        message, blobs = request(program, tools or {})
        await self.start()
        return await self._run(message, blobs, tools or {})

    async def session(
        self, *, limits: Limits | None = None, files: Mapping[str, bytes] | None = None, idle_seconds: float = 600.0
    ) -> LocalSession:
        await self.start()
        talk = await self._talk()

        async def ended() -> None:
            self._talks.discard(talk)

        session = LocalSession(talk, idle_seconds=idle_seconds, limits=limits or Limits(), ended=ended)
        await session.begin(files or {})
        return session

    async def close(self) -> None:
        for talk in list(self._talks):
            await talk.close()
        if self._nursery is not None:
            await asyncio.to_thread(self._nursery.end)
            self._nursery = None

    async def _begin(self) -> None:
        if self._nursery is not None:
            self._nursery.end()
        self._nursery = nursery = ForkServer()
        try:
            await nursery.ready()
            self._level = Level(NAME)
            self._level = await self._tested()
        except BaseException:
            self._nursery = None
            nursery.end()
            raise

    async def _tested(self) -> Level:
        """What holds, as seen from within."""

        async def run(program: Program) -> RunOutcome:
            return await self._run(*request(program, {}), {})

        held, not_held = await self_test.test(run)
        if broken := MUST_HOLD - set(held):
            raise SandboxError(
                f"bubblewrap started, but its walls do not hold on this machine ({', '.join(sorted(broken))}); "
                "nothing was run. Use another machine or the service of one"
            )
        counted = self._nursery.controllers if self._nursery else frozenset()
        for wall, controller in (("memory_group", "memory"), ("process_group", "pids")):
            (held if controller in counted else not_held).append(wall)
        return Level(NAME, tuple(held), tuple(not_held))

    async def _run(self, message: dict[str, object], blobs: tuple[bytes, ...], tools: Mapping[str, Tool]) -> RunOutcome:
        talk = await self._talk(pytest=message["kind"] == "pytest")
        try:
            await talk.send(message, blobs)
            outcome, _ = await talk.outcome(tools)
            return outcome
        finally:
            self._talks.discard(talk)
            await talk.close()

    async def _talk(self, *, pytest: bool = False) -> RunChannel:
        """A warden, fresh from the nursery."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                while not (self._nursery or _gone()).give(theirs, pytest=pytest):
                    await asyncio.sleep(BUSY_SECONDS)
                talk = await RunChannel.open(ours, self.level)
            except BaseException:
                ours.close()
                raise
        self._talks.add(talk)
        return talk

    def _lock(self) -> asyncio.Lock:
        """Of this event loop: a sandbox may outlive one."""
        loop = asyncio.get_running_loop()
        if self._starting is None or self._starting[0] is not loop:
            self._starting = loop, asyncio.Lock()
        return self._starting[1]


def _gone() -> ForkServer:
    raise SandboxError("the sandbox was closed")


def installed() -> bool:
    """Whether bubblewrap is there at all."""
    with contextlib.suppress(SandboxError):
        return bool(os.fspath(ForkServer.program()))
    return False
