"""Any server that speaks OpenAI's chat completions: OpenAI itself, Ollama, vLLM, llama.cpp, and most others."""

import asyncio
import ipaddress
import json
import logging
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from urllib.parse import urlsplit

import openai
from pydantic import TypeAdapter, ValidationError

from journeyman.core.errors import ModelBusy, ModelError, ModelRefused
from journeyman.core.messages import ToolUse, arguments_text
from journeyman.core.trace import OWN_AGENT
from journeyman.io.retry import retry_after
from journeyman.models import HOME, KEY, checked_address, pricing
from journeyman.models.base import Dialect, ModelRequest, PromptMessage, Reply, ToolOffer, ToolsRefused, named

# What a chat-completions server answers, read into values. Servers differ in what they leave out, so little is required.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    type: str = ""
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Function:
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _ToolCall:
    id: str | None = None
    function: _Function | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    content: str | list[_Part] | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None
    function_call: dict[str, Any] | None = None

    @property
    def calls(self) -> tuple[ToolUse, ...]:
        """The tools that it asks for. Some servers give no ids, and some parse the arguments."""
        found = [(call.id or f"call_{at}", call.function or _Function()) for at, call in enumerate(self.tool_calls or ())]
        return tuple(ToolUse(each.name or "", arguments_text(each.arguments or "{}"), id) for id, each in found)

    @property
    def text(self) -> str:
        """What is meant for the reader: reasoning parts are left out, and a refusal is an answer too."""
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content if part.type == "text")
        return self.content or self.refusal or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    message: _Message = field(default_factory=_Message)
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Details:
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Usage:
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Completion:
    choices: list[_Choice] | None = None
    model: str | None = None
    usage: _Usage | None = None
    error: Any = None


_BODY = TypeAdapter(dict[str, Any])
_COMPLETION = TypeAdapter(_Completion)


def read(body: str, *, asked: str, seconds: float) -> Reply:
    """The reply in a server's answer of status 200. `asked` names the model for messages, and for a server that does not.

    Raises `ModelError` for text that is no completion, or one with nothing in it. The cost is left to the caller.
    """
    try:
        raw = _BODY.validate_json(body)
        completion = _COMPLETION.validate_python(raw)
    except ValidationError as error:
        what = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in what["loc"])
        problem = f"{where}: {what['msg']}" if where else what["msg"]
        raise ModelError(
            f"{asked} answered with something that is no chat completion ({problem}): {body[:80]!r}; "
            "check that the base URL is that of a chat-completions server"
        ) from None
    if completion.error:
        raise failure(completion.error, asked)
    choice = _first(completion, asked)
    usage = completion.usage or _Usage()
    return Reply(
        text=choice.message.text,
        calls=choice.message.calls,
        model=completion.model or asked,
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cached_tokens=usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None,
        seconds=seconds,
        finish=choice.finish_reason,
        raw=raw,
    )


def failure(error: object, asked: str) -> ModelError:
    """The error that a gateway puts into an answer of status 200."""
    found = error if isinstance(error, Mapping) else {"message": error}
    message = f"{asked} answered with an error: {str(found.get('message'))[:300]}"
    code = str(found.get("code") or found.get("status") or "")
    if code.isdigit():
        return named(int(code), message)
    return ModelError(message)


def _first(completion: _Completion, asked: str) -> _Choice:
    choice = next(iter(completion.choices or []), None)
    if choice is None:
        raise ModelError(f"{asked} answered without any choice in it")
    message = choice.message
    if message.text or message.tool_calls or message.function_call:
        return choice
    if choice.finish_reason == "length":
        raise ModelError(f"{asked} used up its tokens before it said anything: raise max_tokens, or leave it out")
    raise ModelError(f"{asked} gave an empty answer (finish reason {choice.finish_reason!r})")


log = logging.getLogger(__name__)

_QUOTED = 6
"""From so many of its first characters on, a quotation of the key is blotted out."""
_CAPS = ("max_completion_tokens", "max_tokens")
"""Two names for one thing. OpenAI's newest models refuse the second, many servers do not know the first."""


