"""OpenTelemetry's semantic conventions for generative AI, of every vintage, and OpenLLMetry's, from which they grew.

- Before: `llm.request.type`, `llm.usage.*`; OpenLLMetry's `gen_ai.prompt.0.content`, `gen_ai.completion.0.content`,
  `traceloop.span.kind`, `traceloop.entity.*`.
- Up to 1.36: events, or log records, for each message: `gen_ai.user.message`, `gen_ai.choice`; provider in `gen_ai.system`.
- From 1.37: `gen_ai.input.messages`, `gen_ai.output.messages`, `gen_ai.system_instructions`, as JSON or structured, on the
  span or on a `gen_ai.client.inference.operation.details` event; provider in `gen_ai.provider.name`.

https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from collections.abc import Iterable, Mapping
from typing import Any

from journeyman.capture.conversation import one
from journeyman.capture.fields import first, opened
from journeyman.capture.otlp.spans import Event, Span
from journeyman.capture.otlp.told import Kind, Told, count, nested, number, replied, said, text, word
from journeyman.core.messages import Turn, Usage

_OPERATIONS = {
    "chat": Kind.CALL,
    "completion": Kind.CALL,
    "text_completion": Kind.CALL,
    "generate_content": Kind.CALL,
    "generate": Kind.CALL,
    "message": Kind.CALL,
    "messages": Kind.CALL,
    "responses": Kind.CALL,
    "response": Kind.CALL,
    "embeddings": Kind.CALL,
    "embedding": Kind.CALL,
    "rerank": Kind.CALL,
    "execute_tool": Kind.TOOL,
    "retrieval": Kind.TOOL,
    "invoke_agent": Kind.AGENT,
    "create_agent": Kind.AGENT,
    "invoke_workflow": Kind.AGENT,
    "chain": Kind.AGENT,
}
_PARTS = {"workflow": Kind.AGENT, "task": Kind.AGENT, "agent": Kind.AGENT, "tool": Kind.TOOL}
_ROLES = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_CHUNK = ("gen_ai.content.completion.chunk", "llm.content.completion.chunk", "gen_ai.content.chunk")


def read(span: Span) -> Told:
    """What the attributes and the events of a span tell in these conventions."""
    of = span.attributes
    kind = _kind(span)
    sent, answered = _messages(span)
    return Told(
        kind=kind,
        name=_name(span, kind),
        model=word(first(of, "gen_ai.response.model", "gen_ai.request.model", "llm.response.model", "llm.request.model")),
        said=sent,
        replies=answered,
        usage=Usage.beside_cache(*(count(of, *names) for names in _COUNTS), apart=False),
        finish=word(first(of, "gen_ai.response.finish_reasons", "gen_ai.response.finish_reason", "llm.response.finish_reason")),
        response_id=word(first(of, "gen_ai.response.id", "llm.response.id")),
        cost=number(of, "gen_ai.usage.cost", "gen_ai.usage.total_cost", "operation.cost"),
        first_token_seconds=_first_token(span),
        arguments=text(first(of, *_IN)) if kind is Kind.TOOL else None,
        result=text(first(of, *_OUT)) if kind is Kind.TOOL else None,
        call_id=word(of.get("gen_ai.tool.call.id")),
        input=text(first(of, "traceloop.entity.input")) or (_last(sent, "user") if kind is Kind.AGENT else None),
        output=text(first(of, "traceloop.entity.output")) or (_last(answered, "assistant") if kind is Kind.AGENT else None),
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


def _kind(span: Span) -> Kind | None:
    of = span.attributes
    operation = str(of.get("gen_ai.operation.name") or of.get("llm.request.type") or "").lower()
    if operation in _OPERATIONS:
        return _OPERATIONS[operation]
    part = str(of.get("traceloop.span.kind") or "").lower()
    if part in _PARTS:
        return _PARTS[part]
    if first(of, "gen_ai.tool.call.id", "gen_ai.tool.name"):
        return Kind.TOOL
    if first(of, "gen_ai.request.model", "gen_ai.response.model", "llm.request.model"):
        return Kind.CALL
    return Kind.AGENT if first(of, "gen_ai.agent.name") else None


def _name(span: Span, kind: Kind | None) -> str | None:
    of = span.attributes
    if kind is Kind.TOOL:
        found = word(first(of, "gen_ai.tool.name", "traceloop.entity.name"))
        return found or span.name.removeprefix("execute_tool ").removeprefix("running tool: ").removesuffix(".tool")
    if kind is Kind.AGENT:
        return word(first(of, "gen_ai.agent.name", "traceloop.entity.name", "gen_ai.workflow.name")) or span.name
    return None


def _messages(span: Span) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
    """What was sent and what was answered: from the newest convention that the span follows."""
    details = next((each.attributes for each in span.events if each.name == "gen_ai.client.inference.operation.details"), {})
    of: Mapping[str, Any] = {**details, **span.attributes}
    system = said(first(of, "gen_ai.system_instructions", "gen_ai.request.instructions"), "system")
    sent = said(first(of, "gen_ai.input.messages")) or _counted(of, "gen_ai.prompt", "llm.prompts", role="user")
    answered = _each_replied(opened(first(of, "gen_ai.output.messages"))) or tuple(
        answer for row in _rows(of, "gen_ai.completion", "llm.completions") for answer in one(said(row, "assistant"))
    )
    of_events, answers_of_events = _of_events(span.events)
    if not sent:
        sent = of_events or said(first(of, "gen_ai.prompt", "gen_ai.request.messages"))
    if not answered:
        answered = answers_of_events or replied(first(of, "gen_ai.completion"))
    if system and not any(each.role == "system" for each in sent[:1]):
        sent = (*system, *sent)
    return sent, answered


def _each_replied(rows: Any) -> tuple[Turn, ...]:
    if isinstance(rows, list):
        return tuple(answer for row in rows for answer in one(said(row, "assistant")))
    return replied(rows)


def _rows(of: Mapping[str, Any], *prefixes: str) -> list[dict[str, Any]]:
    return next((rows for prefix in prefixes if (rows := nested(of, prefix))), [])


def _counted(of: Mapping[str, Any], *prefixes: str, role: str) -> tuple[Turn, ...]:
    return tuple(each for row in _rows(of, *prefixes) for each in said(row, role))


def _of_events(events: Iterable[Event]) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
    sent: list[Turn] = []
    answered: list[Turn] = []
    for event in events:
        start, _, end = event.name.rpartition(".")
        if event.name == "gen_ai.choice":
            answered += replied(_content(event))
        elif start.startswith("gen_ai.") and end == "message" and (role := _ROLES.get(start.removeprefix("gen_ai."))):
            found = _content(event)
            sent += said({"role": role, **found} if isinstance(found, Mapping) else found, role)
        elif event.name in ("gen_ai.content.prompt", "gen_ai.content.completion"):
            found = first(event.attributes, "gen_ai.prompt", "gen_ai.completion")
            if event.name.endswith("prompt"):
                sent += said(found)
            else:
                answered += replied(found)
    return tuple(sent), tuple(answered)


def _content(event: Event) -> Any:
    """What an event says: in the body of a log record, in an attribute as JSON, or as attributes."""
    if event.body is not None:
        return opened(event.body)
    whole = first(event.attributes, "gen_ai.event.content", "event_body")
    if whole is not None:
        return opened(whole)
    parts = {name.removeprefix("gen_ai."): opened(value) for name, value in event.attributes.items()}
    return {name: value for name, value in parts.items() if name not in ("system", "event.name", "provider.name")}


def _first_token(span: Span) -> float | None:
    found = number(span.attributes, "gen_ai.response.time_to_first_chunk", "gen_ai.server.time_to_first_token")
    if found is not None:
        return found
    at = next((each.at for each in span.events if each.name in _CHUNK), None)
    return (at - span.began) / 1e9 if at is not None and at >= span.began else None


def _last(messages: Iterable[Turn], role: str) -> str | None:
    return next((each.text for each in reversed(list(messages)) if each.role == role and each.text), None)
