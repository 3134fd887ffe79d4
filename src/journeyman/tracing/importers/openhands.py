"""Conversations of OpenHands: a file for each event in a folder `events`, or a list of events that was exported.

Events of the first format have `action` or `observation`, those of the second a `kind`. Several actions that one answer of the
model asked for name that answer, and are one call.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from journeyman.core.messages import ToolUse, Turn, Usage
from journeyman.tracing import builder, conversation, fields
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.source import (
    FileHead,
    Format,
    JsonRecord,
    LineCensus,
    Problem,
    Row,
    SeveralRecords,
    WholeFile,
)

NAME = "openhands"
_EVENTS = "events of OpenHands"
_KINDS = frozenset({"MessageEvent", "ActionEvent", "ObservationEvent", "SystemPromptEvent", "AgentErrorEvent"})
_PASSED_OVER = frozenset({
    *("Condensation", "CondensationRequest", "CondensationSummaryEvent", "ConversationStateUpdateEvent", "PauseEvent"),
    *("TokenEvent", "UserRejectObservation", "ConversationErrorEvent"),
})  # fmt: skip
_FILE = re.compile(r"(?:event-)?0*(\d+)(?:-[\w-]+)?\.json")


def _is_event(record: Row) -> bool:
    first_format = isinstance(record.get("source"), str) and bool({"action", "observation"} & record.keys())
    return {"id", "timestamp"} <= record.keys() and (first_format or fields.string(record.get("kind")) in _KINDS)


def _knows(head: FileHead) -> bool:
    first = head.first
    return first is not None and not first.in_list and isinstance(first.value, dict) and _is_event(first.value) and (
        _FILE.fullmatch(head.path.name) is not None
    )  # fmt: skip


def _read_files(paths: Sequence[Path]) -> Iterator[RecordedTrace | Problem]:
    """The conversations whose first event is among the files; later events are read with it, and nothing by themselves."""
    for path in paths:
        events = _numbered(path.parent)
        if not events or events[0] != path:
            continue
        rows: list[Row] = []
        for each in events:
            try:
                found = json.loads(each.read_bytes())
            except (OSError, ValueError, RecursionError) as error:
                yield Problem(str(each), f"could not be read: {error}")
                continue
            rows += [found] if isinstance(found, dict) else []
        folder = path.parent.parent if path.parent.name == "events" else path.parent
        record = {_EVENTS: rows, "name": folder.name}
        yield from read(record)
        census = LineCensus()
        census.take(kinds(record))
        yield from census.problems(str(path.parent))


def _numbered(folder: Path) -> list[Path]:
    found = [(int(named[1]), path) for path in folder.iterdir() if (named := _FILE.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def read(record: Row) -> Iterator[RecordedTrace]:
    """A trace for each thing that a user asked in the conversation."""
    events = fields.objects(record.get(_EVENTS)) or [dict(record)]
    turns = list(_turns(events))
    first = events[0]
    name = fields.string(record.get("name"))
    yield from builder.by_prompt(
        turns,
        session=name,
        agent=NAME,
        raw=fields.without_empty(version=fields.mapping(first.get("args")).get("openhands_version")),
    )


def kinds(record: Row) -> Iterator[tuple[str, bool]]:
    """The kind of each event, and whether it is known."""
    for event in fields.objects(record.get(_EVENTS)) or [dict(record)]:
        kind = event.get("kind")
        if kind is not None:
            yield str(kind), kind in _KINDS or kind in _PASSED_OVER
        else:
            yield "neither action nor observation", bool({"action", "observation"} & event.keys())


def _turns(events: Sequence[Mapping[str, Any]]) -> Iterator[Turn]:
    """The events in order; what one answer of the model asked for together."""
    told: dict[str, list[Mapping[str, Any]]] = {}
    for event in events:
        if (answer := _answer_id(event)) is not None:
            told.setdefault(answer, []).append(event)
    for event in events:
        if (answer := _answer_id(event)) is None:
            yield from _other(event)
        elif (together := told.pop(answer, None)) is not None:
            yield _reply(together, answer)


def _answer_id(event: Mapping[str, Any]) -> str | None:
    """What the agent did, by the answer of the model that asked for it."""
    if event.get("kind") == "ActionEvent":
        return str(event.get("llm_response_id") or event.get("id"))
    if event.get("kind") == "MessageEvent" and event.get("source") == "agent":
        return str(event.get("llm_response_id") or event.get("id"))
    if event.get("source") == "agent" and event.get("action") not in (None, "", "system", "change_agent_state", "recall"):
        return str(_response(event).get("id") or f"event {event.get('id')}")
    return None


def _response(event: Mapping[str, Any]) -> Mapping[str, Any]:
    return fields.mapping(fields.mapping(event.get("tool_call_metadata")).get("model_response"))


def _reply(events: Sequence[Mapping[str, Any]], answer: str) -> Turn:
    first = events[0]
    response = _response(first)
    text = "\n".join(dict.fromkeys(filter(None, map(_said, events))))
    calls = tuple(call for event in events if (call := _call(event)) is not None)
    known = fields.string(response.get("id")) or fields.string(first.get("llm_response_id"))
    return Turn(
        "assistant",
        text,
        calls=calls,
        thought="\n".join(fields.string(event.get("reasoning_content")) for event in events if event.get("reasoning_content")),
        id=answer,
        model=fields.string(response.get("model")) or fields.string(fields.mapping(first.get("metrics")).get("model_name")),
        usage=_usage(response.get("usage")),
        started_at=fields.time(first.get("timestamp")),
        response_id=known or None,
    )


def _usage(counts: Any) -> Usage:
    return conversation.usage_of(counts)


def _said(event: Mapping[str, Any]) -> str:
    if "kind" in event:
        held = fields.mapping(event.get("llm_message")).get("content") or event.get("thought") or event.get("content")
        return conversation.content_text(held or "")
    args = fields.mapping(event.get("args"))
    said = args.get("content") if event.get("action") == "message" else args.get("thought") or args.get("final_thought")
    return fields.string(said)


def _call(event: Mapping[str, Any]) -> ToolUse | None:
    if event.get("kind") == "ActionEvent":
        asked = fields.mapping(event.get("tool_call"))
        given = fields.first(asked, "arguments") or fields.mapping(asked.get("function")).get("arguments")
        arguments = given if isinstance(given, str) else fields.as_json(given or event.get("action") or {})
        return ToolUse(fields.string(event.get("tool_name")), arguments, fields.string(event.get("tool_call_id")))
    action = fields.string(event.get("action"))
    if "kind" in event or action == "message":
        return None
    about, args = fields.mapping(event.get("tool_call_metadata")), fields.mapping(event.get("args"))
    return ToolUse(
        fields.string(about.get("function_name")) or action,
        fields.as_json({name: value for name, value in args.items() if name not in ("thought", "final_thought")}),
        f"event {event.get('id')}",
    )


def _other(event: Mapping[str, Any]) -> Iterator[Turn]:
    at, kind = fields.time(event.get("timestamp")), fields.string(event.get("kind"))
    if kind in ("ObservationEvent", "AgentErrorEvent"):
        seen = fields.mapping(event.get("observation"))
        text = conversation.content_text(seen.get("content") or seen.get("output") or event.get("error") or "")
        bad = kind == "AgentErrorEvent" or seen.get("is_error") is True or _code(seen) not in (None, 0)
        yield Turn(
            "tool", text, answers=fields.word(event.get("tool_call_id")), tool=fields.word(event.get("tool_name")), failed=bad
        )
    elif event.get("observation") and event.get("cause") is not None and event.get("observation") != "agent_state_changed":
        bad = event["observation"] == "error" or _code(fields.mapping(event.get("extras"))) not in (None, 0)
        yield Turn("tool", fields.text(event.get("content")), answers=f"event {event['cause']}", failed=bad)
    elif kind == "SystemPromptEvent" or event.get("action") == "system":
        held = event.get("system_prompt") or fields.mapping(event.get("args")).get("content") or ""
        yield Turn("system", conversation.content_text(held), started_at=at)
    elif event.get("source") == "user" and (kind == "MessageEvent" or event.get("action") == "message"):
        yield Turn("user", _said(event), id=str(event.get("id")), started_at=at)


def _code(holder: Mapping[str, Any]) -> Any:
    about = fields.mapping(holder.get("metadata"))
    return fields.first({"a": holder.get("exit_code"), "b": about.get("exit_code")}, "a", "b")


def _starts(first: JsonRecord) -> bool:
    return first.in_list and _is_event(first.value)


FORMAT = Format(
    name=NAME,
    recognises=_is_event,
    read=read,
    kinds=kinds,
    several=SeveralRecords(
        starts=_starts,
        belongs=lambda record: "id" in record,
        otherwise="is no event: it has no id",
        joined=lambda rows: {_EVENTS: rows},
    ),
    whole=WholeFile(knows=_knows, read=_read_files),
)
