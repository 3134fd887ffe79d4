"""How many calls run together, found out as TCP finds it out: halve when the server is busy, grow by one while it is not.

Additive increase, multiplicative decrease; Chiu and Jain, 1989, show that it converges to a fair share.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from journeyman.core.errors import ModelBusy, ModelError
from journeyman.io.retry import RetryPolicy
from journeyman.models import OVER_HTTP, load, parse
from journeyman.models.base import Around, Model, ModelRequest, Reply

log = logging.getLogger(__name__)
_POLICY = RetryPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """What the calls of one client have used so far. Known parts are summed, unknown ones counted."""

    calls: int = 0
    """Calls that gave a reply."""
    busy: int = 0
    """Times that the server was busy; a call can be so several times."""
    failed: int = 0
    """Calls that gave no reply in the end. What they cost is unknown: an answer that cannot be used is paid for too."""
    input_tokens: int = 0
    output_tokens: int = 0
    uncounted: int = 0
    """Calls whose tokens the provider did not count: they are not in the two sums."""
    cost: float = 0.0
    """US dollars of the calls with a known price."""
    unpriced: int = 0
    """Calls without a known price: `cost` is a lower bound as soon as there is one."""

    def plus(self, reply: Reply) -> "ModelUsage":
        return self + ModelUsage(
            calls=1,
            input_tokens=reply.input_tokens or 0,
            output_tokens=reply.output_tokens or 0,
            uncounted=int(reply.input_tokens is None or reply.output_tokens is None),
            cost=reply.cost or 0.0,
            unpriced=int(reply.cost is None),
        )

    def __add__(self, other: "ModelUsage") -> "ModelUsage":
        return ModelUsage(**{name: getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__})

    def __sub__(self, before: "ModelUsage") -> "ModelUsage":
        """What was used since `before`, an earlier reading of the same client."""
        return ModelUsage(**{name: getattr(self, name) - getattr(before, name) for name in self.__dataclass_fields__})


class Limited(Around):
    """A model client with at most `concurrency` calls under way, that waits for a busy server and counts what is used.

    Belongs to no event loop: it may be used in one after the other, though not in two at once.
    """

    def __init__(
        self,
        model: Model,
        concurrency: int = 10,
        *,
        patience: RetryPolicy = _POLICY,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}, and must be at least 1")
        super().__init__(model)
        self.most = concurrency
        self.limit = concurrency
        """Calls allowed together just now."""
        self.usage = ModelUsage()
        self._patience = patience
        self._rng = rng or random.Random()
        self._sleep = sleep
        self._running = 0
        self._held = 0
        """Calls that sleep because the server named a time; until then nobody else starts either."""
        self._successes = 0
        self._halvings = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def complete(self, request: ModelRequest) -> Reply:
        try:
            return await self._insist(request)
        except ModelError:
            self.usage += ModelUsage(failed=1)
            raise

    async def _insist(self, request: ModelRequest) -> Reply:
        tries = 0
        while True:
            await self._start(first=tries > 0)
            tries += 1
            halvings = self._halvings
            try:
                reply = await self.model.complete(request)
            except ModelBusy as busy:
                self._slow_down(halvings)
                refused = busy
            else:
                self._speed_up(reply)
                return reply
            finally:
                self._finish()
            await self._pause(tries, refused)

    async def _start(self, *, first: bool) -> None:
        """Wait for a turn. Calls start in the order they were made; one that is tried again goes `first`."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._running, self._held = loop, 0, 0
            self._waiting.clear()
        turn = loop.create_future()
        if first:
            self._waiting.appendleft(turn)
        else:
            self._waiting.append(turn)
        self._give_turns()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._finish()
            raise

    def _finish(self) -> None:
        self._running -= 1
        self._give_turns()

    def _give_turns(self) -> None:
        while self._waiting and self._running < self.limit and not self._held:
            turn = self._waiting.popleft()
            if not turn.done():
                self._running += 1
                turn.set_result(None)

    async def _pause(self, tries: int, busy: ModelBusy) -> None:
        wait = self._patience.wait(tries, busy.retry_after, self._rng)
        if wait is None:
            raise busy
        log.info("%s is busy, try %d, waiting %.1f s, %d calls at once: %s", self.name, tries, wait, self.limit, busy)
        hold = busy.retry_after is not None
        self._held += hold
        try:
            await self._sleep(wait)
        finally:
            self._held -= hold
            self._give_turns()

    def _slow_down(self, halvings: int) -> None:
        """Halve, once for all the calls that were under way together: one burst is one piece of news."""
        self.usage += ModelUsage(busy=1)
        self._successes = 0
        if halvings == self._halvings:
            self._halvings += 1
            self.limit = max(1, self.limit // 2)

    def _speed_up(self, reply: Reply) -> None:
        self.usage = self.usage.plus(reply)
        self._successes += 1
        if self._successes >= self.limit and self.limit < self.most:
            self.limit += 1
            self._successes = 0


def connect(name: str, concurrency: int = 10, *, patience: RetryPolicy = _POLICY, **options: object) -> Limited:
    """The client of that name, limited. Its own retries are off: they would hide from `Limited` that the server is busy."""
    if parse(name).kind in OVER_HTTP:
        options.setdefault("max_retries", 0)
    return Limited(load(name, **options), concurrency, patience=patience)
