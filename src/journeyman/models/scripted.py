"""The stand-in for a model: it says what it was told to say. For our tests, and for those of whoever uses this library."""

import asyncio
from collections.abc import Callable, Iterator

from journeyman.core.errors import ModelError
from journeyman.models.base import Dialect, ModelRequest, Reply

Line = str | Reply | Exception
"""What the script says next; an exception is raised."""


class Scripted:
    """Answers with the lines of its script, in order, and fails loudly when they run out.

    Instead of lines, one function from request to line is a script without an end.
    """

    name = "scripted"
    deterministic = True

    def __init__(
        self,
        *script: Line | Callable[[ModelRequest], Line],
        latency: float = 0.0,
        dialect: Dialect = "full",
        name: str = "scripted",
        tools: bool = False,
    ) -> None:
        self.name = name
        self.tools = tools
        """Whether it takes tools: its script then holds replies with calls."""
        self.dialect: Dialect = dialect
        self.latency = latency
        """Seconds before every answer."""
        self.requests: list[ModelRequest] = []
        """What it was asked, in order, for a test to read."""
        self._script: Iterator[Line | Callable[[ModelRequest], Line]] = iter(script)
        self._endless = script[0] if len(script) == 1 and callable(script[0]) else None

    async def complete(self, request: ModelRequest) -> Reply:
        self.requests.append(request)
        # The line is taken before the wait, so that concurrent calls get theirs in the order they were made.
        line = self._next(request)
        if self.latency:
            await asyncio.sleep(self.latency)
        if isinstance(line, Exception):
            raise line
        return line if isinstance(line, Reply) else Reply(text=line, model=self.name, finish="stop")

    async def close(self) -> None:
        """There is nothing to give back."""

    def _next(self, request: ModelRequest) -> Line:
        if self._endless is not None:
            return self._endless(request)
        line = next(self._script, None)
        if line is None:
            asked = request.messages[-1].content if request.messages else ""
            raise ModelError(f"the script has no reply left for request {len(self.requests)}: {asked[:60]!r}")
        return line(request) if callable(line) else line


class Always(Scripted):
    """Gives one answer to everything: the least that a real model has to beat."""

    def __init__(self, text: str = "", *, latency: float = 0.0, dialect: Dialect = "full") -> None:
        super().__init__(lambda _: text, latency=latency, dialect=dialect, name=f"scripted:{text}" if text else "scripted")
