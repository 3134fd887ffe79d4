"""OpenAI's chat completions, and what the many servers that speak it make of it."""

from collections.abc import Iterable, Iterator
from typing import Any

from journeyman.capture import content
from journeyman.capture.exchanges.reading import NOTHING, Reading, beside
from journeyman.capture.exchanges.sse import Event
from journeyman.capture.fields import count, mapping, objects, parsed, string, word
from journeyman.core.messages import ROLES, ToolUse, Turn, Usage, arguments_text


def read(request: dict[str, Any], answer: dict[str, Any], error: str | None) -> Reading:
    """Raises nothing, whatever the two hold."""
    choices = sorted(objects(answer.get("choices")), key=lambda choice: count(choice.get("index")) or 0)
    said = [(choice, mapping(choice.get("message"))) for choice in choices]
    replies = [_turn(message, "assistant") for _, message in said]
    usage = mapping(answer.get("usage")) or mapping(mapping(answer.get("x_groq")).get("usage"))
    raw = beside(request, usage, "messages", "model")
    if logprobs := _logprobs(choices):
        raw["logprobs"] = logprobs
    if len(choices) > 1:
        raw["choices"] = [
            {"text": reply.text, "tool_calls": list(map(_plain, reply.calls)), "finish": choice.get("finish_reason")}
            for (choice, _), reply in zip(said[1:], replies[1:], strict=True)
        ]
    return Reading(
        model=word(answer.get("model")) or string(request.get("model")),
        turns=tuple(_turn(message, "user") for message in objects(request.get("messages"))),
        reply=replies[0] if replies else NOTHING,
        others=tuple(replies[1:]),
        reasoning=_reasoning(said[0][1]) if said else (),
        finish=word(choices[0].get("finish_reason")) if choices else None,
        usage=tokens(usage),
        response_id=word(answer.get("id")),
        error=error,
        raw=raw,
    )


def _plain(call: ToolUse) -> dict[str, Any]:
    told = call._asdict()
    return {name: told[name] for name in ("id", "tool", "arguments", "result", "error")}


def _logprobs(choices: list[dict[str, Any]]) -> list[float]:
    """Of each token of the first answer, where the provider was asked for them and told them all. Numbers alone: the tokens
    stand in the reply, and training weights on recorded answers needs what they were worth to the policy that wrote them."""
    told = objects(mapping(choices[0].get("logprobs")).get("content")) if choices else []
    values = [float(value) for each in told if isinstance(value := each.get("logprob"), int | float)]
    return values if len(values) == len(told) else []


def tokens(usage: dict[str, Any]) -> Usage:
    details = mapping(usage.get("prompt_tokens_details"))
    cached = count(details.get("cached_tokens"))
    return Usage(
        input=count(usage.get("prompt_tokens")),
        output=count(usage.get("completion_tokens")),
        # DeepSeek counts its cache under a name of its own.
        cached=count(usage.get("prompt_cache_hit_tokens")) if cached is None else cached,
        written=count(details.get("cache_write_tokens")),
    )


def _turn(message: dict[str, Any], usual: str) -> Turn:
    role = string(message.get("role")) or usual
    role = ROLES.get(role, role)
    if role == "tool":
        said = content.text(message.get("content"))
        return Turn(role, said, answers=word(message.get("tool_call_id")), tool=word(message.get("name")))
    if role != "assistant":
        return Turn(role, content.text(message.get("content")))
    text = content.text(message.get("content"), between="")
    return Turn(role, text or _instead(message), calls=tuple(_calls(message)))


def _instead(message: dict[str, Any]) -> str:
    """What stands for a reply that is no text."""
    if refusal := word(message.get("refusal")):
        return refusal
    return string(mapping(message.get("audio")).get("transcript"))


def _calls(message: dict[str, Any]) -> Iterator[ToolUse]:
    for call in objects(message.get("tool_calls")):
        does = mapping(call.get("function")) or mapping(call.get("custom"))
        arguments = arguments_text(does.get("arguments", does.get("input")))
        yield ToolUse(string(does.get("name")), arguments, string(call.get("id")))
    if old := mapping(message.get("function_call")):
        yield ToolUse(string(old.get("name")), arguments_text(old.get("arguments")))
    for call in objects(message.get("executed_tools")):
        name = string(call.get("name")) or string(call.get("type"))
        yield ToolUse(name, arguments_text(call.get("arguments")), result=content.text(call.get("output")))


