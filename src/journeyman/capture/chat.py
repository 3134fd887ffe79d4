"""Transcripts of chat messages become steps: as OpenAI's and Anthropic's APIs write them, and as others do who say the same."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from journeyman.capture import fields
from journeyman.trace import Message as Told
from journeyman.trace import ModelCall, Reasoning, Step, ToolCall, spoken


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A tool call that a message asks for."""

    tool: str
    arguments: str
    id: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message, whoever wrote it down."""

    role: str
    """"system", "user", "assistant" or "tool"; what a role is not known by here is kept as it is."""
    text: str = ""
    asks: tuple[Asked, ...] = ()
    thinking: str = ""
    answers: str | None = None
    """Of a tool's answer, the id of the call."""
    name: str | None = None
    canned: bool = False
    """Of the assistant's, that no model wrote it, but a program, such as a greeting that is always the same."""
    failed: bool = False
    error: str | None = None
    """Of a tool's answer, what went wrong; of the assistant's, why there is none."""
    id: str = ""
    model: str = ""
    finish: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cost: float | None = None
    started_at: datetime | None = None
    seconds: float | None = None
    response_id: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)


class Function(BaseModel):
    name: str
    arguments: str | dict[str, Any] | None = ""

    @property
    def text(self) -> str:
        """The arguments as JSON; some write them as an object."""
        return self.arguments if isinstance(self.arguments, str) else as_json(self.arguments or {})


class Call(BaseModel):
    id: str | None = None
    function: Function


class Message(BaseModel):
    """One message. What is not known is left alone."""

    model_config = ConfigDict(populate_by_name=True)

    role: str
    content: str | list[dict[str, Any] | str] | None = None
    content_ref: str | int | None = None
    """The content stands elsewhere."""
    reasoning_content: str | None = None
    tool_calls: list[Call] | None = None
    function_call: Function | None = None
    tool_call_id: str | None = None
    name: str | None = None
    is_error: bool | None = None
    finish_reason: str | None = None
    model: str | None = None
    usage: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The content as text; what is no text is named in brackets."""
        if self.content is None and self.content_ref is not None:
            return f"[content {self.content_ref}]"
        return text_of(self.content)

    @property
    def turns(self) -> Iterator[Turn]:
        """The message, behind the answers of tools that it holds."""
        parts = [part for part in self.content if isinstance(part, dict)] if isinstance(self.content, list) else []
        answers = [part for part in parts if part.get("type") == "tool_result"]
        for part in answers:
            said, id = text_of(part.get("content")), part.get("tool_use_id")
            yield Turn(role="tool", text=said, answers=str(id) if id else None, failed=part.get("is_error") is True)
        if answers and not self.text:
            return
        asks = [
            Asked(tool=call.function.name, arguments=call.function.text, id=call.id or "") for call in self.tool_calls or ()
        ]
        asks += asked_in(parts)
        if self.function_call and not asks:
            asks = [Asked(tool=self.function_call.name, arguments=self.function_call.text)]
        yield Turn(
            role="tool" if self.role == "function" else self.role,
            text=self.text,
            asks=tuple(asks),
            thinking=self.reasoning_content or thought_in(parts),
            answers=self.tool_call_id,
            name=self.name,
            failed=self.is_error is True,
            model=self.model or "",
            finish=self.finish_reason,
            input_tokens=count(self.usage, "prompt_tokens", "input_tokens"),
            output_tokens=count(self.usage, "completion_tokens", "output_tokens"),
            cached_tokens=cached(self.usage),
        )


def steps(turns: Iterable[Turn], *, model: str = "", finish: str | None = None) -> tuple[Step, ...]:
    """The steps that the messages tell of, in order.

    A model call's prompt holds what was new to the model: what was said since its last reply. Its tool calls and what it
    thought have it for parent. A tool call that was never answered did not go well; an answer that nobody asked
    for is a tool call too, if it says of which tool.

    Args:
        model: For messages that do not say which model wrote them.
        finish: Why the last reply ended.
    """
    told = list(turns)
    answers, used = _answers(told), _Ids()
    answering = {id(turn) for turn in answers.values()}
    found: list[Step] = []
    said: list[Told] = []
    before: str | None = None
    last = max((at for at, turn in enumerate(told) if _generated(turn)), default=-1)
    for at, turn in enumerate(told):
        parent = None
        if _generated(turn):
            call = _call(turn, said, before, used.of(turn.id or f"m{at + 1}"))
            found.append(replace(call, model=call.model or model, finish=call.finish or (finish if at == last else None)))
            said, before = [], call.id
            parent = call.id
            if turn.thinking:
                found.append(Reasoning(text=turn.thinking, id=used.of(f"{call.id}.thought"), parent=call.id))
        else:
            said.append(Told(role=turn.role, text=turn.text, answers=turn.answers))
            if turn.role == "tool" and turn.name and id(turn) not in answering:
                # An answer whose call is not in the record: that the tool was used, is.
                found.append(_use(Asked(tool=turn.name, arguments=""), turn, used.of(turn.answers or f"m{at + 1}"), None))
        for number, ask in enumerate(turn.asks):
            found.append(_use(ask, answers.get((at, number)), used.of(ask.id or f"m{at + 1}.{number + 1}"), parent))
    return tuple(found)


def _generated(turn: Turn) -> bool:
    return turn.role == "assistant" and not turn.canned


def _call(turn: Turn, said: Sequence[Told], before: str | None, id: str) -> ModelCall:
    return ModelCall(
        model=turn.model,
        prompt=spoken(said),
        reply=turn.text,
        messages=tuple(said),
        continues=before,
        input_tokens=turn.input_tokens,
        output_tokens=turn.output_tokens,
        # More from the cache than there was in all: the recorder counts them apart, or wrong.
        cached_tokens=None if (turn.cached_tokens or 0) > (turn.input_tokens or 0) else turn.cached_tokens,
        cost=turn.cost,
        started_at=turn.started_at,
        seconds=turn.seconds,
        finish=turn.finish,
        error=turn.error,
        response_id=turn.response_id,
        id=id,
        raw=turn.raw,
    )


def _use(ask: Asked, answer: Turn | None, id: str, parent: str | None) -> ToolCall:
    return ToolCall(
        tool=ask.tool,
        arguments=ask.arguments,
        result=answer.text if answer else "",
        ok=answer is not None and not answer.failed,
        error=answer.error if answer else "there is no answer to this call",
        started_at=answer.started_at if answer else None,
        seconds=answer.seconds if answer else None,
        id=id,
        parent=parent,
        raw={**ask.raw, **(answer.raw if answer else {})},
    )


class _Ids:
    """Ids of steps, each used once: some transcripts use one twice."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def of(self, wanted: str) -> str:
        seen = self._seen.get(wanted, 0)
        self._seen[wanted] = seen + 1
        return self.of(f"{wanted}~{seen + 1}") if seen else wanted


