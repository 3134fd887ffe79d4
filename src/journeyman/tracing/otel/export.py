"""Traces for other systems' collectors: spans by OTLP over HTTP, in the words of OpenInference, of OpenTelemetry's GenAI
conventions, or of both, which one span can speak at once.

    body = request(spans_of(trace, losses), resource)       an ExportTraceServiceRequest
    rejected, why = await OtlpExporter(url, headers).send(body)

Ids are made of the trace's own, so that what is sent twice is the same span twice. Formats, beside those that `conventions`
names: https://opentelemetry.io/docs/specs/otlp/#otlphttp-response
"""

import asyncio
import gzip
import hashlib
import json
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import unquote, urlsplit

from journeyman.core.errors import InputError, JourneymanError
from journeyman.core.trace import AgentCall, ModelCall, Reasoning, Step, ToolCall, Trace, children
from journeyman.io.http_client import Broken, Connections, TooLong, Unreachable
from journeyman.io.retry import RetryPolicy, retry_after
from journeyman.tracing.base import NO_TIME
from journeyman.tracing.fields import parsed_if_json
from journeyman.tracing.importers.finetuning import Losses, Transcript, conversations, with_messages
from journeyman.tracing.otel.wire import (
    PROTOBUF,
    DecodeError,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
    fill_spans,
    key_values,
)
from journeyman.tracing.redaction import Redactor

Convention = Literal["both", "openinference", "genai"]
CONVENTIONS: tuple[Convention, ...] = get_args(Convention)
_PATH = "/v1/traces"
_SCOPE = "journeyman"
_HELD_OUT = "attempts at held-out tasks, from which nobody may learn: left out"
_OK, _ERROR = 1, 2
_AGAIN = frozenset({429, 502, 503, 504})
"""Statuses after which a request is sent again, as OTLP says."""
_SECONDS = 60.0
_LONGEST = 2**20
_MICROSECOND = 1000

Attributes = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What a call of a model was sent and answered, whole, in OpenAI's shape."""

    sent: tuple[Mapping[str, Any], ...]
    answer: Mapping[str, Any] | None
    thoughts: tuple[str, ...] = ()


class _Clock:
    """Times of spans in nanoseconds. A step without a time begins just after the one before, so that the order stays."""

    def __init__(self, began: datetime) -> None:
        self.last = self.latest = _nanoseconds(began)

    def of(self, step: Step) -> tuple[int, int]:
        """When it began and ended; a length that is not known is none."""
        known = None if step.started_at is None else _nanoseconds(step.started_at)
        begin = self.last + _MICROSECOND if known is None else known
        end = begin + round((step.seconds or 0.0) * 1e9)
        self.last, self.latest = max(self.last, begin), max(self.latest, end)
        return begin, end


