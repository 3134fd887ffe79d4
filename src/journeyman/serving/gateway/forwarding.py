"""Passes a request on, and its answer back, byte for byte and piece by piece, and has the exchange recorded."""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import uuid4

from journeyman.agents.splice import RequestBody, UnreadableBody
from journeyman.core.errors import JourneymanError, StoreError
from journeyman.serving.gateway.cascade import AnswerCheck, HeldAnswer, better
from journeyman.serving.gateway.feedback import FeedbackConfig
from journeyman.serving.gateway.releases import ReleaseConfig
from journeyman.serving.gateway.request import (
    HOP_BY_HOP,
    ExchangeRecording,
    Header,
    HTTPRejection,
    ProxyRequest,
    Receive,
    Send,
    answer_refusal,
    model_of,
    with_model,
)
from journeyman.serving.gateway.upstreams import (
    BreakerState,
    GatewayMetrics,
    Routes,
    Upstream,
    UpstreamClient,
    UpstreamFailure,
    broken,
)
from journeyman.serving.ingest.base import Intake
from journeyman.serving.releases.artifacts import address_of
from journeyman.serving.releases.context import SPOKEN, MirrorTarget, Releases, ServedTarget, inject, with_release

if TYPE_CHECKING:
    from aiohttp import ClientResponse


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
    durable: bool = False
    """Whether the end of an answer waits until its record is kept."""
    feedback: FeedbackConfig | None = None
    """Without one no feedback is taken."""
    check: AnswerCheck | None = field(default=None, repr=False)
    """Looks at answers of models that a policy chose. `None`: they pass as they come."""
    releases: Releases | None = field(default=None, repr=False)
    """Says what is put into requests. `None`: they pass as they come."""
    control: ReleaseConfig | None = None
    """Without one nothing is shown or changed of releases."""


HUNG_UP = 499
_KEPT_HERE = HOP_BY_HOP | {b"set-cookie", b"alt-svc"}
"""What an upstream says about its connection, or to a browser that would take us for it."""


_UNPROMPTED = frozenset({400, 413, 422})
"""What a server says to a prompt that it does not take: without what was put into it, it may."""


Answer: TypeAlias = "ClientResponse | HeldAnswer"


class _Asking(NamedTuple):
    """Who is asked, and what."""

    call: ProxyRequest
    route: Sequence[Upstream]
    meant: Upstream | None
    """Whom the client's key was given for; the first of the route where it is not said."""


