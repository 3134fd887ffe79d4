"""Sessions of OpenCode: a file for each session, message and part below `~/.local/share/opencode/storage`, or one export."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from journeyman.core.messages import ToolUse, Turn, Usage
from journeyman.tracing import builder, fields
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.source import FileHead, Format, LineCensus, Problem, Row, WholeFile

NAME = "opencode"
_PARTS = frozenset({
    *("text", "tool", "reasoning", "file", "patch", "snapshot", "step-start", "step-finish", "agent", "subtask", "retry"),
    "compaction",
})  # fmt: skip
"""Kinds of parts that are known; what stands in the second half of them is passed over."""


def recognised(record: Row) -> bool:
    """Whether it is what `opencode export` writes."""
    return fields.string(fields.mapping(record.get("info")).get("id")).startswith("ses") and "messages" in record


def _knows(head: FileHead) -> bool:
    first = head.first.value if head.first else None
    if not isinstance(first, dict) or recognised(first):
        return False
    id = fields.string(first.get("id"))
    return (id.startswith("ses") and {"projectID", "time"} <= first.keys()) or (
        id.startswith(("msg", "prt")) and "sessionID" in first
    )


def _read_files(paths: Sequence[Path]) -> Iterator[RecordedTrace | Problem]:
    """The sessions among the files; their messages and parts are read with them, and nothing by themselves."""
    for path in paths:
        info = _object(path)
        if isinstance(info, Problem):
            yield info
        elif fields.string(info.get("id")).startswith("ses"):
            yield from _session(path, info)


def _session(path: Path, info: Mapping[str, Any]) -> Iterator[RecordedTrace | Problem]:
    storage = path.parent.parent.parent
    messages = []
    for message in _below(storage / "message" / str(info["id"])):
        if isinstance(message, Problem):
            yield message
            continue
        found = list(_below(storage / "part" / str(message.get("id"))))
        yield from (each for each in found if isinstance(each, Problem))
        messages.append({"info": message, "parts": [each for each in found if not isinstance(each, Problem)]})
    record = {"info": info, "messages": messages}
    yield from read(record)
    census = LineCensus()
    census.take(kinds(record))
    yield from census.problems(str(path))


def _below(folder: Path) -> Iterator[dict[str, Any] | Problem]:
    for path in sorted(folder.glob("*.json")):
        yield _object(path)


def _object(path: Path) -> dict[str, Any] | Problem:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        return Problem(str(path), f"could not be read: {error}")
    return found if isinstance(found, dict) else Problem(str(path), "is no object")


def read(record: Row) -> Iterator[RecordedTrace]:
    """A trace for each thing that was asked in the session."""
    info = fields.mapping(record.get("info"))
    messages = fields.objects(record.get("messages"))
    messages.sort(key=lambda each: (_created(each), str(fields.mapping(each.get("info")).get("id"))))
    turns = [turn for each in messages for turn in _turns(fields.mapping(each.get("info")), fields.objects(each.get("parts")))]
    yield from builder.by_prompt(
        turns,
        session=fields.string(info.get("id")),
        agent=NAME,
        raw=fields.without_empty(cwd=info.get("directory"), version=info.get("version"), title=info.get("title")),
    )


def kinds(record: Row) -> Iterator[tuple[str, bool]]:
    """The kind of each part of a message, and whether it is known."""
    for message in fields.objects(record.get("messages")):
        for part in fields.objects(message.get("parts")):
            kind = str(part.get("type"))
            yield kind, kind in _PARTS


def _created(message: Mapping[str, Any]) -> float:
    return fields.number(fields.mapping(fields.mapping(message.get("info")).get("time")).get("created")) or 0


def _turns(info: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> Iterator[Turn]:
    times = fields.mapping(info.get("time"))
    at = fields.time(times.get("created"))
    text = "\n".join(fields.string(part.get("text")) for part in parts if part.get("type") == "text")
    if info.get("role") != "assistant":
        yield Turn("user", text, id=fields.string(info.get("id")), started_at=at)
        return
    tools = [part for part in parts if part.get("type") == "tool"]
    tokens, error = fields.mapping(info.get("tokens")), fields.mapping(info.get("error"))
    cache = fields.mapping(tokens.get("cache"))
    counts = (fields.count(each) for each in (tokens.get("input"), tokens.get("output"), cache.get("read"), cache.get("write")))
    said = fields.string(fields.mapping(error.get("data")).get("message"))
    yield Turn(
        "assistant",
        text,
        calls=tuple(map(_call, tools)),
        thought="\n".join(fields.string(part.get("text")) for part in parts if part.get("type") == "reasoning"),
        finish=fields.word(info.get("finish")),
        id=fields.string(info.get("id")),
        model=fields.string(info.get("modelID")),
        usage=Usage.beside_cache(*counts),
        cost=fields.number(info.get("cost")) or None,
        error=f"{error.get('name') or 'Error'}: {said}" if error else None,
        started_at=at,
        seconds=fields.seconds(at, fields.time(times.get("completed"))),
        raw=fields.without_empty(provider=info.get("providerID"), reasoning_tokens=tokens.get("reasoning")),
    )
    for part in tools:
        yield from _answer(part)


def _call(part: Mapping[str, Any]) -> ToolUse:
    state = fields.mapping(part.get("state"))
    id = fields.first(part, "callID", "id")
    return ToolUse(fields.string(part.get("tool")), fields.as_json(state.get("input") or {}), str(id or ""))


def _answer(part: Mapping[str, Any]) -> Iterator[Turn]:
    state = fields.mapping(part.get("state"))
    status = state.get("status")
    if status in ("completed", "error"):
        times = fields.mapping(state.get("time"))
        start = fields.time(times.get("start"))
        yield Turn(
            "tool",
            fields.text(state.get("output")),
            answers=_call(part).id,
            failed=status == "error",
            error=fields.word(state.get("error")),
            started_at=start,
            seconds=fields.seconds(start, fields.time(times.get("end"))),
        )


FORMAT = Format(
    name=NAME, recognises=recognised, read=read, unique=True, kinds=kinds, whole=WholeFile(knows=_knows, read=_read_files)
)
