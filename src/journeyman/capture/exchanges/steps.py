"""From what an exchange says to the steps of a trace."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from journeyman.capture.base import failed
from journeyman.capture.bracketed import as_message
from journeyman.capture.builder import model_call
from journeyman.capture.exchanges.base import Exchange
from journeyman.capture.exchanges.known import End
from journeyman.capture.exchanges.reading import Reading
from journeyman.core.messages import ToolUse, Turn
from journeyman.trace import AgentCall, ModelCall, Reasoning, Step, ToolCall, Trace


class Heard(NamedTuple):
    """One exchange, and what is known of it."""

    exchange: Exchange
    reading: Reading
    cost: float | None
    ends: Mapping[str, int]
    """Kept in the call's `raw`; see `join`."""

    @property
    def until(self) -> datetime:
        return self.exchange.started_at + timedelta(seconds=self.exchange.seconds)


def begun(exchange: Exchange, reading: Reading) -> Trace:
    """The trace of an exchange, before it has a step."""
    labels = exchange.labels
    id = labels.get("trace") or exchange.id
    candidates = [each for name in labels.get("candidate", "").split(",") if (each := name.strip())] or ["base"]
    return Trace(
        id=id,
        task_id=labels.get("task") or id,
        candidate_id=candidates[0],
        other_candidates=tuple(candidates[1:]),
        started_at=exchange.started_at,
        domain=labels.get("domain") or "general",
        session=labels.get("session") or reading.thread,
        agent=labels.get("agent"),
        source="gateway",
    )


def grow(trace: Trace, heard: Heard, at: End | None) -> tuple[Trace, list[Step]]:
    """The trace with an exchange in it, and the steps that it did not have before: the call, what the model thought, and the
    tools that it asks for.

    Args:
        at: What the exchange goes on from; `None` for the first of its conversation.
    """
    exchange, reading = heard.exchange, heard.reading
    turns: Sequence[Turn] = reading.turns[at.turns :] if at else reading.turns
    if reading.behind or reading.thread:
        turns = _unsaid(trace, turns)
    known = _answered(trace.steps, at.call, turns, exchange.started_at) if at and at.call else trace.steps
    known, handed, parent = _handed(trace, known, heard, at)
    call = _call(heard, turns, continues=at.call if at else None, parent=parent)
    new = [*handed, call, *_thoughts(heard), *_tools(heard, {step.id for step in known} if reading.reply.calls else ())]
    last = trace.ended_at is None or heard.until >= trace.ended_at
    grown = replace(
        trace,
        started_at=min(trace.started_at, exchange.started_at),
        ended_at=heard.until if last else trace.ended_at,
        steps=_in_order(known, new),
        error=reading.error if last else trace.error,
    )
    return grown, new


def _call(heard: Heard, turns: Sequence[Turn], *, continues: str | None, parent: str | None) -> ModelCall:
    exchange, reading = heard.exchange, heard.reading
    reply = reading.reply._replace(
        model=reading.model,
        usage=reading.usage,
        cost=heard.cost,
        started_at=exchange.started_at,
        seconds=exchange.seconds,
        first_token_seconds=exchange.first_byte_seconds if exchange.streamed else None,
        finish=reading.finish,
        error=reading.error,
        response_id=reading.response_id,
        raw=_raw(heard),
    )
    return model_call(reply, tuple(map(as_message, turns)), id=exchange.id, parent=parent, continues=continues)


def _raw(heard: Heard) -> dict[str, Any]:
    exchange = heard.exchange
    raw: dict[str, Any] = {"dialect": exchange.dialect.value, "status": exchange.status, "streamed": exchange.streamed}
    if exchange.upstream:
        raw["upstream"] = exchange.upstream
    if heard.ends:
        raw["ends"] = dict(heard.ends)
    return {**raw, **heard.reading.raw}


def _thoughts(heard: Heard) -> list[Reasoning]:
    exchange = heard.exchange
    return [
        Reasoning(text=text, started_at=exchange.started_at, id=f"{exchange.id}/thought/{number}", parent=exchange.id)
        for number, text in enumerate(heard.reading.reasoning)
    ]


def _tools(heard: Heard, taken: Collection[str]) -> list[ToolCall]:
    ids = set(taken)
    found: list[ToolCall] = []
    for number, call in enumerate(heard.reading.reply.calls):
        # Some servers number the calls of each answer anew, and some give no ids at all.
        id = call.id if call.id and call.id not in ids else f"{heard.exchange.id}/tool/{number}"
        ids.add(id)
        found.append(_tool(heard, call, id))
    return found


