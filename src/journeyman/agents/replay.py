"""A recorded request is asked again, with what was learned in it or without: model calls alone, and no tool is ever run.

The conversation is built anew from the trace, in the dialect that it was recorded in, with the tools and the parameters of
then, and goes to the server that answered then; or its words go to a model that somebody names.
"""

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit

from journeyman.agents.answer import strategies, terse_rules, without_bullets
from journeyman.agents.splice import RequestBody, UnreadableBody
from journeyman.core.candidate import BASE
from journeyman.core.errors import ModelBusy, ModelError, ModelRefused
from journeyman.core.messages import ToolUse
from journeyman.core.playbook import Bullet, Place
from journeyman.core.task import Task
from journeyman.core.trace import ModelCall, Step, Trace
from journeyman.io.http_client import Broken, Connections, TooLong, Unreachable
from journeyman.io.retry import RetryPolicy, retry_after
from journeyman.models import pricing
from journeyman.models.base import Around, Limited, Model, ModelRequest, PromptMessage, Reply, named
from journeyman.tracing.builder import tool_call
from journeyman.tracing.evidence import tool_definition
from journeyman.tracing.fields import as_json, mapping, recorded_tools, string
from journeyman.tracing.importers.finetuning import UNASKED, Losses, Transcript, conversations, with_messages
from journeyman.tracing.wire.dialects import Dialect, Exchange, ParsedExchange, read_exchange

# From a trace to a request that can be asked again.


class NotAskable(Exception):
    """A recorded request that cannot be asked again; the message says of what kind it is, in the plural."""


