"""A session over a connection to its warden, whatever the walls."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from journeyman.errors import SandboxError
from journeyman.sandbox.base import Limits, Outcome, Tool
from journeyman.sandbox.talk import Talk, common, encoded


class LocalSession:
    """One call at a time; others wait for their turn."""

    def __init__(self, talk: Talk, *, idle_seconds: float, limits: Limits, ended: Callable[[], Awaitable[None]]) -> None:
        self._talk = talk
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
        await self._talk.send(job | common(self._limits, files), (b"", *files.values()))

    async def run(self, code: str, *, tools: Mapping[str, Tool] | None = None, wall_seconds: float | None = None) -> Outcome:
        async with self._turn:
            if self._over:
                raise SandboxError(f"the session is over: {self._over}; open a new one")
            self._stop_waiting()
            offered = tools or {}
            wall = self._limits.wall_seconds if wall_seconds is None else wall_seconds
            call = {"execute": True, "tools": sorted(offered), "limits": {"wall_seconds": wall}}
            try:
                await self._talk.send(call, (encoded(code),))
                outcome, over = await self._talk.outcome(offered)
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
            await self._talk.close()
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
