"""What each address of the gateway does."""

import asyncio
import gc
import json
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from types import FrameType
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from journeyman.core.errors import InputError, JourneymanError, StoreError
from journeyman.io import asgi_server
from journeyman.io.http_server import ClientDisconnected, TokenGuard, is_of, named_host
from journeyman.io.metrics import CONTENT_TYPE
from journeyman.io.processes import spare_memory
from journeyman.serving.gateway.feedback import LARGEST as LARGEST_FEEDBACK
from journeyman.serving.gateway.feedback import PATHS as FEEDBACK_PATHS
from journeyman.serving.gateway.feedback import FeedbackDesk
from journeyman.serving.gateway.forwarding import Forwarder, GatewayConfig
from journeyman.serving.gateway.releases import LARGEST as LARGEST_RELEASE
from journeyman.serving.gateway.releases import ReleaseDesk, StoreGauges, is_asked
from journeyman.serving.gateway.request import (
    Header,
    HTTPRejection,
    ProxyRequest,
    Receive,
    Scope,
    Send,
    answer,
    answer_json,
    answer_refusal,
    api_of,
    body_of,
    parse_request,
)
from journeyman.serving.gateway.upstreams import BreakerState, GatewayMetrics, Routes, Upstream, UpstreamClient, broken
from journeyman.serving.ingest.base import Intake
from journeyman.stores.traces.base import SpanRow
from journeyman.stores.traces.codec import pack
from journeyman.tracing.otel import wire

# Who may come in. What is asked of a page is asked of the pages' own guard.

TOKEN = b"x-journeyman-token"


class RequestGuard(TokenGuard):
    """With tokens, a request needs one: as `X-Journeyman-Token`, or in place of the API key, for clients that can send nothing
    else. Without, it must name us by an address or as localhost. A page of another site is never served: no client of a model
    is one, and it could spend somebody's key."""

    def enter(self, headers: Sequence[Header]) -> Sequence[Header]:
        """The headers without our token.

        Raises:
            HTTPRejection: (400) Not one host is named; (401) no token is one of ours; (421) we are asked by a strange name;
                (403) by another site's page.
        """
        origin, site = b"", b""
        for name, value in headers:
            if name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
        host = named_host(headers)
        if not host:
            raise HTTPRejection(400, "a request names one host, in one Host header", "no_host")
        if (origin and not is_of(origin.decode("latin-1"), host)) or site in (b"cross-site", b"same-site"):
            raise HTTPRejection(403, "pages of other sites are not served", "cross_site")
        if self.demands:
            return self._without_token(headers)
        if not self.knows(host):
            said = "without tokens this server answers to its address and to localhost only"
            raise HTTPRejection(421, said, "misdirected")
        return headers

    def admits(self, headers: Sequence[Header]) -> bool:
        try:
            self.enter(headers)
        except HTTPRejection:
            return False
        return True

    def _without_token(self, headers: Sequence[Header]) -> Sequence[Header]:
        others = [pair for pair in headers if not self._is_ours(*pair)]
        if len(others) == len(headers):
            said = "this server needs a token that it knows: as X-Journeyman-Token, or in place of the API key"
            raise HTTPRejection(401, said, "unauthorised")
        return others

    def _is_ours(self, name: bytes, value: bytes) -> bool:
        if name == b"authorization":
            return self.bearer(value) is not None
        return name in (TOKEN, b"x-api-key", b"api-key") and self.token(value) is not None


# `GET /v1/models`, where several upstreams have models.

_LARGEST = 16 << 20


