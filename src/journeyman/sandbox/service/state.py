"""What an operator decides about the code service, and what it keeps count of: who may come in and whose turn it is, sessions
that are alive, tool calls under way."""

import asyncio
import itertools
import json
import math
import os
import secrets
import string
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from pydantic import ValidationError

from journeyman.core.errors import SandboxError
from journeyman.io.http_client import Broken, Connections, TooLong, Unreachable
from journeyman.io.metrics import MetricsRegistry
from journeyman.sandbox.base import KIB, MIB, Limits, RunOutcome, Session, Tool
from journeyman.sandbox.remote import Faults, OfferedTool, ToolResult

MOST = Limits(
    cpu_seconds=300.0,
    wall_seconds=600.0,
    memory=2048 * MIB,
    processes=256,
    file_size=256 * MIB,
    disk=1024 * MIB,
    inodes=65536,
    open_files=1024,
    output=1024 * KIB,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """How much of the machine the service may give away, and to whom. Sizes in bytes, times in seconds."""

    concurrency: int = max(2, os.cpu_count() or 2)
    """Executions at once; more wait."""
    queue: int = 256
    """Requests that may wait. One more is refused with 503."""
    queue_seconds: float = 60.0
    """The longest wait for a turn, then 503."""
    per_client: int = 64
    """Requests of one client at once, those that wait included; and its sessions. One more is refused with 429."""
    tokens: tuple[str, ...] = field(default=(), repr=False)
    """Each belongs to one client. None: whoever can connect may use the service, and an address is a client."""
    max_request: int = 16 * MIB
    """Of one body. More is refused with 413 as soon as it has been read."""
    held: int = 256 * MIB
    """All bodies in memory together. A request that does not fit is refused with 503."""
    max_response: int = 64 * MIB
    """The collected files of one run."""
    request_seconds: float = 30.0
    """In which a body must have arrived, else 408."""
    tool_seconds: float = 60.0
    """In which the caller must have answered a tool call; after it the code sees a `ToolError`."""
    callback_hosts: frozenset[str] = frozenset()
    """`host:port` of the only places that tool calls may be sent to. None: callbacks are refused."""
    most: Limits = MOST
    """What a caller may ask for at most, limit by limit."""
    sessions: int = 64
    """At once; one more is refused with 503."""
    idle_seconds: float = 600.0
    """After which an unused session is ended; a caller may ask for less."""


# What is counted.

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds."""


class ServiceMetrics(MetricsRegistry):
    """Counters, one histogram, and gauges that are asked when somebody looks."""

    def __init__(
        self,
        *,
        in_flight: Callable[[], float],
        queued: Callable[[], float],
        sessions: Callable[[], float],
        draining: Callable[[], float],
    ) -> None:
        super().__init__()
        self._ended, self._sum = 0, 0.0
        self.executions = self.counter(
            "journeyman_executions_total", "Executions that ended, by language and by how they ended.", "language", "outcome"
        )
        self.rejected = self.counter("journeyman_rejected_total", "Requests that were refused, by reason.", "reason")
        self.tool_calls = self.counter(
            "journeyman_tool_calls_total", "Tool calls relayed to callers, by how they ended.", "outcome"
        )
        self.sessions_opened = self.counter("journeyman_sessions_opened_total", "Sessions opened.")
        self.seconds = self.histogram(
            "journeyman_execution_seconds",
            "Wall time from the start of a run to its outcome, the wait not included.",
            BUCKETS,
            "language",
        )
        self.gauge("journeyman_executions_in_flight", "Executions under way.", in_flight)
        self.gauge("journeyman_executions_queued", "Requests that wait for their turn.", queued)
        self.gauge("journeyman_sessions", "Sessions alive.", sessions)
        self.gauge("journeyman_draining", "1 while the service stops: it finishes what runs and takes nothing new.", draining)

    def ended(self, language: str, outcome: str, seconds: float) -> None:
        """One execution."""
        self.executions(language, outcome).inc()
        self.seconds(language).observe(seconds)
        self._ended, self._sum = self._ended + 1, self._sum + seconds

    @property
    def mean_seconds(self) -> float:
        """Of all executions so far; 1 before the first."""
        return self._sum / self._ended if self._ended else 1.0


# Who may come in, and whose turn it is.


class RunRejected(Exception):
    """A request that is turned away, as HTTP says it."""

    def __init__(
        self, status: int, sentence: str, reason: str, *, retry_after: int | None = None, faults: tuple[str, ...] = ()
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.reason = reason
        """One word, for the metrics."""
        self.retry_after = retry_after
        """Seconds."""
        self.faults = faults


STOPPING = RunRejected(503, "the service is stopping", "stopping", retry_after=5)


class AdmissionQueue:
    """Counts who is inside: so many in all, so many of one client, so many at work; the others wait in order of arrival."""

    def __init__(self, config: ServiceConfig, mean_seconds: Callable[[], float]) -> None:
        self._config = config
        self._mean_seconds = mean_seconds
        self._clients: Counter[str] = Counter()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._inside = 0
        self._held = 0
        self.running = 0
        self.draining = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def empty(self) -> bool:
        return not self._inside

    def drain(self) -> None:
        """Take nothing new and send away those that wait; what runs is not touched."""
        self.draining = True
        while self._waiting:
            self._waiting.popleft().set_exception(STOPPING)

    @contextmanager
    def admitted(self, client: str) -> Iterator[None]:
        """Hold one of the places.

        Raises:
            RunRejected: There is none (503), or this client has its share (429).
        """
        if self.draining:
            raise STOPPING
        if self._clients[client] >= self._config.per_client:
            sentence = f"this client has {self._config.per_client} requests under way, which is its share: wait for one to end"
            raise RunRejected(429, sentence, "client_busy", retry_after=self._retry_after(self._config.per_client))
        if self._inside >= self._config.concurrency + self._config.queue:
            sentence = f"the service is full: {self._config.queue} requests wait already"
            raise RunRejected(503, sentence, "queue_full", retry_after=self._retry_after(self._config.queue))
        self._inside += 1
        self._clients[client] += 1
        try:
            yield
        finally:
            self._inside -= 1
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]

    @contextmanager
    def holding(self) -> Iterator[Callable[[int], None]]:
        """Gives a function that counts bytes read into memory, until the end of the block.

        Raises:
            RunRejected: (503, by that function) The bodies in memory are too large, all together.
        """
        mine = 0

        def hold(size: int) -> None:
            nonlocal mine
            if self._held + size > self._config.held:
                raise RunRejected(503, "the service holds too many large requests", "memory", retry_after=self._retry_after(1))
            mine += size
            self._held += size

        try:
            yield hold
        finally:
            self._held -= mine

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for one's turn to run.

        Raises:
            RunRejected: (503) It did not come in time, or the service stops.
        """
        if self.running < self._config.concurrency:
            self.running += 1
        else:
            await self._wait()
        try:
            yield
        finally:
            self._next()

    async def _wait(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            done, _ = await asyncio.wait({place}, timeout=self._config.queue_seconds)
        except asyncio.CancelledError:
            self._leave(place)
            raise
        if not done:
            self._leave(place)
            sentence = f"no turn came within {self._config.queue_seconds:g} s"
            raise RunRejected(503, sentence, "queue_slow", retry_after=self._retry_after(self._config.queue))
        place.result()

    def _leave(self, place: asyncio.Future[None]) -> None:
        """Whoever was given a turn in the moment of leaving passes it on."""
        if not place.done():
            place.cancel()
            self._waiting.remove(place)
        elif place.exception() is None:
            self._next()

    def _next(self) -> None:
        """A turn has ended: the first who waits takes it over."""
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self.running -= 1

    def _retry_after(self, ahead: int) -> int:
        """Seconds until about half of those ahead are through: a guess, from 1 to 30."""
        return min(30, max(1, math.ceil(self._mean_seconds() * ahead / self._config.concurrency / 2)))


# The sessions that are alive, and whose they are.

REMEMBERED = 1000
Clock = Callable[[], float]


@dataclass(slots=True, kw_only=True)
class HeldSession:
    """One session."""

    id: str
    """Not to be guessed: who knows it, and is the client that opened it, may use it."""
    client: str
    session: Session
    idle_seconds: float
    used_at: float
    runs: int = 0
    busy: bool = False


class Sessions:
    """Opened and ended here only, so that none is forgotten."""

    def __init__(self, config: ServiceConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._kept: dict[str, HeldSession] = {}
        self._over: dict[str, tuple[str, str]] = {}
        """Whose the last ones were, and why they ended."""
        self._opening: list[str] = []
        """Clients whose session is being opened: they count already."""
        self._sweeping: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._kept)

    async def open(self, client: str, idle_seconds: float, make: Callable[[], Awaitable[Session]]) -> HeldSession:
        """Raises `RunRejected` when there are too many (503), or too many of this client (429)."""
        self._room(client)
        self._opening.append(client)
        try:
            session = await make()
        finally:
            self._opening.remove(client)
        kept = HeldSession(
            id=secrets.token_urlsafe(16), client=client, session=session, idle_seconds=idle_seconds, used_at=self._clock()
        )
        self._kept[kept.id] = kept
        if self._sweeping is None:
            self._sweeping = asyncio.create_task(self._sweep())
        return kept

    def _room(self, client: str) -> None:
        clients = [*(kept.client for kept in self._kept.values()), *self._opening]
        if clients.count(client) >= self._config.per_client:
            raise RunRejected(
                429, f"this client has {self._config.per_client} sessions: close one", "client_busy", retry_after=5
            )
        if len(clients) >= self._config.sessions:
            raise RunRejected(
                503, f"{self._config.sessions} sessions are open, which is all there may be", "sessions", retry_after=5
            )

    def find(self, client: str, id: str) -> HeldSession:
        """Raises `RunRejected`: (410) with why it is over; (404) for those of others, too: nobody learns that they exist."""
        kept = self._kept.get(id)
        if kept is not None and kept.client == client:
            return kept
        owner, why = self._over.get(id, ("", ""))
        if owner == client:
            raise RunRejected(410, why, "over")
        raise RunRejected(404, "there is no such session", "unknown")

    @contextmanager
    def taken(self, kept: HeldSession) -> Iterator[None]:
        """Nobody else may use it in this block. Raises `RunRejected` (409) where somebody does."""
        if kept.busy:
            raise RunRejected(409, "the session is busy with another call: it does one at a time", "busy")
        kept.busy = True
        try:
            yield
        finally:
            kept.busy = False
            kept.used_at = self._clock()

    async def run(self, kept: HeldSession, running: Awaitable[RunOutcome]) -> RunOutcome:
        """Run in it. When whoever asked is gone, it is over: its state is then anybody's guess.

        Raises:
            RunRejected: (410) It is over.
        """
        kept.runs += 1
        try:
            outcome = await running
            if outcome.limit is not None or outcome.exit_code not in (0, 1):
                await self._end_if_over(kept)
        except SandboxError as error:
            await self.end(kept, str(error))
            raise RunRejected(410, str(error), "over") from error
        except BaseException:
            await self.end(kept, _over("a call was cancelled"))
            raise
        return outcome

    async def _end_if_over(self, kept: HeldSession) -> None:
        """Some limits end a session and some do not, and so it is asked."""
        try:
            await kept.session.run("")
        except SandboxError as error:
            await self.end(kept, str(error))

    async def end(self, kept: HeldSession, why: str) -> None:
        if self._kept.pop(kept.id, None) is not None:
            self._over[kept.id] = kept.client, why
            if len(self._over) > REMEMBERED:
                del self._over[next(iter(self._over))]
            # A session that cannot be ended in order was over already.
            with suppress(SandboxError):
                await kept.session.close()

    def listed(self, client: str, *, whole: bool) -> list[dict[str, Any]]:
        """Those of one client. Where an address is all that tells clients apart, ids are shortened: each is a key."""
        now = self._clock()
        return [
            {
                "id": kept.id if whole else f"{kept.id[:6]}…",
                "runs": kept.runs,
                "busy": kept.busy,
                "idle_seconds": 0.0 if kept.busy else round(now - kept.used_at, 3),
                "idle_limit": kept.idle_seconds,
            }
            for kept in self._kept.values()
            if kept.client == client
        ]

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await asyncio.gather(*(self.end(kept, _over("the service stops")) for kept in list(self._kept.values())))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._config.idle_seconds / 4))
            now = self._clock()
            for kept in list(self._kept.values()):
                if not kept.busy and now - kept.used_at > kept.idle_seconds:
                    await self.end(kept, _over(f"nothing was asked of it for {kept.idle_seconds:g} seconds"))


