"""What went into a model and what came out, from the many ways in which instrumentations and exports hold it: OpenAI's,
Anthropic's, Google's, Vercel's, LangChain's, or with the parts of the GenAI conventions. Nothing here raises."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from journeyman.core.messages import ROLES, ToolUse, Turn, Usage, arguments_text, joined
from journeyman.core.trace import Message
from journeyman.tracing.fields import as_json, first, first_count, flag, mapping, objects, parsed_if_json, string, text, word

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


def content_text(content: Any, *, between: str = "\n") -> str:
    """The text of a content that is a string or a list of parts; anything else as JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict) and kind_of(content) in TEXTS:
        content = [content]
    if not isinstance(content, list):
        return text(content)
    found = (part_text(part) if isinstance(part, dict) else text(part) for part in content)
    return between.join(each for each in found if each)


def part_text(part: dict[str, Any]) -> str:
    """The text of one part; nothing for one that is a step of its own."""
    kind = kind_of(part)
    if kind == "refusal":
        return string(part.get("refusal"))
    if kind in TEXTS or (not kind and "text" in part):
        # The GenAI conventions call it content.
        return string(part.get("text")) if "text" in part else content_text(part.get("content"))
    if kind in APART:
        return ""
    if kind in _FOUND:
        return content_text(part.get("content") or "") or f"[{kind} {string(part.get('title'))}]"
    return bracketed(part, kind)


def bracketed(part: dict[str, Any], kind: str) -> str:
    """A picture, a sound or a file, in brackets."""
    source = mapping(part.get("source"))
    if string(source.get("type")) in ("text", "content"):
        return string(source.get("data")) or content_text(source.get("content") or "")
    inner = mapping(part.get(kind))
    name = word(part.get("filename")) or word(inner.get("filename")) or word(part.get("title"))
    data, where, media = _where(part, inner, source)
    if not data and not where:
        data, where, media = _bare(string(part.get(kind)) or string(part.get("source")))
    what = media or kind.removeprefix("input_").removesuffix("_url") or "part"
    said = " ".join(each for each in (what, name or where) if each)
    return f"[{said}, {byte_size(len(data) * 3 // 4)}]" if data else f"[{said}]"


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


def byte_size(length: int) -> str:
    """Bytes, for a reader: "120 B", "3 kB", "1.2 MB"."""
    if length < 1000:
        return f"{length} B"
    return f"{length / 1000:.0f} kB" if length < 1_000_000 else f"{length / 1_000_000:.1f} MB"


def usage_of(counts: Any) -> Usage:
    """Tokens as OpenAI's APIs count them, and servers that say the same; Anthropic's input as it is, without what came from the
    cache (`Usage.beside_cache` puts the two together)."""
    details = first(counts, "prompt_tokens_details", "input_tokens_details") if isinstance(counts, Mapping) else None
    cached = first_count(details, "cached_tokens")
    return Usage(
        input=first_count(counts, "prompt_tokens", "input_tokens"),
        output=first_count(counts, "completion_tokens", "output_tokens"),
        # DeepSeek and Anthropic have names of their own for the cache.
        cached=first_count(counts, "prompt_cache_hit_tokens", "cache_read_input_tokens") if cached is None else cached,
        written=first_count(details, "cache_write_tokens"),
    )


def part_thoughts(content: Any) -> tuple[str, ...]:
    """What the parts of a content say was thought."""
    found = (part_thought(part) for part in objects(content) if kind_of(part) in THOUGHTS)
    return tuple(each for each in found if each)


def part_thought(part: Mapping[str, Any]) -> str:
    inner = part.get("thinking") or part.get("reasoning") or part.get("text") or part.get("summary") or part.get("content")
    return content_text(inner or "")


def part_calls(content: Any) -> Iterator[ToolUse]:
    """The tool calls among the parts of a content. One without the tool's name says that there is one, and not which."""
    found = (part_call(part) for part in objects(content))
    return (each for each in found if each is not None and each.tool)


def part_call(part: Mapping[str, Any]) -> ToolUse | None:
    """The tool call that a part is."""
    kind = kind_of(part)
    if kind in CALLS or (kind == "function" and "function" in part):
        return tool_use(part)
    inner = first(part, "function_call", "functionCall", "toolUse")
    if isinstance(inner, Mapping):
        return tool_use(inner)
    return tool_use(part) if "toolName" in part or set(part) >= {"function", "id"} else None


def tool_use(said: Mapping[str, Any]) -> ToolUse:
    """A tool call as it stands among a message's `tool_calls`, or as a part of it."""
    said = said["tool_call"] if isinstance(said.get("tool_call"), Mapping) else said
    function = said["function"] if isinstance(said.get("function"), Mapping) else said
    return ToolUse(
        tool=str(first(function, "name", "toolName", "tool_name", "function") or first(said, "name") or ""),
        arguments=arguments_text(first(function, "arguments", "args", "input", "partial_json", "params")),
        id=str(first(said, "call_id", "id", "toolCallId", "tool_call_id", "toolUseId") or ""),
    )