class Forwarder:
    """The way there and back. One for each event loop."""

    def __init__(
        self, config: GatewayConfig, routes: Routes, asking: UpstreamClient, intake: Intake | None, metrics: GatewayMetrics
    ) -> None:
        self._config = config
        self._routes = routes
        self._asking = asking
        self._intake = intake
        self._metrics = metrics
        self._mirrors = None if intake is None else Mirrors(asking, intake, metrics, self._route, config.record_limit)

    async def close(self) -> None:
        """Ask nothing more behind answers."""
        if self._mirrors is not None:
            await self._mirrors.close()

    async def forward(self, call: ProxyRequest, receive: Receive, send: Send) -> None:
        """Answer a call whose body was read. Never raises but when the server is stopped."""
        passage = _ProxiedCall(call, ExchangeRecording(call, self._config.record_limit), send)
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

    async def _passed(self, passage: "_ProxiedCall") -> None:
        record = passage.record
        try:
            upstream, response = await self._accepted(passage, *await self._answered(passage))
            record.upstream, record.base_url = upstream.name, upstream.base_url
        except HTTPRejection as refused:
            record.error = str(refused)
            self._metrics.refused(refused.code).inc()
            passage.status = refused.status
            await answer_refusal(passage.send, refused, [(b"x-journeyman-request-id", passage.call.id.encode())])
            return
        finally:
            passage.added += (passage.asked_at or perf_counter()) - passage.began
        try:
            await passage.back(response, upstream, self._kept if self._config.durable and passage.call.dialect else None)
        finally:
            # Gives the connection back where the answer was read to its end, and closes it elsewhere.
            response.close()

    async def _served(self, call: ProxyRequest, *, production: bool = False) -> ProxyRequest:
        """The call with what is served for it."""
        releases = self._config.releases
        if releases is None or call.dialect not in SPOKEN or not call.releases:
            return call
        found = await inject(releases, call.labels, call.dialect, call.encoding, call.body, production=production)
        if self._mirrors is None:
            found = found._replace(served=found.served._replace(mirror=None))
        if found.degraded is not None:
            self._metrics.degraded(found.degraded).inc()
        for candidate in found.served.candidates:
            self._metrics.served(candidate).inc()
        return call.with_served(found)

    async def _answered(self, passage: "_ProxiedCall") -> "tuple[Upstream, ClientResponse]":
        """Who answers a call as it is served, and the answer. What a candidate does not answer, production does; the session
        counts as the candidate's all the same.

        Raises:
            HTTPRejection: No upstream answered at all.
        """
        came, record = passage.call, passage.record
        call = passage.call = record.call = await self._served(came)
        if not call.is_on_trial:
            return await self._ask(passage)
        if (tried := await self._tried(passage)) is not None:
            return tried
        call = passage.call = record.call = await self._served(came, production=True)
        upstream, response = await self._ask(passage)
        # What production does not answer either is nobody's failure but the client's, or both arms'.
        call.fell_back = response.status < 400
        return upstream, response

    async def _ask(self, passage: "_ProxiedCall") -> "tuple[Upstream, ClientResponse]":
        asking = self._route(passage.call)
        passage.asked_at = passage.asked_at or perf_counter()
        return await self._asking.ask(*asking)

    async def _tried(self, passage: "_ProxiedCall") -> "tuple[Upstream, ClientResponse] | None":
        """The answer of a candidate; `None` where it has none, and production may have: a server that is down, a model that is
        not there, a prompt that has become too long."""
        target = passage.call.served.target
        try:
            upstream, response = await self._ask(passage)
        except HTTPRejection:
            if target is None:
                raise
            return None
        if response.status in _UNPROMPTED if target is None else response.status >= 400:
            response.close()
            return None
        return upstream, response

    async def _accepted(
        self, passage: "_ProxiedCall", upstream: Upstream, response: "ClientResponse"
    ) -> tuple[Upstream, Answer]:
        """The answer; where checks say that it is no good, that of a better worker, whatever that is."""
        check, target, dialect = self._config.check, passage.call.served.target, passage.call.dialect
        if check is None or dialect is None or target is None or not target.is_chosen or response.status >= 400:
            return upstream, response
        held = HeldAnswer(response)
        try:
            body = await held.read(self._config.record_limit)
            if body is None or (worker := better(target)) is None:
                return upstream, held
            refused = passage.record.beside(uuid4().hex, upstream.name, upstream.base_url, held, body)
            if await check.accepts(refused.exchange(dialect)) or (other := await self._of(worker, passage, target)) is None:
                return upstream, held
        except BaseException:
            held.close()
            raise
        held.close()
        if self._intake is not None:
            # What is not given was paid for all the same, and tells how good its worker is.
            self._intake.submit(refused.exchange(dialect))
        return other

    async def _of(self, worker: str, passage: "_ProxiedCall", target: ServedTarget) -> "tuple[Upstream, ClientResponse] | None":
        """Another worker's answer to a call, which is its from then on; `None` where it has none."""
        call = passage.call
        model, url = address_of(worker)
        served = call.served._replace(target=replace(target, model=model, url=url))
        body = with_model(call.body, target.model, model)
        passage.call = passage.record.call = replace(call, served=served, body=body, escalated=worker)
        try:
            upstream, response = await self._ask(passage)
        except HTTPRejection:
            response = None
        if response is not None and response.status < 400:
            return upstream, response
        if response is not None:
            response.close()
        passage.call = passage.record.call = call
        return None

    def _route(self, call: ProxyRequest) -> "_Asking":
        """Who is asked, and what: a model's name may begin with that of an upstream, which does not know it by that name."""
        api, target = call.api, call.served.target
        meant = None
        if target is not None:
            # A key was given for whom the client named, not for whom a policy names.
            meant = next(iter(self._routes.serving(api, target.asked) or self._routes.speaking(api)), None)
            if target.url:
                return _Asking(call, (self._routes.at(api, target.url),), meant)
        if not self._routes.needs_model(api, call.body):
            return _Asking(call, self._any(call, None), meant)
        model = model_of(call.body)
        if model is not None and (named := self._routes.named(api, model)) is not None:
            return _Asking(call.asking(with_model(call.body, model, model.partition("/")[2])), (named,), meant)
        return _Asking(call, self._any(call, model), meant)

    def _any(self, call: ProxyRequest, model: str | None) -> Sequence[Upstream]:
        route = self._routes.serving(call.api, model)
        if not route:
            what = f"the model {model}" if model is not None else f"{call.api}'s API"
            raise HTTPRejection(404, f"no upstream serves {what}", "no_upstream", api=call.api)
        return route

    def _ended(self, passage: "_ProxiedCall") -> None:
        call, record = passage.call, passage.record
        status = HUNG_UP if passage.gone else passage.status
        self._metrics.ended(call.dialect or "other", record.upstream, status, perf_counter() - passage.began)
        self._metrics.added().observe(passage.added)
        if self._config.releases is not None and not passage.gone:
            failed = status == 0 or status >= 500 or record.error is not None
            for arm in call.served.arms:
                self._config.releases.ended(arm, failed=failed or call.fails(arm))
        if self._intake is not None and call.dialect is not None and not passage.handed_over:
            self._intake.submit(record.exchange(call.dialect))
        answered = record.error is None and not passage.gone and 200 <= status < 300
        if self._mirrors is not None and answered and (mirror := call.served.mirror) is not None:
            self._mirrors.offer(passage.came, mirror)

    async def _kept(self, passage: "_ProxiedCall") -> None:
        """Wait until a call's record is kept; not without end: an agent goes on, whatever a store says."""
        if self._intake is None or passage.call.dialect is None:
            return
        passage.handed_over = True
        done = asyncio.wrap_future(self._intake.keep(passage.record.exchange(passage.call.dialect)))
        try:
            await asyncio.wait_for(asyncio.shield(done), DURABLE_SECONDS)
        except (StoreError, TimeoutError):
            self._metrics.undurable().inc()


