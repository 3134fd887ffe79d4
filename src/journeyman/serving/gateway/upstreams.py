"""Which server is asked, in which order, and whose key it is sent."""

import asyncio
import io
import os
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from journeyman.core.errors import InputError
from journeyman.experiments.settings import OFFICIAL, Address, Api, UpstreamSettings
from journeyman.io.metrics import CounterMetricFamily, Families, GaugeMetricFamily, MetricsRegistry
from journeyman.io.retry import RetryPolicy, retry_after
from journeyman.serving.gateway.request import (
    KEY_PARAMETERS,
    HTTPRejection,
    ProxyRequest,
    is_secret,
)
from journeyman.serving.ingest.base import Health
from journeyman.tracing.wire.dialects import versioned

if TYPE_CHECKING:
    # A quarter of what a server takes that is sent spans and asked for no model: loaded with the first call.
    from aiohttp import ClientResponse, ClientSession, ClientTimeout
    from yarl import URL

# Leaves a server alone that keeps failing.


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"
    """Time to try: one request may."""


class Breaker:
    """Opens after failures in a row; after a while one request tries, and what comes of it decides."""

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float]) -> None:
        """`failures` 0 never opens it."""
        self._most = failures
        self._seconds = seconds
        self._clock = clock
        self._failures = 0
        self._opened_at: float | None = None
        self._probing = False

    @property
    def state(self) -> BreakerState:
        if self._opened_at is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self.wait > 0 else BreakerState.HALF_OPEN

    @property
    def wait(self) -> float:
        """Seconds until somebody may try; 0 when it is time, or there is nothing to wait for."""
        return 0.0 if self._opened_at is None else max(0.0, self._opened_at + self._seconds - self._clock())

    def enter(self) -> bool:
        """Whether a request may go. Each that goes ends in `succeeded`, `failed` or `left`."""
        if self._opened_at is None:
            return True
        if self.wait > 0 or self._probing:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        self._failures, self._opened_at, self._probing = 0, None, False

    def failed(self) -> None:
        self._failures += 1
        self._probing = False
        if self._most and self._failures >= self._most:
            self._opened_at = self._clock()

    def left(self) -> None:
        """The request ended without a word on the server: the client hung up."""
        self._probing = False


APIS: tuple[Api, ...] = ("openai", "anthropic")
_UNNAMED = "upstream"
"""What one is recorded as that was typed as an address alone."""
_HOMES = {urlsplit(url).hostname: api for api, url in OFFICIAL.items()}
_ADDRESS: TypeAdapter[str] = TypeAdapter(Address)


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """A server behind the gateway."""

    name: str
    settings: UpstreamSettings
    apis: frozenset[Api]
    key: str | None = field(default=None, repr=False)
    """Ours for it, sent where the client sends none."""
    takes_client_key: bool
    """Whether the client's own key is sent to it when it is the first that a request is meant for."""
    breaker: Breaker = field(compare=False)

    @property
    def base_url(self) -> str:
        return self.settings.base_url

    @property
    def spoken(self) -> str:
        """What it is called in a sentence: one that was typed without a name has none."""
        return "the upstream" if self.name == _UNNAMED else f"the upstream {self.name}"

    @property
    def origin(self) -> str:
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}".lower()

    def gets_client_key(self, first: "Upstream") -> bool:
        """A key was given for the first upstream of a route. One that is asked instead gets it where it is the same server, or
        where the settings say so."""
        if self is first:
            return self.takes_client_key
        return self.settings.client_key is True or (self.settings.client_key is None and self._stands_in(first))

    def _stands_in(self, first: "Upstream") -> bool:
        return self.origin == first.origin and first.takes_client_key

    def keys(self) -> str:
        """Whose key it is sent, in words for the operator."""
        ours = f"the key in {self.settings.key_env}" if self.key else ""
        if self.takes_client_key:
            return f"the client's key, else {ours}" if ours else "the client's key"
        return ours or "no key"

    def target(self, api: Api, path: str, query: str) -> str:
        """The address of `/v1/…` there."""
        base = versioned(self.base_url, is_anthropic=api == "anthropic")
        return f"{base}{path.removeprefix('/v1')}{'?' if query else ''}{query}"