def _tool(heard: Heard, call: ToolUse, id: str) -> ToolCall:
    served = call.result is not None
    return ToolCall(
        tool=call.tool,
        arguments=call.arguments,
        result=call.result or "",
        ok=call.error is None,
        error=call.error,
        started_at=heard.exchange.started_at if served else heard.until,
        id=id,
        parent=heard.exchange.id,
        raw={"by": "server"} if served else {"answered": False, "asked_as": call.id},
    )


def _answered(known: Sequence[Step], asker: str, turns: Iterable[Turn], at: datetime) -> Sequence[Step]:
    """The steps, with what the client answered to the tools that a call asked for.

    An answer belongs to the tool call whose id it names, else to the first of that tool, else to the first that waits. How
    long a tool took is what passed between the two exchanges, where only one was asked for.
    """
    waiting = {
        place: step
        for place, step in enumerate(known)
        if isinstance(step, ToolCall) and step.parent == asker and step.raw.get("answered") is False
    }
    alone = len(waiting) == 1
    filled: dict[int, Step] = {}
    for turn in turns:
        if turn.role == "tool" and waiting:
            place = _meant(turn, waiting)
            filled[place] = _filled(waiting.pop(place), turn, at if alone else None)
    return [filled.get(place, step) for place, step in enumerate(known)] if filled else known


def _meant(turn: Turn, waiting: Mapping[int, ToolCall]) -> int:
    named = [place for place, step in waiting.items() if turn.answers and step.raw.get("asked_as") == turn.answers]
    same = [place for place, step in waiting.items() if turn.tool and step.tool == turn.tool]
    return (*named, *same, *waiting)[0]


def _filled(step: ToolCall, turn: Turn, until: datetime | None) -> ToolCall:
    bad = turn.failed if turn.failed is not None else failed(turn.text)
    seconds = (until - step.started_at).total_seconds() if until and step.started_at else None
    return replace(
        step,
        result=turn.text,
        ok=not bad,
        seconds=seconds if seconds is None or seconds >= 0 else None,
        raw={key: value for key, value in step.raw.items() if key != "answered"},
    )


def _handed(trace: Trace, known: Sequence[Step], heard: Heard, at: End | None) -> tuple[Sequence[Step], list[Step], str | None]:
    """The steps, with what is known now of the work that an agent was handed; that work, where it is new; the call's parent."""
    exchange, reading = heard.exchange, heard.reading
    if at is not None:
        known = [_done(step, heard) if step.id == at.parent and isinstance(step, AgentCall) else step for step in known]
        return known, [], at.parent
    label, agent = exchange.labels.get("parent"), exchange.labels.get("agent")
    parent = _above(known, label) if label and label != trace.id else None
    if not label or not agent or not known:
        return known, [], parent
    asked = next((turn.text for turn in reading.turns if turn.role == "user"), "")
    work = AgentCall(agent=agent, input=asked, started_at=exchange.started_at, id=f"{exchange.id}/agent", parent=parent)
    return known, [_done(work, heard)], work.id


def _above(known: Sequence[Step], label: str) -> str:
    """The step that a client means: by its id, by the provider's, or as it named it for a reason of its own."""
    for step in known:
        if isinstance(step, ModelCall) and step.response_id == label:
            return step.id
        if isinstance(step, ToolCall) and step.raw.get("asked_as") == label:
            return step.id
    return label


def _done(work: AgentCall, heard: Heard) -> AgentCall:
    seconds = (heard.until - work.started_at).total_seconds() if work.started_at else None
    return replace(work, output=heard.reading.reply.text or work.output, error=heard.reading.error, seconds=seconds)


def _unsaid(trace: Trace, turns: Sequence[Turn]) -> Sequence[Turn]:
    """Without the instructions that were said before: where the server keeps the conversation, they are sent each time."""
    said = {message.text for call in trace.calls for message in call.messages if message.role == "system"}
    return [turn for turn in turns if turn.role != "system" or turn.text not in said]


def _in_order(known: Sequence[Step], new: Sequence[Step]) -> tuple[Step, ...]:
    """Oldest first. Calls that ran side by side are told of in the order in which they ended."""
    begun = new[0].started_at
    if not known or begun is None or (known[-1].started_at or begun) <= begun:
        return (*known, *new)
    return tuple(sorted((*known, *new), key=lambda step: step.started_at or begun))
