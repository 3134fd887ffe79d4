"""Asks the upstreams of a route, one after the other, until one answers."""

import asyncio
import io
import os
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from time import perf_counter

import aiohttp
from aiohttp import ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from yarl import URL

from journeyman.io.retry import RetryPolicy, retry_after
from journeyman.serving.gateway.asgi import Receive, Send, answer_refusal
from journeyman.serving.gateway.metrics import GatewayMetrics
from journeyman.serving.gateway.request import (
    HOP_BY_HOP,
    KEY_PARAMETERS,
    Header,
    HTTPRejection,
    ProxyRequest,
    is_secret,
    model_of,
    with_model,
)
from journeyman.serving.gateway.upstreams import Routes, Upstream
from journeyman.serving.ingest.base import Intake
from journeyman.tracing.wire.base import Dialect, Exchange

BUSY = frozenset({429, 500, 502, 503, 504, 520, 522, 524, 529})
"""Statuses after which the same request may succeed: elsewhere, or a little later."""
_POLICY = RetryPolicy(first_wait=0.375, longest_wait=6.0)
_RNG = random.Random()
PATIENCE = 20.0
"""The longest wait that an upstream may ask for. Asked for more, the client is told and decides."""
PATIENCE_WITH_OTHERS = 1.0
_LARGE = 1 << 20


@dataclass(frozen=True, slots=True)
class UpstreamFailure:
    """Why an attempt came to nothing."""

    reason: str
    said: str
    reached: bool
    """Whether the upstream may have seen the request."""


class Asking:
    """The client's side of the gateway: one pool of connections for all upstreams."""

    def __init__(self, metrics: GatewayMetrics) -> None:
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

    async def ask(self, call: ProxyRequest, route: Sequence[Upstream]) -> tuple[Upstream, ClientResponse]:
        """The first answer that is worth passing on; else the last that there was. Its body is still to be read.

        Raises:
            Refused: No upstream answered at all.
        """
        held: tuple[Upstream, ClientResponse] | None = None
        failure: tuple[Upstream, UpstreamFailure] | None = None
        for number, upstream in enumerate(route):
            others = number + 1 < len(route)
            if not upstream.breaker.enter():
                continue
            said = await self._insist(call, upstream, route[0], others=others)
            if isinstance(said, UpstreamFailure):
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

    async def ask_one(self, call: ProxyRequest, upstream: Upstream, first: Upstream) -> ClientResponse:
        """The answer of this upstream, of a route that begins with `first`. Raises as `ask`."""
        if not upstream.breaker.enter():
            raise _unanswered(call, (upstream,), None)
        said = await self._insist(call, upstream, first, others=False)
        if isinstance(said, UpstreamFailure):
            raise _unanswered(call, (upstream,), (upstream, said))
        return said

    async def _insist(
        self, call: ProxyRequest, upstream: Upstream, first: Upstream, *, others: bool
    ) -> ClientResponse | UpstreamFailure:
        """One upstream, again where that is safe and may help."""
        for attempt in range(upstream.settings.retries + 1):
            said = await self._measured(call, upstream, first)
            last = attempt == upstream.settings.retries
            if isinstance(said, UpstreamFailure):
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

    async def _measured(self, call: ProxyRequest, upstream: Upstream, first: Upstream) -> ClientResponse | UpstreamFailure:
        """One attempt, as the breaker and the counters see it."""
        try:
            said = await self._attempt(call, upstream, first)
        except BaseException:
            upstream.breaker.left()
            raise
        if isinstance(said, UpstreamFailure):
            upstream.breaker.failed()
            self._metrics.failures(upstream.name, said.reason).inc()
        elif said.status >= 500 and said.status != 501:
            upstream.breaker.failed()
            self._metrics.failures(upstream.name, said.status).inc()
        else:
            upstream.breaker.succeeded()
        return said

    async def _attempt(self, call: ProxyRequest, upstream: Upstream, first: Upstream) -> ClientResponse | UpstreamFailure:
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
            return UpstreamFailure(
                "unreachable", f"could not be connected to within {settings.connect_seconds:g} s", reached=False
            )
        except TimeoutError:
            return UpstreamFailure("timeout", f"gave no answer within {settings.first_byte_seconds:g} s", reached=True)
        except aiohttp.ClientConnectorError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error.os_error)
            return UpstreamFailure("unreachable", f"cannot be reached at {error.host}:{error.port}: {why}", reached=False)
        except (aiohttp.ClientError, OSError) as error:
            return UpstreamFailure("cut", f"broke off before it answered ({type(error).__name__})", reached=True)


