"""Rollouts of Codex: JSON lines, `~/.codex/sessions/YYYY/MM/DD/rollout-….jsonl`, and those of before, which hold bare items.

A trace is what was done about one prompt, or since the conversation was compacted. Nothing names a prompt but its place in the
session, so each part carries on who is speaking, and how many there were.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from journeyman.core.messages import ToolUse, Turn, Usage, joined
from journeyman.tracing import builder, conversation, fields
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.source import Format, Row, SeveralRecords

NAME = "codex"
_LINES = "lines of Codex"
_WRAPPED = frozenset({"session_meta", "turn_context", "response_item", "event_msg", "compacted"})
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "web_search_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_ITEMS = _CALLS | _OUTPUTS | {"message", "reasoning"}
_PASSED_OVER = frozenset({"session_meta", "turn_context", "state", "ghost_snapshot", "compaction"})
"""Kinds of lines that hold nothing of what was said or done."""
_BOILERPLATE = ("<environment_context>", "<user_instructions>", "<permissions", "<turn_aborted>", "# AGENTS.md instructions")
"""How texts begin that the program says in the user's name."""


def recognised(record: Row) -> bool:
    return _wrapped(record) or _old_head(record)


def _wrapped(record: Row) -> bool:
    return (
        fields.string(record.get("type")) in _WRAPPED and "timestamp" in record and isinstance(record.get("payload"), Mapping)
    )


def _old_head(record: Row) -> bool:
    """Whether a line is the first one of an old file."""
    return "type" not in record and {"id", "timestamp", "instructions"} <= record.keys()


def _kind(line: Row) -> tuple[str, Mapping[str, Any]]:
    """What a line tells of, and the item itself."""
    if _wrapped(line):
        item = fields.mapping(line["payload"])
        return (str(item.get("type")) if line["type"] == "response_item" else str(line["type"])), item
    return ("session_meta" if _old_head(line) else str(line.get("type") or line.get("record_type"))), line


def kinds(record: Row) -> Iterator[tuple[str, bool]]:
    """The kind of each line, and whether it is known."""
    for line in record.get(_LINES) or [record]:
        kind, _ = _kind(line)
        yield kind, kind in _ITEMS or kind in _PASSED_OVER or kind in ("compacted", "event_msg")


def begins(line: Row) -> bool:
    """Whether a line is a prompt, or begins a conversation anew that was compacted."""
    kind, item = _kind(line)
    if kind == "message" and item.get("role") == "user":
        return not conversation.content_text(item.get("content")).lstrip().startswith(_BOILERPLATE)
    return kind == "compacted"


def carried(lines: Sequence[Row]) -> Row:
    """Whose session it is, what is in force in it, and how many prompts it had."""
    told = _Told()
    for line in lines:
        told.take(line)
    known = {**told.head, "model": told.model, "turns": told.turns}
    return {"type": "session_meta", "timestamp": told.head.get("timestamp"), "payload": known}


@dataclass(slots=True)
class _Told:
    """What is known so far, while lines are read one by one."""

    head: dict[str, Any] = field(default_factory=dict)
    model: str = ""
    turns: int = 0

    def take(self, line: Row) -> None:
        kind, item = _kind(line)
        if kind == "session_meta":
            self.head = {**item}
            self.model = fields.string(item.get("model"))
            self.turns = fields.count(item.get("turns")) or 0
        elif kind == "turn_context":
            self.model = fields.string(item.get("model")) or self.model
        self.turns += begins(line)


def read(record: Row) -> Iterator[RecordedTrace]:
    """What was done about the prompt that some lines hold."""
    lines: Sequence[Row] = record.get(_LINES) or [record]
    told, turns = _Told(), _Turns()
    prompt = ""
    for line in lines:
        told.take(line)
        turns.take(line, told.model)
        if not prompt and begins(line):
            _, item = _kind(line)
            prompt = conversation.content_text(item.get("content") or item.get("message"))
    turns.end()
    steps = builder.steps(turns.all, model=told.model)
    if not steps and not turns.prompted:
        return
    session, git = fields.string(told.head.get("id")), fields.mapping(told.head.get("git"))
    times = [at for line in lines[bool(told.turns) :] if (at := fields.time(line.get("timestamp")))]
    yield builder.recorded(
        f"{NAME}-{session}-{told.turns}" if session else "",
        started_at=times[0] if times else fields.time(told.head.get("timestamp")),
        ended_at=max(times, default=None),
        steps=steps,
        session=session or None,
        agent=NAME,
        domain="code",
        input=prompt or None,
        error=turns.error,
        raw=fields.without_empty(
            cwd=told.head.get("cwd"),
            version=told.head.get("cli_version"),
            git_branch=git.get("branch"),
            git_commit=git.get("commit_hash"),
            encrypted_reasoning=turns.encrypted or None,
            unread=dict(turns.unread),
        ),
    )


