"""Exports of Langfuse: a trace with its observations, as its API and its page give them."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from journeyman.core.messages import Usage
from journeyman.core.reward import Reward
from journeyman.core.trace import AgentCall, Step, ToolCall
from journeyman.tracing import builder, conversation, fields
from journeyman.tracing.base import NO_TIME, RecordedTrace
from journeyman.tracing.importers.source import Format

_FAULTS = frozenset({"hallucination", "toxicity", "bias", "harmfulness", "maliciousness", "contains-pii", "stereotype"})
"""Scores of which more is worse: kept, with no weight in a mean."""
_TOOL = {
    "openinference.span.kind": "TOOL", "gen_ai.operation.name": "execute_tool", "traceloop.span.kind": "tool",
    "langsmith.span.kind": "tool", "ai.operationId": "ai.toolCall",
}  # fmt: skip
"""How the attributes of a span say that it is the use of a tool."""
_TOOL_NAMES = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name")
_EVENT = re.compile(r"(.+)\.(start|success|error|finish|retry)-(\d+)")
"""How BeeAI's instrumentation names the events of one call, which it reports as an observation each."""


def recognised(record: Mapping[str, Any]) -> bool:
    inner = record.get("trace")
    return isinstance(record.get("observations"), list) and (isinstance(inner, dict) or "timestamp" in record)