def _over(why: str) -> str:
    return f"the session is over: {why}; open a new one"


CLOSED = _over("it was closed")

# Tool calls of the code, carried to whoever offered the tools, and their values carried back.

Call = Mapping[str, Any]
"""`{"id", "name", "arguments"}`, as the caller gets it."""
Ask = Callable[[Call], Awaitable[ToolResult]]


class ToolFailed(Exception):
    """What the code gets to see as a `ToolError`."""


class ToolRelay:
    """One execution whose tool calls go out on its own answer, and whose values come in as requests."""

    def __init__(self, client: str, say: Callable[[Call], Awaitable[None]]) -> None:
        self.id = secrets.token_urlsafe(16)
        self._client = client
        self._say = say
        self._pending: dict[str, asyncio.Future[ToolResult]] = {}

    async def ask(self, call: Call) -> ToolResult:
        answer: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        self._pending[call["id"]] = answer
        try:
            await self._say({"tool_call": call})
            return await answer
        finally:
            del self._pending[call["id"]]

    def answer(self, client: str, call_id: str, result: ToolResult) -> bool:
        """Whether somebody was waiting for it."""
        waiting = self._pending.get(call_id)
        if waiting is None or waiting.done() or client != self._client:
            return False
        waiting.set_result(result)
        return True