NO_WORDS = "requests of which no words were kept"
NO_TOOLS = "requests whose tools were not recorded"
_FILES = re.compile(
    r"^\[(?:(?:image|audio|video|application|font)/[^\]\s,]+|image|file|audio|video|document|picture)(?:[ ,][^\]]*)?\]$",
    re.MULTILINE,
)
"""What stands in a message for what is not text."""
_LENGTH = re.compile(r"\[\d+ characters?\]")
"""What stands for a text that was not kept."""
_ON_THE_SERVER = ("web_search_options", "plugins", "mcp_servers", "container", "code_interpreter")
_OF_ANY_MODEL = ("temperature", "top_p", "seed", "max_tokens")
_NOT_AGAIN = frozenset({
    "stream", "stream_options", "tools", "functions", "n", "store", "background", "previous_response_id", "conversation",
    "user", "safety_identifier", "metadata", "end_user", "prompt_cache_key", "prompt_cache_retention", "betas",
})  # fmt: skip
"""Parameters that are not sent again: how the answer came, whom it was made for, and what the server keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """One request to a model, as far as it can be asked again."""

    dialect: Dialect
    base_url: str
    """Of the server that answered; empty where it was not recorded."""
    upstream: str = ""
    """The name, in the settings, of that server."""
    model: str = ""
    messages: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    """In the form of chat completions, without bullets of a playbook."""
    tools: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    """As the request declared them."""
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def question(self) -> str:
        """What the user said, all of it."""
        return "\n\n".join(string(each["content"]) for each in self.messages if each["role"] == "user")

    def of_model(self, model: str, base_url: str) -> "RecordedRequest":
        """The same for another model, that is asked in the dialect of chat completions."""
        definitions = [tool_definition(each) for each in self.tools]
        tools = tuple(
            {"type": "function", "function": {"name": d.name, "description": d.description, "parameters": dict(d.parameters)}}
            for d in definitions
            if d is not None
        )
        kept = {
            name: value for name, value in self.parameters.items() if name in ("temperature", "top_p", "seed", "max_tokens")
        }
        return replace(self, dialect=Dialect.CHAT, base_url=base_url, upstream="", model=model, tools=tools, parameters=kept)

    def body(self, text: str = "", place: Place = "system_end") -> bytes:
        """The request as its server takes it, with a text put in where live requests have it.

        Raises:
            ModelError: There is no such place in it.
        """
        body = json.dumps(self._written(), ensure_ascii=False).encode("utf-8", "backslashreplace")
        if not text:
            return body
        try:
            return RequestBody(body, self.dialect).edit(text, place).of(body)
        except UnreadableBody as error:
            raise ModelError(f"nothing can be put into a recorded request: {error}") from None

    def _written(self) -> dict[str, Any]:
        told = {"model": self.model, **self.parameters}
        if self.tools:
            told["functions" if "function_call" in self.parameters else "tools"] = list(self.tools)
        match self.dialect:
            case Dialect.MESSAGES:
                return {"max_tokens": 1024, **told, **_as_messages(self.messages)}
            case Dialect.RESPONSES:
                return {**told, **_as_response(self.messages), "store": False}
            case _:
                return {**told, "messages": list(self.messages)}


def request_of(trace: Trace, call: ModelCall) -> RecordedRequest:
    """What a call of a trace asked, to be asked again.

    Raises:
        NotAskable: It cannot be.
    """
    told = mapping(call.raw.get("request"))
    dialect = next((each for each in Dialect if each == call.raw.get("dialect")), Dialect.CHAT)
    tools = tuple(recorded_tools(call.raw) or recorded_tools(trace.raw))
    _check(call, told, tools)
    # A request that is recorded without any tool had none; of another recorder's nobody knows.
    hidden = "request" not in call.raw or told.get("tools") or told.get("functions")
    if not tools and hidden and any(step.parent == call.id for step in trace.tool_calls):
        raise NotAskable(NO_TOOLS)
    messages = _without_what_was_learned(_said(trace, call), call)
    if not any(message["role"] == "user" for message in messages):
        raise NotAskable("requests in which no user says anything")
    if "thinking" in told and any(message.get("tool_calls") for message in messages):
        raise NotAskable("requests with thoughts that only their provider can read")
    return RecordedRequest(
        dialect=dialect,
        base_url=string(call.raw.get("base_url")),
        upstream=string(call.raw.get("upstream")),
        model=call.model,
        messages=tuple(messages),
        tools=tools,
        parameters={name: value for name, value in told.items() if name not in _NOT_AGAIN},
    )


def _check(call: ModelCall, told: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> None:
    if call.raw.get("dialect") == Dialect.EMBEDDINGS:
        raise NotAskable("requests for embeddings")
    choice = told.get("tool_choice", told.get("function_call"))
    if isinstance(choice, Mapping):
        choice = choice.get("type") if choice.get("type") in ("auto", "none") else "forced"
    if choice not in (None, "auto", "none"):
        raise NotAskable("requests whose tool was forced by tool_choice")
    if any(told.get(name) for name in _ON_THE_SERVER) or not all(map(_runs_at_the_client, tools)):
        raise NotAskable("requests with tools that run on the server")


def _runs_at_the_client(tool: Mapping[str, Any]) -> bool:
    """Whether a tool is one that the client declares and runs. Others would be run by whoever is asked."""
    declared = mapping(tool.get("function")) or tool
    return tool.get("type") in (None, "function", "custom") and any(key in declared for key in ("parameters", "input_schema"))


def _said(trace: Trace, call: ModelCall) -> list[dict[str, Any]]:
    """The conversation up to a call."""
    losses = Losses()
    steps = with_messages(trace, losses)
    threads = [thread for thread in conversations(steps) if any(each.id == call.id for each in thread)]
    if not threads:
        raise NotAskable(NO_WORDS)
    messages: list[dict[str, Any]] = []
    for exchange in Transcript(steps, losses).exchanges(threads[0]):
        messages += exchange.heard
        if exchange.call.id == call.id:
            break
        if exchange.answer is not None:
            messages.append(exchange.answer)
    if losses.counts[UNASKED]:
        raise NotAskable("requests with answers of tools whose calls were not recorded")
    words = [string(message["content"]) for message in messages]
    if not any(words) or any(_LENGTH.fullmatch(each) for each in words):
        raise NotAskable(NO_WORDS)
    if any(_FILES.search(each) for each in words):
        raise NotAskable("requests with pictures, sounds or files")
    return messages


def _without_what_was_learned(messages: Sequence[dict[str, Any]], call: ModelCall) -> list[dict[str, Any]]:
    left, found = [], False
    for message in messages:
        content = string(message["content"])
        bare = without_bullets(content) if message["role"] in ("system", "user") else content
        if message["role"] == "system" and bare == content and content.startswith("reply\n- "):
            bare = without_bullets(content, terse=True)
        found = found or bare != content
        # A message that was put in for the bullets alone goes with them.
        if bare or not content:
            left.append({**message, "content": bare})
    if call.shown and not found:
        raise NotAskable("requests whose prompt had bullets in it that could not be found in the text")
    return left


def _as_messages(messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A conversation as Anthropic's API takes it."""
    system = "\n\n".join(string(each["content"]) for each in messages if each["role"] == "system")
    said: list[dict[str, Any]] = []

    def add(role: str, parts: list[dict[str, Any]]) -> None:
        if said and said[-1]["role"] == role:
            said[-1]["content"] += parts
        elif parts:
            said.append({"role": role, "content": parts})

    for message in messages:
        content, role = string(message["content"]), message["role"]
        text = [{"type": "text", "text": content}] if content else []
        if role == "tool":
            add("user", [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}])
        elif role == "assistant":
            add("assistant", text + [_tool_use(call) for call in message.get("tool_calls", ())])
        elif role != "system":
            add("user", text)
    return {"messages": said, **({"system": system} if system else {})}


