"""Anthropic's messages."""

from collections.abc import Iterable, Iterator
from typing import Any

from journeyman.capture.exchanges import parts
from journeyman.capture.exchanges.loose import beside, dumped, parsed, string, word
from journeyman.capture.exchanges.reading import Asked, Reading, Turn, Usage
from journeyman.capture.exchanges.sse import Event
from journeyman.capture.fields import count, mapping, objects

_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


def read(request: dict[str, Any], answer: dict[str, Any], error: str | None) -> Reading:
    """Raises nothing, whatever the two hold."""
    usage = mapping(answer.get("usage"))
    turns = [Turn("system", parts.text(request.get("system")))] if request.get("system") else []
    for message in objects(request.get("messages")):
        turns += _turns(message)
    content = answer.get("content")
    return Reading(
        model=word(answer.get("model")) or string(request.get("model")),
        turns=tuple(turns),
        reply=_said(content),
        reasoning=parts.thoughts(content),
        finish=word(answer.get("stop_reason")),
        usage=tokens(usage),
        response_id=word(answer.get("id")),
        error=error,
        raw=beside(request, usage, "messages", "system", "model"),
    )


def tokens(usage: dict[str, Any]) -> Usage:
    """Anthropic counts what came from the cache, and what went there, apart from the rest of the input."""
    fresh = count(usage.get("input_tokens"))
    cached = count(usage.get("cache_read_input_tokens"))
    written = count(usage.get("cache_creation_input_tokens"))
    return Usage(
        input=None if fresh is None else fresh + (cached or 0) + (written or 0),
        output=count(usage.get("output_tokens")),
        cached=cached,
        written=written,
    )


def _turns(message: dict[str, Any]) -> Iterator[Turn]:
    """A message as one turn; each tool's answer in it is a turn of its own, before the rest."""
    content = message.get("content")
    if message.get("role") == "assistant":
        yield _said(content)
        return
    rest = []
    for part in objects(content):
        if part.get("type") == "tool_result":
            failed = part.get("is_error")
            yield Turn(
                "tool",
                parts.text(part.get("content")),
                answers=word(part.get("tool_use_id")),
                failed=failed if isinstance(failed, bool) else None,
            )
        else:
            rest.append(part)
    if rest or not isinstance(content, list):
        yield Turn(string(message.get("role")) or "user", parts.text(rest or content))


def _said(content: Any) -> Turn:
    """What an assistant said: texts that follow each other are one sentence, cut where it cites."""
    if not isinstance(content, list):
        return Turn("assistant", parts.text(content))
    results = {string(part.get("tool_use_id")): part for part in objects(content) if part.get("tool_use_id")}
    runs: list[list[str]] = [[]]
    calls = []
    for part in objects(content):
        kind = string(part.get("type"))
        if kind in _CALLS:
            calls.append(_call(part, results))
            runs.append([])
        elif kind.endswith("_tool_result"):
            runs.append([])
        else:
            runs[-1].append(parts.one(part))
    text = "\n\n".join(filter(None, ("".join(run) for run in runs)))
    return Turn("assistant", text, calls=tuple(calls))


def _call(part: dict[str, Any], results: dict[str, dict[str, Any]]) -> Asked:
    id, arguments = string(part.get("id")), dumped(part.get("input"))
    found = results.get(id) if part.get("type") != "tool_use" else None
    if found is None:
        return Asked(id, string(part.get("name")), arguments)
    content = found.get("content")
    code = string(mapping(content).get("error_code")) or ("error" if found.get("is_error") else "")
    result = content if isinstance(content, str) else dumped(content)
    return Asked(id, string(part.get("name")), arguments, result=result, error=code or None)


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
