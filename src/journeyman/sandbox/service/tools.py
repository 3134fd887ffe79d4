"""Tool calls of the code, carried to whoever offered the tools, and their values carried back."""

import asyncio
import itertools
import json
import secrets
import string
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

from pydantic import ValidationError

from journeyman.io.http_client import Broken, Connections, TooLong, Unreachable
from journeyman.sandbox.base import Tool
from journeyman.sandbox.service.config import ServiceConfig
from journeyman.sandbox.service.metrics import ServiceMetrics
from journeyman.sandbox.service.queue import RunRejected
from journeyman.sandbox.service.schema import Faults, OfferedTool, ToolResult

Call = Mapping[str, Any]
"""`{"id", "name", "arguments"}`, as the caller gets it."""
Ask = Callable[[Call], Awaitable[ToolResult]]


class ToolFailed(Exception):
    """What the code gets to see as a `ToolError`."""


class ToolRelay:
    """One execution whose tool calls go out on its own answer, and whose values come in as requests."""

    def __init__(self, client: str, say: Callable[[Call], Awaitable[None]]) -> None:
        self.id = secrets.token_urlsafe(16)
        self._client = client
        self._say = say
        self._pending: dict[str, asyncio.Future[ToolResult]] = {}

    async def ask(self, call: Call) -> ToolResult:
        answer: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        self._pending[call["id"]] = answer
        try:
            await self._say({"tool_call": call})
            return await answer
        finally:
            del self._pending[call["id"]]

    def answer(self, client: str, call_id: str, result: ToolResult) -> bool:
        """Whether somebody was waiting for it."""
        waiting = self._pending.get(call_id)
        if waiting is None or waiting.done() or client != self._client:
            return False
        waiting.set_result(result)
        return True


class Relay:
    """All executions that have tools."""

    def __init__(self, seconds: float, metrics: ServiceMetrics) -> None:
        self._seconds = seconds
        """The longest that code waits for a value."""
        self._metrics = metrics
        self._exchanges: dict[str, ToolRelay] = {}

    @contextmanager
    def opened(self, client: str, say: Callable[[Call], Awaitable[None]]) -> Iterator[ToolRelay]:
        exchange = ToolRelay(client, say)
        self._exchanges[exchange.id] = exchange
        try:
            yield exchange
        finally:
            del self._exchanges[exchange.id]

    def answer(self, client: str, id: str, call_id: str, result: ToolResult) -> None:
        """Raises `Refused` (404) where nobody waits for it."""
        exchange = self._exchanges.get(id)
        if exchange is None or not exchange.answer(client, call_id, result):
            raise RunRejected(
                404, "no such tool call waits here: it was answered, took too long, or its execution is over", "unknown"
            )

    def tools(self, offered: tuple[OfferedTool, ...], ask: Ask) -> dict[str, Tool]:
        """What the sandbox calls for the code."""
        ids = map(str, itertools.count(1))

        def made(name: str) -> Tool:
            async def tool(arguments: Mapping[str, Any]) -> Any:
                return await self._relayed({"id": next(ids), "name": name, "arguments": dict(arguments)}, ask)

            return tool

        return {one.name: made(one.name) for one in offered}

    async def _relayed(self, call: Call, ask: Ask) -> Any:
        ended = "lost"
        try:
            async with asyncio.timeout(self._seconds):
                result = await ask(call)
            ended = "ok" if result.error is None else "error"
        except TimeoutError:
            ended = "timeout"
            raise ToolFailed(f"{call['name']}: the caller did not answer within {self._seconds:g} s") from None
        finally:
            self._metrics.tool_calls(ended).inc()
        if result.error is not None:
            raise ToolFailed(result.error)
        return result.value


# Tool calls by callback: sent to a URL of the caller's choice, but only to places that the operator named.

_PORTS = {"http": 80, "https": 443}


def place(url: str) -> str:
    """`host:port` of an http URL; what a host is allowed by.

    Raises:
        Faults: It is none, or has a user name.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        port = None
    if port is None or not parts.hostname or parts.username is not None or parts.password is not None:
        raise Faults("callback_url should be http://host:port/… or https://…, without a user name")
    host = parts.hostname.lower()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check(url: str, config: ServiceConfig) -> None:
    """Raises `Refused` (403) unless the operator named the place: a service that goes wherever it is told is a door into the
    operator's network."""
    if place(url) not in config.callback_hosts:
        allowed = ", ".join(sorted(config.callback_hosts)) or "nothing (--callback-host)"
        raise RunRejected(403, f"callback_url goes to {place(url)}; this service may call {allowed}", "callback")


class Callback:
    """Posts tool calls, over connections that are kept for each place. Redirects are not followed, and no proxy is used."""

    def __init__(self, config: ServiceConfig) -> None:
        self._longest = config.max_request
        self._connections: dict[str, Connections] = {}

    async def ask(self, url: str, call: Call) -> ToolResult:
        """Post a tool call. Whatever goes wrong is an answer too, but for time: that is the relay's to watch."""
        parts = urlsplit(url)
        at = f"{parts.scheme}://{place(url)}"
        connections = self._connections.setdefault(at, Connections(at, {"accept-encoding": "identity"}))
        path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=string.punctuation)
        try:
            async with connections.asked("POST", path, json.dumps({"tool_call": call}).encode()) as answer:
                body = await answer.read(self._longest)
        except TooLong:
            return ToolResult(error="the callback answered with too much")
        # More would tell the code about the operator's network.
        except Unreachable:
            return ToolResult(error="the callback failed: ConnectError")
        except Broken:
            return ToolResult(error="the callback failed: ReadError")
        if answer.status != 200:
            return ToolResult(error=f"the callback answered {answer.status}")
        try:
            return ToolResult.model_validate_json(body)
        except ValidationError:
            return ToolResult(error='the callback should answer {"value": …} or {"error": "…"}')

    async def close(self) -> None:
        for each in self._connections.values():
            await each.close()
