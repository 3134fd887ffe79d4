"""What went into a model and what came out, from the many ways in which exports hold it."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from journeyman.capture import chat, fields
from journeyman.trace import Message

_LISTS = ("messages", "contents", "input", "prompt", "prompts", "generations")
_ROLES = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "function": "tool",
    "gpt": "assistant",
    "developer": "system",
}


def asked(value: Any) -> tuple[Message, ...]:
    """The messages that a model was sent; a text alone is the user's. Nothing where nothing was recorded."""
    turns = list(_turns(fields.opened(value), "user"))
    return tuple(Message(role=turn.role, text=turn.text or _called(turn), answers=turn.answers) for turn in turns)


def answered(value: Any) -> chat.Turn:
    """What the model answered, as one turn."""
    turns = list(_turns(_inner(fields.opened(value)), "assistant"))
    return chat.Turn(
        role="assistant",
        text="\n".join(turn.text for turn in turns if turn.text),
        asks=tuple(ask for turn in turns for ask in turn.asks),
        thinking="\n".join(turn.thinking for turn in turns if turn.thinking),
        finish=next((turn.finish for turn in turns if turn.finish), None),
    )


def _called(turn: chat.Turn) -> str:
    return "\n".join(f"[calls {ask.tool} {ask.arguments}]" for ask in turn.asks)


def _inner(value: Any) -> Any:
    """The messages in an API's answer: OpenAI's two, Gemini's, LangChain's."""
    if not isinstance(value, dict):
        return value
    for name in ("choices", "candidates"):
        found = fields.objects(value.get(name))
        if found:
            return [
                {**(fields.mapping(each.get("message")) or fields.mapping(each.get("content"))), "finish_reason": _finish(each)}
                for each in found
            ]
    if isinstance(value.get("generations"), list):
        flat = [each for row in value["generations"] for each in (row if isinstance(row, list) else [row])]
        return [fields.mapping(each.get("message")) or {"content": each.get("text")} for each in fields.objects(flat)]
    for name in ("message", "output", "messages"):
        if isinstance(value.get(name), dict | list | str):
            return value[name]
    return value


def _finish(choice: Mapping[str, Any]) -> str | None:
    found = choice.get("finish_reason")
    if isinstance(found, dict):
        # LangSmith's JavaScript SDK puts the last piece of a stream here.
        found = found.get("finish_reason")
    return str(found).lower() if found else None


def _turns(value: Any, role: str) -> Iterator[chat.Turn]:
    """The messages that a value is, or holds."""
    if value in (None, "", [], {}):
        return
    if isinstance(value, list):
        if all(isinstance(each, dict) and not _is_message(each) and each.get("type") not in _ITEMS for each in value):
            yield _whole(value, role)
            return
        for each in value:
            yield from _turns(each, role)
        return
    if not isinstance(value, dict):
        yield chat.Turn(role=role, text=fields.text(value))
        return
    if value.get("type") in _ITEMS:
        yield _item(value)
        return
    if _is_message(value):
        yield from _message(value, role)
        return
    if isinstance(value.get("system"), str):
        yield chat.Turn(role="system", text=value["system"])
    held = next((value[name] for name in _LISTS if value.get(name)), None)
    if held is None:
        yield chat.Turn(role=role, text=chat.as_json(value))
        return
    yield from _turns(fields.opened(held), role)


_ITEMS = frozenset({"function_call", "function_call_output", "reasoning"})
"""What stands beside messages in OpenAI's Responses API."""


def _item(item: Mapping[str, Any]) -> chat.Turn:
    if item["type"] == "function_call":
        ask = chat.Asked(
            tool=str(item.get("name")), arguments=fields.text(item.get("arguments")), id=str(item.get("call_id") or "")
        )
        return chat.Turn(role="assistant", asks=(ask,))
    if item["type"] == "reasoning":
        return chat.Turn(role="assistant", thinking=chat.text_of(item.get("summary")))
    id = item.get("call_id")
    return chat.Turn(role="tool", text=chat.text_of(item.get("output")), answers=str(id) if id else None)


def _whole(parts: list[Any], role: str) -> chat.Turn:
    """A list of parts, as one message. The AI SDK writes its tool calls so."""
    asks = [
        chat.Asked(
            tool=str(each["toolName"]),
            arguments=fields.text(each.get("input", each.get("args"))),
            id=str(each.get("toolCallId")),
        )
        for each in parts
        if "toolName" in each
    ]
    asks += chat.asked_in(_plain(parts))
    return chat.Turn(role=role, text="" if asks else chat.text_of(_plain(parts)), asks=tuple(asks))


def _is_message(value: Mapping[str, Any]) -> bool:
    return "role" in value or isinstance(value.get("kwargs"), dict) or ("content" in value and "type" not in value)


def _message(value: Mapping[str, Any], role: str) -> Iterator[chat.Turn]:
    inner = fields.mapping(value.get("kwargs")) or value
    names = value.get("id")
    told = str(names[-1]) if isinstance(names, list) and names else str(inner.get("type") or "")
    role = str(value.get("role") or told.lower().removesuffix("chunk").removesuffix("message") or role)
    content = inner.get("content", inner.get("parts"))
    if isinstance(content, dict) and isinstance(content.get("parts"), list):
        content = content["parts"]
    calls = inner.get("tool_calls") or fields.mapping(inner.get("additional_kwargs")).get("tool_calls")
    role = _ROLES.get(role, role)
    row = {
        "role": role,
        "content": _plain(content) if isinstance(content, list) else fields.text(content),
        "tool_calls": [_call(call) for call in fields.objects(calls)] or None,
        "tool_call_id": inner.get("tool_call_id") if isinstance(inner.get("tool_call_id"), str) else None,
        "finish_reason": _finish(inner),
    }
    try:
        yield from chat.Message.model_validate(row).turns
    except ValidationError:
        yield chat.Turn(role=role, text=fields.text(content))


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    inner = fields.mapping(call.get("function")) or call
    given = inner.get("arguments", inner.get("args", ""))
    return {"id": call.get("id"), "function": {"name": str(inner.get("name", "")), "arguments": fields.text(given)}}


def _plain(parts: list[Any]) -> list[Any]:
    """Parts as OpenAI and Anthropic write them; OpenTelemetry and Gemini have names of their own."""
    return [_part(part) if isinstance(part, dict) else part for part in parts]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    call = fields.mapping(part.get("function_call")) or fields.mapping(part.get("functionCall"))
    if call:
        return {"type": "tool_use", "name": str(call.get("name", "")), "input": call.get("args") or {}, "id": call.get("id")}
    answer = fields.mapping(part.get("function_response")) or fields.mapping(part.get("functionResponse"))
    if answer:
        return {"type": "tool_result", "tool_use_id": answer.get("id"), "content": fields.text(answer.get("response"))}
    if part.get("type") == "text" and "text" not in part:
        return {"type": "text", "text": fields.text(part.get("content"))}
    if part.get("type") == "tool_call_response":
        return {
            "type": "tool_result",
            "tool_use_id": part.get("id"),
            "content": fields.text(part.get("result", part.get("response"))),
        }
    return part
