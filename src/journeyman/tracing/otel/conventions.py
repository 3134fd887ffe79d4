"""OpenTelemetry's semantic conventions for generative AI, of every vintage, and OpenLLMetry's, from which they grew.

- Before: `llm.request.type`, `llm.usage.*`; OpenLLMetry's `gen_ai.prompt.0.content`, `gen_ai.completion.0.content`,
  `traceloop.span.kind`, `traceloop.entity.*`.
- Up to 1.36: events, or log records, for each message: `gen_ai.user.message`, `gen_ai.choice`; provider in `gen_ai.system`.
- From 1.37: `gen_ai.input.messages`, `gen_ai.output.messages`, `gen_ai.system_instructions`, as JSON or structured, on the
  span or on a `gen_ai.client.inference.operation.details` event; provider in `gen_ai.provider.name`.

https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from journeyman.core.messages import Turn, Usage
from journeyman.tracing.conversation import one_reply, tool_use
from journeyman.tracing.fields import first, mapping, objects, parsed_if_json
from journeyman.tracing.otel.spans import (
    SpanData,
    SpanEvent,
    SpanFacts,
    SpanKind,
    count,
    messages_of,
    nested,
    number,
    replies_of,
    text,
    word,
)

_OPERATIONS = {
    "chat": SpanKind.CALL,
    "completion": SpanKind.CALL,
    "text_completion": SpanKind.CALL,
    "generate_content": SpanKind.CALL,
    "generate": SpanKind.CALL,
    "message": SpanKind.CALL,
    "messages": SpanKind.CALL,
    "responses": SpanKind.CALL,
    "response": SpanKind.CALL,
    "embeddings": SpanKind.CALL,
    "embedding": SpanKind.CALL,
    "rerank": SpanKind.CALL,
    "execute_tool": SpanKind.TOOL,
    "retrieval": SpanKind.TOOL,
    "invoke_agent": SpanKind.AGENT,
    "create_agent": SpanKind.AGENT,
    "invoke_workflow": SpanKind.AGENT,
    "chain": SpanKind.AGENT,
}
_PARTS = {"workflow": SpanKind.AGENT, "task": SpanKind.AGENT, "agent": SpanKind.AGENT, "tool": SpanKind.TOOL}
_ROLES = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_CHUNK = ("gen_ai.content.completion.chunk", "llm.content.completion.chunk", "gen_ai.content.chunk")


def read_genai(span: SpanData) -> SpanFacts:
    """What the attributes and the events of a span tell in these conventions."""
    of = span.attributes
    kind = _kind(span)
    sent, answered = _messages(span)
    return SpanFacts(
        kind=kind,
        name=_name(span, kind),
        model=word(first(of, "gen_ai.response.model", "gen_ai.request.model", "llm.response.model", "llm.request.model")),
        messages=sent,
        replies=answered,
        usage=Usage.beside_cache(*(count(of, *names) for names in _COUNTS), apart=False),
        finish=word(first(of, "gen_ai.response.finish_reasons", "gen_ai.response.finish_reason", "llm.response.finish_reason")),
        response_id=word(first(of, "gen_ai.response.id", "llm.response.id")),
        cost=number(of, "gen_ai.usage.cost", "gen_ai.usage.total_cost", "operation.cost"),
        first_token_seconds=_first_token(span),
        arguments=text(first(of, *_IN)) if kind is SpanKind.TOOL else None,
        result=text(first(of, *_OUT)) if kind is SpanKind.TOOL else None,
        call_id=word(of.get("gen_ai.tool.call.id")),
        input=text(first(of, "traceloop.entity.input")) or (_last(sent, "user") if kind is SpanKind.AGENT else None),
        output=text(first(of, "traceloop.entity.output")) or (_last(answered, "assistant") if kind is SpanKind.AGENT else None),
        session=word(first(of, "gen_ai.conversation.id", "traceloop.association.properties.session_id", *_SESSION)),
        agent=word(first(of, "gen_ai.agent.name", "traceloop.association.properties.agent_name")),
    )


_INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens", "llm.usage.input_tokens")
_OUTPUT = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.usage.completion_tokens",
    "llm.usage.output_tokens",
)
_CACHE_READ = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.cache_read_tokens",
    "gen_ai.usage.cached_tokens",
    "gen_ai.usage.input_tokens.cached",
    "gen_ai.usage.input_cached_tokens",
    "gen_ai.usage.details.cache_read_tokens",
    "gen_ai.usage.details.cache_read_input_tokens",
    "gen_ai.usage.details.cached_tokens",
    "gen_ai.usage.prompt_tokens_details.cached_tokens",
    "gen_ai.openai.usage.cached_tokens",
    "llm.usage.cache_read_input_tokens",
)
_CACHE_WRITTEN = (
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.cache_write_tokens",
    "gen_ai.usage.details.cache_write_tokens",
    "gen_ai.usage.details.cache_creation_input_tokens",
    "llm.usage.cache_creation_input_tokens",
)
_COUNTS = (_INPUT, _OUTPUT, _CACHE_READ, _CACHE_WRITTEN)
_IN = ("gen_ai.tool.call.arguments", "gen_ai.tool.arguments", "traceloop.entity.input", "input.value", "input")
_OUT = ("gen_ai.tool.call.result", "gen_ai.tool.result", "traceloop.entity.output", "output.value", "output")
_SESSION = ("traceloop.association.properties.conversation_id", "traceloop.association.properties.thread_id")


def _kind(span: SpanData) -> SpanKind | None:
    of = span.attributes
    operation = str(of.get("gen_ai.operation.name") or of.get("llm.request.type") or "").lower()
    if operation in _OPERATIONS:
        return _OPERATIONS[operation]
    part = str(of.get("traceloop.span.kind") or "").lower()
    if part in _PARTS:
        return _PARTS[part]
    if first(of, "gen_ai.tool.call.id", "gen_ai.tool.name"):
        return SpanKind.TOOL
    if first(of, "gen_ai.request.model", "gen_ai.response.model", "llm.request.model"):
        return SpanKind.CALL
    return SpanKind.AGENT if first(of, "gen_ai.agent.name") else None


def _name(span: SpanData, kind: SpanKind | None) -> str | None:
    of = span.attributes
    if kind is SpanKind.TOOL:
        found = word(first(of, "gen_ai.tool.name", "traceloop.entity.name"))
        return found or span.name.removeprefix("execute_tool ").removeprefix("running tool: ").removesuffix(".tool")
    if kind is SpanKind.AGENT:
        return word(first(of, "gen_ai.agent.name", "traceloop.entity.name", "gen_ai.workflow.name")) or span.name
    return None


def _messages(span: SpanData) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
    """What was sent and what was answered: from the newest convention that the span follows."""
    details = next((each.attributes for each in span.events if each.name == "gen_ai.client.inference.operation.details"), {})
    of: Mapping[str, Any] = {**details, **span.attributes}
    system = messages_of(first(of, "gen_ai.system_instructions", "gen_ai.request.instructions"), "system")
    sent = messages_of(first(of, "gen_ai.input.messages")) or _counted(of, "gen_ai.prompt", "llm.prompts", role="user")
    answered = _each_replied(parsed_if_json(first(of, "gen_ai.output.messages"))) or tuple(
        answer
        for row in _rows(of, "gen_ai.completion", "llm.completions")
        for answer in one_reply(messages_of(row, "assistant"))
    )
    of_events, answers_of_events = _of_events(span.events)
    if not sent:
        sent = of_events or messages_of(first(of, "gen_ai.prompt", "gen_ai.request.messages"))
    if not answered:
        answered = answers_of_events or replies_of(first(of, "gen_ai.completion"))
    if system and not any(each.role == "system" for each in sent[:1]):
        sent = (*system, *sent)
    return sent, answered


def _each_replied(rows: Any) -> tuple[Turn, ...]:
    if isinstance(rows, list):
        return tuple(answer for row in rows for answer in one_reply(messages_of(row, "assistant")))
    return replies_of(rows)


def _rows(of: Mapping[str, Any], *prefixes: str) -> list[dict[str, Any]]:
    return next((rows for prefix in prefixes if (rows := nested(of, prefix))), [])


def _counted(of: Mapping[str, Any], *prefixes: str, role: str) -> tuple[Turn, ...]:
    return tuple(each for row in _rows(of, *prefixes) for each in messages_of(row, role))


def _of_events(events: Iterable[SpanEvent]) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
    sent: list[Turn] = []
    answered: list[Turn] = []
    for event in events:
        start, _, end = event.name.rpartition(".")
        if event.name == "gen_ai.choice":
            answered += replies_of(_content(event))
        elif start.startswith("gen_ai.") and end == "message" and (role := _ROLES.get(start.removeprefix("gen_ai."))):
            found = _content(event)
            sent += messages_of({"role": role, **found} if isinstance(found, Mapping) else found, role)
        elif event.name in ("gen_ai.content.prompt", "gen_ai.content.completion"):
            found = first(event.attributes, "gen_ai.prompt", "gen_ai.completion")
            if event.name.endswith("prompt"):
                sent += messages_of(found)
            else:
                answered += replies_of(found)
    return tuple(sent), tuple(answered)


def _content(event: SpanEvent) -> Any:
    """What an event says: in the body of a log record, in an attribute as JSON, or as attributes."""
    if event.body is not None:
        return parsed_if_json(event.body)
    whole = first(event.attributes, "gen_ai.event.content", "event_body")
    if whole is not None:
        return parsed_if_json(whole)
    parts = {name.removeprefix("gen_ai."): parsed_if_json(value) for name, value in event.attributes.items()}
    return {name: value for name, value in parts.items() if name not in ("system", "event.name", "provider.name")}


def _first_token(span: SpanData) -> float | None:
    seconds = number(span.attributes, "gen_ai.response.time_to_first_chunk", "gen_ai.server.time_to_first_token")
    return _until_event(span, *_CHUNK) if seconds is None else seconds


def _until_event(span: SpanData, *names: str) -> float | None:
    """Seconds from a span's beginning to the first event of one of these names."""
    at = next((each.at for each in span.events if each.name in names), None)
    return (at - span.began) / 1e9 if at is not None and at >= span.began else None


