"""Who may come in, and whose turn it is."""

import asyncio
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from journeyman.sandbox.service.config import ServiceConfig


class RunRejected(Exception):
    """A request that is turned away, as HTTP says it."""

    def __init__(
        self, status: int, sentence: str, reason: str, *, retry_after: int | None = None, faults: tuple[str, ...] = ()
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.reason = reason
        """One word, for the metrics."""
        self.retry_after = retry_after
        """Seconds."""
        self.faults = faults


STOPPING = RunRejected(503, "the service is stopping", "stopping", retry_after=5)


class AdmissionQueue:
    """Counts who is inside: so many in all, so many of one client, so many at work; the others wait in order of arrival."""

    def __init__(self, config: ServiceConfig, mean_seconds: Callable[[], float]) -> None:
        self._config = config
        self._mean_seconds = mean_seconds
        self._clients: Counter[str] = Counter()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._inside = 0
        self._held = 0
        self.running = 0
        self.draining = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def empty(self) -> bool:
        return not self._inside

    def drain(self) -> None:
        """Take nothing new and send away those that wait; what runs is not touched."""
        self.draining = True
        while self._waiting:
            self._waiting.popleft().set_exception(STOPPING)

    @contextmanager
    def admitted(self, client: str) -> Iterator[None]:
        """Hold one of the places.

        Raises:
            Refused: There is none (503), or this client has its share (429).
        """
        if self.draining:
            raise STOPPING
        if self._clients[client] >= self._config.per_client:
            sentence = f"this client has {self._config.per_client} requests under way, which is its share: wait for one to end"
            raise RunRejected(429, sentence, "client_busy", retry_after=self._retry_after(self._config.per_client))
        if self._inside >= self._config.concurrency + self._config.queue:
            sentence = f"the service is full: {self._config.queue} requests wait already"
            raise RunRejected(503, sentence, "queue_full", retry_after=self._retry_after(self._config.queue))
        self._inside += 1
        self._clients[client] += 1
        try:
            yield
        finally:
            self._inside -= 1
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]

    @contextmanager
    def holding(self) -> Iterator[Callable[[int], None]]:
        """Gives a function that counts bytes read into memory, until the end of the block.

        Raises:
            Refused: (503, by that function) The bodies in memory are too large, all together.
        """
        mine = 0

        def hold(size: int) -> None:
            nonlocal mine
            if self._held + size > self._config.held:
                raise RunRejected(503, "the service holds too many large requests", "memory", retry_after=self._retry_after(1))
            mine += size
            self._held += size

        try:
            yield hold
        finally:
            self._held -= mine

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for one's turn to run.

        Raises:
            Refused: (503) It did not come in time, or the service stops.
        """
        if self.running < self._config.concurrency:
            self.running += 1
        else:
            await self._wait()
        try:
            yield
        finally:
            self._next()

    async def _wait(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            done, _ = await asyncio.wait({place}, timeout=self._config.queue_seconds)
        except asyncio.CancelledError:
            self._leave(place)
            raise
        if not done:
            self._leave(place)
            sentence = f"no turn came within {self._config.queue_seconds:g} s"
            raise RunRejected(503, sentence, "queue_slow", retry_after=self._retry_after(self._config.queue))
        place.result()

    def _leave(self, place: asyncio.Future[None]) -> None:
        """Whoever was given a turn in the moment of leaving passes it on."""
        if not place.done():
            place.cancel()
            self._waiting.remove(place)
        elif place.exception() is None:
            self._next()

    def _next(self) -> None:
        """A turn has ended: the first who waits takes it over."""
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self.running -= 1

    def _retry_after(self, ahead: int) -> int:
        """Seconds until about half of those ahead are through: a guess, from 1 to 30."""
        return min(30, max(1, math.ceil(self._mean_seconds() * ahead / self._config.concurrency / 2)))
