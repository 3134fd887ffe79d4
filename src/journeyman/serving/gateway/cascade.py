"""A second try for requests whose model a policy chose: where checks say that the answer is no good, a better model is asked.

The checks are rewards, which need no key: whether the answer has the form that was asked for, whether its code can be parsed,
or one of your own. Until they have spoken nothing of the answer is passed on, also of a stream.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from journeyman.core import extension
from journeyman.core.reward import HALF
from journeyman.serving.gateway.request import Header
from journeyman.serving.gateway.upstreams import broken
from journeyman.serving.releases.context import ServedTarget
from journeyman.tracing.wire.dialects import Exchange, read_exchange

if TYPE_CHECKING:
    from aiohttp import ClientResponse


class AnswerCheck:
    """Whether an answer may be given, by rewards."""

    def __init__(self, rewards: Sequence[str]) -> None:
        """
        Args:
            rewards: Their names, or `module:Class` of one's own.

        Raises:
            InputError: There is no such reward.
        """
        # Late: a gateway without checks need not carry what they take.
        from journeyman.rewards.engine import RewardEngine

        self._engine = RewardEngine([extension.make("rewards", name) for name in rewards])

    async def accepts(self, exchange: Exchange) -> bool:
        """Not where one of them says that it is no good, and not where it could not be read. What they cannot tell is given."""
        return await asyncio.to_thread(self._accepts, exchange)

    def _accepts(self, exchange: Exchange) -> bool:
        from journeyman.tracing.wire.assembler import JoinedExchange, new_trace, with_exchange

        reading = read_exchange(exchange)
        if reading.error is not None:
            return False
        trace, _ = with_exchange(new_trace(exchange, reading), JoinedExchange(exchange, reading, None, {}), None)
        scores = [result.score for result in self._engine.verdicts(trace).results.values()]
        return all(score is None or score >= HALF for score in scores)


def better(target: ServedTarget) -> str | None:
    """Of those who are forecast to be right more often than who was chosen, the best."""
    if target.choice is None:
        return None
    forecasts = {each.worker: each.success for each in target.choice.forecasts}
    rest = {name: success for name, success in forecasts.items() if success > forecasts.get(target.choice.worker, 1.0)}
    return max(rest, key=lambda name: (rest[name], name), default=None)


class HeldAnswer:
    """An answer of which the beginning was read before it is passed on. It is read as an aiohttp response is."""

    def __init__(self, response: "ClientResponse") -> None:
        self._response = response
        self._parts: list[bytes] = []
        self._broken: BaseException | None = None
        self.status, self.content_type, self.headers = response.status, response.content_type, response.headers
        self.raw_headers: Sequence[Header] = response.raw_headers
        self.content = self

    async def read(self, limit: int) -> bytes | None:
        """All of it; `None` where it is longer than so many bytes, or breaks off."""
        size = 0
        try:
            while data := await self._response.content.readany():
                self._parts.append(data)
                if (size := size + len(data)) > limit:
                    return None
        except broken() as error:
            self._broken = error
            return None
        return b"".join(self._parts)

    async def readany(self) -> bytes:
        if self._parts:
            return self._parts.pop(0)
        if self._broken is not None:
            raise self._broken
        return await self._response.content.readany()

    def at_eof(self) -> bool:
        return not self._parts and self._broken is None and self._response.content.at_eof()

    def close(self) -> None:
        self._response.close()
