"""What each address of the gateway does."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any
from uuid import uuid4

from journeyman.gateway.asking import Asking
from journeyman.gateway.breaker import State
from journeyman.gateway.call import Call, Header, Refused, api_of, taken_apart
from journeyman.gateway.door import Door
from journeyman.gateway.edge import Gone, Receive, Scope, Send, answer, answer_json, answer_refusal, body_of
from journeyman.gateway.forward import Forwarder
from journeyman.gateway.listing import models
from journeyman.gateway.metrics import Metrics
from journeyman.gateway.telemetry import SIGNALS, Telemetry
from journeyman.gateway.upstreams import Routes, Upstream
from journeyman.intake.base import Intake
from journeyman.io.metrics import CONTENT_TYPE

App = Callable[[Scope, Receive, Send], Awaitable[None]]
_CLIMBING = re.compile(rb"(?:/|%2f|\\|%5c)(?:\.|%2e){1,2}(?:/|%2f|\\|%5c|;|%3b|$)", re.IGNORECASE)
"""A path that a server may read as another one, outside of what the upstream's address allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """What an operator decides. Sizes in bytes."""

    upstreams: tuple[Upstream, ...]
    tokens: tuple[str, ...] = field(default=(), repr=False)
    """Of those who may come. None: whoever can connect may."""
    request_limit: int = 64 << 20
    """The largest body that is taken."""
    record_limit: int = 32 << 20
    """How much of one answer is kept."""


class Gateway:
    """The ASGI application. One for each event loop; made inside it."""

    def __init__(self, config: GatewayConfig, intake: Intake | None = None, pages: App | None = None) -> None:
        """Without an intake nothing is recorded, and no telemetry taken. `pages` answers every address that is none of ours."""
        self._config = config
        self._intake = intake
        self._pages = pages
        self._routes = Routes(config.upstreams)
        self.metrics = Metrics(self._routes, intake.health if intake is not None else None)
        self._door = Door(config.tokens)
        self._asking = Asking(self.metrics)
        self._forwarder = Forwarder(self._routes, self._asking, intake, self.metrics, record_limit=config.record_limit)
        self._telemetry = Telemetry(intake, config.request_limit, self.metrics) if intake is not None else None
        self.draining = False
        """Said by `/health` while the server stops."""

    async def close(self) -> None:
        await self._asking.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path.startswith("/v1/"):
            await self._api(scope, receive, send)
        elif path == "/health":
            await self._health(scope["headers"], send)
        elif path == "/metrics":
            await self._metrics(scope["headers"], send)
        elif self._pages is not None:
            await self._pages(scope, receive, send)
        else:
            said = f"there is no {path} here; models are asked below /v1 (a base URL for OpenAI's SDK ends in /v1)"
            await answer_refusal(send, Refused(404, said, "not_found"))

    async def _api(self, scope: Scope, receive: Receive, send: Send) -> None:
        call: Call | None = None
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
        except Refused as refused:
            refused.api = call.api if call is not None else api_of(path, scope["headers"])
            self.metrics.refused(refused.code).inc()
            await answer_refusal(send, refused)
        except Gone:
            self.metrics.refused("gone").inc()

    def _call(self, scope: Scope, headers: Sequence[Header]) -> Call:
        raw: bytes = scope["raw_path"]
        if _CLIMBING.search(raw):
            raise Refused(400, "a path must not have . and .. in it", "invalid")
        return taken_apart(
            uuid4().hex, scope["method"], raw.decode("latin-1"), scope["query_string"].decode("latin-1"), headers
        )

    async def _telemetry_of(self, call: Call, headers: Sequence[Header], send: Send) -> None:
        signal = SIGNALS.get(call.path)
        # No telemetry of ours is a model server's business, also what cannot be kept.
        if signal is None or call.method != "POST":
            raise Refused(404, "of telemetry, POST /v1/traces and /v1/logs are taken", "not_found")
        if self._telemetry is None:
            raise Refused(404, "nothing is recorded here (--no-record), so no telemetry is taken", "not_found")
        await self._telemetry.keep(signal, headers, call.body, send)

    async def _health(self, headers: Sequence[Header], send: Send) -> None:
        """Ready while answers flow, also when the store is ill: then the rest says so."""
        said: dict[str, Any] = {"ready": not self.draining}
        if self._door.admits(headers):
            said |= {"version": version("journeyman"), "in_flight": self.metrics.in_flight, **self._state()}
        await answer_json(send, said, 503 if self.draining else 200)

    def _state(self) -> dict[str, Any]:
        resting = {each.name: each.breaker.state for each in self._routes.all}
        state: dict[str, Any] = {
            "upstreams": {name: {"breaker": state, "ok": state is not State.OPEN} for name, state in resting.items()}
        }
        if self._intake is not None:
            state["intake"] = asdict(self._intake.health())
        return state

    async def _metrics(self, headers: Sequence[Header], send: Send) -> None:
        try:
            self._door.enter(headers)
        except Refused as refused:
            await answer_refusal(send, refused)
            return
        await answer(send, 200, self.metrics.text().encode(), [(b"content-type", CONTENT_TYPE.encode())])