def _in_and_out(kind: SpanKind | None, into: Any, out: Any) -> dict[str, Any]:
    """What went into a span and came out of it, as the facts that its kind has."""
    if kind is SpanKind.CALL:
        return {"messages": messages_of(into), "replies": replies_of(out)}
    return {"arguments": text(into), "result": text(out)} if kind is SpanKind.TOOL else {}


def _last(messages: Iterable[Turn], role: str) -> str | None:
    return next((each.text for each in reversed(list(messages)) if each.role == role and each.text), None)


# OpenInference, the conventions of Arize Phoenix's instrumentations.
#
# `openinference.span.kind` says what a span is, `llm.input_messages.0.message.role` who said what,
# `llm.token_count.*` how much.
# https://arize-ai.github.io/openinference/spec/semantic_conventions.html

_KINDS = {
    "LLM": SpanKind.CALL,
    "EMBEDDING": SpanKind.CALL,
    "TOOL": SpanKind.TOOL,
    "RETRIEVER": SpanKind.TOOL,
    "RERANKER": SpanKind.TOOL,
    "AGENT": SpanKind.AGENT,
    "CHAIN": SpanKind.AGENT,
    "GUARDRAIL": SpanKind.AGENT,
    "EVALUATOR": SpanKind.AGENT,
}
_OPENINFERENCE_COUNTS = (
    ("llm.token_count.prompt",),
    ("llm.token_count.completion",),
    ("llm.token_count.prompt_details.cache_read", "llm.token_count.prompt_details.cached_tokens"),
    ("llm.token_count.prompt_details.cache_write", "llm.token_count.prompt_details.cache_creation"),
)
_STREAMS = "First Token Stream Event"
_CHOICES = 16
"""Answers that one asks for at most. Where more are told of, they are the pieces of one stream."""


