"""A trace as it is read: what was said and done in its order, and when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from journeyman.capture.base import NO_TIME
from journeyman.dashboard.words import one_line
from journeyman.reward import Reward
from journeyman.stores.traces.base import Given
from journeyman.trace import AgentCall, Message, ModelCall, Reasoning, Step, ToolCall, Trace, walk

SHALLOW = 8
"""Levels of the tree that are set in; deeper ones stand below each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """When a step ran, in per cent of the trace's time."""

    left: float
    width: float
    known: bool
    """Whether it is known how long it took; else the bar is a mark where it began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A step as the page shows it."""

    number: int
    """Its place in `Trace.steps`, from 1."""
    depth: int
    kind: str
    """"model", "tool", "reasoning" or "agent"."""
    name: str
    step: Step
    said: tuple[Message, ...]
    """Of a model call, what was new to the model and is not shown elsewhere on the page."""
    failed: bool
    gist: str
    """One line for where the step is folded."""
    bar: Bar | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """A reward, and who gave it."""

    reward: Reward
    by: str | None
    """`None` is the recorder."""
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A trace, laid out."""

    trace: Trace
    blocks: tuple[Block, ...]
    left_out: int
    """Steps past those that were asked for."""
    asked: str | None
    """What was asked, where no message says it."""
    answered: str | None
    """What was answered, where no reply says it."""
    seconds: float | None
    tool_failures: int


def read(trace: Trace, *, most: int) -> Reading:
    """Lay out a trace, of its steps the first `most`."""
    order = list(walk(trace.steps))
    places = {id(step): place for place, step in enumerate(trace.steps, start=1)}
    axis = _axis(trace)
    answers = frozenset(step.id for step in trace.tool_calls if step.id)
    blocks = [_block(step, depth, places[id(step)], answers, axis) for depth, step in order[:most]]
    said = {message.text.strip() for call in trace.calls for message in call.messages}
    prompts = {call.prompt.strip() for call in trace.calls if not call.messages}
    replies = {call.reply.strip() for call in trace.calls}
    asked, answered = (trace.input or "").strip(), (trace.output or "").strip()
    return Reading(
        trace=trace,
        blocks=tuple(blocks),
        left_out=max(0, len(order) - most),
        asked=trace.input if asked and asked not in said | prompts else None,
        answered=trace.output if answered and answered not in replies else None,
        seconds=trace.seconds if trace.seconds is not None else axis[1] if axis else None,
        tool_failures=sum(not call.ok for call in trace.tool_calls),
    )


def worth(trace: Trace, given: Sequence[Given]) -> list[Worth]:
    """The trace's rewards, each with who gave it last."""
    by_name: Mapping[str, Given] = {each.reward.name: each for each in given}
    return [
        Worth(reward=reward, by=found.by, at=found.at)
        if (found := by_name.get(reward.name)) and found.reward == reward
        else Worth(reward=reward, by=None, at=None)
        for reward in trace.rewards
    ]


Axis = tuple[datetime, float]
"""When it began, and how many seconds it took."""


def _axis(trace: Trace) -> Axis | None:
    """The time that the bars are drawn in; `None` where no step has a time."""
    begun = [(step.started_at, step.seconds or 0.0) for step in trace.steps if step.started_at not in (None, NO_TIME)]
    known = [(at, seconds) for at, seconds in begun if at is not None]
    if not known:
        return None
    first = min(at for at, _ in known)
    last = max(at + timedelta(seconds=min(max(seconds, 0.0), 1e9)) for at, seconds in known)
    return first, (last - first).total_seconds()


def _bar(step: Step, axis: Axis | None) -> Bar | None:
    if axis is None or step.started_at is None:
        return None
    begun, whole = axis
    if whole <= 0:
        return Bar(left=0, width=100, known=step.seconds is not None)
    left = min(100.0, max(0.0, 100 * (step.started_at - begun).total_seconds() / whole))
    width = min(100 - left, 100 * (step.seconds or 0.0) / whole)
    # A step of a blink is still to be seen, and clicked.
    width = max(width, 0.8)
    return Bar(left=round(min(left, 100 - width), 2), width=round(width, 2), known=step.seconds is not None)


def _block(step: Step, depth: int, number: int, answers: frozenset[str], axis: Axis | None) -> Block:
    kind, name, gist, failed = _told(step)
    said: tuple[Message, ...] = ()
    if isinstance(step, ModelCall):
        # A tool's answer stands with the tool's call.
        said = tuple(message for message in step.messages if message.answers is None or message.answers not in answers)
    return Block(
        number=number,
        depth=min(depth, SHALLOW),
        kind=kind,
        name=name,
        step=step,
        said=said,
        failed=failed,
        gist=gist,
        bar=_bar(step, axis),
    )


def _told(step: Step) -> tuple[str, str, str, bool]:
    match step:
        case ModelCall():
            return "model", step.model or "a model", one_line(step.reply), step.error is not None
        case ToolCall():
            return "tool", step.tool or "a tool", one_line(step.arguments, 90), not step.ok or step.error is not None
        case Reasoning():
            return "reasoning", "reasoning", one_line(step.text), False
        case AgentCall():
            return "agent", step.agent or "an agent", one_line(step.input), step.error is not None
