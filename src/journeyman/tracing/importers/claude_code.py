"""Sessions of Claude Code: JSON lines, `~/.claude/projects/FOLDER/SESSION.jsonl`, and those of its sub-agents beside them.

A trace is what was done about one prompt. Its id is the prompt's own, so that a session that was resumed or forked, which
copies what went before into a file of its own, is the same traces again. One answer of the model stands in several lines with
one id, each of which repeats the usage so far: it is one call, with the largest counts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from journeyman.core.messages import Turn, Usage
from journeyman.core.trace import AgentCall, ModelCall, Step, ToolCall
from journeyman.tracing import builder, conversation, fields
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.source import Format, Row, SeveralRecords

NAME = "claude-code"
_LINES = "lines of Claude Code"
_SAID = ("user", "assistant", "system")
_BESIDE: Mapping[str, frozenset[str]] = {
    "summary": frozenset({"leafUuid"}),
    "file-history-snapshot": frozenset({"snapshot"}),
    "queue-operation": frozenset({"sessionId", "operation"}),
    "progress": frozenset({"uuid", "parentUuid"}),
}
"""Lines that are no message, and what they have."""
_PASSED_OVER = frozenset({
    *("agent-name", "ai-title", "attachment", "bridge-session", "custom-title", "file-history-delta", "last-prompt", "mode"),
    *("permission-mode", "pr-link", "tag"),
})  # fmt: skip
"""More of them, which do not tell that a file is a session."""
_LOCAL = ("<local-command-", "<command-name>", "<bash-input>", "<bash-stdout>")
"""How texts begin that the program writes where a person gave it a command, and not the model."""
_NOBODY = "<synthetic>"
"""The "model" of what the program itself wrote."""


def recognised(record: Row) -> bool:
    """Whether a line is one of a session."""
    kind = fields.string(record.get("type"))
    if kind in _SAID:
        return {"uuid", "parentUuid", "sessionId"} <= record.keys()
    return kind in _BESIDE and _BESIDE[kind] <= record.keys()


def begins(line: Row) -> bool:
    """Whether a line is a prompt: by a person, or to a sub-agent that has a file of its own."""
    if line.get("type") != "user" or line.get("isMeta") or line.get("isCompactSummary"):
        return False
    if line.get("isSidechain") and not (line.get("agentId") and line.get("parentUuid") is None):
        return False
    content = fields.mapping(line.get("message")).get("content")
    return not any(conversation.part_answers(content)) and not _text(line).startswith("<local-command-")


def read(record: Row) -> Iterator[RecordedTrace]:
    """What was done about the prompt that some lines begin with."""
    lines = _once(record.get(_LINES) or [record])
    prompt = next((line for line in lines if begins(line)), None)
    main = [line for line in lines if line is prompt or not line.get("isSidechain") or line.get("agentId")]
    steps = builder.steps(_turns(main))
    steps += tuple(_asides([line for line in lines if line not in main], steps))
    first = prompt or next((line for line in lines if line.get("type") in _SAID), None)
    if first is None or (not steps and (prompt is None or _text(prompt).startswith(_LOCAL))):
        return
    id, before = str(first.get("uuid")), fields.word(first.get("parentUuid"))
    times = [at for line in lines if line.get("type") in _SAID and (at := fields.time(line.get("timestamp")))]
    yield builder.recorded(
        f"{NAME}-{id}",
        # Who goes back and asks otherwise makes another attempt at the same place.
        task_id=f"{NAME}-{before or id}",
        started_at=fields.time(first.get("timestamp")),
        ended_at=max(times, default=None),
        steps=steps,
        session=fields.word(first.get("sessionId")),
        agent=f"{NAME}/agent" if first.get("isSidechain") else NAME,
        domain="code",
        input=None if prompt is None else _text(prompt),
        error=_fault(main),
        raw=fields.without_empty(
            cwd=first.get("cwd"),
            git_branch=first.get("gitBranch"),
            version=first.get("version"),
            agent_id=first.get("agentId"),
            unread=dict(Counter(kind for kind, known in kinds(record) if not known)),
        ),
    )


def kinds(record: Row) -> Iterator[tuple[str, bool]]:
    """The kind of each line, and whether it is known."""
    for line in record.get(_LINES) or [record]:
        kind = str(line.get("type"))
        yield kind, kind in _SAID or kind in _BESIDE or kind in _PASSED_OVER


def _once(lines: Iterable[Row]) -> list[Row]:
    """Each line once: some are written twice."""
    seen: set[str] = set()
    found = []
    for line in lines:
        id = fields.string(line.get("uuid"))
        if not id or id not in seen:
            found.append(line)
        seen.add(id)
    return found


def _text(line: Row) -> str:
    return conversation.content_text(fields.mapping(line.get("message")).get("content"))


def _fault(lines: Sequence[Row]) -> str | None:
    """Why it stopped, where the last thing that was said is the program's word that the API failed."""
    last = next((line for line in reversed(lines) if line.get("type") == "assistant"), None)
    return f"ApiError: {_text(last)}" if last is not None and last.get("isApiErrorMessage") else None