def read_openinference(span: SpanData) -> SpanFacts:
    """What the attributes of a span tell in these conventions."""
    of = span.attributes
    kind = _KINDS.get(str(of.get("openinference.span.kind", "")).upper())
    if kind is None and not any(
        name in of for name in ("llm.model_name", "llm.token_count.prompt", "input.value", "tool.name")
    ):
        return SpanFacts()
    output = parsed_if_json(of.get("output.value"))
    call = kind is SpanKind.CALL
    return SpanFacts(
        kind=kind,
        name=_name_openinference(span, kind),
        model=word(first(of, "llm.model_name", "embedding.model_name", "reranker.model_name")),
        messages=_sent(of) if call else (),
        replies=_answered(of, output) if call else (),
        usage=Usage.beside_cache(*(count(of, *names) for names in _OPENINFERENCE_COUNTS), apart=False),
        finish=word(first(of, "llm.finish_reason")),
        response_id=_response_id(output) if call else None,
        cost=number(of, "llm.cost.total"),
        first_token_seconds=_until_event(span, _STREAMS),
        arguments=_arguments(of) if kind is SpanKind.TOOL else None,
        result=_result(of, output) if kind is SpanKind.TOOL else None,
        call_id=word(first(of, "tool_call.id", "tool.call_id", "tool.id")),
        input=text(first(of, "input.value")),
        output=_output(output, text(first(of, "output.value"))),
        session=word(first(of, "session.id")),
        agent=word(first(of, "agent.name", "graph.node.id")) if kind is SpanKind.AGENT else word(of.get("agent.name")),
    )