class _Turns:
    """The items of a session as turns: an answer of the model is all that it says and asks for, until a tool answers or its
    tokens are counted."""

    def __init__(self) -> None:
        self.all: list[Turn] = []
        self.error: str | None = None
        self.encrypted = 0
        """Thoughts that nobody but the provider can read."""
        self.unread: Counter[str] = Counter()
        self.prompted = False
        self._open: list[Turn] = []
        self._uncounted: int | None = None
        """Where the answer stands that no tokens were told of yet."""
        self._total: Any = None

    def take(self, line: Row, model: str) -> None:
        kind, item = _kind(line)
        at = fields.time(line.get("timestamp"))
        if kind == "reasoning" or kind in _CALLS or (kind == "message" and item.get("role") == "assistant"):
            self._open.append(self._piece(kind, item)._replace(model=model, started_at=at))
            return
        if kind in _OUTPUTS:
            self.end()
            self.all.append(_output(item))
        elif kind in ("message", "compacted"):
            self.end()
            role = str(item.get("role") or "user")
            text = conversation.content_text(item.get("content") or item.get("message"))
            self.prompted |= begins(line) and kind == "message"
            self.all.append(Turn("system" if role == "developer" else role, text))
        elif kind == "event_msg":
            self._event(item)
        elif kind not in _PASSED_OVER:
            self.unread[kind] += 1

    def _piece(self, kind: str, item: Mapping[str, Any]) -> Turn:
        if kind == "message":
            return Turn("assistant", conversation.content_text(item.get("content")))
        if kind == "reasoning":
            self.encrypted += bool(item.get("encrypted_content"))
            return Turn("assistant", thought=conversation.content_text(item.get("summary") or item.get("content") or ""))
        return Turn("assistant", calls=(_call(kind, item),))

    def end(self) -> None:
        """Nothing more comes, or somebody else speaks: the answer that is being read is whole."""
        if self._open:
            first = self._open[0]
            whole = joined(self._open)
            self._uncounted = len(self.all)
            self.all.append(whole._replace(model=first.model, started_at=first.started_at))
            # What the server itself does is answered by no line.
            self.all += [Turn("tool", call.result, answers=call.id or None) for call in whole.calls if call.result is not None]
            self._open = []

    def _event(self, item: Mapping[str, Any]) -> None:
        kind = item.get("type")
        if kind == "token_count":
            info = fields.mapping(item.get("info"))
            self.end()
            total = info.get("total_token_usage")
            # The same count is told again when only the limits have changed.
            if self._uncounted is not None and total != self._total and info.get("last_token_usage"):
                answer = self.all[self._uncounted]
                self.all[self._uncounted] = answer._replace(usage=_usage(info["last_token_usage"]))
                self._uncounted = None
            self._total = total
        elif kind in ("turn_aborted", "error", "stream_error"):
            said = fields.string(item.get("message")) or fields.string(item.get("reason"))
            self.error = f"{'Aborted' if kind == 'turn_aborted' else 'Error'}: {said}"


def _usage(counts: Any) -> Usage:
    told = fields.mapping(counts)
    return Usage(
        fields.count(told.get("input_tokens")),
        fields.count(told.get("output_tokens")),
        fields.count(told.get("cached_input_tokens")),
    )


def _call(kind: str, item: Mapping[str, Any]) -> ToolUse:
    given = fields.first(item, "arguments", "input", "action")
    arguments = given if isinstance(given, str) else fields.as_json(given or {})
    name = fields.string(item.get("name")) or ("shell" if kind == "local_shell_call" else kind.removesuffix("_call"))
    result = "" if kind == "web_search_call" else None
    return ToolUse(name, arguments, str(fields.first(item, "call_id", "id") or ""), result=result)


def _output(item: Mapping[str, Any]) -> Turn:
    told = fields.parsed_if_json(item.get("output"))
    holder = told if isinstance(told, Mapping) else {}
    text = conversation.content_text(fields.first(holder, "output", "content") or ("" if holder else told))
    about = fields.mapping(holder.get("metadata"))
    code, success = about.get("exit_code"), holder.get("success")
    bad = success is False or (isinstance(code, int) and code != 0)
    is_known = isinstance(success, bool) or isinstance(code, int)
    return Turn(
        "tool",
        text,
        answers=fields.word(item.get("call_id")),
        failed=bad if is_known else None,
        error=f"exit status {code}" if isinstance(code, int) and code else None,
        seconds=fields.number(about.get("duration_seconds")),
    )


FORMAT = Format(
    name=NAME,
    recognises=recognised,
    read=read,
    unique=True,
    kinds=kinds,
    several=SeveralRecords(
        starts=lambda first: recognised(first.value),
        begins=begins,
        belongs=lambda record: bool({"type", "record_type"} & record.keys()) or _old_head(record),
        otherwise="is no line of a session: it has no type",
        joined=lambda rows: {_LINES: rows},
        carried=carried,
    ),
)
