"""Messages as instrumentations write them, of whichever provider: OpenAI's, Anthropic's, Google's, Vercel's, LangChain's, or
with the parts of the GenAI conventions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from journeyman.capture.otlp.told import Asked, Said, first, loaded, text

_ROLES = {"model": "assistant", "ai": "assistant", "human": "user", "developer": "system", "function": "tool"}
_CALL = ("tool_call", "tool-call", "tool_use", "function_call", "toolCall", "server_tool_call", "server_tool_use")
_ANSWER = (
    "tool_call_response", "tool-result", "tool_result", "function_call_output", "function_response",
    "server_tool_call_response", "server_tool_result",
)  # fmt: skip
_THOUGHT = ("reasoning", "thinking", "redacted_thinking")
_TEXT = ("text", "input_text", "output_text", "refusal", "summary_text")
_BLOCKS = frozenset((*_CALL, *_ANSWER, *_THOUGHT, *_TEXT, "function", "image", "image_url", "input_image", "document", "file"))
_PARTS = _BLOCKS - {"function_call", "function_call_output"}
"""Blocks that are never messages of their own, as those of the Responses API are."""
_DEEPEST = 8


def said(value: Any, role: str = "user", depth: int = 0) -> tuple[Said, ...]:
    """The messages that a value holds: a text, one message, a list of them, a request's body; also as JSON.

    Args:
        role: Whose words they are where they do not say so.
    """
    value = loaded(value)
    if value is None or value == "" or depth > _DEEPEST:
        return ()
    if isinstance(value, list):
        return _grouped(value, role, depth)
    if isinstance(value, Mapping):
        return _object(value, role, depth)
    return (Said(role=role, text=str(value)),)


def replied(value: Any) -> tuple[Said, ...]:
    """The answers that a value holds: as `said`, and also a response's body with its choices or its output."""
    value = loaded(value)
    if isinstance(value, Mapping):
        for name in ("choices", "candidates", "generations"):
            if isinstance(value.get(name), list):
                return tuple(each for choice in value[name] for each in replied(choice))
        if isinstance(value.get("output"), list):
            return one(said(value["output"], "assistant"))
        if isinstance(value.get("message"), Mapping):
            return _finished(one(said(value["message"], "assistant")), value)
        return _finished(one(said(value, "assistant")), value)
    return said(value, "assistant")


def one(messages: Sequence[Said]) -> tuple[Said, ...]:
    """What an assistant said in several pieces, as one message."""
    own = [each for each in messages if each.role == "assistant"]
    if len(own) < 2:
        return tuple(own)
    joined = Said(
        role="assistant",
        text="\n".join(each.text for each in own if each.text),
        thought="\n".join(each.thought for each in own if each.thought),
        calls=tuple(call for each in own for call in each.calls),
        finish=next((each.finish for each in own if each.finish), None),
    )
    return (joined,)


def _finished(messages: tuple[Said, ...], holder: Mapping[str, Any]) -> tuple[Said, ...]:
    finish = first(holder, "finish_reason", "finishReason", "stop_reason")
    if not isinstance(finish, str) or len(messages) != 1 or messages[0].finish:
        return messages
    only = messages[0]
    return (
        Said(
            role=only.role, text=only.text, thought=only.thought, calls=only.calls, answers=only.answers, finish=finish.lower()
        ),
    )


def _grouped(values: Sequence[Any], role: str, depth: int) -> tuple[Said, ...]:
    """A list of messages, or the list of the parts of one message."""
    if values and all(isinstance(each, Mapping) and "role" not in each and _type(each) in _PARTS for each in values):
        return _message({"role": role, "content": values}, role)
    return tuple(message for each in values for message in said(each, role, depth + 1))


def _object(value: Mapping[str, Any], role: str, depth: int) -> tuple[Said, ...]:
    inner = first(value, "message")
    if isinstance(inner, Mapping):
        return _finished(said({**inner, "role": inner.get("role") or value.get("role") or role}, role, depth + 1), value)
    if isinstance(value.get("kwargs"), Mapping) and "lc" in value:
        kind = value["kwargs"].get("type") or role
        return said({"role": kind, **value["kwargs"]}, role, depth + 1)
    if "role" not in value and isinstance(conversation := first(value, "messages", "contents", "input", "prompt"), list | str):
        system = first(value, "system", "instructions", "system_instruction")
        return (*said(system, "system", depth + 1), *said(conversation, role, depth + 1))
    return _message(value, role)


def _message(value: Mapping[str, Any], role: str) -> tuple[Said, ...]:
    kind = _type(value)
    if kind in (*_CALL, *_ANSWER, *_THOUGHT) and not isinstance(value.get("content"), list):
        return _parts([value], "tool" if kind in _ANSWER else "assistant", value)
    who = str(value.get("role") or (kind if kind in ("human", "ai", "system", "tool") else role)).lower()
    who = _ROLES.get(who, who)
    content = loaded(first(value, "content", "parts", "contents", "text"))
    if isinstance(content, list) and (isinstance(value.get("content"), list) or _are_parts(content)):
        return _parts(content, who, value)
    if isinstance(content, Mapping) and ("parts" in content or "text" in content or "content" in content):
        return said({"role": who, **content}, who, _DEEPEST - 2)
    return _parts([] if content is None else [text(first(value, "content", "parts", "contents", "text"))], who, value)