def _name_openinference(span: SpanData, kind: SpanKind | None) -> str | None:
    of = span.attributes
    if kind is SpanKind.TOOL:
        return word(first(of, "tool.name", "tool_call.function.name")) or span.name
    return word(first(of, "agent.name", "graph.node.id")) or span.name if kind is SpanKind.AGENT else None


def _sent(of: Mapping[str, Any]) -> tuple[Turn, ...]:
    rows = nested(of, "llm.input_messages")
    if rows:
        return tuple(each for row in rows for each in messages_of(_flat(row)))
    prompts = parsed_if_json(of.get("llm.prompts")) or [row.get("prompt.text") or row for row in nested(of, "llm.prompts")]
    embedded = [_deep(row, "embedding", "text") for row in nested(of, "embedding.embeddings")]
    if embedded and all(isinstance(each, str) for each in embedded):
        return tuple(Turn("user", str(each)) for each in embedded)
    return messages_of(prompts or of.get("input.value"))


def _answered(of: Mapping[str, Any], output: Any) -> tuple[Turn, ...]:
    rows = nested(of, "llm.output_messages")
    if of.get("openinference.span.kind") == "EMBEDDING":
        return ()
    if not rows:
        return replies_of(output)
    answers = [answer for row in rows for answer in one_reply(messages_of(_flat(row), "assistant"))]
    if len(answers) > _CHOICES:
        return (Turn("assistant", "".join(each.text for each in answers)),)
    return tuple(answers)


