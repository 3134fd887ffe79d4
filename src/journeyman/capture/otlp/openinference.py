"""OpenInference, the conventions of Arize Phoenix's instrumentations.

`openinference.span.kind` says what a span is, `llm.input_messages.0.message.role` who said what, `llm.token_count.*` how much.
https://arize-ai.github.io/openinference/spec/semantic_conventions.html
"""

from collections.abc import Mapping, Sequence
from typing import Any

from journeyman.capture.conversation import one
from journeyman.capture.fields import first, opened
from journeyman.capture.otlp.spans import Span
from journeyman.capture.otlp.told import Kind, Told, count, nested, number, replied, said, text, word
from journeyman.core.messages import Turn, Usage

_KINDS = {
    "LLM": Kind.CALL,
    "EMBEDDING": Kind.CALL,
    "TOOL": Kind.TOOL,
    "RETRIEVER": Kind.TOOL,
    "RERANKER": Kind.TOOL,
    "AGENT": Kind.AGENT,
    "CHAIN": Kind.AGENT,
    "GUARDRAIL": Kind.AGENT,
    "EVALUATOR": Kind.AGENT,
}
_COUNTS = (
    ("llm.token_count.prompt",),
    ("llm.token_count.completion",),
    ("llm.token_count.prompt_details.cache_read", "llm.token_count.prompt_details.cached_tokens"),
    ("llm.token_count.prompt_details.cache_write", "llm.token_count.prompt_details.cache_creation"),
)
_STREAMS = "First Token Stream Event"
_CHOICES = 16
"""Answers that one asks for at most. Where more are told of, they are the pieces of one stream."""


def read(span: Span) -> Told:
    """What the attributes of a span tell in these conventions."""
    of = span.attributes
    kind = _KINDS.get(str(of.get("openinference.span.kind", "")).upper())
    if kind is None and not any(
        name in of for name in ("llm.model_name", "llm.token_count.prompt", "input.value", "tool.name")
    ):
        return Told()
    output = opened(of.get("output.value"))
    call = kind is Kind.CALL
    return Told(
        kind=kind,
        name=_name(span, kind),
        model=word(first(of, "llm.model_name", "embedding.model_name", "reranker.model_name")),
        said=_sent(of) if call else (),
        replies=_answered(of, output) if call else (),
        usage=Usage.beside_cache(*(count(of, *names) for names in _COUNTS), apart=False),
        finish=word(first(of, "llm.finish_reason")),
        response_id=_response_id(output) if call else None,
        cost=number(of, "llm.cost.total"),
        first_token_seconds=_first_token(span),
        arguments=_arguments(of) if kind is Kind.TOOL else None,
        result=_result(of, output) if kind is Kind.TOOL else None,
        call_id=word(first(of, "tool_call.id", "tool.call_id", "tool.id")),
        input=text(first(of, "input.value")),
        output=_output(output, text(first(of, "output.value"))),
        session=word(first(of, "session.id")),
        agent=word(first(of, "agent.name", "graph.node.id")) if kind is Kind.AGENT else word(of.get("agent.name")),
    )


def _name(span: Span, kind: Kind | None) -> str | None:
    of = span.attributes
    if kind is Kind.TOOL:
        return word(first(of, "tool.name", "tool_call.function.name")) or span.name
    return word(first(of, "agent.name", "graph.node.id")) or span.name if kind is Kind.AGENT else None


def _sent(of: Mapping[str, Any]) -> tuple[Turn, ...]:
    rows = nested(of, "llm.input_messages")
    if rows:
        return tuple(each for row in rows for each in said(_flat(row)))
    prompts = opened(of.get("llm.prompts")) or [row.get("prompt.text") or row for row in nested(of, "llm.prompts")]
    embedded = [_deep(row, "embedding", "text") for row in nested(of, "embedding.embeddings")]
    if embedded and all(isinstance(each, str) for each in embedded):
        return tuple(Turn("user", str(each)) for each in embedded)
    return said(prompts or of.get("input.value"))


def _answered(of: Mapping[str, Any], output: Any) -> tuple[Turn, ...]:
    rows = nested(of, "llm.output_messages")
    if of.get("openinference.span.kind") == "EMBEDDING":
        return ()
    if not rows:
        return replied(output)
    answers = [answer for row in rows for answer in one(said(_flat(row), "assistant"))]
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


def _first_token(span: Span) -> float | None:
    at = next((each.at for each in span.events if each.name == _STREAMS), None)
    return (at - span.began) / 1e9 if at is not None and at >= span.began else None


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
        words = [each.text for each in replied(output) if each.text]
        return words[-1] if words else whole
    if isinstance(output, Sequence) and not isinstance(output, str):
        words = [each.text for each in said(output) if each.role == "assistant" and each.text]
        return words[-1] if words and all(isinstance(each, Mapping) and "role" in each for each in output) else whole
    return whole


def _deep(row: Any, *path: str) -> Any:
    for name in path:
        row = row.get(name) if isinstance(row, Mapping) else None
    return row
