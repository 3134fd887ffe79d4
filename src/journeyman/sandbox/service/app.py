"""The service: what each address does."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Send

from journeyman.errors import JourneymanError
from journeyman.io.metrics import CONTENT_TYPE
from journeyman.sandbox.base import Outcome, Sandbox, Tool
from journeyman.sandbox.service import callback, edge
from journeyman.sandbox.service.config import ServiceConfig
from journeyman.sandbox.service.edge import Endpoint, Lines, answer
from journeyman.sandbox.service.metrics import Metrics
from journeyman.sandbox.service.queue import Gate, Refused
from journeyman.sandbox.service.relay import Relay
from journeyman.sandbox.service.schema import (
    Calling,
    Execute,
    OpenSession,
    SessionExecute,
    ToolResult,
    level_json,
    outcome_json,
    read,
)
from journeyman.sandbox.service.sessions import CLOSED, Kept, Sessions

Run = Callable[[Mapping[str, Tool] | None], Awaitable[Outcome]]


class Service:
    """A started sandbox for many callers. One for each process and event loop."""

    def __init__(self, sandbox: Sandbox, config: ServiceConfig) -> None:
        self.config = config
        self._sandbox = sandbox
        self.metrics = Metrics(
            in_flight=lambda: self.gate.running,
            queued=lambda: self.gate.waiting,
            sessions=lambda: len(self.sessions),
            draining=lambda: self.gate.draining,
        )
        self.gate = Gate(config, lambda: self.metrics.mean_seconds)
        self.sessions = Sessions(config, time.monotonic)
        self._relay = Relay(config.tool_seconds, self.metrics)
        self._callback = callback.Callback(config)

    def app(self) -> Starlette:
        def route(path: str, method: str, handler: edge.Handler) -> Route:
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
            exception_handlers={HTTPException: edge.misaddressed},
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
            asked = read(Execute, body, self.config.most)
            program = asked.program(self.config.most)

            async def run(tools: Mapping[str, Tool] | None) -> Outcome:
                return await self._measured(asked.language, self._sandbox.run(program, tools=tools))

            return await self._answered(request, send, client, asked, run)

    async def open_session(self, request: Request, send: Send) -> Response:
        async with self._entered(request) as (client, body):
            asked = read(OpenSession, body, self.config.most)
            idle = min(asked.idle_seconds or self.config.idle_seconds, self.config.idle_seconds)
            limits = asked.limits.within(self.config.most)

            async def opened() -> Kept:
                async with self.gate.turn():
                    return await self.sessions.open(
                        client, idle, lambda: self._sandbox.session(limits=limits, files=asked.files, idle_seconds=idle)
                    )

            kept = await edge.while_connected(request, opened())
        self.metrics.sessions_opened().inc()
        return answer({"id": kept.id, "idle_seconds": idle, "level": level_json(self._sandbox.level)}, 201)

    async def execute_in_session(self, request: Request, send: Send) -> Response | None:
        async with self._entered(request) as (client, body):
            kept = self.sessions.find(client, request.path_params["id"])
            asked = read(SessionExecute, body, self.config.most)

            async def run(tools: Mapping[str, Tool] | None) -> Outcome:
                ran = kept.session.run(asked.code, tools=tools, wall_seconds=asked.wall_seconds)
                return await self.sessions.run(kept, self._measured("session", ran))

            with self.sessions.taken(kept):
                return await self._answered(request, send, client, asked, run)

    async def close_session(self, request: Request, send: Send) -> Response:
        kept = self.sessions.find(edge.client_of(request, self.config), request.path_params["id"])
        await self.sessions.end(kept, CLOSED)
        return Response(status_code=204)

    async def list_sessions(self, request: Request, send: Send) -> Response:
        client = edge.client_of(request, self.config)
        return answer({"sessions": self.sessions.listed(client, whole=bool(self.config.tokens))})

    async def settle(self, request: Request, send: Send) -> Response:
        """Also while the service stops, and past the share of a client: what runs waits for it."""
        client = edge.client_of(request, self.config)
        with self.gate.holding() as hold:
            result = read(ToolResult, await edge.body_of(request, self.config, hold), self.config.most)
        self._relay.answer(client, request.path_params["id"], request.path_params["call_id"], result)
        return Response(status_code=204)

    async def health(self, request: Request, send: Send) -> Response:
        ready = not self.gate.draining
        said = {"ready": ready, "version": version("journeyman"), "level": level_json(self._sandbox.level)}
        return answer(said, 200 if ready else 503)

    async def show_metrics(self, request: Request, send: Send) -> Response:
        edge.client_of(request, self.config)
        return Response(self.metrics.text(), media_type=CONTENT_TYPE)

    @asynccontextmanager
    async def _entered(self, request: Request) -> AsyncIterator[tuple[str, bytes]]:
        """The caller's name and the body, with a place for both until the end of the block."""
        client = edge.client_of(request, self.config)
        with self.gate.admitted(client), self.gate.holding() as hold:
            yield client, await edge.body_of(request, self.config, hold)

    async def _measured(self, language: str, running: Awaitable[Outcome]) -> Outcome:
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
            raise Refused(413, sentence, "too_large")
        return outcome

    async def _answered(self, request: Request, send: Send, client: str, asked: Calling, run: Run) -> Response | None:
        """Run when it is its turn, for as long as the caller is there."""
        url = asked.callback_url
        if url is not None:
            callback.check(url, self.config)

        async def plainly() -> Outcome:
            async with self.gate.turn():
                return await run(
                    self._relay.tools(asked.tools, partial(self._callback.ask, url)) if url and asked.tools else None
                )

        async def streamed() -> Lines:
            async with self.gate.turn():
                return await self._exchanged(send, client, asked, run)

        if asked.tools and url is None:
            await (await edge.while_connected(request, streamed())).end()
            return None
        return answer(outcome_json(await edge.while_connected(request, plainly())))

    async def _exchanged(self, send: Send, client: str, asked: Calling, run: Run) -> Lines:
        """The answer as it grows: the execution's id, its tool calls, and at last its outcome or why there is none."""
        lines = Lines(send)
        with self._relay.opened(client, lines.say) as exchange:
            await lines.start()
            await lines.say({"execution": {"id": exchange.id}})
            try:
                await lines.say({"outcome": outcome_json(await run(self._relay.tools(asked.tools, exchange.ask)))})
            except (JourneymanError, Refused) as error:
                await lines.say({"error": str(error)})
        return lines