def _tool_use(call: Mapping[str, Any]) -> dict[str, Any]:
    try:
        arguments = json.loads(call["function"]["arguments"] or "{}")
    except ValueError:
        arguments = {}
    return {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": mapping(arguments)}


def _as_response(messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A conversation as OpenAI's responses take it. What the client tells the model goes where its instructions were."""
    items: list[dict[str, Any]] = []
    told: list[str] = []
    for message in messages:
        content, role = string(message["content"]), message["role"]
        if role == "system":
            told.append(content)
        elif role == "tool":
            items.append({"type": "function_call_output", "call_id": message["tool_call_id"], "output": content})
        else:
            items += [{"role": role, "content": content}] if content else []
            for call in message.get("tool_calls", ()):
                does = call["function"]
                asked = {"call_id": call["id"], "name": does["name"], "arguments": does["arguments"] or "{}"}
                items.append({"type": "function_call", **asked})
    return {"input": items, **({"instructions": "\n\n".join(told)} if told else {})}


# What may be spent.


class CallBudget:
    """Calls that may still be made, and what they may cost: neither is exceeded, by however many calls at once."""

    def __init__(self, max_calls: int | None = None, max_cost: float | None = None) -> None:
        self.max_calls, self.max_cost = max_calls, max_cost
        self.calls = 0
        """That were made; one that failed is one too."""
        self.cost = 0.0
        """US dollars, as far as prices are known."""
        self.unpriced = 0
        """Calls whose price is not known."""
        self._reserved = 0.0
        """US dollars that calls under way may cost."""
        self._lost = 0.0
        """And that those may have cost of which nobody said it."""
        self._under_way = 0
        self._freed = asyncio.Event()

    @property
    def left(self) -> int | None:
        """Calls; `None` for any number."""
        return None if self.max_calls is None else max(0, self.max_calls - self.calls)

    def take(self, price: float | None) -> float:
        """One call, which will cost no more than that. What it takes of the budget until it is `paid`.

        Raises:
            ModelRefused: There is nothing left for it.
        """
        if self.max_calls is not None and self.calls >= self.max_calls:
            raise ModelRefused(f"all {self.max_calls} calls of --max-calls are used up")
        if self.max_cost is not None:
            if price is None:
                raise ModelRefused("--max-cost needs a model whose price is known; limit the calls with --max-calls instead")
            if self.cost + self._lost + self._reserved + price > self.max_cost:
                raise ModelRefused(f"another call might cost more than what is left of --max-cost {self.max_cost:g}")
        self.calls += 1
        self._under_way += 1
        self._reserved += price or 0.0
        return price or 0.0

    async def taken(self, price: float | None) -> float:
        """As `take`, once the calls that are under way leave room for it, where they may."""
        while self._waits(price):
            self._freed.clear()
            await self._freed.wait()
        return self.take(price)

    def _waits(self, price: float | None) -> bool:
        if self.max_cost is None or price is None or not self._under_way:
            return False
        known = self.cost + self._lost + price
        return known <= self.max_cost < known + self._reserved

    def paid(self, reserved: float, cost: float | None) -> None:
        """What a call came to. One of which nobody says it may have cost all that it could, and leaves no room for others."""
        self._reserved -= reserved
        self._under_way -= 1
        self._lost += reserved if cost is None else 0.0
        self.cost += cost or 0.0
        self.unpriced += cost is None
        self._freed.set()


# Who is asked.


class AskAgain(Protocol):
    """Asks a recorded request again. Raises `ModelError` where no answer came: that is unknown, and not wrong."""

    @property
    def name(self) -> str: ...

    @property
    def deterministic(self) -> bool: ...

    async def __call__(self, request: RecordedRequest, bullets: Sequence[Bullet]) -> Sequence[Step]:
        """The call of the model, and the tool calls that it asks for, which nobody runs."""

    async def close(self) -> None: ...


_MOST = 16 << 20
"""Bytes of an answer."""
_LONGEST = 4096
"""Tokens that an answer may have where costs are limited and the request does not say how many: what is not limited could cost
anything."""
_CAPS: Mapping[Dialect, tuple[str, ...]] = {
    Dialect.RESPONSES: ("max_output_tokens",),
    Dialect.MESSAGES: ("max_tokens",),
    Dialect.CHAT: ("max_completion_tokens", "max_tokens"),
}
"""What limits an answer. Another API's word for it limits nothing."""


@dataclass(kw_only=True)
class RecordedServer:
    """Asks the server that answered then, in the dialect of then. Implements `AskAgain`."""

    deterministic: ClassVar[bool] = False

    key: Callable[[RecordedRequest], str] = lambda _: ""
    """What a request's server is sent as the key; empty for none."""
    aim: Callable[[RecordedRequest], RecordedRequest] = lambda request: request
    """What is asked instead: another model, or another server."""
    name: str = "served"
    place: Place = "system_end"
    """Where what was learned is put."""
    budget: CallBudget = field(default_factory=CallBudget)
    concurrency: int = 8
    timeout: float = 300.0
    """Seconds for an answer."""
    patience: RetryPolicy = field(default_factory=lambda: RetryPolicy(retries=3))
    _servers: dict[tuple[str, str, Dialect], Connections] = field(default_factory=dict, init=False)
    _turns: asyncio.Semaphore | None = field(default=None, init=False)
    _rng: random.Random = field(default_factory=random.Random, init=False)

    async def __call__(self, request: RecordedRequest, bullets: Sequence[Bullet]) -> Sequence[Step]:
        request = self.aim(request)
        if not request.base_url:
            raise ModelRefused("it is not recorded who answered; name a model with --model")
        if self.budget.max_cost is not None:
            request = _capped(request)
        body = request.body(strategies(bullets), self.place)
        self._turns = self._turns or asyncio.Semaphore(self.concurrency)
        tries = 0
        while True:
            tries += 1
            try:
                async with self._turns:
                    return await self._asked(request, body, bullets)
            except ModelBusy as busy:
                wait = self.patience.wait(tries, busy.retry_after, self._rng)
                if wait is None:
                    raise
            await asyncio.sleep(wait)

    def most(self, request: RecordedRequest, bullets: Sequence[Bullet]) -> float | None:
        """US dollars that asking once may cost, with an answer as long as it may be; `None` where no price is known."""
        request = _capped(self.aim(request))
        return _price(request, len(request.body(strategies(bullets), self.place)), _cap(request) or _LONGEST)

    async def _asked(self, request: RecordedRequest, body: bytes, bullets: Sequence[Bullet]) -> Sequence[Step]:
        # No token is shorter than a byte.
        reserved = await self.budget.taken(_price(request, len(body), _cap(request) or _LONGEST))
        cost = None
        try:
            started, began = datetime.now(UTC), time.perf_counter()
            status, answer, later = await self._sent(request, body)
            if status >= 400:
                # Who says no writes no bill.
                cost = 0.0
                shown = self._without_key(request, answer.decode(errors="replace"))[:200]
                raise named(status, f"{request.model} at {request.base_url} answered {status}: {shown}", later)
            exchange = Exchange(
                id=f"{started.timestamp()}",
                dialect=request.dialect,
                request=body,
                response=answer,
                status=status,
                started_at=started,
                seconds=time.perf_counter() - began,
            )
            read = read_exchange(exchange)
            cost = _price(request, read.usage.input, read.usage.output, read.usage.cached)
            if read.error is not None:
                wrong = self._without_key(request, read.error)
                raise ModelError(f"{request.model} gave no answer that can be used: {wrong}")
            return _steps(request, read, bullets, cost=cost, seconds=exchange.seconds)
        finally:
            self.budget.paid(reserved, cost)

    def _without_key(self, request: RecordedRequest, said: str) -> str:
        """What a server says went wrong; some say with which key."""
        return said.replace(self.key(request) or "\0", "***")

    async def _sent(self, request: RecordedRequest, body: bytes) -> tuple[int, bytes, float | None]:
        """Status and body of an answer, and in how many seconds it may be asked again."""
        try:
            async with asyncio.timeout(self.timeout), self._server(request).asked("POST", "", body) as answer:
                return answer.status, await answer.read(_MOST), retry_after(answer.headers)
        except TimeoutError:
            raise ModelBusy(f"{request.base_url} did not answer within {self.timeout:g} s") from None
        except Unreachable as error:
            raise ModelBusy(f"{request.base_url} could not be reached ({error}): is the server running?") from None
        except Broken as error:
            # As a kept connection ends that the server closes in the moment when it is used again.
            raise ModelBusy(f"{request.base_url} hung up before its answer was whole ({error})") from None
        except TooLong:
            raise ModelError(f"{request.base_url} gave an answer that is too long to be read") from None

    def _server(self, request: RecordedRequest) -> Connections:
        key = self.key(request)
        at = (request.base_url, key, request.dialect)
        if at not in self._servers:
            headers = {"accept": "application/json"}
            if request.dialect is Dialect.MESSAGES:
                headers |= {"anthropic-version": "2023-06-01"} | ({"x-api-key": key} if key else {})
            elif key:
                headers["authorization"] = f"Bearer {key}"
            self._servers[at] = Connections(request.dialect.address(request.base_url), headers)
        return self._servers[at]

    async def close(self) -> None:
        for server in self._servers.values():
            await server.close()


def _cap(request: RecordedRequest) -> int | None:
    """How many tokens an answer may have, as the request says."""
    told = request.parameters
    return next((told[name] for name in _CAPS.get(request.dialect, ()) if isinstance(told.get(name), int)), None)


def _capped(request: RecordedRequest) -> RecordedRequest:
    """The request with an end to what its answer may cost."""
    if _cap(request) is not None:
        return request
    first, *older = _CAPS.get(request.dialect, ("max_tokens",))
    name = older[0] if older and not _is_openai(request.base_url) else first
    return replace(request, parameters={**request.parameters, name: _LONGEST})


def _is_openai(url: str) -> bool:
    return urlsplit(url).hostname in ("api.openai.com", None)


def _price(request: RecordedRequest, sent: int | None, written: int | None, cached: int | None = None) -> float | None:
    return pricing.cost(request.base_url, request.model, sent, written, cached)


def _steps(
    request: RecordedRequest, read: ParsedExchange, bullets: Sequence[Bullet], *, cost: float | None, seconds: float
) -> Sequence[Step]:
    call = ModelCall(
        model=read.model or request.model,
        prompt=request.question,
        reply=read.reply.text,
        input_tokens=read.usage.input,
        output_tokens=read.usage.output,
        cached_tokens=read.usage.cached,
        cost=cost,
        seconds=seconds,
        finish=read.finish,
        shown=tuple(bullet.id for bullet in bullets),
        id="call",
    )
    return (call, *_tool_calls(read.reply.calls))


def _tool_calls(asked: Sequence[ToolUse]) -> list[Step]:
    return [tool_call(each._replace(result=None), None, id=f"tool {at}", parent="call") for at, each in enumerate(asked)]


class NamedModel:
    """Asks a model that somebody names, in its own dialect. Implements `AskAgain`.

    A terse one is told rules and the user's words; any other one the words of the conversation. Either writes a call as JSON:
    `{"name": …, "arguments": {…}}`.
    """

    def __init__(self, model: Model, *, budget: CallBudget | None = None) -> None:
        self.model = model
        self.budget = budget or CallBudget()

    def most(self, request: RecordedRequest, bullets: Sequence[Bullet]) -> float | None:
        """US dollars that asking once may cost: nothing on this machine, and else nobody knows."""
        return 0.0 if self.model.deterministic else None

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def deterministic(self) -> bool:
        return self.model.deterministic

    async def __call__(self, request: RecordedRequest, bullets: Sequence[Bullet]) -> Sequence[Step]:
        told = ModelRequest(messages=self._prompt(request, bullets), temperature=request.parameters.get("temperature"))
        # One whose answers are always the same is on this machine, and costs nothing.
        reserved = self.budget.take(0.0 if self.model.deterministic else None)
        cost = 0.0 if self.model.deterministic else None
        try:
            reply = await self.model.complete(told)
            cost = cost if reply.cost is None else reply.cost
        finally:
            self.budget.paid(reserved, cost)
        call = ModelCall(
            model=reply.model,
            prompt=told.text,
            reply=reply.text,
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
            cost=reply.cost,
            seconds=reply.seconds,
            finish=reply.finish,
            shown=tuple(bullet.id for bullet in bullets),
            id="call",
        )
        return (call, *_tool_calls(_written_call(reply.text)))

    def _prompt(self, request: RecordedRequest, bullets: Sequence[Bullet]) -> tuple[PromptMessage, ...]:
        if self.model.dialect == "terse":
            rules = terse_rules([bullet.content for bullet in bullets])
            return (PromptMessage("system", rules), PromptMessage("user", request.question))
        system = [string(each["content"]) for each in request.messages if each["role"] == "system"]
        system += [strategies(bullets)] if bullets else []
        said = [PromptMessage(each["role"], string(each["content"])) for each in request.messages if each["role"] in _SPOKEN]
        return (*([PromptMessage("system", "\n\n".join(system))] if system else ()), *said)

    async def close(self) -> None:
        await self.model.close()


_SPOKEN = ("user", "assistant")


def _written_call(text: str) -> Sequence[ToolUse]:
    """The call that a reply is, where it is one."""
    try:
        told = json.loads(text)
    except ValueError:
        return ()
    if not isinstance(told, dict) or not isinstance(told.get("name"), str) or not isinstance(told.get("arguments"), dict):
        return ()
    return (ToolUse(told["name"], as_json(told["arguments"])),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayer:
    """An agent that answers recorded requests anew. Implements `attempt.Agent`."""

    ask: AskAgain
    requests: Mapping[str, RecordedRequest]
    """By the id of the task."""
    choose: Callable[[Task], Sequence[Bullet]] = lambda _: ()
    """Which bullets are shown for a task."""
    candidate_id: str = BASE

    async def run(self, task: Task) -> AsyncIterator[Step]:
        for step in await self.ask(self.requests[task.id], tuple(self.choose(task))):
            yield step


class WithinBudget(Around):
    """A model client that keeps to a budget: beyond it a call is refused, before it is made."""

    def __init__(self, model: Model, budget: CallBudget) -> None:
        super().__init__(model)
        self._budget = budget

    async def complete(self, request: ModelRequest) -> Reply:
        if self._budget.max_cost is not None and not self.model.deterministic:
            request = replace(request, max_tokens=request.max_tokens or _LONGEST)
        reserved = await self._budget.taken(self._most(request))
        cost = None
        try:
            reply = await self.model.complete(request)
            cost = reply.cost
        finally:
            self._budget.paid(reserved, 0.0 if self.model.deterministic else cost)
        return reply

    def _most(self, request: ModelRequest) -> float | None:
        """US dollars that a call may cost; a model of this machine costs nothing."""
        if self.model.deterministic:
            return 0.0
        rates = pricing.of(self.model.name)
        schema = "" if request.schema is None else json.dumps(request.schema)
        schema += "".join(json.dumps(asdict(offer)) for offer in request.tools)
        # No token is shorter than a byte, and what stands around a message has fewer than its name and place.
        sent = len(f"{request.text}{schema}".encode(errors="surrogatepass")) + _AROUND * (
            1 + len(request.messages) + len(request.tools)
        )
        return None if rates is None else rates.of(sent, request.max_tokens or _LONGEST)


def within(model: Model, budget: CallBudget) -> Model:
    """A model client that keeps to a budget, with all that a busy server is asked again: each time is a call."""
    if isinstance(model, Limited):
        model.model = WithinBudget(model.model, budget)
        return model
    return WithinBudget(model, budget)


_AROUND = 16
"""Tokens at most that a server puts around a message."""