def part_answers(content: Any) -> Iterator[Turn]:
    """The answers of tools among the parts of a content."""
    found = (part_answer(part) for part in objects(content))
    return (each for each in found if each is not None)


def part_answer(part: Mapping[str, Any]) -> Turn | None:
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
    return Turn(
        "tool",
        answer_text(result),
        answers=str(id) if id is not None else None,
        tool=word(part.get("name")),
        failed=flag(part.get("is_error")),
    )


def answer_text(result: Any) -> str:
    """What a tool answered; a list that holds anything but parts of a content as JSON."""
    if isinstance(result, list) and not all(isinstance(each, dict) and _is_content_part(each) for each in result):
        return as_json(result)
    return content_text(result)


def _is_content_part(value: Mapping[str, Any]) -> bool:
    return kind_of(value) in CONTENT or isinstance(value.get("text"), str)


_PARTS = frozenset((*CONTENT, "function")) - {"function_call", "function_call_output", "reasoning"}
"""Blocks that are never messages of their own, as those of the Responses API are."""
_HOLDERS = ("messages", "contents", "input", "prompt", "prompts", "generations")
_SYSTEM = ("system", "instructions", "system_instruction")
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads values of which nobody said what they are."""

    exact: bool
    """Whether what is no message is kept as JSON, and pictures are named by all that is known of them. Spans repeat whole
    requests and answers, of which what is no message is dropped."""

    def messages(self, value: Any, role: str = "user", depth: int = 0) -> tuple[Turn, ...]:
        """The messages that a value holds: a text, one message, a list of them, a request's body; also as JSON.

        Args:
            role: Whose words they are where they do not say so.
        """
        value = parsed_if_json(value)
        if depth > _DEEPEST:
            return ()
        if isinstance(value, list):
            return self._grouped(value, role, depth)
        if isinstance(value, dict):
            return self._object(value, role, depth) if value else ()
        return (Turn(role, text(value)),) if value is not None and value != "" else ()

    def replies(self, value: Any) -> tuple[Turn, ...]:
        """The answers that a value holds: as `messages`, and also a response's body with its choices or its output."""
        value = parsed_if_json(value)
        if not isinstance(value, Mapping):
            return self.messages(value, "assistant")
        for name in ("choices", "candidates", "generations"):
            if isinstance(value.get(name), list):
                return tuple(each for choice in value[name] for each in self.replies(choice))
        if isinstance(value.get("output"), list):
            return one_reply(self.messages(value["output"], "assistant"))
        inner = value["message"] if isinstance(value.get("message"), Mapping) else value
        return _finished(one_reply(self.messages(inner, "assistant")), value)

    def _grouped(self, values: Sequence[Any], role: str, depth: int) -> tuple[Turn, ...]:
        """A list of messages, or the list of the parts of one message."""
        if values and all(isinstance(each, Mapping) and _is_part(each) for each in values):
            return self._parts(values, role, {})
        return tuple(turn for each in values for turn in self.messages(each, role, depth + 1))

    def _object(self, value: Mapping[str, Any], role: str, depth: int) -> tuple[Turn, ...]:
        inner = first(value, "message")
        if isinstance(inner, Mapping):
            whose = inner.get("role") or value.get("role") or role
            return _finished(self.messages({**inner, "role": whose}, role, depth + 1), value)
        if isinstance(value.get("kwargs"), Mapping):
            return self.messages({"role": _class_of(value) or role, **value["kwargs"]}, role, depth + 1)
        held = first(value, *_HOLDERS)
        if "role" not in value and "content" not in value and isinstance(held, list | str):
            return (*self.messages(first(value, *_SYSTEM), "system", depth + 1), *self.messages(held, role, depth + 1))
        return self._message(value, role)

    def _message(self, value: Mapping[str, Any], role: str) -> tuple[Turn, ...]:
        kind = kind_of(value)
        if kind in APART and not isinstance(value.get("content"), list):
            return self._parts([value], "tool" if kind in ANSWERS else "assistant", value)
        who = str(value.get("role") or (kind if kind in ("human", "ai", "system", "tool") else role)).lower()
        who = ROLES.get(who, who)
        whole = first(value, "content", "parts", "contents", "text")
        held = parsed_if_json(whole)
        if isinstance(held, list) and (isinstance(value.get("content"), list) or _are_parts(held)):
            return self._parts(held, who, value)
        if isinstance(held, Mapping) and ("parts" in held or "text" in held or "content" in held):
            return self.messages({"role": who, **held}, who, _DEEPEST - 2)
        if whole is None and self.exact and not {"role", "content", *_TOOLS} & set(value):
            return (Turn(who, as_json(value)),)
        return self._parts([] if whole is None else [text(whole)], who, value)

    def _parts(self, parts: Iterable[Any], role: str, holder: Mapping[str, Any]) -> tuple[Turn, ...]:
        words: list[str] = []
        thoughts: list[str] = []
        calls: list[ToolUse] = []
        answers: list[Turn] = []
        for part in parts:
            part = part.get("message_content", part) if isinstance(part, Mapping) else part
            if not isinstance(part, dict):
                words.append(str(part))
            elif call := part_call(part):
                # A part may say that a tool is asked for, and leave the name to `tool_calls`.
                calls += [call] if call.tool else []
            elif answer := part_answer(part):
                # Where a call has no id, as Google's, spans tell of the answer by the tool's name.
                answers.append(answer if self.exact else answer._replace(answers=answer.answers or answer.tool))
            elif kind_of(part) in THOUGHTS or part.get("thought") is True:
                thoughts.append(part_thought(part))
            else:
                words.append(part_text(part) if self.exact else _fragment_text(part))
        calls += _calls(holder)
        own = "\n".join(each for each in words if each)
        if answers and not own and not calls:
            return tuple(answers)
        turn = Turn(
            role,
            own,
            calls=tuple(calls),
            answers=_id(holder) if role == "tool" else None,
            thought="\n".join(filter(None, (*thoughts, _reasoning_beside(holder)))),
            finish=_finish(holder),
        )
        return (*answers, turn)