def _reasoning(message: dict[str, Any]) -> tuple[str, ...]:
    for key in ("reasoning_content", "reasoning"):
        if found := content.text(message.get(key)):
            return (found,)
    return content.thoughts(message.get("content"))


def assembled(events: Iterable[Event]) -> tuple[dict[str, Any], bool]:
    """A stream as the answer that would have come whole, and whether it came to its end."""
    answer: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    ended = False
    for event in events:
        if event.data.strip() == "[DONE]":
            ended = True
            break
        chunk = mapping(parsed(event.data))
        for key in ("id", "model", "usage", "error", "x_groq"):
            if chunk.get(key):
                answer[key] = chunk[key]
        for piece in objects(chunk.get("choices")):
            index = count(piece.get("index")) or 0
            choice = choices.setdefault(index, {"index": index, "message": {}})
            _grow(choice["message"], mapping(piece.get("delta")) or mapping(piece.get("message")))
            if told := objects(mapping(piece.get("logprobs")).get("content")):
                choice.setdefault("logprobs", {"content": []})["content"] += told
            if piece.get("finish_reason"):
                choice["finish_reason"] = piece["finish_reason"]
    for choice in choices.values():
        _close(choice["message"])
    answer["choices"] = list(choices.values())
    finished = bool(choices) and all(choice.get("finish_reason") for choice in choices.values())
    return answer, ended or finished


_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


def _grow(message: dict[str, Any], delta: dict[str, Any]) -> None:
    """Lists of pieces are joined at the end: adding to a text ten thousand times would be slow."""
    if role := delta.get("role"):
        message["role"] = role
    for key in _TEXTS:
        value = delta.get(key)
        if isinstance(value, str):
            message.setdefault(key, []).append(value)
        elif isinstance(value, list):
            message.setdefault(key, []).extend(value)
    for piece in objects(delta.get("tool_calls")):
        _piece(message.setdefault("tool_calls", []), piece)
    if old := mapping(delta.get("function_call")):
        known = message.setdefault("function_call", {"name": "", "arguments": ""})
        known["name"] += string(old.get("name"))
        known["arguments"] += string(old.get("arguments"))
    if audio := mapping(delta.get("audio")):
        known = message.setdefault("audio", {"transcript": ""})
        known["transcript"] += string(audio.get("transcript"))
    if isinstance(delta.get("executed_tools"), list):
        message["executed_tools"] = delta["executed_tools"]


def _piece(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    """A fragment of a tool call, put where it belongs: by index; servers that count wrongly are told by a new id."""
    does = mapping(piece.get("function"))
    index, id = count(piece.get("index")), string(piece.get("id"))
    place = next((call for call in reversed(calls) if call["index"] == index), None) if index is not None else None
    if index is None and calls and not id:
        place = calls[-1]
    if place is None or (id and place["id"] and id != place["id"] and does.get("name")):
        place = {"index": index, "id": "", "function": {"name": "", "arguments": []}}
        calls.append(place)
    place["id"] = place["id"] or id
    known = place["function"]
    known["name"] = known["name"] or string(does.get("name"))
    arguments = does.get("arguments")
    if arguments is not None:
        known["arguments"].append(arguments_text(arguments))


def _close(message: dict[str, Any]) -> None:
    for key in _TEXTS:
        pieces = message.get(key)
        if pieces is not None:
            message[key] = "".join(pieces) if all(isinstance(piece, str) for piece in pieces) else _blocks(pieces)
    for call in message.get("tool_calls", ()):
        call["function"]["arguments"] = "".join(call["function"]["arguments"])


def _blocks(pieces: list[Any]) -> list[Any]:
    """Texts and parts in one list; the fragments of one thought are one part."""
    found: list[Any] = []
    for piece in pieces:
        part = {"type": "text", "text": piece} if isinstance(piece, str) else piece
        kind = mapping(part).get("type")
        if kind == "thinking" and found and found[-1].get("type") == "thinking":
            found[-1] = {
                "type": "thinking",
                "thinking": content.text(found[-1].get("thinking")) + content.text(part.get("thinking")),
            }
        elif isinstance(part, dict):
            found.append(part)
    return found
