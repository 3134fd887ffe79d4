"""The gateway as a process: it listens, and stops in order when it is told to."""

import asyncio
import gc
import socket
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from journeyman.core.errors import JourneymanError
from journeyman.io import asgi_server
from journeyman.serving.gateway.app import App, Gateway, GatewayConfig
from journeyman.serving.gateway.asgi import Receive, Scope, Send, answer_refusal
from journeyman.serving.gateway.request import HTTPRejection
from journeyman.serving.ingest.base import Intake

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

# A client's connection, with bounds on what uvicorn leaves without one: all of it comes before anybody has shown a token.

HEAD_BYTES = 256 << 10
"""The largest head of a request: address and headers. What follows behind a body counts too."""
HEAD_SECONDS = 30.0
"""In which a head must have come, and a connection its first."""
LINGER_SECONDS = 5.0
"""For which a body that nobody reads may go on after the answer."""
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 26\r\nconnection: close\r\n\r\nthe headers are too large\r\n"
)


class Connection(HttpToolsProtocol):
    """Closes when a head is too large or does not come, and when a body goes on although it was answered."""

    _limit: asyncio.TimerHandle | None = None
    _in_head = False
    _in_message = False
    _head = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._until(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._until(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head:
            # One that comes whole is bounded by how much is read at once.
            self._head += len(data)
            if self._head > HEAD_BYTES:
                self._too_large()
        # Whatever came has stopped the clock of an idle connection.
        if self._limit is None and (self.cycle is None or self.cycle.response_complete):
            self._until(HEAD_SECONDS)

    def on_message_begin(self) -> None:
        self._in_head = self._in_message = True
        self._head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._until(None)
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            self._head += len(name) + len(value)
            if self._head > HEAD_BYTES:
                raise ValueError("what follows behind the body is too large")
        super().on_header(name, value)

    def on_message_complete(self) -> None:
        self._in_message = False
        self._until(None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._in_head:
            self._until(HEAD_SECONDS)
        elif self._in_message and self.cycle.response_complete:
            self._until(LINGER_SECONDS)

    def _until(self, seconds: float | None) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._limit = None if seconds is None else self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _too_large(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_TOO_LARGE)
        self.transport.close()


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
            await GatewayServer(gateway, ready, drain_seconds).serve(sockets=[bound])
        finally:
            await gateway.close()

    with bound, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(until_told())


class GatewayServer(asgi_server.Server):
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


# The pages, as an application beside the gateway.


def application(routes: "Sequence[BaseRoute]") -> App:
    """What answers every address that is none of the gateway's."""
    from starlette.applications import Starlette

    return cast("App", Starlette(routes=list(routes)))


def when_asked(make: Callable[[], App]) -> App:
    """An application that is made, in a thread, when it is first asked for something: what nobody looks at takes no memory."""
    made: asyncio.Task[App] | None = None

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal made
        if made is None:
            made = asyncio.create_task(asyncio.to_thread(make))
        try:
            # One who goes away must not keep the others from it.
            app = await asyncio.shield(made)
        except JourneymanError as error:
            made = None
            await answer_refusal(send, HTTPRejection(503, str(error), "no_pages"))
            return
        await app(scope, receive, send)

    return answer