def _flat(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """One message without its prefix. Its contents are the parts of it, whatever else it says."""
    message = row.get("message")
    found = dict(message) if isinstance(message, Mapping) else dict(row)
    parts = found.pop("contents", None)
    if isinstance(parts, list):
        found["content"] = [*([found["content"]] if isinstance(found.get("content"), str) else []), *parts]
    return {"role": "user", **found}


def _response_id(output: Any) -> str | None:
    """The instrumentations write the provider's answer as it came; an id in it is the answer's."""
    found = output.get("id") or output.get("response_id") if isinstance(output, Mapping) else None
    return found if isinstance(found, str) and found else None


def _arguments(of: Mapping[str, Any]) -> str | None:
    return text(first(of, "tool_call.function.arguments", "input.value", "tool.parameters", "retrieval.query"))


def _result(of: Mapping[str, Any], output: Any) -> str | None:
    found = first(of, "output.value")
    if found is not None:
        return text(output.get("content")) if isinstance(output, Mapping) and _is_tool_message(output) else text(found)
    for prefix in ("retrieval.documents", "reranker.output_documents"):
        rows = nested(of, prefix)
        if rows:
            return "\n\n".join(str(_deep(row, "document", "content") or "") for row in rows)
    return None


def _is_tool_message(output: Mapping[str, Any]) -> bool:
    """LangChain's tools answer with a message of which the content is the result."""
    return output.get("type") == "tool" and isinstance(output.get("content"), str | list)


def _output(output: Any, whole: str | None) -> str | None:
    """The answer for a person to read, where the whole is a message or a list of them."""
    if isinstance(output, Mapping) and (output.get("role") or "content" in output):
        words = [each.text for each in replies_of(output) if each.text]
        return words[-1] if words else whole
    if isinstance(output, Sequence) and not isinstance(output, str):
        words = [each.text for each in messages_of(output) if each.role == "assistant" and each.text]
        return words[-1] if words and all(isinstance(each, Mapping) and "role" in each for each in output) else whole
    return whole


def _deep(row: Any, *path: str) -> Any:
    for name in path:
        row = row.get(name) if isinstance(row, Mapping) else None
    return row


# The Vercel AI SDK: `ai.operationId`, `ai.prompt.messages`, `ai.response.text`.
#
# `ai.generateText` is the function that the user called; `ai.generateText.doGenerate` within it is each exchange with the
# model.
# https://ai-sdk.dev/docs/ai-sdk-core/telemetry


def read_vercel(span: SpanData) -> SpanFacts:
    """What the attributes of a span tell in this SDK's words."""
    of = span.attributes
    operation = str(of.get("ai.operationId") or of.get("operation.name") or "")
    if not operation.startswith("ai."):
        return SpanFacts()
    if operation == "ai.toolCall":
        return SpanFacts(
            kind=SpanKind.TOOL,
            name=word(of.get("ai.toolCall.name")),
            arguments=text(first(of, "ai.toolCall.args", "ai.toolCall.input")),
            result=text(first(of, "ai.toolCall.result", "ai.toolCall.output")),
            call_id=word(of.get("ai.toolCall.id")),
            session=_session(of),
        )
    function = word(of.get("ai.telemetry.functionId"))
    sent, answer = _sent_vercel(of), _answer(of)
    inner = operation.rpartition(".")[2].startswith("do")
    first_token = number(of, "ai.response.msToFirstChunk", "ai.stream.msToFirstChunk")
    return SpanFacts(
        kind=SpanKind.CALL if inner else SpanKind.OUTER,
        name=function or operation.removeprefix("ai."),
        model=word(first(of, "ai.response.model", "ai.model.id")),
        messages=sent,
        replies=(answer,) if answer else (),
        usage=_usage(of, operation),
        finish=word(of.get("ai.response.finishReason")),
        response_id=word(of.get("ai.response.id")) or _provider_id(of),
        first_token_seconds=None if first_token is None else first_token / 1000,
        input=next((each.text for each in reversed(sent) if each.role == "user"), None),
        output=answer.text if answer and answer.text else None,
        session=_session(of),
        agent=function,
    )


def _usage(of: Mapping[str, Any], operation: str) -> Usage:
    written = count(of, "ai.usage.outputTokens", "ai.usage.completionTokens")
    if "mbed" in operation:
        written = 0 if "ai.usage.tokens" in of else None
    return Usage.beside_cache(
        count(of, "ai.usage.inputTokens", "ai.usage.promptTokens", "ai.usage.tokens"),
        written,
        count(of, "ai.usage.cachedInputTokens", "ai.usage.inputTokenDetails.cacheReadTokens"),
        count(of, "ai.usage.inputTokenDetails.cacheWriteTokens"),
        apart=False,
    )


def _sent_vercel(of: Mapping[str, Any]) -> tuple[Turn, ...]:
    values = parsed_if_json(of.get("ai.values"))
    if isinstance(values, list):
        return tuple(Turn("user", _unquoted(str(value))) for value in values)
    value = of.get("ai.value")
    if isinstance(value, str):
        return (Turn("user", _unquoted(value)),)
    return messages_of(first(of, "ai.prompt.messages", "ai.prompt"))


def _unquoted(value: Any) -> Any:
    """A text that is written as JSON, which MLflow does with every attribute; anything else as it is."""
    return value[1:-1] if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"' else value


def _answer(of: Mapping[str, Any]) -> Turn | None:
    words = text(first(of, "ai.response.text", "ai.response.object", "ai.result.text", "ai.result.object"))
    rows = parsed_if_json(first(of, "ai.response.toolCalls", "ai.result.toolCalls"))
    calls = [tool_use(row) for row in objects(rows)]
    thought = text(first(of, "ai.response.reasoning"))
    if words is None and not calls and not thought:
        return None
    return Turn("assistant", words or "", thought=thought or "", calls=tuple(calls))


def _provider_id(of: Mapping[str, Any]) -> str | None:
    """The id that the provider gave the answer, which the outer function tells in the provider's own words."""
    told = parsed_if_json(of.get("ai.response.providerMetadata"))
    for each in told.values() if isinstance(told, Mapping) else ():
        if isinstance(each, Mapping) and isinstance(each.get("responseId"), str):
            return str(each["responseId"])
    return None


def _session(of: Mapping[str, Any]) -> str | None:
    names = ("sessionId", "session_id", "threadId", "conversationId", "chatId")
    return word(first(of, *(f"ai.telemetry.metadata.{name}" for name in names)))


# What single frameworks and back ends say in words of their own, beside a convention or in place of one.
#
# pydantic-ai and Logfire (`events`, `tool_arguments`, `final_result`), Google's ADK (`gcp.vertex.agent.*`), Langfuse
# (`langfuse.observation.*`), LangSmith (`langsmith.span.kind`), MLflow (`mlflow.spanType`).

_LANGFUSE = {
    "generation": SpanKind.CALL, "embedding": SpanKind.CALL, "tool": SpanKind.TOOL, "retriever": SpanKind.TOOL,
    "agent": SpanKind.AGENT, "chain": SpanKind.AGENT, "guardrail": SpanKind.AGENT, "evaluator": SpanKind.AGENT,
}  # fmt: skip
_LANGSMITH = {
    "llm": SpanKind.CALL,
    "embedding": SpanKind.CALL,
    "tool": SpanKind.TOOL,
    "retriever": SpanKind.TOOL,
    "chain": SpanKind.AGENT,
}
_MLFLOW = {
    "LLM": SpanKind.CALL, "CHAT_MODEL": SpanKind.CALL, "EMBEDDING": SpanKind.CALL, "TOOL": SpanKind.TOOL,
    "RETRIEVER": SpanKind.TOOL, "AGENT": SpanKind.AGENT, "CHAIN": SpanKind.AGENT, "WORKFLOW": SpanKind.AGENT,
}  # fmt: skip


def pydantic_ai(span: SpanData) -> SpanFacts:
    """pydantic-ai, in its first versions and in those after the conventions; Logfire's own instrumentation of clients."""
    of = span.attributes
    agent = word(first(of, "agent_name"))
    if agent and "model_name" in of and "gen_ai.request.model" not in of:
        history = messages_of(first(of, "pydantic_ai.all_messages", "all_messages_events"))
        return SpanFacts(
            kind=SpanKind.AGENT,
            name=agent,
            agent=agent,
            input=next((each.text for each in reversed(history) if each.role == "user"), None),
            output=text(first(of, "final_result")),
        )
    if "tool_arguments" in of or "tool_response" in of:
        return SpanFacts(kind=SpanKind.TOOL, arguments=text(of.get("tool_arguments")), result=text(first(of, "tool_response")))
    events = parsed_if_json(of.get("events"))
    if isinstance(events, list) and events and all(isinstance(each, Mapping) for each in events):
        choices = [each for each in events if "choice" in str(each.get("event.name"))]
        sent = [each for each in events if "choice" not in str(each.get("event.name"))]
        return SpanFacts(messages=messages_of(sent), replies=tuple(answer for each in choices for answer in replies_of(each)))
    return _logfire(of)


def _logfire(of: Mapping[str, Any]) -> SpanFacts:
    request, response = parsed_if_json(of.get("request_data")), parsed_if_json(of.get("response_data"))
    if not isinstance(request, Mapping) or not ({"messages", "input", "prompt"} & set(request)):
        return SpanFacts()
    return SpanFacts(
        kind=SpanKind.CALL, model=word(request.get("model")), messages=messages_of(request), replies=replies_of(response)
    )


def adk(span: SpanData) -> SpanFacts:
    """Google's Agent Development Kit."""
    of = span.attributes
    if not any(name.startswith("gcp.vertex.agent.") for name in of):
        return SpanFacts()
    request, response = (
        parsed_if_json(of.get("gcp.vertex.agent.llm_request")),
        parsed_if_json(of.get("gcp.vertex.agent.llm_response")),
    )
    sent: tuple[Turn, ...] = ()
    if isinstance(request, Mapping) and request.get("contents"):
        config = request.get("config")
        system = config.get("system_instruction") if isinstance(config, Mapping) else None
        sent = (*messages_of(system, "system"), *messages_of(request["contents"]))
    return SpanFacts(
        messages=sent,
        replies=replies_of(response) if isinstance(response, Mapping) and response else (),
        arguments=text(first(of, "gcp.vertex.agent.tool_call_args")),
        result=text(first(of, "gcp.vertex.agent.tool_response")),
        session=word(first(of, "gcp.vertex.agent.session_id")),
    )


def langfuse(span: SpanData) -> SpanFacts:
    """Langfuse's SDK, which reports over OpenTelemetry since its third version."""
    of = span.attributes
    kind = _LANGFUSE.get(str(of.get("langfuse.observation.type", "")).lower())
    usage, cost = (mapping(parsed_if_json(of.get(f"langfuse.observation.{name}_details"))) for name in ("usage", "cost"))
    into, out = of.get("langfuse.observation.input"), of.get("langfuse.observation.output")
    session = word(first(of, "langfuse.session.id", "langfuse.trace.session.id"))
    into = first(of, "langfuse.trace.input") if into is None and span.parent is None else into
    out = first(of, "langfuse.trace.output") if out is None and span.parent is None else out
    return SpanFacts(
        kind=kind,
        name=span.name if kind in (SpanKind.TOOL, SpanKind.AGENT) else None,
        model=word(first(of, "langfuse.observation.model.name", "langfuse.observation.model")),
        usage=Usage(
            input=count(usage, "input", "prompt_tokens", "input_tokens"),
            output=count(usage, "output", "completion_tokens", "output_tokens"),
            cached=count(usage, "input_cached_tokens", "cache_read_input_tokens", "input_cache_read"),
        ),
        cost=number(cost, "total"),
        input=text(into),
        output=text(out),
        session=session or word(first(of, "session.id")),
        **_in_and_out(kind, into, out),
    )


def langsmith(span: SpanData) -> SpanFacts:
    """LangSmith's export to OpenTelemetry."""
    of = span.attributes
    kind = _LANGSMITH.get(str(of.get("langsmith.span.kind", "")).lower())
    into, out = of.get("gen_ai.prompt"), of.get("gen_ai.completion")
    return SpanFacts(
        kind=kind,
        name=span.name if kind in (SpanKind.TOOL, SpanKind.AGENT) else None,
        arguments=text(into) if kind is SpanKind.TOOL else None,
        result=text(out) if kind is SpanKind.TOOL else None,
        input=text(into) if kind is SpanKind.AGENT else None,
        output=text(out) if kind is SpanKind.AGENT else None,
        session=word(first(of, "langsmith.trace.session_id", *(f"langsmith.metadata.{name}" for name in _THREADS))),
    )


_THREADS = ("session_id", "thread_id", "conversation_id")


def mlflow(span: SpanData) -> SpanFacts:
    """MLflow's tracing."""
    of = {name: _unquoted(value) for name, value in span.attributes.items() if name.startswith("mlflow.")}
    kind = _MLFLOW.get(str(of.get("mlflow.spanType", "")).upper())
    into, out = of.get("mlflow.spanInputs"), of.get("mlflow.spanOutputs")
    usage = mapping(parsed_if_json(of.get("mlflow.chat.tokenUsage")))
    return SpanFacts(
        kind=kind,
        name=word(of.get("mlflow.spanFunctionName")) or span.name if kind in (SpanKind.TOOL, SpanKind.AGENT) else None,
        model=word(mapping(parsed_if_json(into)).get("model")),
        usage=Usage(count(usage, "input_tokens"), count(usage, "output_tokens")),
        input=text(into),
        output=text(out),
        session=word(first(of, "mlflow.trace.session")),
        **_in_and_out(kind, into, out),
    )