def _turns(lines: Sequence[Row]) -> list[Turn]:
    answers: dict[str, list[Row]] = {}
    for line in lines:
        if line.get("type") == "assistant":
            answers.setdefault(_message_id(line), []).append(line)
    turns: list[Turn] = []
    for line in lines:
        if line.get("type") == "assistant":
            if (pieces := answers.pop(_message_id(line), None)) is not None:
                turns.append(_reply(pieces))
        elif line.get("type") in _SAID:
            turns += _sent(line)
    return turns


def _message_id(line: Row) -> str:
    return str(fields.mapping(line.get("message")).get("id") or line.get("uuid"))


def _sent(line: Row) -> Iterator[Turn]:
    content = fields.mapping(line.get("message")).get("content", line.get("content"))
    yield from conversation.part_answers(content)
    if text := conversation.content_text(content):
        yield Turn("system" if line.get("type") == "system" else "user", text)


def _reply(pieces: Sequence[Row]) -> Turn:
    """One answer of the model, from the lines that tell of it."""
    messages = [fields.mapping(line.get("message")) for line in pieces]
    blocks: list[Any] = []
    for message in messages:
        content = message.get("content")
        blocks += [each for each in (content if isinstance(content, list) else [content]) if each not in blocks]
    id, models = messages[0].get("id"), [str(each.get("model") or "") for each in messages]
    costs = [cost for line in pieces if (cost := fields.number(line.get("costUSD"))) is not None]
    return Turn(
        "assistant",
        conversation.content_text(blocks),
        calls=tuple(conversation.part_calls(blocks)),
        thought="\n".join(conversation.part_thoughts(blocks)),
        finish=next((each["stop_reason"] for each in reversed(messages) if isinstance(each.get("stop_reason"), str)), None),
        canned=models[0] == _NOBODY,
        id=str(id or pieces[0].get("uuid") or ""),
        model=models[0],
        usage=_usage([fields.mapping(each.get("usage")) for each in messages]),
        cost=max(costs, default=None),
        started_at=fields.time(pieces[0].get("timestamp")),
        response_id=fields.word(id),
        raw=fields.without_empty(request_id=pieces[0].get("requestId")),
    )


def _usage(counts: Sequence[Mapping[str, Any]]) -> Usage:
    """The largest of each: every line counts what was written up to it."""

    def most(name: str) -> int | None:
        return max((count for each in counts if (count := fields.count(each.get(name))) is not None), default=None)

    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return Usage.beside_cache(*map(most, names))


def _asides(lines: Sequence[Row], steps: Sequence[Step]) -> Iterator[Step]:
    """What sub-agents did, below the tool call that handed it to them."""
    root_of: dict[str, str] = {}
    groups: dict[str, list[Row]] = {}
    for line in lines:
        id = str(line.get("uuid"))
        root_of[id] = root_of.get(str(line.get("parentUuid")), id)
        groups.setdefault(root_of[id], []).append(line)
    for root, some in groups.items():
        asked = _text(some[0])
        asker = next((step for step in steps if isinstance(step, ToolCall) and _hands_on(step, asked)), None)
        inner, own = builder.steps(_turns(some)), f"agent.{root}"
        yield AgentCall(
            agent=f"{NAME}/agent",
            input=asked,
            output=next((step.reply for step in reversed(inner) if isinstance(step, ModelCall)), ""),
            started_at=fields.time(some[0].get("timestamp")),
            id=own,
            parent=asker.id if asker else None,
        )
        for step in inner:
            moved = replace(step, id=f"{own}.{step.id}", parent=f"{own}.{step.parent}" if step.parent else own)
            if isinstance(moved, ModelCall) and moved.continues:
                moved = replace(moved, continues=f"{own}.{moved.continues}")
            yield moved


def _hands_on(step: ToolCall, asked: str) -> bool:
    return bool(asked) and fields.mapping(fields.parsed_if_json(step.arguments)).get("prompt") == asked


FORMAT = Format(
    name=NAME,
    recognises=recognised,
    read=read,
    unique=True,
    repeats=True,
    kinds=kinds,
    several=SeveralRecords(
        starts=lambda first: recognised(first.value),
        begins=begins,
        belongs=lambda record: isinstance(record.get("type"), str),
        otherwise="is no line of a session: it has no type",
        joined=lambda rows: {_LINES: rows},
    ),
)
