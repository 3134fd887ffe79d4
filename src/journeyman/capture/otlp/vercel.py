"""The Vercel AI SDK: `ai.operationId`, `ai.prompt.messages`, `ai.response.text`.

`ai.generateText` is the function that the user called; `ai.generateText.doGenerate` within it is each exchange with the model.
https://ai-sdk.dev/docs/ai-sdk-core/telemetry
"""

from collections.abc import Mapping
from typing import Any

from journeyman.capture.content import call_of
from journeyman.capture.fields import first, objects, opened
from journeyman.capture.otlp.spans import Span
from journeyman.capture.otlp.told import Kind, Told, count, number, said, text, word
from journeyman.core.messages import Turn, Usage


def read(span: Span) -> Told:
    """What the attributes of a span tell in this SDK's words."""
    of = span.attributes
    operation = str(of.get("ai.operationId") or of.get("operation.name") or "")
    if not operation.startswith("ai."):
        return Told()
    if operation == "ai.toolCall":
        return Told(
            kind=Kind.TOOL,
            name=word(of.get("ai.toolCall.name")),
            arguments=text(first(of, "ai.toolCall.args", "ai.toolCall.input")),
            result=text(first(of, "ai.toolCall.result", "ai.toolCall.output")),
            call_id=word(of.get("ai.toolCall.id")),
            session=_session(of),
        )
    function = word(of.get("ai.telemetry.functionId"))
    sent, answer = _sent(of), _answer(of)
    inner = operation.rpartition(".")[2].startswith("do")
    first_token = number(of, "ai.response.msToFirstChunk", "ai.stream.msToFirstChunk")
    return Told(
        kind=Kind.CALL if inner else Kind.OUTER,
        name=function or operation.removeprefix("ai."),
        model=word(first(of, "ai.response.model", "ai.model.id")),
        said=sent,
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


def _sent(of: Mapping[str, Any]) -> tuple[Turn, ...]:
    values = opened(of.get("ai.values"))
    if isinstance(values, list):
        return tuple(Turn("user", _unquoted(str(value))) for value in values)
    value = of.get("ai.value")
    if isinstance(value, str):
        return (Turn("user", _unquoted(value)),)
    return said(first(of, "ai.prompt.messages", "ai.prompt"))


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def _answer(of: Mapping[str, Any]) -> Turn | None:
    words = text(first(of, "ai.response.text", "ai.response.object", "ai.result.text", "ai.result.object"))
    rows = opened(first(of, "ai.response.toolCalls", "ai.result.toolCalls"))
    calls = [call_of(row) for row in objects(rows)]
    thought = text(first(of, "ai.response.reasoning"))
    if words is None and not calls and not thought:
        return None
    return Turn("assistant", words or "", thought=thought or "", calls=tuple(calls))


def _provider_id(of: Mapping[str, Any]) -> str | None:
    """The id that the provider gave the answer, which the outer function tells in the provider's own words."""
    told = opened(of.get("ai.response.providerMetadata"))
    for each in told.values() if isinstance(told, Mapping) else ():
        if isinstance(each, Mapping) and isinstance(each.get("responseId"), str):
            return str(each["responseId"])
    return None


def _session(of: Mapping[str, Any]) -> str | None:
    names = ("sessionId", "session_id", "threadId", "conversationId", "chatId")
    return word(first(of, *(f"ai.telemetry.metadata.{name}" for name in names)))
