"""Tool calls of the code, carried to whoever offered the tools, and their values carried back."""

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from journeyman.sandbox.base import Tool
from journeyman.sandbox.service.metrics import Metrics
from journeyman.sandbox.service.queue import Refused
from journeyman.sandbox.service.schema import OfferedTool, ToolResult

Call = Mapping[str, Any]
"""`{"id", "name", "arguments"}`, as the caller gets it."""
Ask = Callable[[Call], Awaitable[ToolResult]]


class ToolFailed(Exception):
    """What the code gets to see as a `ToolError`."""


class Exchange:
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

    def __init__(self, seconds: float, metrics: Metrics) -> None:
        self._seconds = seconds
        """The longest that code waits for a value."""
        self._metrics = metrics
        self._exchanges: dict[str, Exchange] = {}

    @contextmanager
    def opened(self, client: str, say: Callable[[Call], Awaitable[None]]) -> Iterator[Exchange]:
        exchange = Exchange(client, say)
        self._exchanges[exchange.id] = exchange
        try:
            yield exchange
        finally:
            del self._exchanges[exchange.id]

    def answer(self, client: str, id: str, call_id: str, result: ToolResult) -> None:
        """Raises `Refused` (404) where nobody waits for it."""
        exchange = self._exchanges.get(id)
        if exchange is None or not exchange.answer(client, call_id, result):
            raise Refused(
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
