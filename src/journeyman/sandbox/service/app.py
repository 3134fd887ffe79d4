"""The service: what each address does."""

import asyncio
import hashlib
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from types import FrameType
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from journeyman.core.errors import InputError, JourneymanError, SandboxError
from journeyman.io import asgi_server
from journeyman.io.http_server import addressed_directly, bearer_token, named_host
from journeyman.io.metrics import CONTENT_TYPE
from journeyman.sandbox.base import Level, RunOutcome, Sandbox, Tool
from journeyman.sandbox.remote import (
    Calling,
    Execute,
    Faults,
    OpenSession,
    SessionExecute,
    ToolResult,
    level_json,
    outcome_json,
    read,
)
from journeyman.sandbox.service.state import (
    CLOSED,
    STOPPING,
    AdmissionQueue,
    Callback,
    HeldSession,
    Relay,
    RunRejected,
    ServiceConfig,
    ServiceMetrics,
    Sessions,
    check_callback,
)

# Where HTTP ends: bodies are read within bounds, callers are told apart, and what is refused becomes an answer.

JSON = "application/json"
Handler = Callable[[Request, Send], Awaitable[Response | None]]
"""Gives the answer, or `None` when it sent one itself."""

_Result = TypeVar("_Result")


class Abandoned(Exception):
    """The caller is gone: there is nobody left to answer."""


def answer(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(data), status, headers, JSON)


class Endpoint:
    """A handler as ASGI, without layers: what it raises is answered here."""

    def __init__(self, handler: Handler, refused: Callable[[str], None]) -> None:
        self._handler = handler
        self._refused = refused
        """Told the reason, in one word."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def sent(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            response = await self._handler(Request(scope, receive), sent)
        except asyncio.CancelledError:
            # Only a stop that cannot wait any longer ends requests. A stream is cut off, and its reader sees that.
            response = None if started else refusal_response(STOPPING)
        except (Abandoned, ClientDisconnect):
            return
        except (RunRejected, Faults, InputError, SandboxError) as error:
            refusal = as_refusal(error)
            self._refused(refusal.reason)
            response = refusal_response(refusal)
        if response is not None:
            await response(scope, receive, send)


async def misaddressed(request: Request, error: Exception) -> Response:
    """What is asked of no address there is, or by no method that it has."""
    assert isinstance(error, HTTPException)
    path, allowed = request.url.path, error.headers
    sentence = (
        f"there is no {path} here; code is run by POST /execute"
        if error.status_code == 404
        else f"{path} cannot be asked by {request.method}"
    )
    return answer({"error": sentence}, error.status_code, allowed)


def as_refusal(error: Exception) -> RunRejected:
    match error:
        case RunRejected():
            return error
        case Faults():
            return RunRejected(422, str(error), "invalid", faults=error.faults)
        case InputError():
            return RunRejected(422, str(error), "invalid", faults=(str(error),))
    return RunRejected(500, str(error), "sandbox_error")


def refusal_response(refusal: RunRejected) -> Response:
    """One sentence under `error`; where a request had faults, each under `faults`."""
    headers = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if refusal.status in (408, 413):
        # What is left of the body would be read as the next request.
        headers["Connection"] = "close"
    faults = {"faults": list(refusal.faults)} if refusal.faults else {}
    return answer({"error": str(refusal), **faults}, refusal.status, headers)


def client_of(request: Request, config: ServiceConfig) -> str:
    """A name for whoever asks: made of the token where there are tokens, else of the address.

    Raises:
        RunRejected: (400) Not one host is named; (401) without a token that is known; (421) by a name that is not ours,
            as a web page might.
    """
    host = named_host(request.scope["headers"])
    if not host:
        raise RunRejected(400, "a request names one host, in one Host header", "no_host")
    if config.tokens:
        known = bearer_token(request.headers.get("authorization", "").encode(), config.tokens)
        if known is None:
            raise RunRejected(401, "this service needs a bearer token that it knows: Authorization: Bearer …", "unauthorised")
        return hashlib.sha256(known.encode()).hexdigest()[:16]
    if not addressed_directly(host):
        raise RunRejected(421, "without tokens this service answers to its address and to localhost only", "misdirected")
    return request.client.host if request.client else "local"


async def body_of(request: Request, config: ServiceConfig, hold: Callable[[int], None]) -> bytes:
    """The whole body, measured while it is read.

    Raises:
        RunRejected: (415) It is not JSON by its own word, which a web page cannot say unasked; (413) it is too large; (408) it
            does not arrive; (503) with the other bodies in memory it is too much.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise RunRejected(415, f"the body should be JSON: Content-Type: {JSON}", "invalid")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(config.request_seconds):
            async for part in request.stream():
                size += len(part)
                if size <= config.max_request:
                    hold(len(part))
                    parts.append(part)
                elif size > 2 * config.max_request:
                    break
    except TimeoutError:
        raise RunRejected(408, f"the body did not arrive within {config.request_seconds:g} s", "slow") from None
    # Somewhat more than is allowed was read and dropped: a caller that still sends would not see the answer.
    if size > config.max_request:
        raise RunRejected(413, f"the body is larger than {config.max_request} bytes", "too_large")
    return b"".join(parts)


