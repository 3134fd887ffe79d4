"""The host's end of a run: the request goes out, tools are answered, the outcome comes back."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Any, Self

from journeyman.core.errors import InputError, SandboxError
from journeyman.sandbox.base import Level, Limits, Program, RunOutcome, Tool, language
from journeyman.sandbox.inside import wire
from journeyman.sandbox.inside.tools import MAX_MESSAGE

Tools = Mapping[str, Tool]
MAX_DEPTH = 200
"""Of lists and objects within each other in the arguments of a tool."""


class RunChannel:
    """A connection to the supervisor of one run. Closing it ends the run."""

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

    async def outcome(self, tools: Tools) -> tuple[RunOutcome, bool]:
        """What happened, and whether nothing more can come. Calls of tools are answered until then, side by side.

        Raises:
            SandboxError: The run's walls could not be built, or its supervisor is gone.
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
    """The program as its supervisor expects it.

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
        "warm": "pytest" if how.kind == "pytest" else program.warm,
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


def outcome(result: Mapping[str, Any], blobs: wire.Blobs, level: Level) -> RunOutcome:
    """What the supervisor said, as a value."""
    stdout, stderr, *contents = blobs
    return RunOutcome(
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


# A session over a connection to its supervisor, whatever the walls.


class LocalSession:
    """One call at a time; others wait for their turn."""

    def __init__(
        self, channel: RunChannel, *, idle_seconds: float, limits: Limits, ended: Callable[[], Awaitable[None]]
    ) -> None:
        self._channel = channel
        self._limits = limits
        self._idle_seconds = idle_seconds
        self._ended = ended
        self._turn = asyncio.Lock()
        self._over: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None
        self._wait()

    async def begin(self, files: Mapping[str, bytes]) -> None:
        """Furnish the working folder."""
        job = {"kind": "session", "main": "", "commands": [], "arguments": [], "collect": [], "tools": []}
        await self._channel.send(job | common(self._limits, files), (b"", *files.values()))

    async def run(self, code: str, *, tools: Mapping[str, Tool] | None = None, wall_seconds: float | None = None) -> RunOutcome:
        async with self._turn:
            if self._over:
                raise SandboxError(f"the session is over: {self._over}; open a new one")
            self._stop_waiting()
            offered = tools or {}
            wall = self._limits.wall_seconds if wall_seconds is None else wall_seconds
            call = {"execute": True, "tools": sorted(offered), "limits": {"wall_seconds": wall}}
            try:
                await self._channel.send(call, (encoded(code),))
                outcome, over = await self._channel.outcome(offered)
            except BaseException as error:
                # A call that was given up cannot be told from the next one: what it started must not go on.
                await self._end("a call was cancelled" if isinstance(error, asyncio.CancelledError) else str(error))
                raise
            if over:
                await self._end(f"it hit its limit of {outcome.limit}" if outcome.limit else "its process ended")
            else:
                self._wait()
            return outcome

    async def close(self) -> None:
        self._stop_waiting()
        if self._closing is not None:
            await self._closing
        await self._end("it was closed")

    async def _end(self, why: str) -> None:
        if self._over is None:
            self._over = why
            await self._channel.close()
            await self._ended()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._too_idle)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _too_idle(self) -> None:
        self._closing = asyncio.create_task(self._end(f"nothing was asked of it for {self._idle_seconds:g} seconds"))


async def settle(sessions: Mapping[int, LocalSession]) -> None:
    """Close all that are still open."""
    with contextlib.suppress(ConnectionError):
        await asyncio.gather(*(session.close() for session in list(sessions.values())))