def _answers(turns: Sequence[Turn]) -> Mapping[tuple[int, int], Turn]:
    """Which message answers which call of which message: by its id, else by its place behind the calls."""
    found: dict[tuple[int, int], Turn] = {}
    waiting: list[tuple[tuple[int, int], Asked]] = []
    for at, turn in enumerate(turns):
        waiting += [((at, number), ask) for number, ask in enumerate(turn.asks)]
        if turn.role == "tool" and waiting:
            named = [entry for entry in waiting if turn.answers and entry[1].id == turn.answers]
            # Ids are written anew by some servers, and some transcripts have none.
            entry = (named or waiting)[0]
            found[entry[0]] = turn
            waiting.remove(entry)
    return found


_TEXT = frozenset({"text", "input_text", "output_text"})
_APART = frozenset({"tool_use", "tool_result", "toolCall", "tool_call", "thinking", "reasoning", "redacted_thinking"})
"""Parts that are steps of their own."""


def text_of(content: Any) -> str:
    """The text of a message's content; what is no text is named in brackets."""
    if isinstance(content, str) or content is None:
        return content or ""
    if not isinstance(content, list):
        return as_json(content)
    told = (part if isinstance(part, str) else _part(part) if isinstance(part, dict) else as_json(part) for part in content)
    return "\n".join(each for each in told if each)


def _part(part: Mapping[str, Any]) -> str:
    kind = part.get("type", "text" if "text" in part else "part")
    if kind in _TEXT:
        text = part.get("text")
        return text if isinstance(text, str) else ""
    if kind in _APART:
        return ""
    inner = next((part[key] for key in (kind, "source", "image", "data", "url", "file") if part.get(key)), None)
    if isinstance(inner, dict):
        inner = inner.get("url") or inner.get("data") or inner.get("filename")
    return named(str(kind).removesuffix("_url").removeprefix("input_"), inner if isinstance(inner, str) else "")


def named(kind: str, data: str) -> str:
    """What is not text, in brackets: a data URL by its type and size, an address as it is."""
    if data.startswith("data:"):
        head, _, body = data.partition(",")
        return f"[{head[5:].partition(';')[0] or kind}, {_size(len(body) * 3 // 4)}]"
    if not data:
        return f"[{kind}]"
    return f"[{kind} {data}]" if len(data) < 300 and " " not in data and "." in data else f"[{kind}, {_size(len(data))}]"


def _size(count: int) -> str:
    return f"{count} bytes" if count < 1000 else f"{count / 1000:.0f} kB"


def asked_in(parts: Iterable[Mapping[str, Any]]) -> Iterator[Asked]:
    """The tool calls among the parts of a content."""
    for part in parts:
        if part.get("type") in ("tool_use", "toolCall", "tool_call") and isinstance(part.get("name"), str):
            given: Any = next((part[key] for key in ("input", "arguments") if part.get(key) is not None), {})
            yield Asked(
                tool=part["name"],
                arguments=given if isinstance(given, str) else as_json(given),
                id=str(part.get("id") or ""),
            )


def thought_in(parts: Iterable[Mapping[str, Any]]) -> str:
    """What the parts of a content say was thought."""
    told = (part.get("thinking") or part.get("reasoning") for part in parts if part.get("type") in ("thinking", "reasoning"))
    return "\n".join(each for each in told if isinstance(each, str))


def as_json(value: Any) -> str:
    """A value as JSON, as text is kept."""
    return json.dumps(value, ensure_ascii=False, default=str)


def count(usage: Any, *names: str) -> int | None:
    """The first of these that is a count; what is none, such as -1, is not known."""
    found = (fields.count(usage.get(name)) for name in names) if isinstance(usage, Mapping) else ()
    return next((value for value in found if value is not None), None)


def cached(usage: Any) -> int | None:
    """How many tokens came from the cache, as OpenAI and Anthropic say it."""
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") if isinstance(usage, Mapping) else None
    found = count(details, "cached_tokens")
    return found if found is not None else count(usage, "cache_read_input_tokens")
