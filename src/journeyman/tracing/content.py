"""The parts of a message's content, whichever provider's: texts, pictures, files, tool calls, tools' answers, thoughts.

The text of a message has what is said. What is no text is named in brackets (`[image/png, 3 kB]`), and what is a step of its
own (a tool call, an answer, a thought) is not in it. Nothing here raises.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from journeyman.core.messages import ToolUse, Turn, arguments_text
from journeyman.tracing.fields import as_json, first, mapping, objects, string, word
from journeyman.tracing.fields import text as text_or_json

TEXTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal"})
CALLS = frozenset(
    {"tool_call", "tool-call", "tool_use", "function_call", "toolCall", "server_tool_call", "server_tool_use"}
)  # fmt: skip
ANSWERS = frozenset(
    {"tool_call_response", "tool-result", "tool_result", "function_call_output", "function_response",
     "server_tool_call_response", "server_tool_result"}
)  # fmt: skip
THOUGHTS = frozenset({"reasoning", "thinking", "redacted_thinking"})
APART = CALLS | ANSWERS | THOUGHTS
"""Parts that are steps of their own."""
_FOUND = ("search_result", "web_search_result")
CONTENT = frozenset(
    (*TEXTS, *APART, *_FOUND, "image", "image_url", "input_image", "document", "file", "input_file",
     "audio", "input_audio", "tool_reference")
)  # fmt: skip
"""What says that an object is a part of a content, and no value of somebody's program."""


def kind_of(part: Mapping[str, Any]) -> str:
    found = part.get("type")
    return found if isinstance(found, str) else ""


def text(content: Any, *, between: str = "\n") -> str:
    """The text of a content that is a string or a list of parts; anything else as JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict) and kind_of(content) in TEXTS:
        content = [content]
    if not isinstance(content, list):
        return text_or_json(content)
    found = (one(part) if isinstance(part, dict) else text_or_json(part) for part in content)
    return between.join(each for each in found if each)


def one(part: dict[str, Any]) -> str:
    """The text of one part; nothing for one that is a step of its own."""
    kind = kind_of(part)
    if kind == "refusal":
        return string(part.get("refusal"))
    if kind in TEXTS or (not kind and "text" in part):
        # The GenAI conventions call it content.
        return string(part.get("text")) if "text" in part else text(part.get("content"))
    if kind in APART:
        return ""
    if kind in _FOUND:
        return text(part.get("content") or "") or f"[{kind} {string(part.get('title'))}]"
    return named(part, kind)


def named(part: dict[str, Any], kind: str) -> str:
    """A picture, a sound or a file, in brackets."""
    source = mapping(part.get("source"))
    if string(source.get("type")) in ("text", "content"):
        return string(source.get("data")) or text(source.get("content") or "")
    inner = mapping(part.get(kind))
    name = word(part.get("filename")) or word(inner.get("filename")) or word(part.get("title"))
    data, where, media = _where(part, inner, source)
    if not data and not where:
        data, where, media = _bare(string(part.get(kind)) or string(part.get("source")))
    what = media or kind.removeprefix("input_").removesuffix("_url") or "part"
    said = " ".join(each for each in (what, name or where) if each)
    return f"[{said}, {size(len(data) * 3 // 4)}]" if data else f"[{said}]"


def _where(part: dict[str, Any], inner: dict[str, Any], source: dict[str, Any]) -> tuple[str, str, str]:
    """Base64 data, address or id, and media type: as far as each is there."""
    link = string(part.get("image_url")) or string(inner.get("url")) or string(source.get("url"))
    link = link or string(part.get("file_url")) or string(part.get("url"))
    data = string(inner.get("data")) or string(inner.get("file_data")) or string(source.get("data"))
    data = data or string(part.get("file_data")) or string(part.get("data"))
    media = string(source.get("media_type"))
    if fmt := string(inner.get("format")):
        media = f"audio/{fmt}"
    for url in (link, data):
        if url.startswith("data:"):
            media, data = _data(url)
            link = "" if url is link else link
    where = link or string(part.get("file_id")) or string(inner.get("file_id")) or string(source.get("file_id"))
    return data, where[:200], media


def _data(url: str) -> tuple[str, str]:
    """The media type and the base64 data of a data URL."""
    head, _, data = url.partition(",")
    return head[5:].partition(";")[0], data


def _bare(value: str) -> tuple[str, str, str]:
    """The same, where it stands under the part's own name: a data URL, an address, or the data itself."""
    if value.startswith("data:"):
        media, data = _data(value)
        return data, "", media
    return ("", value, "") if len(value) < 300 and " " not in value and "." in value else (value, "", "")