class Relay:
    """All executions that have tools."""

    def __init__(self, seconds: float, metrics: ServiceMetrics) -> None:
        self._seconds = seconds
        """The longest that code waits for a value."""
        self._metrics = metrics
        self._exchanges: dict[str, ToolRelay] = {}

    @contextmanager
    def opened(self, client: str, say: Callable[[Call], Awaitable[None]]) -> Iterator[ToolRelay]:
        exchange = ToolRelay(client, say)
        self._exchanges[exchange.id] = exchange
        try:
            yield exchange
        finally:
            del self._exchanges[exchange.id]

    def answer(self, client: str, id: str, call_id: str, result: ToolResult) -> None:
        """Raises `RunRejected` (404) where nobody waits for it."""
        exchange = self._exchanges.get(id)
        if exchange is None or not exchange.answer(client, call_id, result):
            raise RunRejected(
                404, "no such tool call waits here: it was answered, took too long, or its execution is over", "unknown"
            )

    def tools(self, offered: tuple[OfferedTool, ...], ask: Ask) -> dict[str, Tool]:
        """What the sandbox calls for the code."""
        ids = map(str, itertools.count(1))

        def made(name: str) -> Tool:
            async def tool(arguments: Mapping[str, Any]) -> Any:
                return await self._relayed({"id": next(ids), "name": name, "arguments": dict(arguments)}, ask)

            return tool

        return {one.name: made(one.name) for one in offered}

    async def _relayed(self, call: Call, ask: Ask) -> Any:
        ended = "lost"
        try:
            async with asyncio.timeout(self._seconds):
                result = await ask(call)
            ended = "ok" if result.error is None else "error"
        except TimeoutError:
            ended = "timeout"
            raise ToolFailed(f"{call['name']}: the caller did not answer within {self._seconds:g} s") from None
        finally:
            self._metrics.tool_calls(ended).inc()
        if result.error is not None:
            raise ToolFailed(result.error)
        return result.value


