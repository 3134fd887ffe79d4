"""The `tools` that the code sees: each call goes out through the supervisor and waits for its value."""

import builtins
import itertools
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

MAX_MESSAGE = 1024 * 1024
"""Bytes of one call, and of one answer."""


class ToolError(Exception):
    """The tool failed, with its message."""


class ToolConnection:
    """The connection to the supervisor: JSON, a line each. Threads may share it."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._writing = threading.Lock()
        self._reading = threading.Condition()
        self._reader_busy = False
        self._answers: dict[int, dict[str, Any]] = {}
        self._buffer = b""
        self._ids = itertools.count(1)

    def send(self, message: dict[str, Any]) -> None:
        with self._writing:
            self._channel.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """The next message, for one who is alone on the line.

        Raises:
            EOFError: The supervisor is gone.
        """
        while b"\n" not in self._buffer:
            chunk = self._channel.recv(1 << 16)
            if not chunk:
                raise EOFError
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """The value of a tool.

        Raises:
            ToolError: It failed, or what was given or came back is too big.
            TypeError: The arguments are no JSON.
        """
        if len(json.dumps(arguments)) > MAX_MESSAGE:
            raise ToolError(f"the arguments of {tool} are more than {MAX_MESSAGE} bytes")
        number = next(self._ids)
        self.send({"call": number, "tool": tool, "arguments": arguments})
        answer = self._wait_for_answer(number)
        if "error" in answer:
            raise ToolError(answer["error"])
        return answer["value"]

    def _wait_for_answer(self, number: int) -> dict[str, Any]:
        """Whoever waits and finds nobody reading reads for all, so that no thread of ours runs beside those of the code."""
        with self._reading:
            while number not in self._answers:
                if self._reader_busy:
                    self._reading.wait()
                    continue
                self._reader_busy = True
                self._reading.release()
                try:
                    message = self.receive()
                finally:
                    self._reading.acquire()
                    self._reader_busy = False
                    self._reading.notify_all()
                self._answers[message["answer"]] = message
            return self._answers.pop(number)


class ToolModule(ModuleType):
    """The module `tools`: an attribute for each tool there is."""

    _connection: ToolConnection
    _names: list[str]

    def __init__(self, connection: ToolConnection, names: Iterable[str]) -> None:
        super().__init__("tools", "The tools that the caller offers.")
        self._connection = connection
        self._names = sorted(names)
        self.ToolError = ToolError

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self._names:
            raise AttributeError(f"there is no tool {name!r}; there are: {', '.join(self._names)}")
        connection = self._connection

        def call(*positional: Any, **named: Any) -> Any:
            return connection.call(name, {str(i): value for i, value in enumerate(positional)} | named)

        call.__name__ = call.__qualname__ = name
        return call

    def __dir__(self) -> list[str]:
        return [*self._names, "ToolError"]


def install(connection: ToolConnection, names: Iterable[str]) -> None:
    """Make `tools` importable and known everywhere. Nothing when there are none: the code may have a module of that name."""
    names = tuple(names)
    for place in (sys.modules, builtins.__dict__):
        if isinstance(place.get("tools"), ToolModule):
            del place["tools"]
    if names:
        sys.modules["tools"] = builtins.__dict__["tools"] = ToolModule(connection, names)
        builtins.__dict__["ToolError"] = ToolError