def resolve(
    settings: Mapping[str, UpstreamSettings],
    given: Sequence[str] = (),
    order: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> tuple[Upstream, ...]:
    """The upstreams in the order in which they are asked.

    Args:
        settings: As the file has them.
        given: `NAME=URL` or `URL`, as typed. They come first; one that the file knows too keeps its other settings. Who types
            an address means it, so it is sent the client's key.
        order: Names. Those not in it come after.

    Raises:
        InputError: A name is not known, an address is none, or a variable that should hold a key is empty.
    """
    env = os.environ if environment is None else environment
    typed = dict(_typed(text) for text in given)
    known = {name: _with_address(settings.get(name), url) for name, url in typed.items()}
    known |= {name: each for name, each in settings.items() if name not in known}
    if unknown := [name for name in order if name not in known]:
        raise InputError(f"serve.order names {unknown[0]}, and there is no [upstreams.{unknown[0]}]")
    if not known:
        known = {api: UpstreamSettings(base_url=url) for api, url in OFFICIAL.items()}
    names = [*typed, *order, *known]
    return tuple(_resolved(name, known[name], env, typed=name in typed) for name in dict.fromkeys(names))


def _typed(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if equals and "/" not in name and ":" not in name:
        return name, url
    return _UNNAMED, text


def _with_address(settings: UpstreamSettings | None, url: str) -> UpstreamSettings:
    try:
        checked = _ADDRESS.validate_python(url)
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"--upstream {url.rpartition('@')[2]}: {said}") from None
    return UpstreamSettings(base_url=checked) if settings is None else replace(settings, base_url=checked)


def _resolved(name: str, settings: UpstreamSettings, env: Mapping[str, str], *, typed: bool) -> Upstream:
    host = urlsplit(settings.base_url).hostname
    home = _HOMES.get(host)
    key = env.get(settings.key_env, "").strip() if settings.key_env else ""
    if settings.key_env and not key:
        raise InputError(f"the variable {settings.key_env} is empty: put the key of upstream {name} there")
    apis = frozenset(settings.apis or ((home,) if home else APIS))
    takes = settings.client_key if settings.client_key is not None else typed or home is not None
    return Upstream(
        name=name,
        settings=settings,
        apis=apis,
        key=key or None,
        takes_client_key=takes,
        breaker=Breaker(settings.breaker_failures, settings.breaker_seconds, time.monotonic),
    )


class Routes:
    """All upstreams, and which of them serve a request."""

    def __init__(self, upstreams: Iterable[Upstream]) -> None:
        self.all = tuple(upstreams)
        self._by_name = {each.name: each for each in self.all}
        self._at: dict[str, Upstream] = {}
        self._speaking = {api: tuple(each for each in self.all if api in each.apis) for api in APIS}
        self._by_model = {api: any(each.settings.models for each in speaking) for api, speaking in self._speaking.items()}
        names = b"|".join(re.escape(each.name.encode()) for each in self.all)
        # One look at a body, which may be long.
        self._named = re.compile(rb'"(?:%b)\\?/' % names)

    def speaking(self, api: Api) -> tuple[Upstream, ...]:
        return self._speaking[api]

    def needs_model(self, api: Api, body: bytes) -> bool:
        """Whether it depends on the model who is asked. If not, nobody has to read the body."""
        return self._by_model[api] or self._named.search(body) is not None

    def named(self, api: Api, model: str) -> Upstream | None:
        """The upstream that a model's name begins with, as in `NAME/MODEL`."""
        found = self._by_name.get(model.partition("/")[0]) if "/" in model else None
        return found if found is not None and api in found.apis else None

    def at(self, api: Api, url: str) -> Upstream:
        """The upstream of a name; else the server at an address, which is sent no client's key but where it is the same server
        as the one that the key was given for.

        Raises:
            HTTPRejection: It speaks another API.
        """
        found = self._by_name.get(url) or self._at.get(url)
        if found is None:
            found = self._at[url] = _resolved(urlsplit(url).netloc, UpstreamSettings(base_url=url), {}, typed=False)
        if api not in found.apis:
            raise HTTPRejection(502, f"{found.spoken} does not speak {api}'s API", "no_upstream", api=api)
        return found

    def serving(self, api: Api, model: str | None) -> tuple[Upstream, ...]:
        """Who may be asked for a model, best first: those that name it before those that serve any."""
        speaking = self._speaking[api]
        if model is None or not self._by_model[api]:
            return speaking
        naming = tuple(each for each in speaking if any(fnmatchcase(model, pattern) for pattern in each.settings.models))
        return naming + tuple(each for each in speaking if not each.settings.models)


# What the gateway counts.
SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
ADDED = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25)


