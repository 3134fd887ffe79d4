"""HTTP/1.1 with one server, over connections that are kept: an exchange costs a third of what a general client takes for it.

No redirects, no proxies, no cookies: what talks to a code service or to an API of tools needs none.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import h11

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 30.0
"""Shorter than the service keeps an idle connection, so that none is used in the moment when it is closed."""
_PIECE = 65536


class Unreachable(Exception):
    """No connection could be made."""


class Broken(Exception):
    """What came is no HTTP, or not all of it came; or what was to be sent is none."""


class TooLong(Exception):
    """The body is longer than was to be read. The connection is given up."""


def probe(url: str, *, seconds: float = 5.0) -> None:
    """Find out whether anybody listens at an address, by a connection that is closed again: nothing is asked, nothing is paid.

    Where calls would go through a proxy nothing is found out.

    Raises:
        Unreachable: Nobody does, or not within `seconds`; with the system's own words.
    """
    # Late: it takes as long to load as all of this.
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    host = parts.hostname or ""
    if getproxies().get(parts.scheme) and not proxy_bypass(host):
        return
    try:
        socket.create_connection((host, parts.port or (443 if parts.scheme == "https" else 80)), timeout=seconds).close()
    except OSError as error:
        raise Unreachable(error.strerror or "no answer in time") from error


class HttpAnswer:
    """A status, headers with names in lower case, and a body that is still to be read."""

    def __init__(self, connection: "_Connection", head: h11.Response) -> None:
        self.status = head.status_code
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        self._connection = connection

    async def read(self, longest: int | None = None) -> bytes:
        """The body.

        Raises:
            TooLong: It has more than `longest` bytes.
        """
        body = bytearray()
        async for piece in self.pieces():
            body += piece
            if longest is not None and len(body) > longest:
                raise TooLong
        return bytes(body)

    async def lines(self) -> AsyncIterator[bytes]:
        """Each as soon as it has come, without its end."""
        left = b""
        async for piece in self.pieces():
            *whole, left = (left + piece).split(b"\n")
            for line in whole:
                yield line
        if left:
            yield left

    async def pieces(self) -> AsyncIterator[bytes]:
        """Each as it comes."""
        while not isinstance(event := await self._connection.event(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                yield bytes(event.data)


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT)
        self._used_at = time.monotonic()

    async def ask(self, request: h11.Request, body: bytes) -> HttpAnswer:
        # In one piece: the server wakes up once.
        parts = [self._http.send(request), self._http.send(h11.Data(data=body)), self._http.send(h11.EndOfMessage())]
        self._writer.write(b"".join(part for part in parts if part))
        await self._writer.drain()
        while not isinstance(event := await self.event(), h11.Response):
            pass
        return HttpAnswer(self, event)

    async def event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_PIECE))
        if isinstance(event, h11.ConnectionClosed):
            raise h11.RemoteProtocolError("closed before the answer")
        return event

    def reused(self) -> bool:
        """Whether another exchange can follow; it was made ready for one."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        self._used_at = time.monotonic()
        return True

    @property
    def fresh(self) -> bool:
        return time.monotonic() - self._used_at < IDLE_SECONDS and not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()


class Connections:
    """As many as there are exchanges at once. They belong to one event loop; in another, new ones are made."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._path = parts.path
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._headers = {"host": parts.netloc, **headers}
        self._idle: list[_Connection] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    @asynccontextmanager
    async def asked(self, method: str, path: str, body: bytes | None) -> AsyncIterator[HttpAnswer]:
        """The answer, to be read in the block. Whoever leaves before its end hangs up.

        Raises:
            Unreachable: Nobody listens.
            Broken: Also while it is read in the block.
        """
        headers = dict(self._headers)
        if body is not None:
            headers = {"content-type": "application/json", **headers, "content-length": str(len(body))}
        try:
            request = h11.Request(method=method, target=self._path + path, headers=list(headers.items()))
        except (h11.LocalProtocolError, UnicodeError) as error:
            raise Broken(str(error)) from error
        connection = await self._connected()
        kept = False
        try:
            answer = await connection.ask(request, body or b"")
            yield answer
            kept = connection.reused()
        except (OSError, EOFError, h11.ProtocolError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise Broken(str(error) or type(error).__name__) from error
        finally:
            if kept:
                self._idle.append(connection)
            else:
                connection.close()

    async def _connected(self) -> _Connection:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._idle = loop, []
        while self._idle:
            if (connection := self._idle.pop()).fresh:
                return connection
            connection.close()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return _Connection(*await asyncio.open_connection(self._host, self._port, ssl=self._tls))
        except (OSError, UnicodeError) as error:
            raise Unreachable(str(error) or "no answer") from error

    async def close(self) -> None:
        """Of the loop that runs."""
        while self._idle:
            self._idle.pop().close()
        # A transport closes in the next round of the loop.
        await asyncio.sleep(0)


# A stream of server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html

_BOM = b"\xef\xbb\xbf"
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")


class ServerSentEvent(NamedTuple):
    """One event. Its id and its time to retry are for clients that come back, and are not kept."""

    name: str
    """"message" where the server gave none."""
    data: str


class EventParser:
    """Reads a stream piece by piece, wherever it is cut. Bytes that are no UTF-8 become U+FFFD."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._name = b""
        self._data: list[bytes] = []
        self._begun = False

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        """The events that are whole now."""
        if b"\n" not in piece and b"\r" not in piece and not self._held_cr():
            self._rest.append(piece)
            return []
        lines = b"".join((*self._rest, piece)).splitlines(keepends=True)
        # A carriage return at the very end may be the half of a line's end.
        self._rest = [lines.pop()] if lines and not lines[-1].endswith(b"\n") else []
        return [event for line in lines if (event := self._take(line.rstrip(b"\r\n"))) is not None]

    def end(self) -> list[ServerSentEvent]:
        """What was not ended by an empty line."""
        last = b"".join(self._rest).rstrip(b"\r\n")
        self._rest = []
        found = (self._take(last) if last else None, self._take(b""))
        return [event for event in found if event is not None]

    def _held_cr(self) -> bool:
        return bool(self._rest) and self._rest[-1].endswith(b"\r")

    def _take(self, line: bytes) -> ServerSentEvent | None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(_BOM)
        if not line:
            return self._whole()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        return None

    def _whole(self) -> ServerSentEvent | None:
        name, data = self._name, self._data
        self._name, self._data = b"", []
        if not data:
            return None
        return ServerSentEvent(name.decode(errors="replace") or "message", b"\n".join(data).decode(errors="replace"))


def sent_events(body: bytes) -> Iterator[ServerSentEvent]:
    """The events of a whole stream, or of as much of it as there is."""
    parser = EventParser()
    yield from parser.feed(body)
    yield from parser.end()


def is_event_stream(body: bytes) -> bool:
    """Whether this is a stream of events rather than one answer."""
    return body[:64].removeprefix(_BOM).lstrip().startswith(_FIELDS)