DURABLE_SECONDS = 10.0
"""For which the end of an answer waits for its record to be kept."""
_LAST_EVENT = re.compile(rb"data: ?\[DONE\]|message_stop|\"response\.(?:completed|incomplete|failed)\"")
"""Where a stream says that it is over, in any dialect: its reader waits for no more."""


MOST_WAITING = 32
"""Requests that wait to be mirrored; those that come meanwhile are not."""
_AT_ONCE = 2
"""Mirrored requests under way: so many answers may cost more than the budget has left."""
_BUSY_WITH = 16
"""Requests of clients under way, with which nothing is mirrored besides."""
_PATIENCE = 5.0
"""Seconds for which an answer may be on its way to the store."""
_RESTS = 30.0
"""Seconds without mirroring after a server said that there is too much."""


class Mirrors:
    """Asks candidates what production has answered, behind the answers. Whatever comes of it, no client waits for it."""

    def __init__(
        self,
        asking: UpstreamClient,
        intake: Intake,
        metrics: GatewayMetrics,
        route: Callable[[ProxyRequest], "_Asking"],
        limit: int,
    ) -> None:
        """`limit` is how many bytes of an answer are kept."""
        self._asking, self._intake, self._metrics = asking, intake, metrics
        self._route, self._limit = route, limit
        self._waiting: deque[tuple[ProxyRequest, MirrorTarget]] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._rests_until = 0.0
        self._asked, self._deciding = set[str](), asyncio.Lock()

    def offer(self, call: ProxyRequest, mirror: MirrorTarget) -> None:
        """Take a request as its client sent it, or drop it where there is much to do."""
        busy = self._metrics.in_flight >= _BUSY_WITH or len(self._waiting) >= MOST_WAITING
        if busy or monotonic() < self._rests_until:
            self._metrics.mirrored("dropped").inc()
            return
        self._waiting.append((call, mirror))
        if len(self._workers) < _AT_ONCE:
            worker = asyncio.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def close(self) -> None:
        self._waiting.clear()
        for worker in tuple(self._workers):
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def _work(self) -> None:
        while self._waiting:
            call, mirror = self._waiting.popleft()
            try:
                outcome = await self._mirrored(call, mirror)
            except (JourneymanError, HTTPRejection, UnreadableBody):
                outcome = "failed"
            self._metrics.mirrored(outcome).inc()

    async def _mirrored(self, came: ProxyRequest, mirror: MirrorTarget) -> str:
        """What became of one: kept is what both are compared by."""
        if came.dialect is None:
            return "nothing_to_serve"
        injected = with_release(RequestBody(came.body, came.dialect), came.body, await mirror.serve())
        if injected.degraded is not None or not injected.served.candidates:
            return "nothing_to_serve"
        call = came.mirrored(mirror, uuid4().hex, injected)
        asking = self._route(call)
        upstream = asking.route[0]
        if upstream.breaker.state is not BreakerState.CLOSED or not await self._may_go(came.id, mirror):
            return "dropped"
        record = ExchangeRecording(call, self._limit)
        record.upstream, record.base_url = upstream.name, upstream.base_url
        said = await self._asking.ask_aside(asking.call, upstream, asking.meant or upstream)
        if isinstance(said, UpstreamFailure):
            record.error = f"{upstream.spoken} {said.said}"
        elif said.status in _TOO_MUCH:
            said.close()
            self._rests_until = monotonic() + _RESTS
            self._asked.discard(came.id)
            return "dropped"
        else:
            await self._read(said, record, upstream)
        # Its cost is on record before the next one is asked.
        await asyncio.wrap_future(self._intake.keep(record.exchange(came.dialect)))
        return "failed" if record.error is not None or (record.status or 500) >= 400 else "answered"

    async def _may_go(self, pair: str, mirror: MirrorTarget) -> bool:
        """Whether it may be asked now; what was asked before is waited for until it is on record."""
        until = monotonic() + _PATIENCE
        async with self._deciding:
            while not (goes := await mirror.may_go(self._asked)) and len(self._asked) > 1 and monotonic() < until:
                await asyncio.sleep(0.1)
            if goes:
                self._asked.add(pair)
            return goes

    async def _read(self, response: "ClientResponse", record: ExchangeRecording, upstream: Upstream) -> None:
        record.status, record.streamed = response.status, response.content_type == "text/event-stream"
        record.encoding = response.headers.get("content-encoding", "").lower()
        try:
            while data := await response.content.readany():
                record.add(data)
        except broken() as error:
            record.error = f"{upstream.spoken} broke off: {type(error).__name__}"
        finally:
            response.close()


