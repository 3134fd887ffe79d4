"""The host's end of a run: the request goes out, tools are answered, the outcome comes back."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Any, Self

from journeyman.errors import InputError, SandboxError
from journeyman.sandbox.base import Level, Limits, Outcome, Program, Tool
from journeyman.sandbox.inside import wire
from journeyman.sandbox.inside.toolbox import MAX_MESSAGE
from journeyman.sandbox.languages import language

Tools = Mapping[str, Tool]
MAX_DEPTH = 200
"""Of lists and objects within each other in the arguments of a tool."""


class Talk:
    """A connection to the warden of one run. Closing it ends the run."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, level: Level) -> None:
        self._reader = reader
        self._writer = writer
        self._level = level

    @classmethod
    async def open(cls, channel: socket.socket, level: Level) -> Self:
        """Takes the socket over."""
        reader, writer = await asyncio.open_connection(sock=channel)
        return cls(reader, writer, level)

    async def send(self, message: wire.Message, blobs: tuple[bytes, ...] = ()) -> None:
        try:
            self._writer.write(wire.pack(message, blobs))
            await self._writer.drain()
        except ConnectionError as error:
            raise SandboxError("the sandbox ended before the code did") from error

    async def outcome(self, tools: Tools) -> tuple[Outcome, bool]:
        """What happened, and whether nothing more can come. Calls of tools are answered until then, side by side.

        Raises:
            SandboxError: The run's walls could not be built, or its warden is gone.
        """
        answering: set[asyncio.Task[None]] = set()
        try:
            while True:
                message, blobs = await self._receive()
                if "call" in message:
                    task = asyncio.create_task(self._answer(message, tools))
                    answering.add(task)
                    task.add_done_callback(answering.discard)
                elif "result" in message:
                    return outcome(message["result"], blobs, self._level), bool(message["result"]["over"])
                else:
                    raise SandboxError(f"the code could not be run: {message.get('fault')}")
        finally:
            for task in answering:
                task.cancel()
            await asyncio.gather(*answering, return_exceptions=True)

    async def _answer(self, call: wire.Message, tools: Tools) -> None:
        name, answer = call["tool"], {"answer": call["call"]}
        if name not in tools:
            answer["error"] = f"there is no tool {name!r}; there are: {', '.join(sorted(tools))}"
        else:
            try:
                answer["value"] = await tools[name](_arguments(call["arguments"]))
                if len(wire.line(answer)) > MAX_MESSAGE:
                    answer = {"answer": call["call"], "error": f"the value of {name} is more than {MAX_MESSAGE} bytes"}
            except Exception as error:  # noqa: BLE001 - a tool is a plug-in, and its failure is the code's to handle
                answer = {"answer": call["call"], "error": str(error) or type(error).__name__}
        # Where the code is gone already there is nobody to answer.
        with contextlib.suppress(SandboxError):
            await self.send(answer)

    async def _receive(self) -> tuple[wire.Message, wire.Blobs]:
        try:
            size = wire.head_size(await self._reader.readexactly(wire.LENGTH.size))
            message, sizes = wire.parse_head(await self._reader.readexactly(size))
            return message, [await self._reader.readexactly(size) for size in sizes]
        except (asyncio.IncompleteReadError, ConnectionError, wire.Garbled) as error:
            raise SandboxError("the sandbox ended before the code did") from error

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


def request(program: Program, tools: Tools) -> tuple[wire.Message, tuple[bytes, ...]]:
    """The program as its warden expects it.

    Raises:
        InputError: There is no such language, or a file would lie outside the working folder.
    """
    how = language(program.language)
    files = dict(program.files)
    if program.code or how.file not in files:
        files[how.file] = encoded(program.code)
    message = {
        "kind": how.kind,
        "main": how.file,
        "commands": how.commands,
        "arguments": program.arguments,
        "collect": program.collect,
        "tools": sorted(tools),
    } | common(program.limits, files, processes=how.processes)
    return message, (program.stdin, *files.values())


def encoded(text: str) -> bytes:
    """A source as the bytes of its file. A model may write half a surrogate pair, which is for the interpreter to refuse."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")


def _arguments(text: str) -> dict[str, Any]:
    """Of a tool call. They come from the code, and whoever passes them on is not to fail for it.

    Raises:
        ValueError: They are nested too deep.
    """
    arguments: dict[str, Any] = json.loads(text)
    level: list[Any] = [arguments]
    for _ in range(MAX_DEPTH):
        level = [item for each in level for item in _items(each)]
        if not level:
            return arguments
    raise ValueError(f"the arguments are nested more than {MAX_DEPTH} deep")


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def common(limits: Limits, files: Mapping[str, bytes], *, processes: int = 0) -> dict[str, Any]:
    """What a run and a session have in common."""
    for path in files:
        check(path)
    return {"files": list(files), "limits": asdict(limits) | {"processes": limits.processes + processes}}


def check(path: str) -> None:
    """Raises `InputError` for what is no path within a working folder."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path or path.endswith("/"):
        raise InputError(f"{path!r} is no path of a file within the working folder; use a relative one without '..'")


def outcome(result: Mapping[str, Any], blobs: wire.Blobs, level: Level) -> Outcome:
    """What the warden said, as a value."""
    stdout, stderr, *contents = blobs
    return Outcome(
        level=level,
        exit_code=result["exit_code"],
        signal=result["signal"],
        limit=result["limit"],
        stdout=stdout.decode(errors="replace"),
        stderr=stderr.decode(errors="replace"),
        files=dict(zip(result["files"], contents, strict=True)),
        cpu_seconds=result["cpu_seconds"],
        wall_seconds=result["wall_seconds"],
        peak_memory=result["peak_memory"],
    )
