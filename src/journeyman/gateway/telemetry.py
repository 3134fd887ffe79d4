"""`POST /v1/traces` and `/v1/logs`: OpenTelemetry over HTTP, acknowledged when it is on disk."""

import asyncio
from collections.abc import Sequence

from journeyman.capture.otlp import wire
from journeyman.errors import InputError, StoreError
from journeyman.gateway.call import Header
from journeyman.gateway.edge import Send, answer
from journeyman.gateway.metrics import Metrics
from journeyman.intake.base import Intake
from journeyman.stores.traces.base import SpanRow

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

    def __init__(self, intake: Intake, limit: int, metrics: Metrics) -> None:
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
            text = await self._kept(signal, body, kind, said.get(b"content-encoding", ""))
        except InputError as error:
            statuses = {wire.Unsupported: 415, wire.TooLarge: 413}
            await self._refuse(send, statuses.get(type(error), 400), str(error), kind, _CANNOT)
        except StoreError as error:
            await self._refuse(send, 503, str(error), kind, _NOT_NOW)
        else:
            await answer(send, 200, text[0], [(b"content-type", text[1].encode())])
        finally:
            self._under_way -= 1

    async def _kept(self, signal: wire.Signal, body: bytes, kind: str, encoding: str) -> tuple[bytes, str]:
        read = wire.spans if signal == "traces" else wire.logs
        # Not on the event loop: a large batch takes long to read, and answers of models flow meanwhile.
        async with self._reading:
            batch = await asyncio.to_thread(read, body, kind, encoding=encoding, limit=self._limit)
        rows = [
            SpanRow(trace_id=each.trace_id, span_id=each.span_id, at=each.at, body=each.body, scope=each.scope)
            for each in batch.spans
        ]
        if rows:
            await asyncio.wrap_future(self._intake.spans(rows))
        self._metrics.stored().inc(len(rows))
        return wire.answer(batch, signal, kind)

    async def _refuse(self, send: Send, status: int, said: str, kind: str, code: int) -> None:
        self._metrics.refused(f"otlp_{status}").inc()
        body, content_type = wire.refusal(said, kind, code=code)
        retry = [(b"retry-after", b"1")] if code == _NOT_NOW else []
        await answer(send, status, body, [(b"content-type", content_type.encode()), *retry])