def _are_parts(content: Sequence[Any]) -> bool:
    """Whether the JSON in a text is a list of parts, and not the text itself, which may be JSON too."""
    return bool(content) and all(
        isinstance(each, Mapping)
        and (_type(each) in _BLOCKS or "message_content" in each or set(each) & {"text", "function_call", "function_response"})
        for each in content
    )


def _parts(parts: Iterable[Any], role: str, holder: Mapping[str, Any]) -> tuple[Said, ...]:
    words: list[str] = []
    thoughts: list[str] = []
    calls: list[Asked] = []
    answers: list[Said] = []
    for part in parts:
        part = part.get("message_content", part) if isinstance(part, Mapping) else part
        if not isinstance(part, Mapping):
            words.append(str(part))
        elif call := _call(part):
            # A part may say that a tool is asked for, and leave the name to `tool_calls`.
            calls += [call] if call.tool else []
        elif answer := _answer(part):
            answers.append(answer)
        elif _type(part) in _THOUGHT or part.get("thought") is True:
            thoughts.append(_words(first(part, "text", "content", "thinking", "summary", "reasoning")))
        else:
            words.append(_piece(part))
    calls += _calls(holder)
    own = "\n".join(each for each in words if each)
    thought = "\n".join((*(each for each in thoughts if each), *_aside(holder)))
    if answers and not own and not calls:
        return tuple(answers)
    finish = first(holder, "finish_reason", "finishReason", "stop_reason")
    message = Said(
        role=role,
        text=own,
        thought=thought,
        calls=tuple(calls),
        answers=text(first(holder, "tool_call_id", "toolCallId", "id", "call_id")) if role == "tool" else None,
        finish=finish.lower() if isinstance(finish, str) else None,
    )
    return (*answers, message)


def _type(part: Mapping[str, Any]) -> str:
    found = part.get("type")
    return found if isinstance(found, str) else ""


def _aside(holder: Mapping[str, Any]) -> tuple[str, ...]:
    found = first(holder, "reasoning_content", "reasoning")
    return (found,) if isinstance(found, str) and _type(holder) not in _THOUGHT else ()


def _calls(holder: Mapping[str, Any]) -> list[Asked]:
    rows = loaded(first(holder, "tool_calls", "toolCalls"))
    found = [_asked(each) for each in rows if isinstance(each, Mapping)] if isinstance(rows, list) else []
    old = holder.get("function_call")
    if isinstance(old, Mapping):
        found.append(_asked(old))
    elif name := holder.get("function_call_name"):
        found.append(Asked(tool=str(name), arguments=text(holder.get("function_call_arguments_json")) or ""))
    return [call for call in found if call.tool]


def _call(part: Mapping[str, Any]) -> Asked | None:
    if _type(part) in _CALL or (_type(part) == "function" and "function" in part):
        return _asked(part)
    inner = first(part, "function_call", "functionCall", "toolUse")
    if isinstance(inner, Mapping):
        return _asked(inner)
    return _asked(part) if set(part) >= {"function", "id"} else None


def _asked(call: Mapping[str, Any]) -> Asked:
    call = call["tool_call"] if isinstance(call.get("tool_call"), Mapping) else call
    function = call["function"] if isinstance(call.get("function"), Mapping) else call
    arguments = first(function, "arguments", "args", "input", "partial_json", "params")
    return Asked(
        tool=str(first(function, "name", "toolName", "tool_name") or first(call, "name") or ""),
        arguments="{}" if arguments is None else text(arguments) or "",
        id=str(first(call, "call_id", "id", "toolCallId", "tool_call_id", "toolUseId") or ""),
    )


def _answer(part: Mapping[str, Any]) -> Said | None:
    inner = first(part, "function_response", "functionResponse", "toolResult")
    if isinstance(inner, Mapping):
        part = inner
    elif _type(part) not in _ANSWER:
        return None
    result = first(part, "response", "result", "output", "content")
    if isinstance(result, Mapping) and set(result) <= {"type", "value"} and "value" in result:
        result = result["value"]
    id = first(part, "call_id", "tool_use_id", "toolCallId", "tool_call_id", "id", "toolUseId", "name")
    return Said(role="tool", text=_words(result), answers=str(id) if id is not None else None)


def _words(value: Any) -> str:
    """The text of a part's content; a list of texts as lines."""
    if (
        isinstance(value, list)
        and value
        and all(isinstance(each, Mapping) and isinstance(each.get("text"), str) for each in value)
    ):
        return "\n".join(each["text"] for each in value)
    return text(value) or ""


def _piece(part: Mapping[str, Any]) -> str:
    """A part that is no tool call: its text, or in brackets what it is."""
    for name in ("text", "content", "refusal"):
        if isinstance(part.get(name), str) and _type(part) in (*_TEXT, ""):
            return str(part[name])
    if _type(part) == "text" and isinstance(part.get("text"), Mapping):
        return text(part["text"]) or ""
    kind = first(part, "mime_type", "media_type", "mediaType", "mimeType", "modality", "type")
    return f"[{kind or 'content'}]"