def _nanoseconds(at: datetime) -> int:
    return max(0, (at - NO_TIME) // timedelta(microseconds=1) * _MICROSECOND)


def spans_of(trace: Trace, losses: Losses, convention: Convention = "both") -> list[dict[str, Any]]:
    """The spans of a trace, as OTLP spells them in JSON; none of an attempt at a held-out task."""
    if trace.held_out:
        losses.add(_HELD_OUT)
        return []
    if trace.started_at == NO_TIME:
        losses.add("traces whose time is not known: they stand at 1970")
    steps = tuple(with_messages(trace, Losses())) if trace.calls else trace.steps
    return list(_Writer(replace(trace, steps=steps), losses, convention).spans())


class _Writer:
    """Writes one trace."""

    def __init__(self, trace: Trace, losses: Losses, convention: Convention) -> None:
        self._trace, self._losses, self._convention = trace, losses, convention
        self._steps = trace.steps
        self._said = _exchanges(trace.steps)
        self._by_id = {step.id: step for step in trace.steps if step.id}
        self._numbers = {id(step): number for number, step in enumerate(trace.steps)}
        tops = [step for step in children(trace.steps).get(None, ()) if not isinstance(step, Reasoning)]
        self._top = tops[0] if len(tops) == 1 and isinstance(tops[0], AgentCall) else None
        """The step that is the whole, where one is: else a span of our own stands above all."""
        self._id = trace.id if re.fullmatch(r"(?!0{32})[0-9a-f]{32}", trace.id) else _digest(trace.id, 16)

    def spans(self) -> Iterator[dict[str, Any]]:
        trace, clock = self._trace, _Clock(self._trace.started_at)
        below = [self._span(step, *clock.of(step)) for step in self._steps if not isinstance(step, Reasoning)]
        alone = sum(isinstance(step, Reasoning) and step.parent not in self._by_id for step in self._steps)
        self._losses.add("thoughts that belong to no call of a model", alone)
        if self._top is None:
            end = clock.latest if trace.ended_at is None else _nanoseconds(trace.ended_at)
            name = trace.agent or trace.task_id
            about = self._agent(name, trace.query, trace.reply) | self._whole()
            yield self._made(name, "", about, (_nanoseconds(trace.started_at), end), trace.error)
        yield from below

    def _span(self, step: Step, begin: int, end: int) -> dict[str, Any]:
        match step:
            case ModelCall():
                name, about, error = f"chat {step.model}".strip(), self._call(step), step.error
            case ToolCall():
                name, about = f"execute_tool {step.tool}", self._tool(step)
                error = None if step.ok else step.error or "the tool failed"
            case AgentCall():
                name, about, error = step.agent, self._agent(step.agent, step.input, step.output), step.error
            case Reasoning():  # pragma: no cover - it stands in the span of its call
                raise AssertionError
        if step is self._top:
            about |= self._whole()
            error = error or self._trace.error
        return self._made(name, self._key(step), about, (begin, end), error, self._above(step))

    def _made(
        self, name: str, key: str, about: Attributes, times: tuple[int, int], error: str | None, above: str = ""
    ) -> dict[str, Any]:
        status = {"code": _OK} if error is None else {"code": _ERROR, "message": error}
        return {
            "traceId": self._id,
            "spanId": self._span_id(key),
            "parentSpanId": above,
            "name": name,
            "kind": 1,
            "startTimeUnixNano": times[0],
            "endTimeUnixNano": max(times),
            "attributes": key_values({name: value for name, value in about.items() if value is not None}),
            "status": status,
        }

    def _key(self, step: Step) -> str:
        return f"{self._numbers[id(step)]} {step.id}"

    def _span_id(self, key: str) -> str:
        return _digest(f"{self._trace.id}/{key}", 8)

    def _above(self, step: Step) -> str:
        """The span that it stands below: of what a model asked for, the one that the model's call stands below."""
        if step is self._top:
            return ""
        above, seen = step.parent, {step.id}
        while above in self._by_id and above not in seen:
            parent = self._by_id[above]
            if isinstance(parent, ToolCall | AgentCall):
                return self._span_id(self._key(parent))
            seen.add(above)
            above = parent.parent
        return self._span_id("" if self._top is None else self._key(self._top))

    # What is said of each kind.

    def _both(self, openinference: Attributes, genai: Attributes) -> Attributes:
        kept = {"openinference": {**openinference, "session.id": self._trace.session}}
        kept["genai"] = {**genai, "gen_ai.conversation.id": self._trace.session}
        return {**kept["openinference"], **kept["genai"]} if self._convention == "both" else kept[self._convention]

    def _whole(self) -> Attributes:
        """What is known of the whole, under our own names, which `read` knows: no convention has a word for it."""
        trace = self._trace
        about: Attributes = {"trace": trace.id, "task": trace.task_id, "candidate": trace.candidate_id, "domain": trace.domain}
        about |= {"good": trace.verdict.good}
        about |= {f"reward.{each.name}": each.value for each in trace.rewards}
        return {f"journeyman.{name}": value for name, value in about.items()}

    def _agent(self, name: str, into: str, out: str) -> Attributes:
        return self._both(
            {"openinference.span.kind": "AGENT", "agent.name": name, **_value("input", into), **_value("output", out)},
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": name,
                "gen_ai.input.messages": _json([{"role": "user", "parts": _text(into)}]) if into else None,
                "gen_ai.output.messages": _json([{"role": "assistant", "parts": _text(out)}]) if out else None,
            },
        )

    def _tool(self, step: ToolCall) -> Attributes:
        result = step.result or step.error or ""
        return self._both(
            {
                "openinference.span.kind": "TOOL",
                "tool.name": step.tool,
                "tool_call.id": step.id or None,
                **_value("input", step.arguments),
                **_value("output", result),
            },
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": step.tool,
                "gen_ai.tool.call.id": step.id or None,
                "gen_ai.tool.call.arguments": step.arguments,
                "gen_ai.tool.call.result": result,
            },
        )

    def _call(self, step: ModelCall) -> Attributes:
        said = self._said[id(step)]
        total = None if step.input_tokens is None or step.output_tokens is None else step.input_tokens + step.output_tokens
        openinference = {
            "openinference.span.kind": "LLM",
            "llm.model_name": step.model or None,
            "llm.token_count.prompt": step.input_tokens,
            "llm.token_count.completion": step.output_tokens,
            "llm.token_count.total": total,
            "llm.token_count.prompt_details.cache_read": step.cached_tokens,
            "llm.cost.total": step.cost,
            "llm.finish_reason": step.finish,
            **_value("input", str(said.sent[-1]["content"]) if said.sent else ""),
            **_value("output", step.reply),
            **_flat("llm.input_messages", said.sent),
            **_flat("llm.output_messages", [] if said.answer is None else [said.answer]),
        }
        answered = {} if step.finish is None else {"finish_reason": step.finish}
        genai = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": step.model or None,
            "gen_ai.response.model": step.model or None,
            "gen_ai.response.id": step.response_id,
            "gen_ai.response.finish_reasons": None if step.finish is None else [step.finish],
            "gen_ai.response.time_to_first_chunk": step.first_token_seconds,
            "gen_ai.usage.input_tokens": step.input_tokens,
            "gen_ai.usage.output_tokens": step.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": step.cached_tokens,
            "gen_ai.usage.cost": step.cost,
            "gen_ai.input.messages": _json([_parts(message) for message in said.sent]),
            "gen_ai.output.messages": None
            if said.answer is None and not said.thoughts
            else _json([{**_parts(said.answer or {"role": "assistant"}, said.thoughts), **answered}]),
        }
        return self._both(openinference, genai)


