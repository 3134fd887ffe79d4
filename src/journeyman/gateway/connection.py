"""A client's connection, with bounds on what uvicorn leaves without one: all of it comes before anybody has shown a token."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

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
