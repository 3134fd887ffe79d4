"""Tools of a Model Context Protocol server that is a program of the user's: JSON-RPC, a line each, on its standard streams.

It is started for one attempt and ended with it, so that no attempt finds what another one left. It runs on this machine, with
the rights of whoever named it and outside the sandbox, and has no more of the environment than its like everywhere
(`INHERITED`) and what was named. What it says is data.

Source: the specification of 2025-06-18, modelcontextprotocol.io/specification/2025-06-18/basic/transports, and …/server/tools.
"""

import asyncio
import json
import os
import re
import shlex
import signal
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain, count
from typing import Any

from journeyman.core.errors import InputError, JourneymanError
from journeyman.models.base import ToolOffer

PROTOCOL = "2025-06-18"
INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG")
"""Variables of the environment that a server gets: those that the protocol's own libraries give."""
_LINE = 16 * 1024 * 1024
"""Bytes of one message, at most."""
_PAGES = 100
_PATIENCE = 2.0
"""Seconds in which a server may end by itself."""


class McpError(JourneymanError):
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

    def environment(self) -> dict[str, str]:
        """What it gets of this process's environment."""
        return {name: os.environ[name] for name in (*INHERITED, *self.variables) if name in os.environ}


class McpSession:
    """A server that runs. Opened with `async with`; one call at a time."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.offers: tuple[ToolOffer, ...] = ()
        """What it has, under names that models take."""
        self._names: dict[str, str] = {}
        """The server's own name of each."""
        self._number = 0
        self._process: asyncio.subprocess.Process | None = None
        self._complaint: asyncio.Task[str] | None = None

    async def __aenter__(self) -> "McpSession":
        """
        Raises:
            InputError: There is no such command.
            McpError: It speaks no MCP.
        """
        words = self.server.words
        try:
            self._process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self.server.environment(),
                limit=_LINE,
                start_new_session=True,
            )
        except OSError as error:
            raise InputError(f"--mcp: {words[0]} cannot be started: {error.strerror or error}") from None
        assert self._process.stderr is not None
        self._complaint = asyncio.create_task(_last_line(self._process.stderr))
        try:
            client = {"name": "journeyman", "version": version("journeyman")}
            await self._ask("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client})
            await self._send({"method": "notifications/initialized"})
            self.offers = tuple(await self._listed())
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """What a tool says, and whether it went well.

        Raises:
            McpError: The server is gone, or did not answer in time.
        """
        told = await self._ask("tools/call", {"name": self._names[name], "arguments": dict(arguments)}, refused=True)
        parts = told.get("content") if isinstance(told.get("content"), list) else []
        text = "\n".join(_text(part) for part in parts or () if isinstance(part, dict))
        if not text and told.get("structuredContent") is not None:
            text = json.dumps(told["structuredContent"], ensure_ascii=False)
        return text, told.get("isError") is not True

    async def _listed(self) -> Sequence[ToolOffer]:
        found: list[ToolOffer] = []
        cursor: Mapping[str, Any] = {}
        for _ in range(_PAGES):
            told = await self._ask("tools/list", cursor)
            for tool in told.get("tools") or ():
                name = unused(re.sub(r"[^A-Za-z0-9_-]", "_", str(tool.get("name", "")))[:64] or "tool", self._names)
                self._names[name] = str(tool.get("name", ""))
                schema = tool.get("inputSchema") or {"type": "object", "properties": {}}
                found.append(ToolOffer(name=name, description=str(tool.get("description") or ""), parameters=schema))
            if not told.get("nextCursor"):
                return found
            cursor = {"cursor": told["nextCursor"]}
        raise McpError(f"{self.server.command}: its list of tools has no end")

    async def _ask(self, method: str, parameters: Mapping[str, Any], *, refused: bool = False) -> Mapping[str, Any]:
        """The result of a request. `refused`: an error that the server answers with is a result, too."""
        self._number += 1
        try:
            async with asyncio.timeout(self.server.seconds):
                await self._send({"id": self._number, "method": method, "params": dict(parameters)})
                told = await self._answer(self._number)
        except TimeoutError:
            raise McpError(f"{self.server.command}: no answer to {method} within {self.server.seconds:g} s") from None
        if isinstance(error := told.get("error"), dict):
            said = f"{error.get('message', error)}"
            if refused:
                return {"content": [{"type": "text", "text": said}], "isError": True}
            raise McpError(f"{self.server.command} refused {method}: {said[:300]}")
        result = told.get("result")
        return result if isinstance(result, dict) else {}

    async def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(ConnectionError):
            self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            await self._process.stdin.drain()

    async def _answer(self, number: int) -> Mapping[str, Any]:
        """The next message that answers. What is no message is a server's print that went astray, and is passed over."""
        assert self._process is not None
        assert self._process.stdout is not None
        while True:
            try:
                line = await self._process.stdout.readline()
            except ValueError:
                raise McpError(f"{self.server.command}: an answer of more than {_LINE // 1024 // 1024} MB") from None
            if not line:
                why = await asyncio.wait_for(self._complaint, _PATIENCE) if self._complaint else ""
                raise McpError(f"{self.server.command} ended and left no answer{f': {why}' if why else ''}")
            try:
                told = json.loads(line)
            except ValueError:
                continue
            if not isinstance(told, dict):
                continue
            if "method" in told and "id" in told:
                # It asks something of us. A ping is all that it may: nothing else was offered to it.
                pong = {"result": {}} if told["method"] == "ping" else {"error": {"code": -32601, "message": "not offered"}}
                await self._send({"id": told["id"], **pong})
            elif told.get("id") == number:
                return told

    async def _end(self) -> None:
        """As the protocol says: close its input, wait, ask, force. Its children end with it."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        for sign in (None, signal.SIGTERM, signal.SIGKILL):
            if sign is not None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, sign)
            try:
                await asyncio.wait_for(process.wait(), _PATIENCE)
                break
            except TimeoutError:
                continue
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if self._complaint is not None:
            self._complaint.cancel()
            await asyncio.gather(self._complaint, return_exceptions=True)


def unused(name: str, taken: Container[str]) -> str:
    """A tool's name, or, where another one has it, with a number behind it."""
    numbered = (f"{name[:58]}_{number}" for number in count(2))
    return next(each for each in chain([name], numbered) if each not in taken)


def _text(part: Mapping[str, Any]) -> str:
    """A part of what a tool said; of what is no text, what it is."""
    if part.get("type") == "text":
        return str(part.get("text", ""))
    resource = part.get("resource")
    if isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return str(resource["text"])
    return f"[{part.get('type', 'unknown')} {part.get('mimeType') or part.get('uri') or ''}]".replace(" ]", "]")


async def _last_line(stream: asyncio.StreamReader) -> str:
    """What was said last, to the end of a stream; it is read so that nobody waits who writes to it."""
    last = b""
    while data := await stream.read(65536):
        last = (last + data)[-4096:]
    lines = [line for line in last.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else ""
