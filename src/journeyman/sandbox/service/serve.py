"""The service as a process: it listens, and stops in order when it is told to."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from types import FrameType

from journeyman.io import asgi_server
from journeyman.sandbox.base import Level, Sandbox
from journeyman.sandbox.service.app import Service
from journeyman.sandbox.service.config import ServiceConfig

Opened = Callable[[], Awaitable[Sandbox]]


def serve(opened: Opened, config: ServiceConfig, bound: socket.socket, ready: Callable[[Level], None]) -> None:
    """Serve until SIGTERM or SIGINT: take nothing new, finish what runs, end. A second signal ends what runs, too.

    Args:
        opened: Gives the sandbox, started.
        bound: As `listen` gives it; it is closed at the end.
        ready: Called once callers can come.

    Raises:
        SandboxError: The sandbox cannot be started.
    """
    with bound:
        asyncio.run(_serve(opened, config, bound, ready))


async def _serve(opened: Opened, config: ServiceConfig, bound: socket.socket, ready: Callable[[Level], None]) -> None:
    sandbox = await opened()
    service = Service(sandbox, config)
    try:
        await SandboxServer(service, lambda: ready(sandbox.level)).serve(sockets=[bound])
    finally:
        await service.close()


class SandboxServer(asgi_server.Server):
    """Goes on listening while it stops: values of tools that running code waits for still have to come in."""

    def __init__(self, service: Service, ready: Callable[[], None]) -> None:
        # What a second signal left: each request takes its own processes with it.
        super().__init__(service.app(), ready, cut_seconds=10, timeout_graceful_shutdown=5)
        self._service = service
        self._told_at: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not kept for uvicorn to raise again at the end: to stop when told to is to end well.
        if self._told_at is None:
            self._told_at = time.monotonic()
        else:
            self.should_exit = self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        gate = self._service.gate
        if self._told_at is not None:
            if not gate.draining:
                gate.drain()
            late = time.monotonic() - self._told_at > self._service.config.most.wall_seconds + 5
            self.should_exit = self.should_exit or gate.empty or late
        return await super().on_tick(counter)
