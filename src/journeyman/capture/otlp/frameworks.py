"""What single frameworks and back ends say in words of their own, beside a convention or in place of one.

pydantic-ai and Logfire (`events`, `tool_arguments`, `final_result`), Google's ADK (`gcp.vertex.agent.*`), Langfuse
(`langfuse.observation.*`), LangSmith (`langsmith.span.kind`), MLflow (`mlflow.spanType`).
"""

from collections.abc import Mapping
from typing import Any

from journeyman.capture.fields import first, mapping, opened
from journeyman.capture.otlp.spans import Span
from journeyman.capture.otlp.told import Kind, Told, count, number, replied, said, text, word
from journeyman.core.messages import Turn, Usage

_LANGFUSE = {
    "generation": Kind.CALL, "embedding": Kind.CALL, "tool": Kind.TOOL, "retriever": Kind.TOOL, "agent": Kind.AGENT,
    "chain": Kind.AGENT, "guardrail": Kind.AGENT, "evaluator": Kind.AGENT,
}  # fmt: skip
_LANGSMITH = {"llm": Kind.CALL, "embedding": Kind.CALL, "tool": Kind.TOOL, "retriever": Kind.TOOL, "chain": Kind.AGENT}
_MLFLOW = {
    "LLM": Kind.CALL, "CHAT_MODEL": Kind.CALL, "EMBEDDING": Kind.CALL, "TOOL": Kind.TOOL, "RETRIEVER": Kind.TOOL,
    "AGENT": Kind.AGENT, "CHAIN": Kind.AGENT, "WORKFLOW": Kind.AGENT,
}  # fmt: skip


def pydantic_ai(span: Span) -> Told:
    """pydantic-ai, in its first versions and in those after the conventions; Logfire's own instrumentation of clients."""
    of = span.attributes
    agent = word(first(of, "agent_name"))
    if agent and "model_name" in of and "gen_ai.request.model" not in of:
        history = said(first(of, "pydantic_ai.all_messages", "all_messages_events"))
        return Told(
            kind=Kind.AGENT,
            name=agent,
            agent=agent,
            input=next((each.text for each in reversed(history) if each.role == "user"), None),
            output=text(first(of, "final_result")),
        )
    if "tool_arguments" in of or "tool_response" in of:
        return Told(kind=Kind.TOOL, arguments=text(of.get("tool_arguments")), result=text(first(of, "tool_response")))
    events = opened(of.get("events"))
    if isinstance(events, list) and events and all(isinstance(each, Mapping) for each in events):
        choices = [each for each in events if "choice" in str(each.get("event.name"))]
        sent = [each for each in events if "choice" not in str(each.get("event.name"))]
        return Told(said=said(sent), replies=tuple(answer for each in choices for answer in replied(each)))
    return _logfire(of)


def _logfire(of: Mapping[str, Any]) -> Told:
    request, response = opened(of.get("request_data")), opened(of.get("response_data"))
    if not isinstance(request, Mapping) or not ({"messages", "input", "prompt"} & set(request)):
        return Told()
    return Told(kind=Kind.CALL, model=word(request.get("model")), said=said(request), replies=replied(response))


def adk(span: Span) -> Told:
    """Google's Agent Development Kit."""
    of = span.attributes
    if not any(name.startswith("gcp.vertex.agent.") for name in of):
        return Told()
    request, response = opened(of.get("gcp.vertex.agent.llm_request")), opened(of.get("gcp.vertex.agent.llm_response"))
    sent: tuple[Turn, ...] = ()
    if isinstance(request, Mapping) and request.get("contents"):
        config = request.get("config")
        system = config.get("system_instruction") if isinstance(config, Mapping) else None
        sent = (*said(system, "system"), *said(request["contents"]))
    return Told(
        said=sent,
        replies=replied(response) if isinstance(response, Mapping) and response else (),
        arguments=text(first(of, "gcp.vertex.agent.tool_call_args")),
        result=text(first(of, "gcp.vertex.agent.tool_response")),
        session=word(first(of, "gcp.vertex.agent.session_id")),
    )


def langfuse(span: Span) -> Told:
    """Langfuse's SDK, which reports over OpenTelemetry since its third version."""
    of = span.attributes
    kind = _LANGFUSE.get(str(of.get("langfuse.observation.type", "")).lower())
    usage, cost = (mapping(opened(of.get(f"langfuse.observation.{name}_details"))) for name in ("usage", "cost"))
    into, out = of.get("langfuse.observation.input"), of.get("langfuse.observation.output")
    session = word(first(of, "langfuse.session.id", "langfuse.trace.session.id"))
    into = first(of, "langfuse.trace.input") if into is None and span.parent is None else into
    out = first(of, "langfuse.trace.output") if out is None and span.parent is None else out
    call = kind is Kind.CALL
    return Told(
        kind=kind,
        name=span.name if kind in (Kind.TOOL, Kind.AGENT) else None,
        model=word(first(of, "langfuse.observation.model.name", "langfuse.observation.model")),
        said=said(into) if call else (),
        replies=replied(out) if call else (),
        usage=Usage(
            input=count(usage, "input", "prompt_tokens", "input_tokens"),
            output=count(usage, "output", "completion_tokens", "output_tokens"),
            cached=count(usage, "input_cached_tokens", "cache_read_input_tokens", "input_cache_read"),
        ),
        cost=number(cost, "total"),
        arguments=text(into) if kind is Kind.TOOL else None,
        result=text(out) if kind is Kind.TOOL else None,
        input=text(into),
        output=text(out),
        session=session or word(first(of, "session.id")),
    )


def langsmith(span: Span) -> Told:
    """LangSmith's export to OpenTelemetry."""
    of = span.attributes
    kind = _LANGSMITH.get(str(of.get("langsmith.span.kind", "")).lower())
    into, out = of.get("gen_ai.prompt"), of.get("gen_ai.completion")
    return Told(
        kind=kind,
        name=span.name if kind in (Kind.TOOL, Kind.AGENT) else None,
        arguments=text(into) if kind is Kind.TOOL else None,
        result=text(out) if kind is Kind.TOOL else None,
        input=text(into) if kind is Kind.AGENT else None,
        output=text(out) if kind is Kind.AGENT else None,
        session=word(first(of, "langsmith.trace.session_id", *(f"langsmith.metadata.{name}" for name in _THREADS))),
    )


_THREADS = ("session_id", "thread_id", "conversation_id")


def mlflow(span: Span) -> Told:
    """MLflow's tracing."""
    of = {name: _unquoted(value) for name, value in span.attributes.items() if name.startswith("mlflow.")}
    kind = _MLFLOW.get(str(of.get("mlflow.spanType", "")).upper())
    into, out = of.get("mlflow.spanInputs"), of.get("mlflow.spanOutputs")
    usage = mapping(opened(of.get("mlflow.chat.tokenUsage")))
    return Told(
        kind=kind,
        name=word(of.get("mlflow.spanFunctionName")) or span.name if kind in (Kind.TOOL, Kind.AGENT) else None,
        model=word(mapping(opened(into)).get("model")),
        said=said(into) if kind is Kind.CALL else (),
        replies=replied(out) if kind is Kind.CALL else (),
        usage=Usage(count(usage, "input_tokens"), count(usage, "output_tokens")),
        arguments=text(into) if kind is Kind.TOOL else None,
        result=text(out) if kind is Kind.TOOL else None,
        input=text(into),
        output=text(out),
        session=word(first(of, "mlflow.trace.session")),
    )


def _unquoted(value: Any) -> Any:
    """MLflow writes every attribute as JSON, texts too."""
    return value[1:-1] if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"' else value