def addressed(call: ProxyRequest, upstream: Upstream, first: Upstream) -> tuple[list[tuple[str, str]], str]:
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


def _repeatable(call: ProxyRequest, failure: UpstreamFailure | None) -> bool:
    """Whether asking again does no harm: a model may be asked twice, a batch must not be begun twice."""
    if failure is not None and not failure.reached:
        return True
    return call.dialect is not None or call.method in ("GET", "HEAD", "OPTIONS")


def _retry_after(response: ClientResponse) -> float | None:
    """Seconds that the upstream asks for; infinitely many where it asks not to be asked again."""
    if response.headers.get("x-should-retry", "").lower() == "false":
        return float("inf")
    return retry_after(response.headers)


def _unanswered(
    call: ProxyRequest, route: Sequence[Upstream], failure: tuple[Upstream, UpstreamFailure] | None
) -> HTTPRejection:
    if failure is not None:
        upstream, why = failure
        status = 504 if why.reason == "timeout" else 502
        return HTTPRejection(status, f"the upstream {upstream.name} {why.said}", f"upstream_{why.reason}", api=call.api)
    wait = min(each.breaker.wait for each in route)
    names = ", ".join(each.name for each in route)
    said = f"left alone for now, after failures in a row: {names}; try again in {wait:.0f} s"
    return HTTPRejection(503, said, "upstream_resting", api=call.api, retry_after=wait)


# What passed is gathered on its way, within bounds, and handed over as an exchange.


class ExchangeRecording:
    """One exchange while it happens."""

    __slots__ = ("_began", "_call", "_first", "_limit", "_parts", "_size", "_started_at", "encoding", "error", "status",
                 "streamed", "upstream")  # fmt: skip

    def __init__(self, call: ProxyRequest, limit: int) -> None:
        """`limit` is how many bytes of the answer are kept."""
        self._call = call
        self._limit = limit
        self._began = perf_counter()
        self._started_at = datetime.now(UTC)
        self._parts: list[bytes] = []
        self._size = 0
        self._first: float | None = None
        self.upstream: Upstream | None = None
        self.status: int | None = None
        self.streamed = False
        self.encoding = ""
        self.error: str | None = None

    def add(self, data: bytes) -> None:
        if self._first is None:
            self._first = perf_counter()
        room = self._limit - self._size
        self._size += len(data)
        if room > 0:
            self._parts.append(data if len(data) <= room else data[:room])

    def exchange(self, dialect: Dialect) -> Exchange:
        """What happened up to now."""
        call, upstream = self._call, self.upstream
        request, request_wrong = decoded(call.body, call.encoding, self._limit)
        response, response_wrong = decoded(b"".join(self._parts), self.encoding, self._limit)
        cut = f"the record is cut after {self._limit} of {self._size} bytes" if self._size > self._limit else None
        return Exchange(
            id=call.id,
            dialect=dialect,
            request=request,
            response=response,
            status=self.status,
            streamed=self.streamed,
            started_at=self._started_at,
            first_byte_seconds=None if self._first is None else self._first - self._began,
            seconds=perf_counter() - self._began,
            upstream=upstream.name if upstream is not None else "",
            base_url=upstream.base_url if upstream is not None else "",
            error=self.error or cut or request_wrong or response_wrong,
            labels=call.labels,
        )


_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


def decoded(body: bytes, encoding: str, limit: int) -> tuple[bytes, str | None]:
    """A body without its content-encoding, at most `limit` bytes of it, and what could not be undone."""
    if not encoding or encoding == "identity" or not body:
        return body, None
    window = _WINDOWS.get(encoding)
    if window is None:
        return b"", f"the record lacks a body, which came as {encoding}"
    reader = zlib.decompressobj(window)
    try:
        return reader.decompress(body, limit), None
    except zlib.error:
        return b"", f"the record lacks a body, which was no {encoding}"


# Passes a request on, and its answer back, byte for byte and piece by piece, and has the exchange recorded.

HUNG_UP = 499
_KEPT_HERE = HOP_BY_HOP | {b"set-cookie", b"alt-svc"}
"""What an upstream says about its connection, or to a browser that would take us for it."""


