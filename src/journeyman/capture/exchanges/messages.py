"""Anthropic's messages."""

from collections.abc import Iterable, Iterator
from typing import Any

from journeyman.capture import content
from journeyman.capture.exchanges.reading import Reading, beside
from journeyman.capture.exchanges.sse import Event
from journeyman.capture.fields import count, mapping, objects, parsed, string, word
from journeyman.core.messages import ToolUse, Turn, Usage, arguments_text

_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


def read(request: dict[str, Any], answer: dict[str, Any], error: str | None) -> Reading:
    """Raises nothing, whatever the two hold."""
    usage = mapping(answer.get("usage"))
    turns = [Turn("system", content.text(request.get("system")))] if request.get("system") else []
    for message in objects(request.get("messages")):
        turns += _turns(message)
    said = answer.get("content")
    return Reading(
        model=word(answer.get("model")) or string(request.get("model")),
        turns=tuple(turns),
        reply=_said(said),
        reasoning=content.thoughts(said),
        finish=word(answer.get("stop_reason")),
        usage=tokens(usage),
        response_id=word(answer.get("id")),
        error=error,
        raw=beside(request, usage, "messages", "system", "model"),
    )


def tokens(usage: dict[str, Any]) -> Usage:
    """Anthropic counts what came from the cache, and what went there, apart from the rest of the input."""
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return Usage.beside_cache(*(count(usage.get(name)) for name in names))


def _turns(message: dict[str, Any]) -> Iterator[Turn]:
    """A message as one turn; each tool's answer in it is a turn of its own, before the rest."""
    said = message.get("content")
    if message.get("role") == "assistant":
        yield _said(said)
        return
    rest = []
    for part in objects(said):
        if part.get("type") == "tool_result" and (answer := content.answer(part)):
            yield answer
        else:
            rest.append(part)
    if rest or not isinstance(said, list):
        yield Turn(string(message.get("role")) or "user", content.text(rest or said))


def _said(said: Any) -> Turn:
    """What an assistant said: texts that follow each other are one sentence, cut where it cites."""
    if not isinstance(said, list):
        return Turn("assistant", content.text(said))
    results = {string(part.get("tool_use_id")): part for part in objects(said) if part.get("tool_use_id")}
    runs: list[list[str]] = [[]]
    calls = []
    for part in objects(said):
        kind = string(part.get("type"))
        if kind in _CALLS:
            calls.append(_call(part, results))
            runs.append([])
        elif kind.endswith("_tool_result"):
            runs.append([])
        else:
            runs[-1].append(content.one(part))
    text = "\n\n".join(filter(None, ("".join(run) for run in runs)))
    return Turn("assistant", text, calls=tuple(calls))


def _call(part: dict[str, Any], results: dict[str, dict[str, Any]]) -> ToolUse:
    call = ToolUse(string(part.get("name")), arguments_text(part.get("input")), string(part.get("id")))
    found = results.get(call.id) if part.get("type") != "tool_use" else None
    if found is None:
        return call
    result = found.get("content")
    code = string(mapping(result).get("error_code")) or ("error" if found.get("is_error") else "")
    return call._replace(result=arguments_text(result), error=code or None)


def assembled(events: Iterable[Event]) -> tuple[dict[str, Any], bool]:
    """A stream as the answer that would have come whole, and whether it came to its end."""
    answer: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    ended = False
    for event in events:
        said = mapping(parsed(event.data))
        match said.get("type"):
            case "message_start":
                answer = dict(mapping(said.get("message")))
                answer["usage"] = dict(mapping(answer.get("usage")))
            case "content_block_start":
                blocks[count(said.get("index")) or 0] = {"block": dict(mapping(said.get("content_block"))), "pieces": {}}
            case "content_block_delta":
                _grow(blocks.setdefault(count(said.get("index")) or 0, {"block": {}, "pieces": {}}), mapping(said.get("delta")))
            case "message_delta":
                answer.update({key: value for key, value in mapping(said.get("delta")).items() if value is not None})
                answer["usage"] = {**mapping(answer.get("usage")), **_known(mapping(said.get("usage")))}
            case "message_stop":
                ended = True
            case "error":
                answer["error"] = said.get("error") or said
    if blocks:
        answer["content"] = [_closed(block) for _, block in sorted(blocks.items())]
    return answer, ended


def _known(usage: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in usage.items() if value is not None}


_DELTAS = {
    "text_delta": ("text", "text", "text"),
    "thinking_delta": ("thinking", "thinking", "thinking"),
    "input_json_delta": ("tool_use", "input", "partial_json"),
}
"""By the kind of a delta: the kind of its block, the block's field, and the delta's."""


def _grow(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if (known := _DELTAS.get(string(delta.get("type")))) is None:
        return
    kind, to, field = known
    block["block"].setdefault("type", kind)
    block["pieces"].setdefault(to, []).append(string(delta.get(field)))


def _closed(block: dict[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] = block["block"]
    for field, pieces in block["pieces"].items():
        text = "".join(pieces)
        if field == "input":
            # Arguments that were cut stay as far as they came.
            whole[field] = text or whole.get(field)
        else:
            whole[field] = string(whole.get(field)) + text
    return whole
