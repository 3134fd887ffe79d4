"""What a model client is: one verb; and clients around another one, that limit it or keep its replies."""

import asyncio
import hashlib
import json
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from journeyman.core.errors import ModelBusy, ModelError, ModelRefused
from journeyman.core.messages import ToolUse
from journeyman.io.jsonl import iter_jsonl
from journeyman.io.retry import RetryPolicy

Dialect = Literal["full", "terse"]
"""How prompts are worded: for a model that reads instructions, or for the small embedded one that knows two fixed formats."""


@dataclass(frozen=True, slots=True)
class PromptMessage:
    role: Literal["system", "user", "assistant", "tool"]
    content: str
    calls: tuple[ToolUse, ...] = ()
    """Of an assistant: the tools that it asked for. Each needs an answer, a message of the role tool, before anything else."""
    call_id: str = ""
    """Of a tool: which call it answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOffer:
    """A tool that a model may ask for."""

    name: str
    """Letters, digits, `_` and `-`; 64 at most."""
    description: str
    parameters: Mapping[str, object]
    """The JSON schema of its arguments, an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """What is asked of a model."""

    messages: tuple[PromptMessage, ...]
    temperature: float | None = None
    """`None` leaves it to the provider; the embedded model then decodes greedily."""
    max_tokens: int | None = None
    seed: int | None = None
    schema: Mapping[str, object] | None = None
    """A JSON schema that the reply must follow, where the provider can enforce one."""
    tools: tuple[ToolOffer, ...] = ()
    """What it may ask for. Only for a client that `takes_tools`."""
    task_id: str = ""
    """For records and replays; never sent."""

    @property
    def text(self) -> str:
        """The whole prompt as one text, for a trace."""
        return "\n\n".join(f"[{message.role}]\n{_spoken(message)}" for message in self.messages)