SPANS = Reader(exact=False)
EXPORTS = Reader(exact=True)
_PLAIN = TEXTS | {""}
_TOOLS = ("tool_calls", "toolCalls", "function_call")


def one_reply(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """What an assistant said in several pieces, as one message."""
    own = tuple(each for each in turns if each.role == "assistant")
    return own if len(own) < 2 else (joined(own),)


def sent_messages(value: Any) -> tuple[Message, ...]:
    """The messages of an export that a model was sent; a text alone is the user's. Nothing where nothing was recorded."""
    return tuple(
        Message(role=turn.role, text=turn.text or _calls_text(turn), answers=turn.answers) for turn in EXPORTS.messages(value)
    )


def _calls_text(turn: Turn) -> str:
    return "\n".join(f"[calls {call.tool} {call.arguments}]" for call in turn.calls)


def reply_of(value: Any) -> Turn:
    """What an export says that a model answered, as one turn."""
    return joined(EXPORTS.replies(value))


def _finished(turns: tuple[Turn, ...], holder: Mapping[str, Any]) -> tuple[Turn, ...]:
    finish = _finish(holder)
    if finish is None or len(turns) != 1 or turns[0].finish:
        return turns
    return (turns[0]._replace(finish=finish),)


def _finish(holder: Mapping[str, Any]) -> str | None:
    found = first(holder, "finish_reason", "finishReason", "stop_reason")
    # LangSmith's JavaScript SDK puts the last piece of a stream here.
    found = found.get("finish_reason") if isinstance(found, Mapping) else found
    return None if found is None or isinstance(found, bool) else str(found).lower()


def _class_of(value: Mapping[str, Any]) -> str:
    """Whose message LangChain's class or type says that it is."""
    names = value.get("id")
    name = str(names[-1]) if isinstance(names, list) and names else str(value["kwargs"].get("type") or "")
    return name.lower().removesuffix("chunk").removesuffix("message")


def _is_part(value: Mapping[str, Any]) -> bool:
    """Whether an object is one part of a message, and cannot be a message."""
    return "role" not in value and (kind_of(value) in _PARTS or "toolName" in value)


def _are_parts(values: Sequence[Any]) -> bool:
    """Whether the JSON in a text is a list of parts, and not the text itself, which may be JSON too."""
    return bool(values) and all(
        isinstance(each, Mapping)
        and (
            kind_of(each) in CONTENT
            or "message_content" in each
            or set(each) & {"text", "function_call", "function_response", "functionCall", "functionResponse"}
        )
        for each in values
    )


def _id(holder: Mapping[str, Any]) -> str | None:
    found = first(holder, "tool_call_id", "toolCallId", "id", "call_id")
    return None if found is None else text(found)


def _reasoning_beside(holder: Mapping[str, Any]) -> str:
    found = first(holder, "reasoning_content", "reasoning")
    return found if isinstance(found, str) and kind_of(holder) not in THOUGHTS else ""


def _calls(holder: Mapping[str, Any]) -> list[ToolUse]:
    rows = first(holder, "tool_calls", "toolCalls")
    if rows is None and "additional_kwargs" in holder:
        rows = mapping(holder["additional_kwargs"]).get("tool_calls")
    found = [tool_use(each) for each in objects(parsed_if_json(rows))] if rows is not None else []
    old = holder.get("function_call")
    if isinstance(old, Mapping):
        found.append(tool_use(old))
    elif name := holder.get("function_call_name"):
        found.append(ToolUse(str(name), text(holder.get("function_call_arguments_json"))))
    return [call for call in found if call.tool]


def _fragment_text(part: Mapping[str, Any]) -> str:
    """A part that is no tool call: its text, or in brackets what it is."""
    for name in ("text", "content", "refusal"):
        if isinstance(part.get(name), str) and kind_of(part) in _PLAIN:
            return str(part[name])
    if kind_of(part) == "text" and isinstance(part.get("text"), Mapping):
        return text(part["text"])
    kind = first(part, "mime_type", "media_type", "mediaType", "mimeType", "modality", "type")
    return f"[{kind or 'content'}]"
