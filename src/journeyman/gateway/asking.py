"""Asks the upstreams of a route, one after the other, until one answers."""

import asyncio
import io
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import aiohttp
from aiohttp import ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from yarl import URL

from journeyman.gateway.call import KEY_PARAMETERS, Call, Refused, is_secret
from journeyman.gateway.metrics import Metrics
from journeyman.gateway.upstreams import Upstream
from journeyman.io.retry import RetryPolicy, retry_after

BUSY = frozenset({429, 500, 502, 503, 504, 520, 522, 524, 529})
"""Statuses after which the same request may succeed: elsewhere, or a little later."""
_POLICY = RetryPolicy(first_wait=0.375, longest_wait=6.0)
_RNG = random.Random()
PATIENCE = 20.0
"""The longest wait that an upstream may ask for. Asked for more, the client is told and decides."""
PATIENCE_WITH_OTHERS = 1.0
_LARGE = 1 << 20


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt came to nothing."""

    reason: str
    said: str
    reached: bool
    """Whether the upstream may have seen the request."""


class Asking:
    """The client's side of the gateway: one pool of connections for all upstreams."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._session = ClientSession(
            connector=TCPConnector(limit=0, ttl_dns_cache=60),
            # What one client is given must not be sent for another.
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Content-Type", "Accept"),
            max_line_size=65_536,
            max_field_size=65_536,
        )

    async def close(self) -> None:
        await self._session.close()

    async def ask(self, call: Call, route: Sequence[Upstream]) -> tuple[Upstream, ClientResponse]:
        """The first answer that is worth passing on; else the last that there was. Its body is still to be read.

        Raises:
            Refused: No upstream answered at all.
        """
        held: tuple[Upstream, ClientResponse] | None = None
        failure: tuple[Upstream, Failure] | None = None
        for number, upstream in enumerate(route):
            others = number + 1 < len(route)
            if not upstream.breaker.enter():
                continue
            said = await self._insist(call, upstream, route[0], others=others)
            if isinstance(said, Failure):
                failure = upstream, said
                continue
            if held is not None:
                held[1].close()
            held = upstream, said
            if said.status not in BUSY:
                break
        if held is not None:
            return held
        raise _unanswered(call, route, failure)

    async def ask_one(self, call: Call, upstream: Upstream, first: Upstream) -> ClientResponse:
        """The answer of this upstream, of a route that begins with `first`. Raises as `ask`."""
        if not upstream.breaker.enter():
            raise _unanswered(call, (upstream,), None)
        said = await self._insist(call, upstream, first, others=False)
        if isinstance(said, Failure):
            raise _unanswered(call, (upstream,), (upstream, said))
        return said

    async def _insist(self, call: Call, upstream: Upstream, first: Upstream, *, others: bool) -> ClientResponse | Failure:
        """One upstream, again where that is safe and may help."""
        for attempt in range(upstream.settings.retries + 1):
            said = await self._measured(call, upstream, first)
            last = attempt == upstream.settings.retries
            if isinstance(said, Failure):
                if last or not _repeatable(call, said):
                    return said
                wait = _POLICY.backoff(attempt + 1, _RNG)
            else:
                if said.status not in BUSY or last or not _repeatable(call, None):
                    return said
                asked = _retry_after(said)
                wait = _POLICY.backoff(attempt + 1, _RNG) if asked is None else asked
                if wait > (PATIENCE_WITH_OTHERS if others else PATIENCE):
                    return said
            if not upstream.breaker.enter():
                return said
            if isinstance(said, ClientResponse):
                said.close()
            try:
                await asyncio.sleep(wait)
            except asyncio.CancelledError:
                upstream.breaker.left()
                raise
        raise AssertionError("the last attempt returns")

    async def _measured(self, call: Call, upstream: Upstream, first: Upstream) -> ClientResponse | Failure:
        """One attempt, as the breaker and the counters see it."""
        try:
            said = await self._attempt(call, upstream, first)
        except BaseException:
            upstream.breaker.left()
            raise
        if isinstance(said, Failure):
            upstream.breaker.failed()
            self._metrics.failures(upstream.name, said.reason).inc()
        elif said.status >= 500 and said.status != 501:
            upstream.breaker.failed()
            self._metrics.failures(upstream.name, said.status).inc()
        else:
            upstream.breaker.succeeded()
        return said

    async def _attempt(self, call: Call, upstream: Upstream, first: Upstream) -> ClientResponse | Failure:
        settings = upstream.settings
        headers, query = addressed(call, upstream, first)
        try:
            async with asyncio.timeout(settings.first_byte_seconds):
                return await self._session.request(
                    call.method,
                    _url(upstream.target(call.api, call.path, query)),
                    data=_payload(call.body),
                    headers=headers,
                    allow_redirects=False,
                    timeout=_timeout(settings.connect_seconds, settings.idle_seconds, settings.total_seconds),
                )
        except aiohttp.ConnectionTimeoutError:
            return Failure("unreachable", f"could not be connected to within {settings.connect_seconds:g} s", reached=False)
        except TimeoutError:
            return Failure("timeout", f"gave no answer within {settings.first_byte_seconds:g} s", reached=True)
        except aiohttp.ClientConnectorError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error.os_error)
            return Failure("unreachable", f"cannot be reached at {error.host}:{error.port}: {why}", reached=False)
        except (aiohttp.ClientError, OSError) as error:
            return Failure("cut", f"broke off before it answered ({type(error).__name__})", reached=True)


