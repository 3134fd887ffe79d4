"""OpenAI's responses."""

from collections.abc import Iterable, Iterator
from typing import Any

from journeyman.capture import content
from journeyman.capture.exchanges.reading import NOTHING, Reading, beside
from journeyman.capture.exchanges.sse import Event
from journeyman.capture.fields import count, mapping, objects, parsed, string, text, word
from journeyman.core.messages import ROLES, ToolUse, Turn, Usage, arguments_text

_ANSWERS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "computer_call_output")
_PLAIN = ("id", "type", "status", "name", "arguments", "call_id", "output", "error", "result", "results", "outputs")
"""Fields of a server's tool call that are not its arguments."""


def read(request: dict[str, Any], answer: dict[str, Any], error: str | None) -> Reading:
    """Raises nothing, whatever the two hold."""
    usage = mapping(answer.get("usage"))
    output = objects(answer.get("output"))
    turns = [Turn("system", told)] if (told := content.text(request.get("instructions"))) else []
    sent = request.get("input")
    turns += [Turn("user", sent)] if isinstance(sent, str) else _turns(objects(sent))
    replies = _turns(output)
    reply = next((turn for turn in replies if turn.role == "assistant"), NOTHING)
    talk = request.get("conversation")
    return Reading(
        model=word(answer.get("model")) or string(request.get("model")),
        turns=tuple(turns),
        reply=reply,
        reasoning=tuple(filter(None, (_thought(item) for item in output if item.get("type") == "reasoning"))),
        finish=_finish(answer),
        usage=tokens(usage),
        response_id=word(answer.get("id")),
        error=error,
        behind=word(request.get("previous_response_id")),
        thread=word(talk) or word(mapping(talk).get("id")),
        raw=beside(request, usage, "input", "instructions", "model"),
    )


def tokens(usage: dict[str, Any]) -> Usage:
    return Usage(
        input=count(usage.get("input_tokens")),
        output=count(usage.get("output_tokens")),
        cached=count(mapping(usage.get("input_tokens_details")).get("cached_tokens")),
    )


def _finish(answer: dict[str, Any]) -> str | None:
    return word(mapping(answer.get("incomplete_details")).get("reason")) or word(answer.get("status"))


def _thought(item: dict[str, Any]) -> str:
    return content.text(item.get("content"), between="\n\n") or content.text(item.get("summary"), between="\n\n")


def _turns(items: Iterable[dict[str, Any]]) -> list[Turn]:
    """Items as turns. What an assistant says and asks for in one go comes as several items, and is one turn."""
    turns: list[Turn] = []
    texts: list[str] = []
    calls: list[ToolUse] = []
    open_ = False

    def close() -> None:
        nonlocal open_
        if open_:
            turns.append(Turn("assistant", "\n\n".join(filter(None, texts)), calls=tuple(calls)))
            texts.clear()
            calls.clear()
            open_ = False

    for item in items:
        kind, role = string(item.get("type")), string(item.get("role"))
        if kind in _ANSWERS:
            close()
            turns.append(Turn("tool", content.text(item.get("output")), answers=word(item.get("call_id"))))
        elif role == "assistant":
            open_ = True
            texts.append(content.text(item.get("content"), between=""))
        elif role or kind in ("", "message"):
            close()
            turns.append(Turn(ROLES.get(role, role or "user"), content.text(item.get("content"))))
        elif kind == "reasoning":
            open_ = True
        else:
            open_ = True
            calls.extend(_calls(item, kind))
    close()
    return turns


def _calls(item: dict[str, Any], kind: str) -> Iterator[ToolUse]:
    """The tool call that an item is: the client's to do, or done by the server already."""
    id = string(item.get("call_id")) or string(item.get("id"))
    if kind == "function_call":
        yield ToolUse(string(item.get("name")), arguments_text(item.get("arguments")), id)
    elif kind == "custom_tool_call":
        yield ToolUse(string(item.get("name")), arguments_text(item.get("input")), id)
    elif kind in ("local_shell_call", "computer_call"):
        yield ToolUse(kind.removesuffix("_call"), arguments_text(item.get("action")), id)
    elif kind.endswith("_call"):
        yield _done(item, kind.removesuffix("_call"), id)


def _done(item: dict[str, Any], tool: str, id: str) -> ToolUse:
    """A call that the server made itself: web_search, file_search, code_interpreter, mcp, image_generation."""
    arguments = item.get("arguments")
    if arguments is None:
        arguments = {key: value for key, value in item.items() if key not in _PLAIN and value is not None}
    result = next((item[key] for key in ("output", "outputs", "results") if item.get(key) is not None), None)
    if result is None and isinstance(item.get("result"), str):
        result = content.named({"data": item["result"]}, "picture")
    failed = item.get("error")
    error = string(mapping(failed).get("message")) or (arguments_text(failed) if failed else None)
    if error is None and item.get("status") == "failed":
        error = "failed"
    return ToolUse(string(item.get("name")) or tool, arguments_text(arguments), id, result=text(result), error=error)


def assembled(events: Iterable[Event]) -> tuple[dict[str, Any], bool]:
    """A stream as the answer that would have come whole, and whether it came to its end.

    The last event holds the whole answer. Of a stream that was cut before, what its deltas tell.
    """
    answer: dict[str, Any] = {}
    items: dict[int, dict[str, Any]] = {}
    error: Any = None
    ended = False
    for event in events:
        said = mapping(parsed(event.data))
        kind = string(said.get("type")) or event.name
        if whole := mapping(said.get("response")):
            answer = whole
        if kind in ("response.completed", "response.failed", "response.incomplete", "response.done"):
            ended = True
        elif kind == "error":
            error = said.get("error") or said
        elif kind.startswith("response.") and "output_index" in said:
            _grow(items, kind, said)
    if items and not objects(answer.get("output")):
        answer = {**answer, "output": [_closed(item) for _, item in sorted(items.items())]}
    if error is not None:
        answer = {**answer, "error": error}
    return answer, ended


def _grow(items: dict[int, dict[str, Any]], kind: str, said: dict[str, Any]) -> None:
    known = items.setdefault(count(said.get("output_index")) or 0, {"item": {}, "text": [], "arguments": [], "thought": []})
    if kind in ("response.output_item.added", "response.output_item.done"):
        known["item"] = mapping(said.get("item"))
        known["done"] = kind.endswith("done")
    elif kind in ("response.output_text.delta", "response.refusal.delta"):
        known["text"].append(string(said.get("delta")))
    elif kind in ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta"):
        known["arguments"].append(string(said.get("delta")))
    elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
        known["thought"].append(string(said.get("delta")))


def _closed(known: dict[str, Any]) -> dict[str, Any]:
    item = dict(known["item"])
    if known.get("done"):
        return item
    if known["text"]:
        item.setdefault("type", "message")
        item["role"] = "assistant"
        item["content"] = [{"type": "output_text", "text": "".join(known["text"])}]
    if known["arguments"]:
        item["input" if item.get("type") == "custom_tool_call" else "arguments"] = "".join(known["arguments"])
    if known["thought"]:
        item["summary"] = [{"type": "summary_text", "text": "".join(known["thought"])}]
    return item
