"""A real HTTP server on loopback that speaks chat completions, and can go wrong in every way that servers do."""

import asyncio
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

KEY = "sk-test-1234567890abcdef"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server does with one request."""

    body: str = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    once: threading.Event | None = None
    """Held back until this is set."""
    cut: bool = False
    """Hang up in the middle of the body."""


def completion(text: str | None = "hello", **more: Any) -> Answer:
    """A good answer. `more` goes into the completion, in place of what stands there."""
    return Answer(
        body=json.dumps(
            {
                "id": "c-1",
                "object": "chat.completion",
                "created": 1,
                "model": "test-model",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
                **more,
            }
        )
    )


def error(status: int, message: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> Answer:
    body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None, **more}}
    return Answer(status=status, body=json.dumps(body), headers=headers or {})


@dataclass(slots=True)
class LLMServer:
    """Answers with `answers` in order, and with `default` when there are none left; keeps what it was asked."""

    url: str
    answers: deque[Answer] = field(default_factory=deque)
    default: Callable[[dict[str, Any]], Answer] = lambda body: completion()
    key: str | None = None
    """The only key that it takes; `None` takes any."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    together: int = 0
    most_together: int = 0
    """How many requests were under way at once, at most."""

    def reset(self) -> None:
        """As new, for the next test: to start a server takes longer than most tests."""
        fresh = LLMServer(url=self.url)
        for name in ("answers", "default", "key", "bodies", "headers", "most_together"):
            setattr(self, name, getattr(fresh, name))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        self.together += 1
        self.most_together = max(self.most_together, self.together)
        try:
            await _send(self._answer(request), send)
        finally:
            self.together -= 1

    def _answer(self, request: Request) -> Answer:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.key is not None and given != self.key:
            return error(401, f"Incorrect API key provided: {given}.", code="invalid_api_key")
        return self.answers.popleft() if self.answers else self.default(self.bodies[-1])


async def _send(answer: Answer, send: Send) -> None:
    await asyncio.sleep(answer.delay)
    while answer.once is not None and not answer.once.is_set():
        await asyncio.sleep(0.005)
    body = answer.body.encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **answer.headers}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw})
    if answer.cut:
        # Less than was announced: the server closes the connection, as one that crashed would.
        await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": False})
        return
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving() -> Iterator[LLMServer]:
    """The server, in a thread of its own on a free port."""
    app = Starlette()
    # With the protocol named asyncio turns off Nagle's algorithm, which would add 40 ms to every answer.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        state = LLMServer(url=f"http://127.0.0.1:{listening.getsockname()[1]}/v1")
        app.mount("/", state)
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.005)
        yield state
        server.should_exit = True
        thread.join(timeout=10)
