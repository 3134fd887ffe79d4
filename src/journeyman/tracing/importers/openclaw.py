"""Session logs of OpenClaw (and of the pi agent under it): JSON lines, the first of which is the session."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from journeyman.core.messages import Turn, Usage
from journeyman.tracing import builder, conversation, fields
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.source import Format, SeveralRecords

_NOBODY = "delivery-mirror"
"""The "model" of messages that the program itself wrote."""
_ROLES = {"toolResult": "tool"}


def begins(record: Mapping[str, Any]) -> bool:
    """Whether a line is the first one of a session."""
    return record.get("type") == "session" and "id" in record


def belongs(record: Mapping[str, Any]) -> bool:
    """Whether a line is a later one."""
    return isinstance(record.get("type"), str) and record["type"] != "session"


def recognised(record: Mapping[str, Any]) -> bool:
    """Whether a line is one of a session: the first may be broken."""
    return begins(record) or (belongs(record) and {"id", "parentId", "timestamp"} <= set(record))


def read(record: Mapping[str, Any]) -> Iterator[RecordedTrace]:
    """The session that a line, or several, tell of, also where the first is lost."""
    lines: list[Mapping[str, Any]] = list(record.get(_LINES) or [record])
    head: Mapping[str, Any] = lines.pop(0) if lines and begins(lines[0]) else {}
    turns: list[Turn] = []
    started = fields.time((head or lines[0]).get("timestamp"))
    last = started
    changes: list[Mapping[str, Any]] = []
    for line in lines:
        last = fields.time(line.get("timestamp")) or last
        if line.get("type") == "message":
            turns.append(_turn(fields.mapping(line.get("message")), line))
        else:
            changes.append(line)
    id = str(head.get("id") or "")
    model = next((turn.model for turn in turns if turn.model), "")
    yield builder.recorded(
        id,
        started_at=started,
        ended_at=last,
        steps=builder.steps(turns, model=model),
        session=id or None,
        agent="openclaw",
        raw=fields.without_empty(cwd=head.get("cwd"), version=head.get("version"), changes=changes),
    )


def _turn(message: Mapping[str, Any], line: Mapping[str, Any]) -> Turn:
    role = str(message.get("role") or "user")
    usage = fields.mapping(message.get("usage"))
    error = fields.text(message.get("errorMessage")) or None
    details = fields.mapping(message.get("details"))
    millis = fields.number(details.get("durationMs"))
    at = fields.time(line.get("timestamp"))
    counts = (fields.count(usage.get(name)) for name in ("input", "output", "cacheRead", "cacheWrite"))
    return Turn(
        _ROLES.get(role, role),
        conversation.content_text(message.get("content")),
        calls=tuple(conversation.part_calls(message.get("content"))),
        thought="\n".join(conversation.part_thoughts(message.get("content"))),
        answers=str(message["toolCallId"]) if message.get("toolCallId") else None,
        failed=fields.flag(message.get("isError")),
        error=error,
        canned=message.get("model") == _NOBODY,
        id=str(line.get("id") or "") if role == "assistant" else "",
        model=str(message.get("model") or ""),
        finish=message.get("stopReason") if isinstance(message.get("stopReason"), str) else None,
        usage=Usage.beside_cache(*counts),
        cost=fields.number(fields.mapping(usage.get("cost")).get("total")) or None,
        started_at=at - timedelta(milliseconds=millis) if at and millis and millis < 1e9 else at,
        seconds=None if millis is None else millis / 1000,
        raw=fields.without_empty(provider=message.get("provider"), api=message.get("api")),
    )


_LINES = "lines of a session"
FORMAT = Format(
    name="openclaw",
    recognises=recognised,
    read=read,
    unique=True,
    several=SeveralRecords(
        starts=lambda first: recognised(first.value),
        begins=begins,
        belongs=belongs,
        otherwise="is no line of a session: it has no type",
        joined=lambda rows: {_LINES: rows},
    ),
)