def size(length: int) -> str:
    """Bytes, for a reader: "120 B", "3 kB", "1.2 MB"."""
    if length < 1000:
        return f"{length} B"
    return f"{length / 1000:.0f} kB" if length < 1_000_000 else f"{length / 1_000_000:.1f} MB"


def thoughts(content: Any) -> tuple[str, ...]:
    """What the parts of a content say was thought."""
    found = (thought(part) for part in objects(content) if kind_of(part) in THOUGHTS)
    return tuple(each for each in found if each)


def thought(part: Mapping[str, Any]) -> str:
    inner = part.get("thinking") or part.get("reasoning") or part.get("text") or part.get("summary") or part.get("content")
    return text(inner or "")


def calls(content: Any) -> Iterator[ToolUse]:
    """The tool calls among the parts of a content. One without the tool's name says that there is one, and not which."""
    found = (call(part) for part in objects(content))
    return (each for each in found if each is not None and each.tool)


def call(part: Mapping[str, Any]) -> ToolUse | None:
    """The tool call that a part is."""
    kind = kind_of(part)
    if kind in CALLS or (kind == "function" and "function" in part):
        return call_of(part)
    inner = first(part, "function_call", "functionCall", "toolUse")
    if isinstance(inner, Mapping):
        return call_of(inner)
    return call_of(part) if "toolName" in part or set(part) >= {"function", "id"} else None


def call_of(said: Mapping[str, Any]) -> ToolUse:
    """A tool call as it stands among a message's `tool_calls`, or as a part of it."""
    said = said["tool_call"] if isinstance(said.get("tool_call"), Mapping) else said
    function = said["function"] if isinstance(said.get("function"), Mapping) else said
    return ToolUse(
        tool=str(first(function, "name", "toolName", "tool_name", "function") or first(said, "name") or ""),
        arguments=arguments_text(first(function, "arguments", "args", "input", "partial_json", "params")),
        id=str(first(said, "call_id", "id", "toolCallId", "tool_call_id", "toolUseId") or ""),
    )


def answers(content: Any) -> Iterator[Turn]:
    """The answers of tools among the parts of a content."""
    found = (answer(part) for part in objects(content))
    return (each for each in found if each is not None)


def answer(part: Mapping[str, Any]) -> Turn | None:
    """The answer of a tool that a part is."""
    inner = first(part, "function_response", "functionResponse", "toolResult")
    if isinstance(inner, Mapping):
        part = inner
    elif kind_of(part) not in ANSWERS:
        return None
    result = first(part, "response", "result", "output", "content")
    if isinstance(result, Mapping) and set(result) <= {"type", "value"} and "value" in result:
        result = result["value"]
    id = first(part, "call_id", "tool_use_id", "toolCallId", "tool_call_id", "id", "toolUseId")
    failed = part.get("is_error")
    return Turn(
        "tool",
        answer_text(result),
        answers=str(id) if id is not None else None,
        tool=word(part.get("name")),
        failed=failed if isinstance(failed, bool) else None,
    )


def answer_text(result: Any) -> str:
    """What a tool answered; a list that holds anything but parts of a content as JSON."""
    if isinstance(result, list) and not all(isinstance(each, dict) and _is_part(each) for each in result):
        return as_json(result)
    return text(result)


def _is_part(value: Mapping[str, Any]) -> bool:
    return kind_of(value) in CONTENT or isinstance(value.get("text"), str)