class OpenAI:
    """One model on one server.

    What a model does not take (a JSON schema, a temperature, a seed, a system message) is left out after its first refusal,
    and this is remembered. `max_retries` are the client's own, for calls that may succeed later; each waits as long as the
    server asked for in Retry-After, up to two minutes.
    """

    kind: ClassVar[str] = "openai"
    dialect: Dialect = "full"
    deterministic = False

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        key_env: str = KEY,
        timeout: float = 60.0,
        max_retries: int = 2,
    ) -> None:
        self.model = model
        self.base_url = checked_address(base_url or os.environ.get("OPENAI_BASE_URL") or HOME).rstrip("/")
        self.timeout = timeout
        """Seconds in which the server must send something."""
        self.max_retries = max_retries
        self._key_env = key_env or (KEY if self.base_url == HOME else "")
        """The variable that holds the key; empty when the server is to have none."""
        self._key = (os.environ.get(self._key_env, "") if api_key is None else api_key).strip()
        self._without: frozenset[str] = frozenset()
        """What this model was found not to take."""
        self._sdk: openai.AsyncOpenAI | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        if api_key is None and not self._key and not _is_local(self.base_url):
            raise ModelRefused(f"{self.name} needs a key: {self._mend}")

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.model}" + ("" if self.base_url == self._home else f"@{_shown(self.base_url)}")

    @property
    def tools(self) -> bool:
        """Whether it takes tools, as far as it was asked."""
        return "tools" not in self._without

    @property
    def _home(self) -> str:
        return HOME

    @property
    def _mend(self) -> str:
        if not self._key_env:
            return 'say which it gets, with key_env = "NAME OF A VARIABLE" beside its base_url in journeyman.toml'
        return f"set {self._key_env}, or name a server of your own after an @"

    async def complete(self, request: ModelRequest) -> Reply:
        started = time.perf_counter()
        try:
            body = await self._negotiate(request)
            reply = read(body, asked=self.name, seconds=time.perf_counter() - started)
        except openai.APIStatusError as error:
            raise self._named(error) from None
        except openai.APITimeoutError:
            raise ModelBusy(f"{self.name} did not answer within {self.timeout:g} s") from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            why = self._clean(str(cause) or type(cause).__name__)
            raise ModelBusy(f"{self.name} could not be reached, or hung up ({why}): is the server running?") from None
        except ModelError as error:
            error.args = (self._clean(str(error)),)
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: a library's own error must not get out
            raise ModelError(self._clean(f"{self.name}: {type(error).__name__}: {error}")) from None
        return replace(reply, cost=self._cost(reply))

    async def close(self) -> None:
        if self._sdk is not None and self._loop is asyncio.get_running_loop():
            await self._sdk.close()
        self._sdk = None

    async def _negotiate(self, request: ModelRequest) -> str:
        """The answer's text. What the model says it does not take is left out, a thing at a time."""
        without = self._without
        lasting = set(without)
        while True:
            call = _call(self.model, request, without, _CAPS if self.base_url == HOME else _CAPS[::-1])
            try:
                answer = await self._client().chat.completions.with_raw_response.create(**call)
            except openai.APIStatusError as error:
                culprit = _objection(error, call)
                if culprit is None or len(without) > 4:
                    raise
                without |= {culprit}
                if error.code != "json_validate_failed":
                    # That one is a reply that went wrong on the way and not a server that knows no schemas.
                    lasting.add(culprit)
                if culprit == "tools":
                    # A conversation with tools makes no sense without them: whoever asked must ask otherwise.
                    self._without |= lasting
                    raise ToolsRefused(f"{self.name} takes no tools: {self._clean(error.message)}") from None
                log.info("%s does not take %s (%s): going on without", self.name, culprit, self._clean(error.message))
            else:
                self._without |= lasting
                return str(answer.text)

    def _client(self) -> openai.AsyncOpenAI:
        """That of the running loop: open connections belong to the loop in which they were made."""
        loop = asyncio.get_running_loop()
        if self._sdk is None or loop is not self._loop:
            self._loop = loop
            # Where this is a gateway's address, what is asked here is not the work of the agents behind it.
            own = {} if self.base_url == HOME else {"X-Journeyman-Agent": OWN_AGENT, "X-Journeyman-Releases": "off"}
            self._sdk = openai.AsyncOpenAI(
                api_key=self._key or "none",
                base_url=self.base_url,
                timeout=self.timeout,
                max_retries=self.max_retries,
                default_headers=own,
            )
        return self._sdk

    def _cost(self, reply: Reply) -> float | None:
        provider = "openai" if self.base_url == HOME else self.base_url
        for model in (reply.model, self.model):
            cost = pricing.cost(provider, model, reply.input_tokens, reply.output_tokens, reply.cached_tokens)
            if cost is not None:
                return cost
        return None

    def _named(self, error: openai.APIStatusError) -> ModelError:
        status = error.status_code
        if status == 401:
            # The server's own words are not repeated: they often quote the key.
            return ModelRefused(
                f"{self.name} refused the key (401): set {self._key_env or 'key_env'} to one that is valid there"
            )
        said = self._clean(_words(error))
        if error.code == "insufficient_quota":
            return ModelRefused(f"{self.name}: the account has no credit left ({said})")
        if status == 404:
            return ModelRefused(f"{self.name} is not there (404): {said}")
        return named(status, f"{self.name} answered {status}: {said}", retry_after(error.response.headers))

    def _clean(self, text: str) -> str:
        """Without the key, also where a server quotes half of it. Short keys are placeholders, and may be ordinary words."""
        if len(self._key) >= 8:
            text = text.replace(self._key, "***")
            text = re.sub(rf"{re.escape(self._key[:_QUOTED])}[^\s\"'`,;)}}\]>]*", "***", text)
        return re.sub(r"\b(sk|gsk|pk)-[\w*.-]+|(?<=Bearer )\S+", "***", text)