class Forwarder:
    """The way there and back. One for each event loop."""

    def __init__(
        self, routes: Routes, asking: Asking, intake: Intake | None, metrics: GatewayMetrics, *, record_limit: int
    ) -> None:
        self._routes = routes
        self._asking = asking
        self._intake = intake
        self._metrics = metrics
        self._record_limit = record_limit

    async def forward(self, call: ProxyRequest, receive: Receive, send: Send) -> None:
        """Answer a call whose body was read. Never raises but when the server is stopped."""
        passage = _Passage(call, ExchangeRecording(call, self._record_limit), send)
        watch = asyncio.create_task(passage.watch(receive))
        self._metrics.in_flight += 1
        try:
            await self._passed(passage)
        except asyncio.CancelledError:
            passage.record.error = passage.record.error or "the client hung up" if passage.gone else "the gateway was stopped"
            if not passage.gone:
                raise
        finally:
            passage.over = True
            watch.cancel()
            self._metrics.in_flight -= 1
            self._ended(passage)

    async def _passed(self, passage: "_Passage") -> None:
        call, record = passage.call, passage.record
        asked_at = perf_counter()
        try:
            sent, route = self._route(call)
            asked_at = perf_counter()
            record.upstream, response = await self._asking.ask(sent, route)
        except HTTPRejection as refused:
            record.error = str(refused)
            self._metrics.refused(refused.code).inc()
            passage.status = refused.status
            await answer_refusal(passage.send, refused, [(b"x-journeyman-request-id", call.id.encode())])
            return
        finally:
            passage.added += asked_at - passage.began
        try:
            await passage.back(response, record.upstream)
        finally:
            # Gives the connection back where the answer was read to its end, and closes it elsewhere.
            response.close()

    def _route(self, call: ProxyRequest) -> tuple[ProxyRequest, Sequence[Upstream]]:
        """Who is asked, and what: a model's name may begin with that of an upstream, which does not know it by that name."""
        api = call.api
        if not self._routes.needs_model(api, call.body):
            return call, self._any(call, None)
        model = model_of(call.body)
        if model is not None and (named := self._routes.named(api, model)) is not None:
            return call.asking(with_model(call.body, model, model.partition("/")[2])), (named,)
        return call, self._any(call, model)

    def _any(self, call: ProxyRequest, model: str | None) -> Sequence[Upstream]:
        route = self._routes.serving(call.api, model)
        if not route:
            what = f"the model {model}" if model is not None else f"{call.api}'s API"
            raise HTTPRejection(404, f"no upstream serves {what}", "no_upstream", api=call.api)
        return route

    def _ended(self, passage: "_Passage") -> None:
        call, record = passage.call, passage.record
        name = record.upstream.name if record.upstream is not None else ""
        status = HUNG_UP if passage.gone else passage.status
        self._metrics.ended(call.dialect or "other", name, status, perf_counter() - passage.began)
        self._metrics.added().observe(passage.added)
        if self._intake is not None and call.dialect is not None:
            self._intake.offer(record.exchange(call.dialect))


class _Passage:
    """One call under way."""

    __slots__ = ("_task", "added", "began", "call", "gone", "over", "record", "send", "status")

    def __init__(self, call: ProxyRequest, record: ExchangeRecording, send: Send) -> None:
        self.call = call
        self.record = record
        self.send = send
        self.began = perf_counter()
        self.added = 0.0
        self.gone = False
        self.over = False
        self.status = 0
        self._task = asyncio.current_task()

    async def watch(self, receive: Receive) -> None:
        """An answer that nobody waits for costs money: end the call when the client hangs up."""
        while (await receive())["type"] != "http.disconnect":
            pass
        if not self.over and self._task is not None:
            self.gone = True
            self._task.cancel()

    async def back(self, response: ClientResponse, upstream: Upstream) -> None:
        """Pass the answer on as it comes. A cut is passed on as a cut: the end of the answer is not said."""
        record = self.record
        headers = self._headers(response.raw_headers, upstream)
        self.status = record.status = response.status
        record.streamed = response.content_type == "text/event-stream"
        record.encoding = response.headers.get("content-encoding", "").lower()
        send, content = self.send, response.content
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        try:
            while data := await content.readany():
                record.add(data)
                if content.at_eof():
                    break
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            record.error = f"the upstream {upstream.name} broke off: {type(error).__name__}"
            return
        ended = perf_counter()
        self.over = True
        await send({"type": "http.response.body", "body": data})
        self.added += perf_counter() - ended

    def _headers(self, raw: Sequence[Header], upstream: Upstream) -> list[Header]:
        headers = [(name, value) for name, value in raw if name.lower() not in _KEPT_HERE]
        # Whatever it is: a browser that is led here must not run it as one of our pages.
        headers.append((b"content-security-policy", b"sandbox"))
        headers.append((b"x-journeyman-request-id", self.call.id.encode()))
        headers.append((b"x-journeyman-upstream", upstream.name.encode()))
        return headers
