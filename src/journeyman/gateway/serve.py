"""The gateway as a process: it listens, and stops in order when it is told to."""

import asyncio
import gc
import socket
from collections.abc import Callable
from types import FrameType

import uvloop

from journeyman.gateway.app import App, Gateway, GatewayConfig
from journeyman.gateway.connection import Connection
from journeyman.intake.base import Intake
from journeyman.io import asgi_server


def serve(
    config: GatewayConfig,
    bound: socket.socket,
    *,
    intake: Intake | None,
    pages: App | None,
    ready: Callable[[], None],
    drain_seconds: float,
) -> None:
    """Serve until SIGTERM or SIGINT: take nothing new, let running answers end, and cut those that have not after
    `drain_seconds`, or at a second signal. The intake stays open: it is its owner's to close.

    Args:
        bound: As `listen` gives it; it is closed at the end.
        ready: Called once clients can come.
    """

    # What is loaded stays. What comes and goes is rarely in a circle, and need not be looked through after each few requests.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)

    async def until_told() -> None:
        gateway = Gateway(config, intake, pages)
        try:
            await Server(gateway, ready, drain_seconds).serve(sockets=[bound])
        finally:
            await gateway.close()

    with bound, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(until_told())


class Server(asgi_server.Server):
    """Takes nothing new once it is told to stop, lets running answers end, and cuts those that have not in time."""

    def __init__(self, gateway: Gateway, ready: Callable[[], None], drain_seconds: float) -> None:
        super().__init__(
            gateway,
            ready,
            # What is cut still has to be recorded.
            cut_seconds=5,
            http=Connection,
            # A cut that is passed on is no fault of ours to be logged.
            log_level="critical",
            date_header=False,
            timeout_graceful_shutdown=max(1, round(drain_seconds)),
            backlog=2048,
        )
        self._gateway = gateway

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not kept for uvicorn to raise again at the end: to stop when told to is to end well.
        self.force_exit = self.should_exit
        self.should_exit = self._gateway.draining = True
