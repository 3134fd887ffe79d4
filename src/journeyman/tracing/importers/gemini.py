"""Sessions of Gemini CLI: `~/.gemini/tmp/PROJECT/chats/session-*.json`, or the same line by line (`.jsonl`)."""

from collections.abc import Iterator, Mapping
from typing import Any

from journeyman.core.messages import ToolUse, Turn, Usage
from journeyman.core.trace import total
from journeyman.tracing import builder, conversation, fields
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.source import Format, Row, SeveralRecords

NAME = "gemini"
_HEAD = {"sessionId", "projectHash"}
_PROGRAM = ("error", "info", "warning")
"""What the program said itself, to whoever sat before it."""


def recognised(record: Row) -> bool:
    return record.keys() >= _HEAD and isinstance(record.get("messages"), list)


def _joined(rows: list[Row]) -> Row:
    """A session that is written line by line: a message that is written again is as it was written last."""
    head: dict[str, Any] = {}
    messages: dict[str, Row] = {}
    for row in rows:
        if "type" in row and "id" in row:
            messages[str(row["id"])] = row
        else:
            head |= fields.mapping(row.get("$set")) or {name: value for name, value in row.items() if name[:1] != "$"}
    return {**head, "messages": [*head.get("messages", ()), *messages.values()]}


def read(record: Row) -> Iterator[RecordedTrace]:
    """A trace for each thing that was asked in the session."""
    turns: list[Turn] = []
    for message in fields.objects(record.get("messages")):
        turns += _turns(message)
    yield from builder.by_prompt(
        turns,
        session=fields.string(record.get("sessionId")),
        agent=NAME,
        raw=fields.without_empty(project=record.get("projectHash"), summary=record.get("summary")),
    )


def kinds(record: Row) -> Iterator[tuple[str, bool]]:
    """The kind of each message, and whether it is known."""
    for message in fields.objects(record.get("messages")):
        kind = str(message.get("type"))
        yield kind, kind in ("user", "gemini", *_PROGRAM)


def _turns(message: Mapping[str, Any]) -> Iterator[Turn]:
    kind, at = message.get("type"), fields.time(message.get("timestamp"))
    text = conversation.content_text(message.get("content"))
    if kind == "user":
        yield Turn("user", text, id=fields.string(message.get("id")), started_at=at)
    elif kind == "gemini":
        calls = fields.objects(message.get("toolCalls"))
        yield Turn(
            "assistant",
            text,
            calls=tuple(map(_call, calls)),
            thought="\n".join(map(_thought, fields.objects(message.get("thoughts")))),
            id=fields.string(message.get("id")),
            model=fields.string(message.get("model")),
            usage=_usage(fields.mapping(message.get("tokens"))),
            started_at=at,
        )
        for call in calls:
            yield from _answer(call)
    elif kind in _PROGRAM:
        yield Turn("system", text, error=f"Error: {text}" if kind == "error" else None, started_at=at)


def _thought(told: Mapping[str, Any]) -> str:
    return ": ".join(each for name in ("subject", "description") if (each := fields.string(told.get(name))))


def _usage(tokens: Mapping[str, Any]) -> Usage:
    """What a tool's result took and what was thought are counted apart, and are paid for as input and as output."""

    def of(name: str, beside: str) -> int | None:
        return total((fields.count(tokens.get(name)), fields.count(tokens.get(beside, 0))))

    return Usage(of("input", "tool"), of("output", "thoughts"), fields.count(tokens.get("cached")))


def _call(told: Mapping[str, Any]) -> ToolUse:
    arguments = told.get("args")
    return ToolUse(fields.string(told.get("name")), fields.as_json(arguments or {}), fields.string(told.get("id")))


def _answer(told: Mapping[str, Any]) -> Iterator[Turn]:
    status = fields.string(told.get("status"))
    if status in ("", "success", "error", "cancelled"):
        yield Turn(
            "tool",
            _result(told.get("result")),
            answers=fields.word(told.get("id")),
            failed=status in ("error", "cancelled"),
            error=status if status == "cancelled" else None,
            started_at=fields.time(told.get("timestamp")),
        )


def _result(result: Any) -> str:
    found = [fields.parsed_if_json(turn.text) for turn in conversation.part_answers(result)]
    texts = (fields.text(told.get("output", told) if isinstance(told, Mapping) else told) for told in found)
    return "\n".join(texts) if found else conversation.content_text(result)


FORMAT = Format(
    name=NAME,
    recognises=recognised,
    read=read,
    unique=True,
    kinds=kinds,
    several=SeveralRecords(
        starts=lambda first: first.value.keys() >= _HEAD and "messages" not in first.value,
        belongs=lambda record: "type" in record or any(name[:1] == "$" for name in record),
        begins=lambda record: record.keys() >= _HEAD,
        otherwise="is no line of a session: it has no type",
        joined=_joined,
    ),
)