def _spoken(message: PromptMessage) -> str:
    return "\n".join([message.content, *(f"{call.tool}({call.arguments})" for call in message.calls)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back."""

    text: str
    calls: tuple[ToolUse, ...] = ()
    """The tools that it asks for, in its order."""
    model: str
    """The model's name as the server gave it."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    """`None` when the provider did not count: unknown is not zero."""
    cached_tokens: int | None = None
    """How many of the input tokens the provider read from its cache, which makes them cheaper."""
    cost: float | None = None
    """US dollars; `None` when the model has no known price."""
    seconds: float | None = None
    finish: str | None = None
    raw: Mapping[str, object] = field(default_factory=dict)


def named(status: int, message: str, retry_after: float | None = None) -> ModelError:
    """The error of an HTTP status: may the same call succeed later, or not?"""
    if status in {408, 409, 425, 429} or status >= 500:
        return ModelBusy(message, retry_after=retry_after)
    return ModelRefused(message)


class ToolsRefused(ModelRefused):
    """A model takes no tools. Nothing was asked of it, and a request without them may be answered."""


class Model(Protocol):
    """A model client. Raises `ModelRefused`, `ModelBusy` or `ModelError`, never a library's own error."""

    @property
    def name(self) -> str:
        """As a user would type it after `--model`."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def deterministic(self) -> bool:
        """Whether the same request always gives the same reply, on any day."""

    async def complete(self, request: ModelRequest) -> Reply: ...

    async def close(self) -> None:
        """Give back connections; the client is not used afterwards."""


def takes_tools(model: Model) -> bool:
    """Whether `ModelRequest.tools` may be sent to it: a client says so by an attribute `tools`, and most have none.

    One that says so may still raise `ToolsRefused`: whether a model behind a server takes them is known when it was asked.
    """
    return bool(getattr(model, "tools", False))


# A model client around another one: what it is called and can do is the other's.


class Around:
    """All of a `Model` but its verb, `complete`."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def dialect(self) -> Dialect:
        return self.model.dialect

    @property
    def deterministic(self) -> bool:
        return self.model.deterministic

    @property
    def tools(self) -> bool:
        return takes_tools(self.model)

    async def close(self) -> None:
        await self.model.close()


# How many calls run together, and replies that are kept.


log = logging.getLogger(__name__)
USUAL_POLICY = RetryPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """What the calls of one client have used so far. Known parts are summed, unknown ones counted."""

    calls: int = 0
    """Calls that gave a reply."""
    busy: int = 0
    """Times that the server was busy; a call can be so several times."""
    failed: int = 0
    """Calls that gave no reply in the end. What they cost is unknown: an answer that cannot be used is paid for too."""
    input_tokens: int = 0
    output_tokens: int = 0
    uncounted: int = 0
    """Calls whose tokens the provider did not count: they are not in the two sums."""
    cost: float = 0.0
    """US dollars of the calls with a known price."""
    unpriced: int = 0
    """Calls without a known price: `cost` is a lower bound as soon as there is one."""

    def plus(self, reply: Reply) -> "ModelUsage":
        return self + ModelUsage(
            calls=1,
            input_tokens=reply.input_tokens or 0,
            output_tokens=reply.output_tokens or 0,
            uncounted=int(reply.input_tokens is None or reply.output_tokens is None),
            cost=reply.cost or 0.0,
            unpriced=int(reply.cost is None),
        )

    def __add__(self, other: "ModelUsage") -> "ModelUsage":
        return ModelUsage(**{name: getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__})

    def __sub__(self, before: "ModelUsage") -> "ModelUsage":
        """What was used since `before`, an earlier reading of the same client."""
        return ModelUsage(**{name: getattr(self, name) - getattr(before, name) for name in self.__dataclass_fields__})


class Limited(Around):
    """A model client with at most `concurrency` calls under way, that waits for a busy server and counts what is used.

    How many run together is found out as TCP finds it out: halve when the server is busy, grow by one while it is not.
    (Additive increase, multiplicative decrease; Chiu and Jain, 1989, show that it converges to a fair share.)

    Belongs to no event loop: it may be used in one after the other, though not in two at once.
    """

    def __init__(
        self,
        model: Model,
        concurrency: int = 10,
        *,
        patience: RetryPolicy = USUAL_POLICY,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}, and must be at least 1")
        super().__init__(model)
        self.most = concurrency
        self.limit = concurrency
        """Calls allowed together just now."""
        self.usage = ModelUsage()
        self._patience = patience
        self._rng = rng or random.Random()
        self._sleep = sleep
        self._running = 0
        self._held = 0
        """Calls that sleep because the server named a time; until then nobody else starts either."""
        self._successes = 0
        self._halvings = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def complete(self, request: ModelRequest) -> Reply:
        try:
            return await self._insist(request)
        except ModelError:
            self.usage += ModelUsage(failed=1)
            raise

    async def _insist(self, request: ModelRequest) -> Reply:
        tries = 0
        while True:
            await self._start(first=tries > 0)
            tries += 1
            halvings = self._halvings
            try:
                reply = await self.model.complete(request)
            except ModelBusy as busy:
                self._slow_down(halvings)
                refused = busy
            else:
                self._speed_up(reply)
                return reply
            finally:
                self._finish()
            await self._pause(tries, refused)

    async def _start(self, *, first: bool) -> None:
        """Wait for a turn. Calls start in the order they were made; one that is tried again goes `first`."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._running, self._held = loop, 0, 0
            self._waiting.clear()
        turn = loop.create_future()
        if first:
            self._waiting.appendleft(turn)
        else:
            self._waiting.append(turn)
        self._give_turns()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._finish()
            raise

    def _finish(self) -> None:
        self._running -= 1
        self._give_turns()

    def _give_turns(self) -> None:
        while self._waiting and self._running < self.limit and not self._held:
            turn = self._waiting.popleft()
            if not turn.done():
                self._running += 1
                turn.set_result(None)

    async def _pause(self, tries: int, busy: ModelBusy) -> None:
        wait = self._patience.wait(tries, busy.retry_after, self._rng)
        if wait is None:
            raise busy
        log.info("%s is busy, try %d, waiting %.1f s, %d calls at once: %s", self.name, tries, wait, self.limit, busy)
        hold = busy.retry_after is not None
        self._held += hold
        try:
            await self._sleep(wait)
        finally:
            self._held -= hold
            self._give_turns()

    def _slow_down(self, halvings: int) -> None:
        """Halve, once for all the calls that were under way together: one burst is one piece of news."""
        self.usage += ModelUsage(busy=1)
        self._successes = 0
        if halvings == self._halvings:
            self._halvings += 1
            self.limit = max(1, self.limit // 2)

    def _speed_up(self, reply: Reply) -> None:
        self.usage = self.usage.plus(reply)
        self._successes += 1
        if self._successes >= self.limit and self.limit < self.most:
            self.limit += 1
            self._successes = 0


# A model whose replies are kept in a file: the same question to the same deterministic model is not decoded again.

_KEPT = ("text", "model", "input_tokens", "output_tokens", "cached_tokens", "cost", "seconds", "finish")


class CachedModel(Around):
    """A model and what it once replied, with the tokens and seconds that it really took.

    Replies of a model that is not deterministic, and sampled ones without a seed, are not kept. The file is added to line by
    line; a line that cannot be read is as good as none, as a cache may always be lost.
    """

    def __init__(self, model: Model, path: Path) -> None:
        super().__init__(model)
        self.asked = 0
        """Requests that the model itself answered."""
        self._path = path
        self._known: dict[str, Reply] = {}
        self._waiting: dict[str, asyncio.Task[Reply]] = {}
        if path.exists():
            self._load()

    async def complete(self, request: ModelRequest) -> Reply:
        if not self.model.deterministic or (request.temperature and request.seed is None):
            self.asked += 1
            return await self.model.complete(request)
        key = self._key(request)
        if key in self._known:
            return self._known[key]
        if key not in self._waiting:
            self._waiting[key] = asyncio.create_task(self._ask(key, request))
        # Another who asks the same meanwhile waits for the same reply; one who gives up does not take it from the others.
        return await asyncio.shield(self._waiting[key])

    async def _ask(self, key: str, request: ModelRequest) -> Reply:
        try:
            self.asked += 1
            reply = await self.model.complete(request)
            self._known[key] = reply
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                told = {name: value for name, value in asdict(reply).items() if name in _KEPT}
                calls = {"calls": [list(call) for call in reply.calls]} if reply.calls else {}
                file.write(json.dumps({"key": key, **told, **calls}) + "\n")
            return reply
        finally:
            del self._waiting[key]

    def _key(self, request: ModelRequest) -> str:
        asked: list[Any] = [self.name, [[message.role, message.content] for message in request.messages]]
        asked += [request.temperature, request.max_tokens, request.seed, request.schema]
        if request.tools:
            # What was kept before there were tools stays known.
            asked += [[asdict(offer) for offer in request.tools]]
            asked += [[[message.call_id, [list(call) for call in message.calls]] for message in request.messages]]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]

    def _load(self) -> None:
        bad = list[str]()
        lines = [line.value for line in iter_jsonl(self._path, _entry, bad=lambda where, _: bad.append(where))]
        self._known = dict(lines)
        if worse := len(bad) + len(lines) - len(self._known):
            log.warning("%s: %d of %d kept replies cannot be read or came twice", self._path, worse, len(bad) + len(lines))


def _entry(line: str) -> tuple[str, Reply]:
    told = json.loads(line)
    calls = tuple(ToolUse(*each) for each in told.get("calls", ()))
    return told["key"], Reply(calls=calls, **{name: told[name] for name in _KEPT})
