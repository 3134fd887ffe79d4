"""Tools of a Model Context Protocol server that is a program of the user's, by the protocol's own library.

It is started for one attempt and ended with it, so that no attempt finds what another one left. It runs on this machine, with
the rights of whoever named it and outside the sandbox, and has no more of the environment than the library gives to all and
what was named. What it says is data.
"""

import json
import logging
import os
import re
import shlex
import tempfile
from collections.abc import Container, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from journeyman.core.errors import InputError, JourneymanError, MissingExtra
from journeyman.models.base import ToolOffer

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import ContentBlock

_PAGES = 100
_TIMEOUT = -32001
_GONE = (_TIMEOUT, -32000)
"""What the library says of an answer that did not come, and of a server that is not there any more."""


class McpServerError(JourneymanError):
    """A server could not be started, ended, or does not speak the protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A server that can be started."""

    command: str
    """A program and its words, as in a shell's line, though no shell reads it."""
    variables: tuple[str, ...] = ()
    """Names of variables of the environment that it gets, besides."""
    seconds: float = 60.0
    """In which each answer must be there."""

    @property
    def words(self) -> list[str]:
        """
        Raises:
            InputError: The command is empty, or its quotes do not match.
        """
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise InputError(f"--mcp {self.command!r} is no command: {error}") from None
        if not words:
            raise InputError("--mcp needs the command of a server, as in --mcp 'python my_tools.py'")
        return words


class McpSession:
    """A server that runs. Opened with `async with`, in one task; one call at a time."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.offers: tuple[ToolOffer, ...] = ()
        """What it has, under names that models take."""
        self._names: dict[str, str] = {}
        """The server's own name of each."""
        self._client: Client

    async def __aenter__(self) -> "McpSession":
        """
        Raises:
            InputError: There is no such command.
            McpServerError: It speaks no MCP.
            MissingExtra: The library is not installed.
        """
        words = self.server.words
        try:
            from mcp import Client, MCPError, StdioServerParameters, stdio_client
            from mcp_types import Implementation
        except ModuleNotFoundError as error:
            raise MissingExtra("tools of MCP servers need the extra: pip install 'journeyman[mcp]'") from error
        # What a server prints astray is passed over; the library would show a traceback for each line.
        logging.getLogger("mcp").setLevel(logging.CRITICAL)
        told = StdioServerParameters(
            command=words[0],
            args=words[1:],
            env={name: os.environ[name] for name in self.server.variables if name in os.environ},
        )
        async with AsyncExitStack() as stack:
            said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - the stack closes it
            self._said = stack.enter_context(said)
            client = Client(
                stdio_client(told, errlog=self._said),
                read_timeout_seconds=self.server.seconds,
                client_info=Implementation(name="journeyman", version=version("journeyman")),
                cache=None,
            )
            try:
                async with AsyncExitStack() as running:
                    self._client = await running.enter_async_context(client)
                    self.offers = tuple(await self._listed())
                    stack.push_async_exit(running.pop_all())
            except OSError as error:
                raise InputError(f"--mcp: {words[0]} cannot be started: {error.strerror or error}") from None
            except (MCPError, ValueError, ExceptionGroup) as error:
                # Whatever ends a group of tasks comes as a group of errors.
                raise self._broken("its beginning", error) from None
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """What a tool says, and whether it went well; a server's refusal is what it says.

        Raises:
            McpServerError: The server is gone, or did not answer in time.
        """
        from mcp import MCPError

        try:
            told = await self._client.call_tool(self._names[name], dict(arguments))
        except MCPError as error:
            if error.code in _GONE:
                raise self._broken(name, error) from None
            return error.message, False
        except ValueError as error:
            raise self._broken(name, error) from None
        text = "\n".join(_text(part) for part in told.content)
        if not text and told.structured_content is not None:
            text = json.dumps(told.structured_content, ensure_ascii=False)
        return text, not told.is_error

    async def _listed(self) -> Sequence[ToolOffer]:
        found: list[ToolOffer] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            told = await self._client.list_tools(cursor=cursor)
            for tool in told.tools:
                name = unused(re.sub(r"[^A-Za-z0-9_-]", "_", tool.name)[:64] or "tool", self._names)
                self._names[name] = tool.name
                found.append(ToolOffer(name=name, description=tool.description or "", parameters=tool.input_schema))
            if (cursor := told.next_cursor) is None:
                return found
        raise McpServerError(f"{self.server.command}: its list of tools has no end")

    def _broken(self, at: str, error: Exception) -> McpServerError:
        """What went wrong, with the last that the server said of itself."""
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        if getattr(error, "code", None) == _TIMEOUT:
            return McpServerError(f"{self.server.command}: no answer to {at} within {self.server.seconds:g} s")
        self._said.seek(0)
        lines = [line.strip() for line in self._said.read()[-4096:].splitlines() if line.strip()]
        why = f": {lines[-1][:300]}" if lines else ""
        return McpServerError(f"{self.server.command} broke off at {at} ({' '.join(str(error).split())[:300]}){why}")


def unused(name: str, taken: Container[str]) -> str:
    """A tool's name, or, where another one has it, with a number behind it."""
    numbered = (f"{name[:58]}_{number}" for number in count(2))
    return next(each for each in chain([name], numbered) if each not in taken)


def _text(part: "ContentBlock") -> str:
    """A part of what a tool said; of what is no text, what it is."""
    if part.type == "text":
        return part.text
    if part.type == "resource" and (text := getattr(part.resource, "text", None)) is not None:
        return str(text)
    return f"[{part.type} {getattr(part, 'mime_type', None) or getattr(part, 'uri', None) or ''}]".replace(" ]", "]")