async def while_connected(request: Request, work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of the work, which is cancelled when the caller hangs up. The body must have been read.

    Raises:
        Abandoned: The caller hung up.
    """
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request.receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Abandoned
        return working.result()
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Lines:
    """A streamed answer: one JSON object a line."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def start(self) -> None:
        headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def say(self, event: Mapping[str, Any]) -> None:
        line = json.dumps(event).encode() + b"\n"
        await self._send({"type": "http.response.body", "body": line, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


Run = Callable[[Mapping[str, Tool] | None], Awaitable[RunOutcome]]


class Service:
    """A started sandbox for many callers. One for each process and event loop."""

    def __init__(self, sandbox: Sandbox, config: ServiceConfig) -> None:
        self.config = config
        self._sandbox = sandbox
        self.metrics = ServiceMetrics(
            in_flight=lambda: self.gate.running,
            queued=lambda: self.gate.waiting,
            sessions=lambda: len(self.sessions),
            draining=lambda: self.gate.draining,
        )
        self.gate = AdmissionQueue(config, lambda: self.metrics.mean_seconds)
        self.sessions = Sessions(config, time.monotonic)
        self._relay = Relay(config.tool_seconds, self.metrics)
        self._callback = Callback(config)

    def app(self) -> Starlette:
        def route(path: str, method: str, handler: Handler) -> Route:
            return Route(path, Endpoint(handler, self._refused), methods=[method])

        return Starlette(
            routes=[
                route("/execute", "POST", self.execute),
                route("/executions/{id}/tools/{call_id}", "POST", self.settle),
                route("/sessions", "POST", self.open_session),
                route("/sessions", "GET", self.list_sessions),
                route("/sessions/{id}/execute", "POST", self.execute_in_session),
                route("/sessions/{id}", "DELETE", self.close_session),
                route("/health", "GET", self.health),
                route("/metrics", "GET", self.show_metrics),
            ],
            exception_handlers={HTTPException: misaddressed},
        )

    def _refused(self, reason: str) -> None:
        self.metrics.rejected(reason).inc()

    async def close(self) -> None:
        """End the sessions and the sandbox."""
        await self.sessions.close()
        await self._callback.close()
        await self._sandbox.close()

    async def execute(self, request: Request, send: Send) -> Response | None:
        async with self._entered(request) as (client, body):
            call = read(Execute, body, self.config.most)
            program = call.program(self.config.most)

            async def run(tools: Mapping[str, Tool] | None) -> RunOutcome:
                return await self._measured(call.language, self._sandbox.run(program, tools=tools))

            return await self._answered(request, send, client, call, run)

    async def open_session(self, request: Request, send: Send) -> Response:
        async with self._entered(request) as (client, body):
            call = read(OpenSession, body, self.config.most)
            idle = min(call.idle_seconds or self.config.idle_seconds, self.config.idle_seconds)
            limits = call.limits.within(self.config.most)

            async def opened() -> HeldSession:
                async with self.gate.turn():
                    return await self.sessions.open(
                        client, idle, lambda: self._sandbox.session(limits=limits, files=call.files, idle_seconds=idle)
                    )

            kept = await while_connected(request, opened())
        self.metrics.sessions_opened().inc()
        return answer({"id": kept.id, "idle_seconds": idle, "level": level_json(self._sandbox.level)}, 201)

    async def execute_in_session(self, request: Request, send: Send) -> Response | None:
        async with self._entered(request) as (client, body):
            kept = self.sessions.find(client, request.path_params["id"])
            call = read(SessionExecute, body, self.config.most)

            async def run(tools: Mapping[str, Tool] | None) -> RunOutcome:
                ran = kept.session.run(call.code, tools=tools, wall_seconds=call.wall_seconds)
                return await self.sessions.run(kept, self._measured("session", ran))

            with self.sessions.taken(kept):
                return await self._answered(request, send, client, call, run)

    async def close_session(self, request: Request, send: Send) -> Response:
        kept = self.sessions.find(client_of(request, self.config), request.path_params["id"])
        await self.sessions.end(kept, CLOSED)
        return Response(status_code=204)

    async def list_sessions(self, request: Request, send: Send) -> Response:
        client = client_of(request, self.config)
        return answer({"sessions": self.sessions.listed(client, whole=bool(self.config.tokens))})

    async def settle(self, request: Request, send: Send) -> Response:
        """Also while the service stops, and past the share of a client: what runs waits for it."""
        client = client_of(request, self.config)
        with self.gate.holding() as hold:
            result = read(ToolResult, await body_of(request, self.config, hold), self.config.most)
        self._relay.answer(client, request.path_params["id"], request.path_params["call_id"], result)
        return Response(status_code=204)

    async def health(self, request: Request, send: Send) -> Response:
        ready = not self.gate.draining
        said = {"ready": ready, "version": version("journeyman"), "level": level_json(self._sandbox.level)}
        return answer(said, 200 if ready else 503)

    async def show_metrics(self, request: Request, send: Send) -> Response:
        client_of(request, self.config)
        return Response(self.metrics.text(), media_type=CONTENT_TYPE)

    @asynccontextmanager
    async def _entered(self, request: Request) -> AsyncIterator[tuple[str, bytes]]:
        """The caller's name and the body, with a place for both until the end of the block."""
        client = client_of(request, self.config)
        with self.gate.admitted(client), self.gate.holding() as hold:
            yield client, await body_of(request, self.config, hold)

    async def _measured(self, language: str, running: Awaitable[RunOutcome]) -> RunOutcome:
        began, ended = time.monotonic(), "abandoned"
        try:
            outcome = await running
            ended = outcome.limit or ("ok" if outcome.ok else "failed")
        except JourneymanError:
            ended = "sandbox_error"
            raise
        finally:
            self.metrics.ended(language, ended, time.monotonic() - began)
        if (size := sum(map(len, outcome.files.values()))) > self.config.max_response:
            sentence = (
                f"the collected files have {size} bytes and this service gives back {self.config.max_response}: collect fewer"
            )
            raise RunRejected(413, sentence, "too_large")
        return outcome

    async def _answered(self, request: Request, send: Send, client: str, call: Calling, run: Run) -> Response | None:
        """Run when it is its turn, for as long as the caller is there."""
        url = call.callback_url
        if url is not None:
            check_callback(url, self.config)

        async def plainly() -> RunOutcome:
            async with self.gate.turn():
                return await run(
                    self._relay.tools(call.tools, partial(self._callback.ask, url)) if url and call.tools else None
                )

        async def streamed() -> Lines:
            async with self.gate.turn():
                return await self._exchanged(send, client, call, run)

        if call.tools and url is None:
            await (await while_connected(request, streamed())).end()
            return None
        return answer(outcome_json(await while_connected(request, plainly())))

    async def _exchanged(self, send: Send, client: str, call: Calling, run: Run) -> Lines:
        """The answer as it grows: the execution's id, its tool calls, and at last its outcome or why there is none."""
        lines = Lines(send)
        with self._relay.opened(client, lines.say) as exchange:
            await lines.start()
            await lines.say({"execution": {"id": exchange.id}})
            try:
                await lines.say({"outcome": outcome_json(await run(self._relay.tools(call.tools, exchange.ask)))})
            except (JourneymanError, RunRejected) as error:
                await lines.say({"error": str(error)})
        return lines


# The service as a process: it listens, and stops in order when it is told to.

Opened = Callable[[], Awaitable[Sandbox]]


def serve(opened: Opened, config: ServiceConfig, bound: socket.socket, ready: Callable[[Level], None]) -> None:
    """Serve until SIGTERM or SIGINT: take nothing new, finish what runs, end. A second signal ends what runs, too.

    Args:
        opened: Gives the sandbox, started.
        bound: As `listen` gives it; it is closed at the end.
        ready: Called once callers can come.

    Raises:
        SandboxError: The sandbox cannot be started.
    """
    with bound:
        asyncio.run(_serve(opened, config, bound, ready))


async def _serve(opened: Opened, config: ServiceConfig, bound: socket.socket, ready: Callable[[Level], None]) -> None:
    sandbox = await opened()
    service = Service(sandbox, config)
    try:
        await SandboxServer(service, lambda: ready(sandbox.level)).serve(sockets=[bound])
    finally:
        await service.close()


class SandboxServer(asgi_server.Server):
    """Goes on listening while it stops: values of tools that running code waits for still have to come in."""

    def __init__(self, service: Service, ready: Callable[[], None]) -> None:
        # What a second signal left: each request takes its own processes with it.
        super().__init__(service.app(), ready, cut_seconds=10, timeout_graceful_shutdown=5)
        self._service = service
        self._told_at: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not kept for uvicorn to raise again at the end: to stop when told to is to end well.
        if self._told_at is None:
            self._told_at = time.monotonic()
        else:
            self.should_exit = self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        gate = self._service.gate
        if self._told_at is not None:
            if not gate.draining:
                gate.drain()
            late = time.monotonic() - self._told_at > self._service.config.most.wall_seconds + 5
            self.should_exit = self.should_exit or gate.empty or late
        return await super().on_tick(counter)