async def models(asking: UpstreamClient, call: ProxyRequest, upstreams: Sequence[Upstream]) -> dict[str, Any]:
    """The models of all upstreams in one list. Those of the first have their own names, and others begin with `NAME/`, which is
    how they are asked for. An upstream that does not answer has none.

    Raises:
        HTTPRejection: (502) None of them answers.
    """
    lists = await asyncio.gather(*(_models_of(asking, call, upstreams, each) for each in upstreams))
    if all(each is None for each in lists):
        names = ", ".join(each.name for each in upstreams)
        raise HTTPRejection(502, f"no upstream lists its models: {names} were asked", "upstream_unreachable", api=call.api)
    data = [
        {**model, "id": model["id"] if number == 0 else f"{upstream.name}/{model['id']}", "upstream": upstream.name}
        for number, (upstream, found) in enumerate(zip(upstreams, lists, strict=True))
        for model in found or ()
    ]
    if call.api == "openai":
        return {"object": "list", "data": data}
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return {"data": data, "has_more": False, **ends}


async def _models_of(
    asking: UpstreamClient, call: ProxyRequest, all: Sequence[Upstream], upstream: Upstream
) -> list[dict[str, Any]] | None:
    try:
        response = await asking.ask_one(call, upstream, all[0])
        try:
            found = json.loads(await response.content.read(_LARGEST) if response.status == 200 else b"")
        finally:
            response.close()
    except (HTTPRejection, ValueError, RecursionError):
        return None
    except broken():
        return None
    rows = found.get("data") if isinstance(found, dict) else None
    return [row for row in rows or () if isinstance(row, dict) and isinstance(row.get("id"), str)]


# `POST /v1/traces` and `/v1/logs`: OpenTelemetry over HTTP, acknowledged when it is on disk.

SIGNALS: dict[str, wire.Signal] = {"/v1/traces": "traces", "/v1/logs": "logs"}
AT_ONCE = 64
"""Requests under way; one more is told to come back (429)."""
LARGEST = 16 << 20
"""Bytes of a request, decompressed. Exporters send a tenth of it; a bomb of this size costs memory that a server has."""
_READ_AT_ONCE = 2
"""Requests that are taken apart at once, for the same reason."""
_CANNOT, _NOT_NOW = 3, 14
"""gRPC's INVALID_ARGUMENT and UNAVAILABLE."""


class Telemetry:
    """Keeps what exporters send."""

    def __init__(self, intake: Intake, limit: int, metrics: GatewayMetrics) -> None:
        self._intake = intake
        self._limit = min(limit, LARGEST)
        self._metrics = metrics
        self._under_way = 0
        self._reading = asyncio.Semaphore(_READ_AT_ONCE)

    async def keep(self, signal: wire.Signal, headers: Sequence[Header], body: bytes, send: Send) -> None:
        """Answer 200 only when all of it is on disk; partly accepted where some of it can never be."""
        said = {name: value.decode("latin-1") for name, value in headers if name in (b"content-type", b"content-encoding")}
        kind = said.get(b"content-type", "")
        if self._under_way >= AT_ONCE:
            await self._refuse(send, 429, "too much at once: come back in a second", kind, _NOT_NOW)
            return
        self._under_way += 1
        try:
            text = await self._store(signal, body, kind, said.get(b"content-encoding", ""))
        except InputError as error:
            statuses = {wire.Unsupported: 415, wire.TooLarge: 413}
            await self._refuse(send, statuses.get(type(error), 400), str(error), kind, _CANNOT)
        except StoreError as error:
            await self._refuse(send, 503, str(error), kind, _NOT_NOW)
        else:
            await answer(send, 200, text[0], [(b"content-type", text[1].encode())])
        finally:
            self._under_way -= 1

    async def _store(self, signal: wire.Signal, body: bytes, kind: str, encoding: str) -> tuple[bytes, str]:
        read = wire.spans if signal == "traces" else wire.logs
        # Not on the event loop: a large batch takes long to read, and answers of models flow meanwhile.
        async with self._reading:
            batch, rows = await asyncio.to_thread(self._rows, lambda: read(body, kind, encoding=encoding, limit=self._limit))
        if rows:
            await asyncio.wrap_future(self._intake.spans(rows))
        self._metrics.stored().inc(len(rows))
        return wire.answer(batch, signal, kind)

    @staticmethod
    def _rows(read: Callable[[], wire.SpanBatch]) -> tuple[wire.SpanBatch, list[SpanRow]]:
        """What came, compressed here: it is half of what the process that records would have to do, and keeps no thread of
        this one waiting."""
        batch = read()
        return batch, [SpanRow(*each, packed=pack(each.body)) for each in batch.spans]

    async def _refuse(self, send: Send, status: int, said: str, kind: str, code: int) -> None:
        self._metrics.refused(f"otlp_{status}").inc()
        body, content_type = wire.refusal(said, kind, code=code)
        retry = [(b"retry-after", b"1")] if code == _NOT_NOW else []
        await answer(send, status, body, [(b"content-type", content_type.encode()), *retry])


