"""A model server on loopback that answers what it is told to, in the pieces that it is told to, and keeps what it was asked."""

import asyncio
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

Header = tuple[bytes, bytes]
JSON: Header = (b"content-type", b"application/json")
EVENTS: Header = (b"content-type", b"text/event-stream; charset=utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as it came."""

    method: str
    path: str
    query: str
    headers: Sequence[Header]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value.decode("latin-1") for known, value in self.headers if known.decode() == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the server does with one request."""

    status: int = 200
    headers: Sequence[Header] = (JSON,)
    pieces: Sequence[bytes] = (b"{}",)
    pause: float = 0.0
    """Seconds before each piece but the first."""
    wait: float = 0.0
    """Seconds before anything."""
    cut: bool = False
    """Hang up after the last piece, in the middle of the answer."""
    silent: bool = False
    """Hang up before anything is said."""


def ok(data: Any, **more: Any) -> Reply:
    return Reply(pieces=(json.dumps(data).encode(),), **more)


def failed(status: int, data: Any = None, *headers: Header) -> Reply:
    body = {"error": {"message": "as the upstream says", "type": "its_type", "param": None, "code": "its_code"}}
    return Reply(status=status, headers=(JSON, *headers), pieces=(json.dumps(data or body).encode(),))


def events(*data: str, **more: Any) -> Reply:
    """A stream of server-sent events, each a piece of its own."""
    return Reply(headers=(EVENTS,), pieces=tuple(f"data: {each}\n\n".encode() for each in data), **more)


@dataclass(slots=True)
class Upstream:
    url: str = ""
    replies: deque[Reply] = field(default_factory=deque)
    """Given in order; then `answer` is asked."""
    answer: Callable[[Asked], Reply] = lambda asked: Reply()
    asked: list[Asked] = field(default_factory=list)
    abandoned: threading.Event = field(default_factory=threading.Event)
    """Set when somebody hangs up before the end of an answer."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        asked = Asked(method=scope["method"], path=path, query=query, headers=list(scope["headers"]), body=bytes(body))
        self.asked.append(asked)
        reply = self.replies.popleft() if self.replies else self.answer(asked)
        saying = asyncio.ensure_future(_said(reply, send))
        gone = asyncio.ensure_future(receive())
        await asyncio.wait({saying, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not saying.done():
            self.abandoned.set()
        saying.cancel()
        gone.cancel()
        await asyncio.gather(saying, gone, return_exceptions=True)


async def _said(reply: Reply, send: Any) -> None:
    await asyncio.sleep(reply.wait)
    if reply.silent:
        # uvicorn closes the connection when nothing whole can be said.
        await send({"type": "http.response.start", "status": 200, "headers": [(b"bad name", b"")]})
    await send({"type": "http.response.start", "status": reply.status, "headers": list(reply.headers)})
    for number, piece in enumerate(reply.pieces):
        await asyncio.sleep(reply.pause if number else 0)
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    if not reply.cut:
        await send({"type": "http.response.body", "body": b""})


@contextmanager
def upstream() -> Iterator[Upstream]:
    """The server, in a thread of its own on a free port."""
    state = Upstream()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        state.url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        config = uvicorn.Config(
            state, log_level="critical", lifespan="off", timeout_graceful_shutdown=1, server_header=False, date_header=False
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + 10
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.005)
        yield state
        server.should_exit = True
        thread.join(timeout=10)