def _exchanges(steps: Sequence[Step]) -> Mapping[int, _Said]:
    """What each call was sent, whole, and what it answered, by its identity."""
    thoughts: dict[str, list[str]] = {}
    for step in steps:
        if isinstance(step, Reasoning) and step.parent:
            thoughts.setdefault(step.parent, []).append(step.text)
    found: dict[int, _Said] = {}
    for thread in conversations(steps):
        sent: list[Mapping[str, Any]] = []
        for exchange in Transcript(steps, Losses()).exchanges(thread):
            sent += exchange.heard
            call = exchange.call
            # A conversation that was taken up twice has its beginning in both.
            found.setdefault(
                id(call), _Said(sent=tuple(sent), answer=exchange.answer, thoughts=tuple(thoughts.get(call.id, ())))
            )
            sent += [] if exchange.answer is None else [exchange.answer]
    return found


def _value(name: str, text: str) -> Attributes:
    if not text:
        return {}
    kind = "text/plain" if isinstance(parsed_if_json(text), str) else "application/json"
    return {f"{name}.value": text, f"{name}.mime_type": kind}


def _flat(prefix: str, messages: Sequence[Mapping[str, Any]]) -> Attributes:
    """Messages as OpenInference numbers them."""
    about: Attributes = {}
    for number, message in enumerate(messages):
        at = f"{prefix}.{number}.message"
        about[f"{at}.role"], about[f"{at}.content"] = message["role"], message.get("content") or None
        about[f"{at}.tool_call_id"] = message.get("tool_call_id")
        for index, call in enumerate(message.get("tool_calls", ())):
            asked = f"{at}.tool_calls.{index}.tool_call"
            about[f"{asked}.id"] = call["id"]
            about[f"{asked}.function.name"] = call["function"]["name"]
            about[f"{asked}.function.arguments"] = call["function"]["arguments"]
    return about


def _parts(message: Mapping[str, Any], thoughts: Sequence[str] = ()) -> dict[str, Any]:
    """A message as the GenAI conventions have it."""
    content = message.get("content") or ""
    if message["role"] == "tool":
        part = {"type": "tool_call_response", "id": message.get("tool_call_id"), "response": content}
        return {"role": "tool", "parts": [part]}
    parts: list[dict[str, Any]] = [{"type": "reasoning", "content": thought} for thought in thoughts]
    parts += _text(content)
    for call in message.get("tool_calls", ()):
        does = call["function"]
        arguments = parsed_if_json(does["arguments"])
        parts.append({"type": "tool_call", "id": call["id"], "name": does["name"], "arguments": arguments})
    return {"role": message["role"], "parts": parts}


