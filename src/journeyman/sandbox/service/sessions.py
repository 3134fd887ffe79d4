"""The sessions that are alive, and whose they are."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from journeyman.errors import SandboxError
from journeyman.sandbox.base import Outcome, Session
from journeyman.sandbox.service.config import ServiceConfig
from journeyman.sandbox.service.queue import Refused

REMEMBERED = 1000
Clock = Callable[[], float]


@dataclass(slots=True, kw_only=True)
class Kept:
    """One session."""

    id: str
    """Not to be guessed: who knows it, and is the client that opened it, may use it."""
    client: str
    session: Session
    idle_seconds: float
    used_at: float
    runs: int = 0
    busy: bool = False


class Sessions:
    """Opened and ended here only, so that none is forgotten."""

    def __init__(self, config: ServiceConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._kept: dict[str, Kept] = {}
        self._over: dict[str, tuple[str, str]] = {}
        """Whose the last ones were, and why they ended."""
        self._opening: list[str] = []
        """Clients whose session is being opened: they count already."""
        self._sweeping: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._kept)

    async def open(self, client: str, idle_seconds: float, make: Callable[[], Awaitable[Session]]) -> Kept:
        """Raises `Refused` when there are too many (503), or too many of this client (429)."""
        self._room(client)
        self._opening.append(client)
        try:
            session = await make()
        finally:
            self._opening.remove(client)
        kept = Kept(
            id=secrets.token_urlsafe(16), client=client, session=session, idle_seconds=idle_seconds, used_at=self._clock()
        )
        self._kept[kept.id] = kept
        if self._sweeping is None:
            self._sweeping = asyncio.create_task(self._sweep())
        return kept

    def _room(self, client: str) -> None:
        clients = [*(kept.client for kept in self._kept.values()), *self._opening]
        if clients.count(client) >= self._config.per_client:
            raise Refused(429, f"this client has {self._config.per_client} sessions: close one", "client_busy", retry_after=5)
        if len(clients) >= self._config.sessions:
            raise Refused(
                503, f"{self._config.sessions} sessions are open, which is all there may be", "sessions", retry_after=5
            )

    def find(self, client: str, id: str) -> Kept:
        """Raises `Refused`: (410) with why it is over; (404) for those of others, too: nobody learns that they exist."""
        kept = self._kept.get(id)
        if kept is not None and kept.client == client:
            return kept
        owner, why = self._over.get(id, ("", ""))
        if owner == client:
            raise Refused(410, why, "over")
        raise Refused(404, "there is no such session", "unknown")

    @contextmanager
    def taken(self, kept: Kept) -> Iterator[None]:
        """Nobody else may use it in this block. Raises `Refused` (409) where somebody does."""
        if kept.busy:
            raise Refused(409, "the session is busy with another call: it does one at a time", "busy")
        kept.busy = True
        try:
            yield
        finally:
            kept.busy = False
            kept.used_at = self._clock()

    async def run(self, kept: Kept, running: Awaitable[Outcome]) -> Outcome:
        """Run in it. When whoever asked is gone, it is over: its state is then anybody's guess.

        Raises:
            Refused: (410) It is over.
        """
        kept.runs += 1
        try:
            outcome = await running
            if outcome.limit is not None or outcome.exit_code not in (0, 1):
                await self._end_if_over(kept)
        except SandboxError as error:
            await self.end(kept, str(error))
            raise Refused(410, str(error), "over") from error
        except BaseException:
            await self.end(kept, _over("a call was cancelled"))
            raise
        return outcome

    async def _end_if_over(self, kept: Kept) -> None:
        """Some limits end a session and some do not, and so it is asked."""
        try:
            await kept.session.run("")
        except SandboxError as error:
            await self.end(kept, str(error))

    async def end(self, kept: Kept, why: str) -> None:
        if self._kept.pop(kept.id, None) is not None:
            self._over[kept.id] = kept.client, why
            if len(self._over) > REMEMBERED:
                del self._over[next(iter(self._over))]
            # A session that cannot be ended in order was over already.
            with suppress(SandboxError):
                await kept.session.close()

    def listed(self, client: str, *, whole: bool) -> list[dict[str, Any]]:
        """Those of one client. Where an address is all that tells clients apart, ids are shortened: each is a key."""
        now = self._clock()
        return [
            {
                "id": kept.id if whole else f"{kept.id[:6]}…",
                "runs": kept.runs,
                "busy": kept.busy,
                "idle_seconds": 0.0 if kept.busy else round(now - kept.used_at, 3),
                "idle_limit": kept.idle_seconds,
            }
            for kept in self._kept.values()
            if kept.client == client
        ]

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await asyncio.gather(*(self.end(kept, _over("the service stops")) for kept in list(self._kept.values())))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._config.idle_seconds / 4))
            now = self._clock()
            for kept in list(self._kept.values()):
                if not kept.busy and now - kept.used_at > kept.idle_seconds:
                    await self.end(kept, _over(f"nothing was asked of it for {kept.idle_seconds:g} seconds"))


def _over(why: str) -> str:
    return f"the session is over: {why}; open a new one"


CLOSED = _over("it was closed")
