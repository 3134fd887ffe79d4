"""Spans become traces: what agents did, in whichever dialect it was reported.

A trace is always made anew from all of its spans. What comes out depends neither on their order nor on how often or in how many
requests they came.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from journeyman.capture.fields import first, opened
from journeyman.capture.otlp.nodes import Node, nodes, told
from journeyman.capture.otlp.spans import Row, Span, spans
from journeyman.capture.otlp.steps import steps
from journeyman.capture.otlp.told import Kind, said, word
from journeyman.capture.otlp.wire import moment
from journeyman.trace import ModelCall, Step, Trace

_NOBODY = "unknown_service"
"""How the SDKs name a service that nobody named."""


def traces(rows: Mapping[str, Iterable[Row]]) -> list[Trace]:
    """The traces that have a step in them, by their ids' spans. A trace of, say, HTTP requests alone is none of an agent."""
    made = (trace(id, spans(found)) for id, found in rows.items())
    return [each for each in made if each is not None]


def trace(id: str, found: Sequence[Span]) -> Trace | None:
    """One trace of its spans, oldest first; `None` where no span tells of an agent's work."""
    tolds = {span.id: told(span) for span in found}
    made = nodes(found, tolds)
    if not made:
        return None
    known = {span.id for span in found}
    roots = [span for span in found if span.parent not in known] or list(found[:1])
    top = tolds[roots[0].id]
    whole = top.kind in (None, Kind.AGENT, Kind.OUTER)
    attributes = {name: value for span in reversed(found) for name, value in {**span.resource, **span.attributes}.items()}
    return Trace(
        id=id,
        task_id=word(attributes.get("journeyman.task")) or id,
        candidate_id=word(attributes.get("journeyman.candidate")) or "base",
        domain=word(attributes.get("journeyman.domain")) or "general",
        started_at=moment(min(span.began for span in found)),
        ended_at=_end(found),
        steps=steps(made),
        error=next((span.error for span in roots if span.error), None),
        session=next((each.session for each in tolds.values() if each.session), None)
        or word(first(attributes, "journeyman.session", "session.id", "langfuse.session.id")),
        agent=_agent(made, found),
        input=(_visible(top.input, "user") if whole else None) or _agents(made, "input"),
        output=(_visible(top.output, "assistant") if whole else None) or _agents(made, "output"),
        source="otlp",
        raw={"resource": dict(roots[0].resource), "name": roots[0].name},
    )


def steps_of(
    attributes: Mapping[str, Any],
    *,
    id: str = "",
    name: str = "",
    started_at: datetime | None = None,
    ended_at: datetime | None = None,
    error: str | None = None,
) -> tuple[Step, ...]:
    """The steps that the attributes of one span tell of, whatever file they stand in."""
    began, ended = (int(at.timestamp() * 1e9) if at else 0 for at in (started_at, ended_at))
    span = Span(id=id, parent=None, name=name, kind="internal", began=began, ended=ended, attributes=attributes, error=error)
    return steps(nodes([span], {id: told(span)}))


def once(found: Iterable[Trace]) -> list[Trace]:
    """Each trace but those of which every call was made within another one too, as is the case where a client reports beside
    an instrumentation, each in a trace of its own. Of two that hold the same calls, the one with more steps stays, then the one
    that says more.

    A call is known by the id of its answer and by its time: a recorded answer may be played back as often as one likes.
    """
    ranked = sorted(found, key=lambda each: (-len(each.steps), -len(str(each.steps)), each.id))
    seen: dict[str, list[ModelCall]] = {}
    kept: list[Trace] = []
    for each in ranked:
        if each.calls and all(
            any(overlap(call, other) for other in seen.get(call.response_id or "", ())) for call in each.calls
        ):
            continue
        kept.append(each)
        for call in each.calls:
            if call.response_id:
                seen.setdefault(call.response_id, []).append(call)
    return sorted(kept, key=lambda each: (each.started_at, each.id))


def overlap(one: ModelCall, other: ModelCall) -> bool:
    """Whether two calls went on at the same time; where a time is not known, they may have."""
    if one.started_at is None or other.started_at is None or one.seconds is None or other.seconds is None:
        return True
    apart = (other.started_at - one.started_at).total_seconds()
    return -other.seconds <= apart <= one.seconds


def _agent(made: Sequence[Node], found: Sequence[Span]) -> str | None:
    """Who did it: the first agent that is named as one; else the service, where somebody named it."""
    named = (node.told.agent for node in made)
    service = next((str(name) for span in found if (name := span.resource.get("service.name"))), "")
    return next((name for name in named if name), None) or (service if not service.startswith(_NOBODY) else None) or None


def _agents(made: Sequence[Node], what: str) -> str | None:
    """What the first agent was asked, or the last one answered, where no call of a model tells it."""
    if any(getattr(node.told, {"input": "said", "output": "replies"}[what]) for node in made if node.kind is Kind.CALL):
        return None
    told = [text for node in made if node.kind is Kind.AGENT and (text := getattr(node.told, what))]
    return (told[0] if what == "input" else told[-1]) if told else None


def _end(found: Sequence[Span]) -> datetime | None:
    last = max(span.ended for span in found)
    return moment(last).astimezone(UTC) if last else None


_WORDS = ("input", "question", "query", "prompt", "user_input", "new_message", "message", "content", "text", "output", "answer")


def _visible(value: str | None, role: str) -> str | None:
    """What a person said or was told. `None` where what is written there is meant for programs: the first message and the last
    reply tell it better."""
    inner = opened(value)
    if isinstance(inner, str) or inner is None:
        return value
    rows = inner if isinstance(inner, list) else inner.get("messages")
    if isinstance(rows, list) and rows and all(isinstance(each, Mapping) and _ROLE & set(each) for each in rows):
        words = [each.text for each in said(rows, role) if each.role == role and each.text]
        return words[-1] if words else None
    if isinstance(inner, Mapping):
        for name in _WORDS:
            if isinstance(inner.get(name), str):
                return str(inner[name])
            if isinstance(inner.get(name), Mapping):
                words = [each.text for each in said(inner[name], role) if each.text]
                return words[-1] if words else None
    return None


_ROLE = frozenset({"role", "type"})
