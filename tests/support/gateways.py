"""A gateway in a thread of its own, and an intake that keeps what it is handed in memory."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvloop

from journeyman.core.trace import Trace
from journeyman.experiments.settings import UpstreamSettings
from journeyman.io.http_server import listen, url_of
from journeyman.serving.gateway.app import App, Gateway, GatewayServer
from journeyman.serving.gateway.forwarding import GatewayConfig
from journeyman.serving.gateway.upstreams import resolve
from journeyman.serving.ingest.base import Health
from journeyman.stores.traces.base import SpanRow
from journeyman.tracing.wire.dialects import Exchange


@dataclass(slots=True)
class Memory:
    """An intake whose store never fails, unless it is told to."""

    exchanges: list[Exchange] = field(default_factory=list)
    rows: list[SpanRow] = field(default_factory=list)
    failure: Exception | None = None
    held: "Future[None] | None" = None
    """When given, what spans wait for."""
    keeping: "Future[None] | None" = None
    """When given, what the ends of answers wait for."""

    def submit(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)

    def keep(self, exchange: Exchange) -> "Future[None]":
        self.exchanges.append(exchange)
        if self.keeping is not None:
            return self.keeping
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def add(self, trace: Trace) -> None:
        raise AssertionError("the gateway makes no traces")

    def spans(self, spans: Sequence[SpanRow]) -> "Future[None]":
        done: Future[None] = self.held or Future()
        if self.failure is not None:
            done.set_exception(self.failure)
            return done
        self.rows += spans
        if self.held is None:
            done.set_result(None)
        return done

    def flush(self, timeout: float) -> bool:
        return True

    def health(self) -> Health:
        return Health(waiting=0, spilled=0, stored=len(self.exchanges), dropped=0, retries=0, error=None)

    def close(self, timeout: float = 10.0) -> None:
        pass

    def one(self) -> Exchange:
        """The only exchange, which may still be on its way: it is handed over after the client has its answer."""
        return self.some(1)[0]

    def some(self, count: int) -> list[Exchange]:
        deadline = time.monotonic() + 5
        while len(self.exchanges) < count and time.monotonic() < deadline:
            time.sleep(0.005)
        assert len(self.exchanges) == count
        return self.exchanges


@dataclass(slots=True, kw_only=True)
class Running:
    url: str
    """Without `/v1`."""
    memory: Memory
    gateway: Gateway


def quick(url: str, **more: object) -> UpstreamSettings:
    """Settings that do not let a test wait."""
    usual = {"retries": 0, "client_key": True, "breaker_failures": 0, "connect_seconds": 2.0, "first_byte_seconds": 5.0}
    return UpstreamSettings(base_url=url, **{**usual, **more})  # type: ignore[arg-type]


@contextmanager
def gateway(
    upstreams: dict[str, UpstreamSettings] | str,
    *,
    record: bool = True,
    pages: App | None = None,
    environment: dict[str, str] | None = None,
    **config: object,
) -> Iterator[Running]:
    """Serve in front of these; or of one, by its address."""
    named = {"up": quick(upstreams)} if isinstance(upstreams, str) else upstreams
    settings = GatewayConfig(upstreams=resolve(named, environment=environment or {}), **config)  # type: ignore[arg-type]
    memory = Memory()
    bound = listen("127.0.0.1", 0)
    url = url_of(bound)
    ready = threading.Event()
    made: list[tuple[Gateway, GatewayServer]] = []

    async def serve() -> None:
        app = Gateway(settings, memory if record else None, pages)
        server = GatewayServer(app, ready.set, drain_seconds=2)
        made.append((app, server))
        try:
            await server.serve(sockets=[bound])
        finally:
            await app.close()

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert ready.wait(10)
        yield Running(url=url, memory=memory, gateway=made[0][0])
    finally:
        if made:
            made[0][1].should_exit = True
        thread.join(timeout=10)
        bound.close()
        assert not thread.is_alive()