App = Callable[[Scope, Receive, Send], Awaitable[None]]
_CLIMBING = re.compile(rb"(?:/|%2f|\\|%5c)(?:\.|%2e){1,2}(?:/|%2f|\\|%5c|;|%3b|$)", re.IGNORECASE)
"""A path that a server may read as another one, outside of what the upstream's address allows."""


class Gateway:
    """The ASGI application. One for each event loop; made inside it."""

    def __init__(self, config: GatewayConfig, intake: Intake | None = None, pages: App | None = None) -> None:
        """Without an intake nothing is recorded, and no telemetry taken. `pages` answers every address that is none of ours."""
        self._config = config
        self._intake = intake
        self._pages = pages
        self._routes = Routes(config.upstreams)
        self.metrics = GatewayMetrics(self._routes, intake.health if intake is not None else None)
        self._door = RequestGuard(config.tokens)
        self._asking = UpstreamClient(self.metrics)
        self._forwarder = Forwarder(config, self._routes, self._asking, intake, self.metrics)
        self._telemetry = Telemetry(intake, config.request_limit, self.metrics) if intake is not None else None
        self._releases = ReleaseDesk(config.control) if config.control is not None else None
        if (kept := config.control or config.feedback) is not None:
            self.metrics.ask_late(StoreGauges(kept.store_url).families)
        self._desk = FeedbackDesk(config.feedback, self.metrics) if config.feedback is not None else None
        self.draining = False
        """Said by `/health` while the server stops."""

    async def close(self) -> None:
        await self._forwarder.close()
        await self._asking.close()
        if self._desk is not None:
            await asyncio.to_thread(self._desk.close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path.startswith("/v1/"):
            await self._api(scope, receive, send)
        elif path == "/health":
            await self._health(scope["headers"], send)
        elif path in FEEDBACK_PATHS and scope["method"] == "POST":
            await self._feedback(scope, receive, send)
        elif self._releases is not None and is_asked(scope["method"], path):
            await self._release(self._releases, scope, receive, send)
        elif path == "/metrics":
            await self._metrics(scope["headers"], send)
        elif self._pages is not None:
            await self._pages(scope, receive, send)
        else:
            said = f"there is no {path} here; models are asked below /v1 (a base URL for OpenAI's SDK ends in /v1)"
            await answer_refusal(send, HTTPRejection(404, said, "not_found"))

    async def _api(self, scope: Scope, receive: Receive, send: Send) -> None:
        call: ProxyRequest | None = None
        path: str = scope["path"]
        try:
            headers = self._door.enter(scope["headers"])
            call = self._call(scope, headers)
            call.body = await body_of(receive, self._config.request_limit)
            if call.path in SIGNALS or call.path == "/v1/metrics":
                await self._telemetry_of(call, headers, send)
            elif call.path == "/v1/models" and call.method == "GET" and len(self._routes.speaking(call.api)) > 1:
                await answer_json(send, await models(self._asking, call, self._routes.speaking(call.api)))
            else:
                await self._forwarder.forward(call, receive, send)
        except HTTPRejection as refused:
            refused.api = call.api if call is not None else api_of(path, scope["headers"])
            self.metrics.refused(refused.code).inc()
            await answer_refusal(send, refused)
        except ClientDisconnected:
            self.metrics.refused("gone").inc()

    def _call(self, scope: Scope, headers: Sequence[Header]) -> ProxyRequest:
        raw: bytes = scope["raw_path"]
        if _CLIMBING.search(raw):
            raise HTTPRejection(400, "a path must not have . and .. in it", "invalid")
        return parse_request(
            uuid4().hex, scope["method"], raw.decode("latin-1"), scope["query_string"].decode("latin-1"), headers
        )

    async def _telemetry_of(self, call: ProxyRequest, headers: Sequence[Header], send: Send) -> None:
        signal = SIGNALS.get(call.path)
        # No telemetry of ours is a model server's business, also what cannot be kept.
        if signal is None or call.method != "POST":
            raise HTTPRejection(404, "of telemetry, POST /v1/traces and /v1/logs are taken", "not_found")
        if self._telemetry is None:
            raise HTTPRejection(404, "nothing is recorded here (--no-record), so no telemetry is taken", "not_found")
        await self._telemetry.keep(signal, headers, call.body, send)

    async def _feedback(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if self._desk is None:
                raise HTTPRejection(404, "nothing is recorded here (--no-record), so no feedback is taken", "not_found")
            headers: Sequence[Header] = scope["headers"]
            trusted = self._desk.knows(headers)
            if not (trusted and self._door.demands):
                self._door.enter(headers)
            body = await body_of(receive, LARGEST_FEEDBACK, "send it in parts")
            await self._desk.take(body, send, trusted=trusted, client=(scope.get("client") or ("unknown",))[0])
        except HTTPRejection as refused:
            self.metrics.refused(f"feedback_{refused.status}").inc()
            await answer_refusal(send, refused)
        except ClientDisconnected:
            self.metrics.refused("gone").inc()

    async def _release(self, desk: ReleaseDesk, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers: Sequence[Header] = scope["headers"]
            if not (self._door.demands and desk.knows(headers)):
                self._door.enter(headers)
            if scope["method"] == "POST":
                body = await body_of(receive, LARGEST_RELEASE, "a plan is small")
                await desk.act(scope["path"], headers, body, send)
            else:
                await desk.see(scope["path"], send)
        except HTTPRejection as refused:
            self.metrics.refused(f"releases_{refused.status}").inc()
            await answer_refusal(send, refused)
        except ClientDisconnected:
            self.metrics.refused("gone").inc()

    async def _health(self, headers: Sequence[Header], send: Send) -> None:
        """Ready while answers flow, also when the store is ill: then the rest says so."""
        payload: dict[str, Any] = {"ready": not self.draining}
        if self._door.admits(headers):
            payload |= {"version": version("journeyman"), "in_flight": self.metrics.in_flight, **self._state()}
        await answer_json(send, payload, 503 if self.draining else 200)

    def _state(self) -> dict[str, Any]:
        resting = {each.name: each.breaker.state for each in self._routes.all}
        state: dict[str, Any] = {
            "upstreams": {name: {"breaker": state, "ok": state is not BreakerState.OPEN} for name, state in resting.items()}
        }
        if self._config.releases is not None:
            state["releases"] = self._config.releases.state()
        if self._intake is not None:
            state["intake"] = asdict(self._intake.health())
        return state

    async def _metrics(self, headers: Sequence[Header], send: Send) -> None:
        try:
            self._door.enter(headers)
        except HTTPRejection as refused:
            await answer_refusal(send, refused)
            return
        # In a thread, as the store is asked, too, and answers flow meanwhile.
        text = await asyncio.to_thread(self.metrics.text)
        await answer(send, 200, text.encode(), [(b"content-type", CONTENT_TYPE.encode())])


# The gateway as a process: it listens, and stops in order when it is told to.
if TYPE_CHECKING:
    from starlette.routing import BaseRoute

# A client's connection, with bounds on what uvicorn leaves without one: all of it comes before anybody has shown a token.

HEAD_BYTES = 256 << 10
"""The largest head of a request: address and headers. What follows behind a body counts too."""
HEAD_SECONDS = 10.0
"""In which a head must have come, and a connection its first."""
LINGER_SECONDS = 5.0
"""For which a body that nobody reads may go on after the answer."""
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 26\r\nconnection: close\r\n\r\nthe headers are too large\r\n"
)


class Connection(HttpToolsProtocol):
    """Closes when a head is too large or does not come, and when a body goes on although it was answered."""

    _limit: asyncio.TimerHandle | None = None
    _in_head = False
    _in_message = False
    _head = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._until(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._until(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head:
            # One that comes whole is bounded by how much is read at once.
            self._head += len(data)
            if self._head > HEAD_BYTES:
                self._too_large()
        # Whatever came has stopped the clock of an idle connection.
        if self._limit is None and (self.cycle is None or self.cycle.response_complete):
            self._until(HEAD_SECONDS)

    def on_message_begin(self) -> None:
        self._in_head = self._in_message = True
        self._head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._until(None)
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            self._head += len(name) + len(value)
            if self._head > HEAD_BYTES:
                raise ValueError("what follows behind the body is too large")
        super().on_header(name, value)

    def on_message_complete(self) -> None:
        self._in_message = False
        self._until(None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._in_head:
            self._until(HEAD_SECONDS)
        elif self._in_message and self.cycle.response_complete:
            self._until(LINGER_SECONDS)

    def _until(self, seconds: float | None) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._limit = None if seconds is None else self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _too_large(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_TOO_LARGE)
        self.transport.close()


def serve(
    config: GatewayConfig,
    bound: socket.socket,
    *,
    intake: Intake | None,
    pages: App | None,
    ready: Callable[[], None],
    drain_seconds: float,
) -> None:
    """Serve until SIGTERM or SIGINT: take nothing new, let running answers end, and cut those that have not after
    `drain_seconds`, or at a second signal. The intake stays open: it is its owner's to close.

    Args:
        bound: As `listen` gives it; it is closed at the end.
        ready: Called once clients can come.
    """

    spare_memory()
    # What is loaded stays. What comes and goes is rarely in a circle, and need not be looked through after each few requests.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)

    async def until_told() -> None:
        gateway = Gateway(config, intake, pages)
        try:
            await GatewayServer(gateway, ready, drain_seconds).serve(sockets=[bound])
        finally:
            await gateway.close()

    with bound, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(until_told())


class GatewayServer(asgi_server.Server):
    """Takes nothing new once it is told to stop, lets running answers end, and cuts those that have not in time."""

    def __init__(self, gateway: Gateway, ready: Callable[[], None], drain_seconds: float) -> None:
        super().__init__(
            gateway,
            ready,
            # What is cut still has to be recorded.
            cut_seconds=5,
            http=Connection,
            # A cut that is passed on is no fault of ours to be logged.
            log_level="critical",
            date_header=False,
            timeout_graceful_shutdown=max(1, round(drain_seconds)),
            backlog=2048,
        )
        self._gateway = gateway

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not kept for uvicorn to raise again at the end: to stop when told to is to end well.
        self.force_exit = self.should_exit
        self.should_exit = self._gateway.draining = True


# The pages, as an application beside the gateway.


def application(routes: "Sequence[BaseRoute]") -> App:
    """What answers every address that is none of the gateway's."""
    from starlette.applications import Starlette

    return cast("App", Starlette(routes=list(routes)))


def when_asked(make: Callable[[], App]) -> App:
    """An application that is made, in a thread, when it is first asked for something: what nobody looks at takes no memory."""
    app_made: asyncio.Task[App] | None = None

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal app_made
        if app_made is None:
            app_made = asyncio.create_task(asyncio.to_thread(make))
        try:
            # One who goes away must not keep the others from it.
            app = await asyncio.shield(app_made)
        except JourneymanError as error:
            app_made = None
            await answer_refusal(send, HTTPRejection(503, str(error), "no_pages"))
            return
        await app(scope, receive, send)

    return answer