def read(record: Mapping[str, Any]) -> Iterator[RecordedTrace]:
    """The trace that a file is."""
    whole = fields.mapping(record.get("trace")) or record
    seen = [_observation(each) for each in fields.objects(record.get("observations"))]
    seen = list(_joined(seen))
    depths = _depths(seen)
    seen.sort(key=lambda each: (each.started_at or NO_TIME, depths[each.id]))
    metadata = fields.mapping(fields.parsed_if_json(whole.get("metadata")))
    started = fields.time(whole.get("timestamp")) or next((each.started_at for each in seen if each.started_at), None)
    ends = [each.ended_at for each in seen if each.ended_at is not None]
    yield builder.recorded(
        str(whole.get("id") or ""),
        task_id=str(whole.get("name") or whole.get("id") or "langfuse"),
        started_at=started,
        ended_at=max(ends, default=None),
        steps=tuple(_steps(seen)),
        error=next((each.error for each in seen if each.error and not each.parent), None),
        session=_string(whole.get("sessionId")),
        agent=_string(whole.get("name")),
        input=_unwrapped_text(whole.get("input")),
        output=_unwrapped_text(whole.get("output")),
        rewards=tuple(_reward(each) for each in fields.objects(whole.get("scores"))),
        raw=fields.without_empty(
            user=whole.get("userId"),
            tags=whole.get("tags"),
            environment=whole.get("environment"),
            release=whole.get("release"),
            version=whole.get("version"),
            metadata=metadata,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Observation:
    """An observation."""

    id: str
    parent: str | None
    kind: str
    name: str
    row: Mapping[str, Any]
    attributes: Mapping[str, Any]
    started_at: datetime | None
    ended_at: datetime | None

    @property
    def seconds(self) -> float | None:
        return fields.seconds(self.started_at, self.ended_at)

    @property
    def error(self) -> str | None:
        if self.row.get("level") != "ERROR":
            return None
        return fields.text(self.row.get("statusMessage")) or "the observation has the level ERROR"

    @property
    def known(self) -> dict[str, Any]:
        """What steps of every kind have."""
        about = {"started_at": self.started_at, "seconds": self.seconds, "error": self.error}
        return {**about, "id": self.id, "parent": self.parent, "raw": _raw(self)}

    @property
    def tool(self) -> str | None:
        """The tool that it used, if it is the use of one."""
        named = next((str(self.attributes[key]) for key in _TOOL_NAMES if self.attributes.get(key)), None)
        told = any(str(self.attributes.get(key)).lower() == word.lower() for key, word in _TOOL.items())
        if self.kind == "TOOL" or told or "gen_ai.tool.call.id" in self.attributes:
            return named or self.name
        # LangGraph's spans have no kind; that of a tool ends in a message of the tool.
        output = fields.mapping(fields.parsed_if_json(self.row.get("output")))
        names = output.get("id")
        is_message = names[-1:] == ["ToolMessage"] if isinstance(names, list) else output.get("type") == "tool"
        return self.name if self.kind == "SPAN" and is_message and "messages" not in output else None


def _observation(row: Mapping[str, Any]) -> _Observation:
    metadata = fields.mapping(fields.parsed_if_json(row.get("metadata")))
    parent = row.get("parentObservationId")
    return _Observation(
        id=str(row.get("id") or ""),
        parent=str(parent) if parent else None,
        kind=str(row.get("type") or "SPAN").upper(),
        name=str(row.get("name") or ""),
        row=row,
        attributes=fields.mapping(fields.parsed_if_json(metadata.get("attributes"))),
        started_at=fields.time(row.get("startTime")),
        ended_at=fields.time(row.get("endTime")),
    )


def _steps(seen: Sequence[_Observation]) -> Iterator[Step]:
    """A generation with another one in it is the wrapper of the same call, reported by a second instrumentation."""
    inner = _innermost(seen)
    used = {name for each in seen if (name := each.tool)}
    for each in seen:
        tool = each.tool
        if each.kind in ("GENERATION", "EMBEDDING") and each.id in inner:
            yield from _call(each, inner[each.id], used)
        elif tool is not None:
            yield _tool_call(each, tool)
        else:
            yield _agent_call(each)


def _depths(seen: Sequence[_Observation]) -> Mapping[str, int]:
    """How far below the top each stands: of two that began in the same millisecond, the outer comes first."""
    parents = {each.id: each.parent for each in seen}
    depths: dict[str, int] = {}
    for id in parents:
        path, at = [], id
        while at in parents and at not in depths and at not in path:
            path.append(at)
            at = parents[at] or ""
        depth = depths.get(at, -1)
        for each in reversed(path):
            depth += 1
            depths[each] = depth
    return depths


def _innermost(seen: Sequence[_Observation]) -> Mapping[str, _Observation | None]:
    """The ids of the generations that are calls, each with the wrapper around it alone, if there is one."""
    by_id = {each.id: each for each in seen}
    calls = [each for each in seen if each.kind in ("GENERATION", "EMBEDDING")]
    wrapped: dict[str, list[str]] = {}
    for each in calls:
        above, passed = by_id.get(each.parent or ""), {each.id}
        while above is not None and above.id not in passed:
            if above.kind == "GENERATION":
                wrapped.setdefault(above.id, []).append(each.id)
            passed.add(above.id)
            above = by_id.get(above.parent or "")
    around = {ids[0]: by_id[outer] for outer, ids in wrapped.items() if len(ids) == 1}
    return {each.id: around.get(each.id) for each in calls if each.id not in wrapped}


def _joined(seen: Sequence[_Observation]) -> Iterator[_Observation]:
    """The events of one call, as one: what went in is told by its start, what came out by its success."""
    groups: dict[tuple[str, str], list[_Observation]] = {}
    for each in seen:
        event = _EVENT.fullmatch(each.name)
        if event is None or each.kind == "AGENT" or str(each.attributes.get("openinference.span.kind")) == "AGENT":
            yield each
        else:
            groups.setdefault((event[1], event[3]), []).append(each)
    for (name, _), group in groups.items():
        first = min(group, key=lambda each: (".start-" not in each.name, each.started_at or NO_TIME))
        outputs = [text for each in group if (text := each.row.get("output") or _pieces(each.attributes))]
        failed = next((each for each in group if ".error-" in each.name), None)
        row = {**first.row, "output": outputs[0] if outputs else None}
        if failed is not None:
            row |= {"level": "ERROR", "statusMessage": failed.row.get("statusMessage")}
        ends = [each.ended_at for each in group if each.ended_at is not None]
        yield replace(first, name=name, row=row, ended_at=max(ends) if ends else None)


def _pieces(attributes: Mapping[str, Any]) -> str:
    """A streamed answer that stands in the attributes, a message for each piece."""
    by_place = {}
    for key, value in attributes.items():
        place = _PIECE.fullmatch(key)
        if place and isinstance(value, str):
            by_place[int(place[1])] = value
    return "".join(by_place[place] for place in sorted(by_place))


_PIECE = re.compile(r"llm\.output_messages\.(\d{1,6})\.message\.content")


def _call(each: _Observation, wrapper: _Observation | None, used: set[str]) -> Iterator[Step]:
    row = each.row
    usage = fields.mapping(row.get("usageDetails")) or fields.mapping(row.get("usage"))
    answer = conversation.reply_of(_either(each, wrapper, "output"))._replace(
        model=str(row.get("model") or ""),
        usage=Usage(
            input=fields.first_count(usage, "input", "promptTokens"),
            output=fields.first_count(usage, "output", "completionTokens"),
            cached=fields.first_count(usage, "input_cache_read", "prompt_details.cache_read", "input_cached_tokens"),
        ),
        # 0 is what Langfuse writes where it knows no price.
        cost=fields.number(row.get("totalCost", row.get("calculatedTotalCost"))) or None,
        started_at=each.started_at,
        seconds=each.seconds,
        first_token_seconds=fields.seconds(each.started_at, fields.time(row.get("completionStartTime"))),
        error=each.error,
        response_id=_string(each.attributes.get("gen_ai.response.id")),
        raw=_raw(each),
    )
    # A tool that was used is an observation of its own.
    calls = ((f"{each.id}.{number}", call) for number, call in enumerate(answer.calls, start=1) if call.tool not in used)
    sent = conversation.sent_messages(_either(each, wrapper, "input"))
    yield from builder.call_steps(answer, sent, calls, id=each.id, parent=each.parent)


def _either(each: _Observation, wrapper: _Observation | None, name: str) -> Any:
    """What went in or came out; where the inner one does not tell, what the outer one does."""
    found = each.row.get(name)
    return wrapper.row.get(name) if wrapper is not None and found in (None, "", "None") else found


def _tool_call(each: _Observation, tool: str) -> ToolCall:
    output = fields.parsed_if_json(each.row.get("output"))
    message = fields.mapping(fields.mapping(output).get("kwargs")) or fields.mapping(output)
    is_message = "content" in message and ("tool_call_id" in message or isinstance(message["content"], list))
    return ToolCall(
        tool=tool,
        arguments=fields.text(each.row.get("input")),
        result=conversation.content_text(message["content"]) if is_message else fields.text(each.row.get("output")),
        ok=each.error is None,
        **each.known,
    )


def _agent_call(each: _Observation) -> AgentCall:
    row = each.row
    return AgentCall(agent=each.name, input=fields.text(row.get("input")), output=fields.text(row.get("output")), **each.known)


def _raw(each: _Observation) -> dict[str, Any]:
    # The contents stand in the step; what instrumentations repeat of them in attributes would be kept twice.
    told = {key: value for key, value in each.attributes.items() if len(str(value)) <= 1000}
    return fields.without_empty(
        type=each.kind,
        name=each.name,
        level=None if each.row.get("level") == "DEFAULT" else each.row.get("level"),
        parameters=each.row.get("modelParameters"),
        usage=each.row.get("usageDetails"),
        attributes=told,
    )


def _reward(score: Mapping[str, Any]) -> Reward:
    name = str(score.get("name") or "score")
    value = score.get("value")
    said_so = fields.text(score.get("comment"))
    if score.get("dataType") == "CATEGORICAL":
        return Reward(name=name, value=None, evidence="; ".join(filter(None, (fields.text(score.get("stringValue")), said_so))))
    return fields.reward(name, value, said_so, weight=0.0 if name.lower() in _FAULTS else 1.0)


def _string(value: Any) -> str | None:
    return str(value) if value not in (None, "") else None


def _unwrapped_text(value: Any) -> str | None:
    """An input or output as text: some are JSON in JSON."""
    if value is None:
        return None
    found = value
    if isinstance(value, str) and value[:1] == '"':
        try:
            found = json.loads(value)
        except ValueError:
            found = value
    return fields.text(found)


FORMAT = Format(name="langfuse", recognises=recognised, read=read, unique=True)