class Ollama(OpenAI):
    """A model that Ollama serves on this machine. It has no key, and is not sent one that was meant for somebody else."""

    kind = "ollama"

    def __init__(self, model: str, *, base_url: str | None = None, timeout: float = 300.0, max_retries: int = 2) -> None:
        super().__init__(model, base_url=base_url or self._home, api_key="", timeout=timeout, max_retries=max_retries)

    @property
    def _home(self) -> str:
        return "http://localhost:11434/v1"


def _call(model: str, request: ModelRequest, without: frozenset[str], caps: tuple[str, ...]) -> dict[str, Any]:
    """The body of the call."""
    lead = "user" if "system" in without else "system"
    messages = [_sent(message, lead) for message in request.messages]
    call: dict[str, Any] = {"temperature": request.temperature, "seed": request.seed}
    call |= {cap: request.max_tokens for cap in [cap for cap in caps if cap not in without][:1]}
    if request.schema is not None:
        schema = {"name": "reply", "schema": dict(request.schema), "strict": _is_closed(request.schema)}
        call["response_format"] = {"type": "json_schema", "json_schema": schema}
    if request.tools:
        call["tools"] = [_offered(offer) for offer in request.tools]
    wanted = {key: value for key, value in call.items() if value is not None and key not in without}
    return {"model": model, "messages": messages, **wanted}


def _sent(message: PromptMessage, lead: str) -> dict[str, Any]:
    told: dict[str, Any] = {"role": lead if message.role == "system" else message.role, "content": message.content}
    if message.calls:
        told["content"] = message.content or None
        told["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}}
            for call in message.calls
        ]
    return told | ({"tool_call_id": message.call_id} if message.role == "tool" else {})


def _offered(offer: ToolOffer) -> dict[str, Any]:
    function = {"name": offer.name, "description": offer.description, "parameters": dict(offer.parameters)}
    return {"type": "function", "function": function}


def _objection(error: openai.APIStatusError, call: Mapping[str, Any]) -> str | None:
    """Which part of the call the server does not take, if it can do without it."""
    said = json.dumps(error.body, default=str).lower() if error.body else error.message.lower()
    if error.status_code not in {400, 422}:
        return "tools" if "tools" in call and _NO_TOOLS.get(error.status_code, _NEVER).search(said) else None
    if re.search(r"support|unrecogni|unknown|unexpected|extra|not permitted|not allowed|deprecated", said):
        for key in ("response_format", "temperature", "seed", *_CAPS):
            if key in call and re.search(rf"\b{key}\b", said):
                return key
        if re.search(r"role.*\bsystem\b", said) and any(m["role"] == "system" for m in call["messages"]):
            return "system"
    if "tools" in call and _NO_TOOLS[400].search(said):
        return "tools"
    # A server that knows no schemas seldom says so in words one could foresee: the next answer will tell.
    return "response_format" if "response_format" in call else None


_NEVER = re.compile(r"(?!)")
_NO_TOOLS: Mapping[int, re.Pattern[str]] = {
    400: re.compile(
        r"\btools?\b.*\b(support|requires|not permitted|not allowed|unrecogni|unknown|extra)"
        r"|\b(support|unrecogni|unknown|extra).*\b(tools?|functions?)\b"
    ),
    404: re.compile(r"support tool"),
    500: re.compile(r"tools param requires"),
}
"""What servers say that take no tools, by status: Ollama "… does not support tools", vLLM "auto tool choice requires …" (400);
OpenRouter "No endpoints found that support tool use" (404); llama.cpp "tools param requires --jinja flag" (500). A tool call
that a model wrote wrongly is something else ("error parsing tool call: … unexpected end", 500)."""


def _is_closed(schema: object) -> bool:
    """Whether each object in it requires all of its properties and allows no others, as OpenAI's strict mode wants."""
    if isinstance(schema, Mapping):
        if schema.get("type") == "object":
            properties = schema.get("properties", {})
            if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(properties):
                return False
        return all(_is_closed(part) for part in schema.values())
    return all(_is_closed(part) for part in schema) if isinstance(schema, list | tuple) else True


def _words(error: openai.APIStatusError) -> str:
    """What the server said, without the library's frame around it."""
    said = error.body.get("message") if isinstance(error.body, Mapping) else None
    return (said if isinstance(said, str) else error.message)[:300]


def _shown(url: str) -> str:
    """The URL without the name and password that may stand in it."""
    return re.sub(r"(?<=//)[^/@]*@", "", url)


def _is_local(url: str) -> bool:
    """Whether the server stands on this machine or in this house, where keys are not usual."""
    host = urlsplit(url).hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".localhost"))
    return address.is_private or address.is_loopback