_TOO_MUCH = frozenset({429, 529})
"""What says more of how much is asked than of the candidate."""


class _ProxiedCall:
    """One call under way."""

    __slots__ = (
        "_task", "added", "asked_at", "began", "call", "came", "gone", "handed_over", "over", "record", "send", "status",
    )  # fmt: skip

    def __init__(self, call: ProxyRequest, record: ExchangeRecording, send: Send) -> None:
        self.call = self.came = call
        """As it is asked, and as it came."""
        self.record = record
        self.send = send
        self.began = perf_counter()
        self.asked_at: float | None = None
        self.added = 0.0
        self.gone = False
        self.handed_over = False
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

    async def back(
        self, response: Answer, upstream: Upstream, kept: "Callable[[_ProxiedCall], Awaitable[None]] | None"
    ) -> None:
        """Pass the answer on as it comes. A cut is passed on as a cut: the end of the answer is not said.

        Args:
            kept: Waits until the call's record is kept; then what a reader takes for the end is passed on, and not before.
        """
        record = self.record
        headers = self._headers(response.raw_headers, upstream)
        self.status = record.status = response.status
        record.streamed = response.content_type == "text/event-stream"
        record.encoding = response.headers.get("content-encoding", "").lower()
        send, content = self.send, response.content
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        held = b""
        try:
            while data := await content.readany():
                record.add(data)
                if content.at_eof():
                    break
                if kept is not None:
                    data, held = self._before_the_end(held, data)
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except broken() as error:
            record.error = f"{upstream.spoken} broke off: {type(error).__name__}"
            await send({"type": "http.response.body", "body": held, "more_body": True})
            return
        ended = perf_counter()
        if kept is not None:
            await kept(self)
        self.over = True
        await send({"type": "http.response.body", "body": held + data})
        self.added += perf_counter() - ended

    def _before_the_end(self, held: bytes, data: bytes) -> tuple[bytes, bytes]:
        """What can be passed on of an answer that goes on, and what may be its end for whoever reads it."""
        if not self.record.streamed:
            return held, data
        return (b"", held + data) if held or _LAST_EVENT.search(data) else (data, b"")

    def _headers(self, raw: Sequence[Header], upstream: Upstream) -> list[Header]:
        headers = [(name, value) for name, value in raw if name.lower() not in _KEPT_HERE]
        # Whatever it is: a browser that is led here must not run it as one of our pages.
        headers.append((b"content-security-policy", b"sandbox"))
        headers.append((b"x-journeyman-request-id", self.call.id.encode()))
        # What a word on this answer may be about, beside the request.
        named = [name for name in ("session", "trace", "task") if name in self.call.labels]
        headers += [(f"x-journeyman-{name}".encode(), self.call.labels[name].encode()) for name in named]
        headers.append((b"x-journeyman-upstream", upstream.name.encode()))
        served = self.call.served
        for name, told in (
            ("release", served.candidates),
            ("rollout", tuple(arm.rollout_id for arm in served.arms)),
            ("arm", tuple(arm.arm for arm in served.arms)),
        ):
            if told:
                headers.append((f"x-journeyman-{name}".encode(), ",".join(told).encode()))
        return headers
