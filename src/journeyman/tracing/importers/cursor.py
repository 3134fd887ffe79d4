"""Conversations of Cursor: its database `state.vscdb`, of which a copy is read, and the transcripts that its agents write."""

import json
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from journeyman.core.messages import ToolUse, Turn, Usage
from journeyman.tracing import builder, conversation, fields
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.source import FileHead, Format, JsonSource, Problem, Row, WholeFile, copied_database

NAME = "cursor"
_SQLITE = b"SQLite format 3\0"
_USER = 1
"""The type of what a user said; 2 is the assistant."""


def _knows(head: FileHead) -> bool:
    if head.start.startswith(_SQLITE):
        return head.path.suffix == ".vscdb"
    first = head.first
    return first is not None and not first.in_list and isinstance(first.value, dict) and _is_line(first.value)


def _read_files(paths: Sequence[Path]) -> Iterator[RecordedTrace | Problem]:
    for path in paths:
        if path.suffix != ".vscdb":
            yield from _transcript(path)
            continue
        with tempfile.TemporaryDirectory(prefix="journeyman-") as folder:
            copy = copied_database(path, Path(folder, "copy.db"))
            with closing(sqlite3.connect(copy)) as database:
                yield from _conversations(database, path)


def _conversations(database: sqlite3.Connection, path: Path) -> Iterator[RecordedTrace | Problem]:
    try:
        rows = database.execute("select key, value from cursorDiskKV where key like 'composerData:%' order by key").fetchall()
    except sqlite3.Error as error:
        yield Problem(str(path), f"has no conversations: {error}", strange=True)
        return
    for key, value in rows:
        where = f"{path} {key}"
        told = fields.parsed(value) if isinstance(value, str | bytes) else None
        if not isinstance(told, dict):
            yield Problem(where, "is no object")
            continue
        id = str(told.get("composerId") or key.partition(":")[2])
        bubbles = list(_bubbles(database, told, id))
        turns = [turn for each in bubbles for turn in _turns(each)]
        about = fields.without_empty(title=told.get("name"), mode=told.get("unifiedMode"), model=_model(told))
        started = fields.time(told.get("createdAt"))
        if turns and turns[0].started_at is None:
            turns[0] = turns[0]._replace(started_at=started)
        named = [turn._replace(model=turn.model or _model(told)) if turn.role == "assistant" else turn for turn in turns]
        yield from builder.by_prompt(named, session=id, agent=NAME, raw=about)


def _model(told: Mapping[str, Any]) -> str:
    return fields.string(fields.mapping(told.get("modelConfig")).get("modelName"))


def _bubbles(database: sqlite3.Connection, told: Mapping[str, Any], id: str) -> Iterator[dict[str, Any]]:
    """The messages in their order: in the conversation itself, or each under a key of its own."""
    held = fields.objects(told.get("conversation"))
    if held:
        yield from held
        return
    for head in fields.objects(told.get("fullConversationHeadersOnly")):
        key = f"bubbleId:{id}:{head.get('bubbleId')}"
        row = database.execute("select value from cursorDiskKV where key = ?", (key,)).fetchone()
        found = fields.parsed(row[0]) if row and isinstance(row[0], str | bytes) else None
        if isinstance(found, dict):
            yield {"bubbleId": head.get("bubbleId"), "type": head.get("type"), **found}


def _turns(bubble: Mapping[str, Any]) -> Iterator[Turn]:
    id, text = fields.string(bubble.get("bubbleId")), fields.string(bubble.get("text"))
    at = fields.time(fields.first(bubble, "createdAt") or fields.mapping(bubble.get("timingInfo")).get("clientStartTime"))
    if bubble.get("type") == _USER:
        yield Turn("user", text, id=id, started_at=at)
        return
    tool = fields.mapping(bubble.get("toolFormerData"))
    named = fields.string(tool.get("name"))
    call = ToolUse(named, _arguments(tool), fields.string(tool.get("toolCallId")) or f"{id}.tool")
    yield Turn(
        "assistant",
        text,
        calls=(call,) if named else (),
        thought=fields.string(fields.mapping(bubble.get("thinking")).get("text")),
        id=id,
        model=fields.string(fields.mapping(bubble.get("modelInfo")).get("modelName")),
        usage=_usage(fields.mapping(bubble.get("tokenCount"))),
        started_at=at,
    )
    status = tool.get("status")
    if named and status in ("completed", "error", "cancelled"):
        yield Turn("tool", fields.text(tool.get("result")), answers=call.id, failed=status != "completed",
                   error=fields.text(tool.get("error")) or None)  # fmt: skip


def _arguments(tool: Mapping[str, Any]) -> str:
    given = fields.first(tool, "rawArgs", "params")
    return given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)


def _usage(counts: Mapping[str, Any]) -> Usage:
    """0 and 0 stand for what was not counted."""
    told = (fields.count(counts.get("inputTokens")), fields.count(counts.get("outputTokens")))
    return Usage(*told) if any(told) else Usage()


# The transcripts of agents: JSON lines, a message each.


def _is_line(record: Row) -> bool:
    message = record.get("message")
    return record.get("role") in ("user", "assistant") and isinstance(message, Mapping) and "content" in message and (
        record.keys() <= {"role", "message", "timestamp", "id"}
    )  # fmt: skip


def _transcript(path: Path) -> Iterator[RecordedTrace | Problem]:
    turns: list[Turn] = []
    with JsonSource(path) as source:
        for one in source.records():
            if isinstance(one, Problem):
                yield one
            elif not isinstance(one.value, dict) or not _is_line(one.value):
                yield Problem(one.where, "is no line of a transcript")
            else:
                turns += _of_line(one.value)
    # The file has the conversation's name, and its lines have none.
    yield from builder.by_prompt(turns, session=path.stem, agent=NAME)


def _of_line(line: Row) -> Iterator[Turn]:
    content = fields.mapping(line.get("message")).get("content")
    yield from conversation.part_answers(content)
    text, calls = conversation.content_text(content), tuple(conversation.part_calls(content))
    if text or calls:
        thought = "\n".join(conversation.part_thoughts(content))
        yield Turn(str(line.get("role")), text, calls=calls, thought=thought, started_at=fields.time(line.get("timestamp")))


FORMAT = Format(name=NAME, whole=WholeFile(knows=_knows, read=_read_files))