class GatewayMetrics(MetricsRegistry):
    """Counters and histograms; what others know is asked when somebody looks."""

    def __init__(self, routes: Routes, health: Callable[[], Health] | None) -> None:
        super().__init__()
        self._routes = routes
        self._health = health
        self.in_flight = 0
        self.requests = self.counter(
            "journeyman_gateway_requests_total",
            "Requests that ended, by dialect, upstream and status (499: the client hung up).",
            *("dialect", "upstream", "status"),
        )
        self.refused = self.counter(
            "journeyman_gateway_refused_total", "Requests that went no further than here, by reason.", "reason"
        )
        self.seconds = self.histogram(
            "journeyman_gateway_request_seconds", "From the request to the last byte of the answer.", SECONDS, "dialect"
        )
        self.added = self.histogram(
            "journeyman_gateway_added_seconds", "Before the upstream was asked, and after its answer's end.", ADDED
        )
        self.gauge("journeyman_gateway_in_flight", "Requests under way.", lambda: self.in_flight)
        self.undurable = self.counter(
            "journeyman_gateway_undurable_total",
            "Answers whose end was passed on although their record was not known to be kept (record.durable).",
        )
        self.served = self.counter(
            "journeyman_release_served_total", "Requests that a candidate's context was put into.", "candidate"
        )
        self.degraded = self.counter(
            "journeyman_release_degraded_total", "Requests that went on as they came although one was to be put in.", "why"
        )
        self.mirrored = self.counter(
            "journeyman_release_mirrored_total",
            "Requests to be mirrored to a candidate, by what became of them.",
            "outcome",
        )
        self.stored = self.counter("journeyman_otlp_stored_total", "Spans and log records that exporters were acknowledged.")
        self.failures = self.counter(
            "journeyman_gateway_upstream_failures_total",
            "Attempts that failed, by upstream and reason; also one that was made good by another.",
            *("upstream", "reason"),
        )
        self.own_process()
        self.ask(self._breakers)
        self.ask(self._intake)

    def ended(self, dialect: str, upstream: str, status: int, seconds: float) -> None:
        self.requests(dialect, upstream, status).inc()
        self.seconds(dialect).observe(seconds)

    def _breakers(self) -> Families:
        told = "1 for the state that an upstream's circuit breaker is in."
        found = GaugeMetricFamily("journeyman_gateway_breaker", told, labels=("upstream", "state"))
        for each in self._routes.all:
            now = each.breaker.state
            for state in BreakerState:
                found.add_metric((each.name, state), state is now)
        yield found

    def _intake(self) -> Families:
        if self._health is None:
            return
        health = self._health()
        for kind, name, told, value in (
            (GaugeMetricFamily, "waiting", "Things in memory that are not in the store yet.", health.waiting),
            (GaugeMetricFamily, "spilled", "Exchanges and traces in the spill file.", health.spilled),
            (CounterMetricFamily, "stored_total", "Things that went into the store.", health.stored),
            (CounterMetricFamily, "dropped_total", "Exchanges and traces that are lost.", health.dropped),
            (CounterMetricFamily, "retries_total", "Times that the store refused, and was asked again.", health.retries),
        ):
            yield kind(f"journeyman_intake_{name}", told, value)


# Asks the upstreams of a route, one after the other, until one answers.
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