def _text(content: str) -> list[dict[str, Any]]:
    return [{"type": "text", "content": content}] if content else []


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _digest(text: str, size: int) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:size].hex()


def request(spans: Iterable[Mapping[str, Any]], resource: Mapping[str, Any]) -> bytes:
    """An ExportTraceServiceRequest of spans that share what was instrumented."""
    made = ExportTraceServiceRequest()
    scopes = [{"scope": {"name": _SCOPE}, "spans": list(spans)}]
    fill_spans(
        made.resource_spans,
        {"resourceSpans": [{"resource": {"attributes": key_values(resource)}, "scopeSpans": scopes}]},
    )
    return bytes(made.SerializeToString(deterministic=True))


# Sending it.


class ExportRefused(JourneymanError):
    """The collector took no spans, or could not be asked."""


def endpoint(url: str) -> str:
    """Where spans go: the URL itself where it names a path of that kind, else OTLP's path below it.

    Raises:
        InputError: It is no address of a server, or holds a password.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"--otlp {url.rpartition('@')[2]!r} is no address: write it as http://localhost:6006")
    if parts.username or parts.password:
        raise InputError("--otlp holds a user or a password: leave it out, and put it into OTEL_EXPORTER_OTLP_HEADERS")
    return url.rstrip("/") if parts.path.rstrip("/").endswith("/traces") else url.rstrip("/") + _PATH


def listed(text: str, variable: str) -> dict[str, str]:
    """`name=value,other=value`, percent-encoded, as OpenTelemetry's variables have it. Values are in no complaint.

    Raises:
        InputError: A part of it has no name.
    """
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise InputError(f"{variable} must be name=value,name=value: a part of it has no name or no value")
        found[unquote(name.strip())] = unquote(value.strip())
    return found


class OtlpExporter:
    """Sends requests to one collector, and again where it is busy. Belongs to one event loop."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        policy: RetryPolicy | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """
        Args:
            url: As `endpoint` gives it.
            headers: What the collector asks for, keys above all.
        """
        self.url = url
        self._policy, self._chance = policy or RetryPolicy(), chance or random.Random()
        said = {"content-type": PROTOBUF, "content-encoding": "gzip", "user-agent": "journeyman"}
        self._connections = Connections(url, {**said, **{name.lower(): value for name, value in (headers or {}).items()}})
        self._answered = False

    async def send(self, body: bytes) -> tuple[int, str]:
        """How many spans were rejected of a request, and why.

        Raises:
            ExportRefused: It was not taken.
        """
        packed = gzip.compress(body, mtime=0)
        for tries in range(1, self._policy.retries + 2):
            asked: float | None = None
            try:
                status, headers, answer = await self._asked(packed)
            except (Broken, Unreachable, TooLong, TimeoutError) as error:
                why = f"{str(error) or 'no answer in time'}"
                if not self._answered:
                    raise ExportRefused(f"nothing takes spans at {self.url}: {why}; check the address") from None
            else:
                self._answered = True
                if status < 300:
                    return _rejected(answer)
                why = f"status {status}: {_words(answer)}"
                if status not in _AGAIN:
                    raise ExportRefused(f"{self.url} took no spans ({why}); check the address and its keys")
                asked = retry_after(headers)
            wait = self._policy.wait(tries, asked, self._chance)
            if wait is None:
                break
            await asyncio.sleep(wait)
        raise ExportRefused(f"{self.url} could not take more spans ({why}); the same command later goes on from here")

    async def _asked(self, packed: bytes) -> tuple[int, Mapping[str, str], bytes]:
        async with asyncio.timeout(_SECONDS), self._connections.asked("POST", "", packed) as answer:
            return answer.status, answer.headers, await answer.read(_LONGEST)

    async def close(self) -> None:
        await self._connections.close()


def _rejected(answer: bytes) -> tuple[int, str]:
    """What a response of status 200 says of spans that were not kept."""
    response = ExportTraceServiceResponse()
    try:
        response.ParseFromString(answer)
    except DecodeError:
        # Some answer in JSON whatever they were asked in.
        partial = parsed_if_json(answer.decode(errors="replace"))
        told = partial.get("partialSuccess") if isinstance(partial, Mapping) else None
        said = told if isinstance(told, Mapping) else {}
        count = str(said.get("rejectedSpans", 0))
        return int(count) if count.isdigit() else 0, str(said.get("errorMessage", ""))
    return response.partial_success.rejected_spans, response.partial_success.error_message


def _words(answer: bytes) -> str:
    """What can be read of an answer."""
    return " ".join(re.findall(r"[\x20-\x7e]{3,}", answer.decode("utf-8", "replace")))[:200].strip() or "no words"


class SentLedger:
    """Which traces a collector has taken, and as what: a file to which a line is added for each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, str] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                digest, _, id = line.partition(" ")
                self._known[id] = digest

    def __contains__(self, sent: tuple[str, str]) -> bool:
        """A trace's id, and the digest of what would be sent."""
        return self._known.get(json.dumps(sent[0])) == sent[1]

    def add(self, taken: Iterable[tuple[str, str]]) -> None:
        """The collector has them."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = {json.dumps(id): digest for id, digest in taken}
        self._known |= lines
        with self._path.open("a", encoding="utf-8") as file:
            file.write("".join(f"{digest} {id}\n" for id, digest in lines.items()))


_SPANS, _BYTES = 200, 2**20
"""In one request, about."""


class TraceShipment:
    """Sends many traces to one collector, in requests of some size; what was taken is remembered, and not sent again."""

    def __init__(
        self,
        url: str,
        *,
        folder: Path,
        redactor: Redactor,
        convention: Convention = "both",
        again: bool = False,
        dry_run: bool = False,
    ) -> None:
        """
        Args:
            url: As `endpoint` gives it.
            folder: Where it stands what each collector has taken.
            redactor: Takes secrets out of what goes.
            again: Send what was taken before, too.
        """
        self.url = url
        self._redactor, self._convention, self._again, self._dry_run = redactor, convention, again, dry_run
        self._ledger = SentLedger(folder / f"{urlsplit(url).hostname}-{_digest(url, 4)}.sent")
        self._headers: dict[str, str] = {}
        for variable in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
            self._headers |= listed(os.environ.get(variable, ""), variable)
        self._resource = listed(os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""), "OTEL_RESOURCE_ATTRIBUTES")
        self._losses = Losses()
        self._traces = self._spans = self._skipped = self._rejected = 0
        self._reason = ""

    def send(self, traces: Iterable[Trace], done: Callable[[int], None] = lambda _: None) -> None:
        """
        Args:
            done: Told of every so many traces.

        Raises:
            ExportRefused: The collector took no more. What it took before is remembered.
        """
        asyncio.run(self._send(traces, done))

    def summary(self) -> dict[str, Any]:
        """What was sent so far, for people and for JSON."""
        return {
            "url": self.url, "traces": self._traces, "spans": self._spans, "skipped": self._skipped,
            "rejected": self._rejected, "reason": self._reason, "losses": list(self._losses),
        }  # fmt: skip

    async def _send(self, traces: Iterable[Trace], done: Callable[[int], None]) -> None:
        exporter = OtlpExporter(self.url, self._headers)
        bodies: list[bytes] = []
        taken: list[tuple[str, str]] = []
        spans = size = 0
        try:
            for trace in traces:
                found = spans_of(self._redactor.trace(trace), self._losses, self._convention)
                body = request(found, {"service.name": trace.agent or "journeyman", **self._resource}) if found else b""
                sent = (trace.id, hashlib.sha256(body).hexdigest()[:16])
                if not found or (sent in self._ledger and not self._again):
                    self._skipped += bool(found)
                    done(1)
                    continue
                bodies.append(body)
                taken.append(sent)
                spans, size = spans + len(found), size + len(body)
                if spans >= _SPANS or size >= _BYTES:
                    await self._request(exporter, bodies, taken, spans)
                    done(len(taken))
                    bodies, taken, spans, size = [], [], 0, 0
            if bodies:
                await self._request(exporter, bodies, taken, spans)
                done(len(taken))
        finally:
            await exporter.close()

    async def _request(self, exporter: OtlpExporter, bodies: list[bytes], taken: list[tuple[str, str]], spans: int) -> None:
        if not self._dry_run:
            # Requests one behind the other are one: protobuf adds up what is repeated.
            rejected, why = await exporter.send(b"".join(bodies))
            self._rejected, self._reason = self._rejected + rejected, why or self._reason
            if not rejected:
                self._ledger.add(taken)
        self._traces, self._spans = self._traces + len(taken), self._spans + spans
