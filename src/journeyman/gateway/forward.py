"""Passes a request on, and its answer back, byte for byte and piece by piece, and has the exchange recorded."""

import asyncio
from collections.abc import Sequence
from time import perf_counter

import aiohttp
from aiohttp import ClientResponse

from journeyman.gateway.asking import Asking
from journeyman.gateway.call import HOP_BY_HOP, Call, Header, Refused, model_of, with_model
from journeyman.gateway.edge import Receive, Send, answer_refusal
from journeyman.gateway.metrics import Metrics
from journeyman.gateway.record import Recording
from journeyman.gateway.upstreams import Routes, Upstream
from journeyman.intake.base import Intake

HUNG_UP = 499
_KEPT_HERE = HOP_BY_HOP | {b"set-cookie", b"alt-svc"}
"""What an upstream says about its connection, or to a browser that would take us for it."""


class Forwarder:
    """The way there and back. One for each event loop."""

    def __init__(self, routes: Routes, asking: Asking, intake: Intake | None, metrics: Metrics, *, record_limit: int) -> None:
        self._routes = routes
        self._asking = asking
        self._intake = intake
        self._metrics = metrics
        self._record_limit = record_limit

    async def forward(self, call: Call, receive: Receive, send: Send) -> None:
        """Answer a call whose body was read. Never raises but when the server is stopped."""
        passage = _Passage(call, Recording(call, self._record_limit), send)
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
        except Refused as refused:
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

    def _route(self, call: Call) -> tuple[Call, Sequence[Upstream]]:
        """Who is asked, and what: a model's name may begin with that of an upstream, which does not know it by that name."""
        api = call.api
        if not self._routes.needs_model(api, call.body):
            return call, self._any(call, None)
        model = model_of(call.body)
        if model is not None and (named := self._routes.named(api, model)) is not None:
            return call.asking(with_model(call.body, model, model.partition("/")[2])), (named,)
        return call, self._any(call, model)

    def _any(self, call: Call, model: str | None) -> Sequence[Upstream]:
        route = self._routes.serving(call.api, model)
        if not route:
            what = f"the model {model}" if model is not None else f"{call.api}'s API"
            raise Refused(404, f"no upstream serves {what}", "no_upstream", api=call.api)
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

    def __init__(self, call: Call, record: Recording, send: Send) -> None:
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