# Tool calls by callback: sent to a URL of the caller's choice, but only to places that the operator named.

_PORTS = {"http": 80, "https": 443}


def address_of(url: str) -> str:
    """`host:port` of an http URL; what a host is allowed by.

    Raises:
        Faults: It is none, or has a user name.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        port = None
    if port is None or not parts.hostname or parts.username is not None or parts.password is not None:
        raise Faults("callback_url should be http://host:port/… or https://…, without a user name")
    host = parts.hostname.lower()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_callback(url: str, config: ServiceConfig) -> None:
    """Raises `RunRejected` (403) unless the operator named the place: a service that goes wherever it is told is a door into
    the operator's network."""
    if address_of(url) not in config.callback_hosts:
        allowed = ", ".join(sorted(config.callback_hosts)) or "nothing (--callback-host)"
        raise RunRejected(403, f"callback_url goes to {address_of(url)}; this service may call {allowed}", "callback")


class Callback:
    """Posts tool calls, over connections that are kept for each place. Redirects are not followed, and no proxy is used."""

    def __init__(self, config: ServiceConfig) -> None:
        self._longest = config.max_request
        self._connections: dict[str, Connections] = {}

    async def ask(self, url: str, call: Call) -> ToolResult:
        """Post a tool call. Whatever goes wrong is an answer too, but for time: that is the relay's to watch."""
        parts = urlsplit(url)
        at = f"{parts.scheme}://{address_of(url)}"
        connections = self._connections.setdefault(at, Connections(at, {"accept-encoding": "identity"}))
        path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=string.punctuation)
        try:
            async with connections.asked("POST", path, json.dumps({"tool_call": call}).encode()) as answer:
                body = await answer.read(self._longest)
        except TooLong:
            return ToolResult(error="the callback answered with too much")
        # More would tell the code about the operator's network.
        except Unreachable:
            return ToolResult(error="the callback failed: ConnectError")
        except Broken:
            return ToolResult(error="the callback failed: ReadError")
        if answer.status != 200:
            return ToolResult(error=f"the callback answered {answer.status}")
        try:
            return ToolResult.model_validate_json(body)
        except ValidationError:
            return ToolResult(error='the callback should answer {"value": …} or {"error": "…"}')

    async def close(self) -> None:
        for each in self._connections.values():
            await each.close()
