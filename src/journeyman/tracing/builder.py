"""From what was said to the steps of a trace."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any

from journeyman.core.messages import ToolUse, Turn, Usage
from journeyman.core.trace import Message, ModelCall, Reasoning, Step, ToolCall, Trace, spoken
from journeyman.tracing.base import NO_TIME, RecordedTrace, has_failed
from journeyman.tracing.fields import seconds

UNANSWERED = "there is no answer to this call"


def recorded(
    id: str,
    *,
    task_id: str = "",
    started_at: datetime | None = None,
    ended_at: datetime | None = None,
    reward: float | None = None,
    **about: Any,
) -> RecordedTrace:
    """A record as a trace, made by nobody's candidate. An end before the start, or without one, is not known.

    Args:
        id: Empty where the record has none: then one is made of its content.
        task_id: The id where it is empty.
        reward: What the recorder says it was worth.
        about: Other fields of `Trace`.
    """
    known_end = ended_at if seconds(started_at, ended_at) is not None else None
    trace = Trace(
        id=id, task_id=task_id or id, candidate_id="base", started_at=started_at or NO_TIME, ended_at=known_end, **about
    )
    return RecordedTrace(trace=trace, reward=reward)


def by_prompt(turns: Iterable[Turn], *, session: str, agent: str, **about: Any) -> Iterator[RecordedTrace]:
    """A trace for each thing that a user asked of an agent in a session: what they said, and what was done until they spoke
    again.

    Args:
        session: Empty where it is not known; the traces then have no ids.
        about: Other fields of all of them.
    """
    groups: list[list[Turn]] = []
    for turn in turns:
        if not groups or (turn.role == "user" and any(each.role in ("assistant", "tool") for each in groups[-1])):
            groups.append([])
        groups[-1].append(turn)
    for number, group in enumerate(groups, start=1):
        times = [turn.started_at for turn in group if turn.started_at]
        asked = [turn for turn in takewhile(lambda turn: turn.role not in ("assistant", "tool"), group) if turn.role == "user"]
        name = (asked[0].id if asked else "") or number
        yield recorded(
            f"{agent}-{session}-{name}" if session else "",
            started_at=times[0] if times else None,
            ended_at=max(times, default=None),
            steps=steps(group),
            session=session or None,
            agent=agent,
            input="\n\n".join(turn.text for turn in asked) or None,
            error=next((turn.error for turn in reversed(group) if turn.role != "tool" and turn.error), None),
            **{"domain": "code", **about},
        )


def steps(turns: Iterable[Turn], *, model: str = "", finish: str | None = None) -> tuple[Step, ...]:
    """The steps that the messages of a transcript tell of, in order.

    A model call's prompt holds what was new to the model: what was said since its last reply. Its tool calls and what it
    thought have it for parent. A tool call that was never answered did not go well; an answer that nobody asked
    for is a tool call too, if it says of which tool.

    Args:
        model: For messages that do not say which model wrote them.
        finish: Why the last reply ended.
    """
    messages = list(turns)
    answers, used = _answers(messages), _Ids()
    answering = {id(turn) for turn in answers.values()}
    steps_found: list[Step] = []
    unsent: list[Message] = []
    before: str | None = None
    last = max((at for at, turn in enumerate(messages) if _generated(turn)), default=-1)
    for at, turn in enumerate(messages):
        parent = None
        if _generated(turn):
            call = model_call(
                turn._replace(
                    model=turn.model or model,
                    finish=turn.finish or (finish if at == last else None),
                    usage=_plausible(turn.usage),
                ),
                unsent,
                id=used.of(turn.id or f"m{at + 1}"),
                continues=before,
            )
            steps_found.append(call)
            unsent, before = [], call.id
            parent = call.id
            if turn.thought:
                steps_found.append(Reasoning(text=turn.thought, id=used.of(f"{call.id}.thought"), parent=call.id))
        else:
            unsent.append(Message(role=turn.role, text=turn.text, answers=turn.answers))
            if turn.role == "tool" and turn.tool and id(turn) not in answering:
                # An answer whose call is not in the record: that the tool was used, is.
                steps_found.append(tool_call(ToolUse(turn.tool, ""), turn, id=used.of(turn.answers or f"m{at + 1}")))
        for number, call_asked in enumerate(turn.calls):
            own = used.of(call_asked.id or f"m{at + 1}.{number + 1}")
            steps_found.append(tool_call(call_asked, answers.get((at, number)), id=own, parent=parent))
    return tuple(steps_found)


def model_call(
    turn: Turn,
    sent: Sequence[Message],
    *,
    id: str,
    parent: str | None = None,
    continues: str | None = None,
    shown: tuple[str, ...] = (),
) -> ModelCall:
    """The call of a model whose reply a turn is.

    Args:
        sent: What was new to the model.
        continues: The call that went before it in the conversation.
        shown: Ids of the bullets that stood in what was sent.
    """
    return ModelCall(
        model=turn.model,
        prompt=spoken(sent),
        reply=turn.text,
        messages=tuple(sent),
        continues=continues,
        input_tokens=turn.usage.input,
        output_tokens=turn.usage.output,
        cached_tokens=turn.usage.cached,
        cost=turn.cost,
        started_at=turn.started_at,
        seconds=turn.seconds,
        first_token_seconds=turn.first_token_seconds,
        finish=turn.finish,
        error=turn.error,
        response_id=turn.response_id,
        id=id,
        parent=parent,
        raw=turn.raw or {},
        shown=shown,
    )


def call_steps(
    turn: Turn,
    sent: Sequence[Message],
    calls: Iterable[tuple[str, ToolUse]],
    *,
    id: str,
    parent: str | None,
    unanswered: str = UNANSWERED,
) -> Iterator[Step]:
    """A call of a model, what the model thought before it answered, and the tool calls (each with its id) that it asked for and
    no other step tells of."""
    yield model_call(turn, sent, id=id, parent=parent)
    if turn.thought:
        yield Reasoning(text=turn.thought, id=f"{id}.thought", parent=id)
    for own, call in calls:
        yield tool_call(call, None, id=own, parent=id, unanswered=unanswered)


def tool_call(
    call: ToolUse, answer: Turn | None, *, id: str, parent: str | None = None, unanswered: str = UNANSWERED
) -> ToolCall:
    """The use of a tool that a model asked for, with what the tool answered."""
    raw: Mapping[str, Any] = {**(call.raw or {}), **((answer.raw if answer else None) or {})}
    return ToolCall(
        tool=call.tool,
        arguments=call.arguments,
        result=answer.text if answer else "",
        ok=answer is not None and not has_failed(answer.failed, answer.text),
        error=answer.error if answer else unanswered,
        started_at=answer.started_at if answer else None,
        seconds=answer.seconds if answer else None,
        id=id,
        parent=parent,
        raw=raw,
    )


def _generated(turn: Turn) -> bool:
    return turn.role == "assistant" and not turn.canned


def _plausible(usage: Usage) -> Usage:
    """Without what came from the cache where that is more than there was in all: the recorder counts it apart, or wrong."""
    return usage._replace(cached=None) if (usage.cached or 0) > (usage.input or 0) else usage


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
    by_call: dict[tuple[int, int], Turn] = {}
    waiting: list[tuple[tuple[int, int], ToolUse]] = []
    for at, turn in enumerate(turns):
        waiting += [((at, number), asked) for number, asked in enumerate(turn.calls)]
        if turn.role == "tool" and waiting:
            named = [entry for entry in waiting if turn.answers and entry[1].id == turn.answers]
            # Ids are written anew by some servers, and some transcripts have none.
            entry = (named or waiting)[0]
            by_call[entry[0]] = turn
            waiting.remove(entry)
    return by_call