class UpstreamClient:
    """The client's side of the gateway: one pool of connections for all upstreams."""

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics
        self._session: ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(
        self, call: ProxyRequest, route: Sequence[Upstream], meant: Upstream | None = None
    ) -> "tuple[Upstream, ClientResponse]":
        """The first answer that is worth passing on; else the last that there was. Its body is still to be read.

        Args:
            meant: Whom the client's key was given for; the first of the route where it is not said.

        Raises:
            HTTPRejection: No upstream answered at all.
        """
        meant = meant or route[0]
        held: tuple[Upstream, ClientResponse] | None = None
        failure: tuple[Upstream, UpstreamFailure] | None = None
        for number, upstream in enumerate(route):
            others = number + 1 < len(route)
            if not upstream.breaker.enter():
                continue
            said = await self._send_with_retries(call, upstream, meant, others=others)
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
        raise _rejection(call, route, failure)

    async def ask_one(self, call: ProxyRequest, upstream: Upstream, first: Upstream) -> "ClientResponse":
        """The answer of this upstream, of a route that begins with `first`. Raises as `ask`."""
        if not upstream.breaker.enter():
            raise _rejection(call, (upstream,), None)
        said = await self._send_with_retries(call, upstream, first, others=False)
        if isinstance(said, UpstreamFailure):
            raise _rejection(call, (upstream,), (upstream, said))
        return said

    async def ask_aside(self, call: ProxyRequest, upstream: Upstream, first: Upstream) -> "ClientResponse | UpstreamFailure":
        """One attempt that nobody waits for: what comes of it closes this server to nobody else."""
        return await self._attempt(call, upstream, first)

    async def _send_with_retries(
        self, call: ProxyRequest, upstream: Upstream, first: Upstream, *, others: bool
    ) -> "ClientResponse | UpstreamFailure":
        """One upstream, again where that is safe and may help."""
        patience = PATIENCE_WITH_OTHERS if others else PATIENCE
        for tries in count(1):
            outcome = await self._measured(call, upstream, first)
            failure = outcome if isinstance(outcome, UpstreamFailure) else None
            asked = None
            if not isinstance(outcome, UpstreamFailure):
                if outcome.status not in BUSY:
                    return outcome
                asked = _retry_after(outcome)
            wait = _POLICY.backoff(tries, _RNG) if asked is None else asked
            worth_it = tries <= upstream.settings.retries and (failure is not None or wait <= patience)
            if not worth_it or not _repeatable(call, failure) or not upstream.breaker.enter():
                return outcome
            if not isinstance(outcome, UpstreamFailure):
                outcome.close()
            try:
                await asyncio.sleep(wait)
            except asyncio.CancelledError:
                upstream.breaker.left()
                raise
        raise AssertionError("the last attempt returns")

    async def _measured(self, call: ProxyRequest, upstream: Upstream, first: Upstream) -> "ClientResponse | UpstreamFailure":
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

    async def _attempt(self, call: ProxyRequest, upstream: Upstream, first: Upstream) -> "ClientResponse | UpstreamFailure":
        session = self._session or await self._opened()
        import aiohttp

        settings = upstream.settings
        headers, query = headers_for(call, upstream, first)
        try:
            async with asyncio.timeout(settings.first_byte_seconds):
                return await session.request(
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

    async def _opened(self) -> "ClientSession":
        # In a thread, as it takes a few tenths of a second in which others are served.
        await asyncio.to_thread(import_module, "aiohttp")
        self._session = self._session or _new_session()
        return self._session


def _new_session() -> "ClientSession":
    from aiohttp import ClientSession, DummyCookieJar, TCPConnector

    return ClientSession(
        connector=TCPConnector(limit=0, ttl_dns_cache=60),
        # What one client is given must not be sent for another.
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Content-Type", "Accept"),
        max_line_size=65_536,
        max_field_size=65_536,
    )


@cache
def broken() -> tuple[type[Exception], ...]:
    """What is raised where an answer breaks off before its end."""
    import aiohttp

    return aiohttp.ClientError, TimeoutError, OSError


def headers_for(call: ProxyRequest, upstream: Upstream, first: Upstream) -> tuple[list[tuple[str, str]], str]:
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
def _url(address: str) -> "URL":
    from yarl import URL

    # What the client has encoded must not be encoded again.
    return URL(address, encoded=True)


@lru_cache(maxsize=64)
def _timeout(connect: float, idle: float, total: float) -> "ClientTimeout":
    from aiohttp import ClientTimeout

    return ClientTimeout(total=total, sock_connect=connect, sock_read=idle)


def _payload(body: bytes) -> bytes | io.BytesIO | None:
    """In one piece where it is small; a large one would hold up all others."""
    return io.BytesIO(body) if len(body) > _LARGE else body or None


def _repeatable(call: ProxyRequest, failure: UpstreamFailure | None) -> bool:
    """Whether asking again does no harm: a model may be asked twice, a batch must not be begun twice."""
    if failure is not None and not failure.reached:
        return True
    return call.dialect is not None or call.method in ("GET", "HEAD", "OPTIONS")


def _retry_after(response: "ClientResponse") -> float | None:
    """Seconds that the upstream asks for; infinitely many where it asks not to be asked again."""
    if response.headers.get("x-should-retry", "").lower() == "false":
        return float("inf")
    return retry_after(response.headers)


def _rejection(
    call: ProxyRequest, route: Sequence[Upstream], failure: tuple[Upstream, UpstreamFailure] | None
) -> HTTPRejection:
    if failure is not None:
        upstream, why = failure
        status = 504 if why.reason == "timeout" else 502
        return HTTPRejection(status, f"{upstream.spoken} {why.said}", f"upstream_{why.reason}", api=call.api)
    wait = min(each.breaker.wait for each in route)
    names = ", ".join(each.name for each in route)
    said = f"left alone for now, after failures in a row: {names}; try again in {wait:.0f} s"
    return HTTPRejection(503, said, "upstream_resting", api=call.api, retry_after=wait)