def addressed(call: Call, upstream: Upstream, first: Upstream) -> tuple[list[tuple[str, str]], str]:
    """Headers and query for one upstream. A key goes only where it belongs."""
    headers = [*call.headers, ("accept-encoding", "identity")]
    query = call.query
    if not upstream.gets_client_key(first):
        headers = [pair for pair in headers if not is_secret(*pair)]
        query = KEY_PARAMETERS.sub("", query).lstrip("&")
    elif call.keys:
        return headers + call.keys, query
    elif KEY_PARAMETERS.search(query):
        return headers, query
    if upstream.key is not None:
        headers.append(("x-api-key", upstream.key) if call.api == "anthropic" else ("authorization", f"Bearer {upstream.key}"))
    return headers, query


@lru_cache(maxsize=256)
def _url(address: str) -> URL:
    # What the client has encoded must not be encoded again.
    return URL(address, encoded=True)


@lru_cache(maxsize=64)
def _timeout(connect: float, idle: float, total: float) -> ClientTimeout:
    return ClientTimeout(total=total, sock_connect=connect, sock_read=idle)


def _payload(body: bytes) -> bytes | io.BytesIO | None:
    """In one piece where it is small; a large one would hold up all others."""
    return io.BytesIO(body) if len(body) > _LARGE else body or None


def _repeatable(call: Call, failure: Failure | None) -> bool:
    """Whether asking again does no harm: a model may be asked twice, a batch must not be begun twice."""
    if failure is not None and not failure.reached:
        return True
    return call.dialect is not None or call.method in ("GET", "HEAD", "OPTIONS")


def _retry_after(response: ClientResponse) -> float | None:
    """Seconds that the upstream asks for; infinitely many where it asks not to be asked again."""
    if response.headers.get("x-should-retry", "").lower() == "false":
        return float("inf")
    return retry_after(response.headers)


def _unanswered(call: Call, route: Sequence[Upstream], failure: tuple[Upstream, Failure] | None) -> Refused:
    if failure is not None:
        upstream, why = failure
        status = 504 if why.reason == "timeout" else 502
        return Refused(status, f"the upstream {upstream.name} {why.said}", f"upstream_{why.reason}", api=call.api)
    wait = min(each.breaker.wait for each in route)
    names = ", ".join(each.name for each in route)
    said = f"left alone for now, after failures in a row: {names}; try again in {wait:.0f} s"
    return Refused(503, said, "upstream_resting", api=call.api, retry_after=wait)
