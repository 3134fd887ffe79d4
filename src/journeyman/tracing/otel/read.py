"""Spans become traces: what agents did, in whichever dialect it was reported.

A trace is always made anew from all of its spans. What comes out depends neither on their order nor on how often or in how many
requests they came.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from journeyman.core.messages import ToolUse, Turn
from journeyman.core.trace import AgentCall, ModelCall, Reasoning, Step, ToolCall, Trace
from journeyman.tracing.base import failed
from journeyman.tracing.builder import model_call
from journeyman.tracing.fields import first, parsed_if_json
from journeyman.tracing.importers.finetuning import as_message
from journeyman.tracing.otel import conventions
from journeyman.tracing.otel.spans import (
    SpanBytes,
    SpanData,
    SpanFacts,
    SpanKind,
    merged,
    messages_of,
    replies_joined,
    spans,
    word,
)
from journeyman.tracing.otel.wire import moment

# Which spans are steps, each once.
#
# The same work is often told of twice: by a client's own spans under an outer instrumentation, by a function around it, by sums
# on the span of an agent.

_SHARED = frozenset({"session", "input", "output"})
DIALECTS: tuple[tuple[frozenset[str], Callable[[SpanData], SpanFacts]], ...] = (
    (frozenset({"ai", "operation"}), conventions.read_vercel),
    (frozenset({"gen_ai", "traceloop", "llm.request", "llm.response", "llm.usage", "llm.completions"}), conventions.read_genai),
    (frozenset({"gcp"}), conventions.adk),
    (_SHARED | {"openinference", "llm", "embedding", "tool", "retrieval", "reranker", "agent"}, conventions.read_openinference),
    (frozenset({"agent_name", "tool_arguments", "tool_response", "events", "request_data"}), conventions.pydantic_ai),
    (_SHARED | {"langfuse"}, conventions.langfuse),
    (frozenset({"langsmith"}), conventions.langsmith),
    (frozenset({"mlflow"}), conventions.mlflow),
)
"""How the names of a dialect's attributes begin, and what reads them. Of each thing, the first that tells it is believed."""


_TELLING = 100
"""Characters by which two answers are told apart."""


@dataclass(slots=True)
class SpanNode:
    """A span that is a step, with those that tell of the same."""

    span: SpanData
    facts: SpanFacts
    kind: SpanKind
    parent: "SpanNode | None" = None
    children: "list[SpanNode]" = field(default_factory=list)
    also: tuple[SpanData, ...] = ()
    """Spans that told of the same."""
    reply: Turn | None = None
    """What a model answered, all that was told of it together."""


def facts_of(span: SpanData) -> SpanFacts:
    """What a span tells, in whichever dialects it speaks; many speak two."""
    spoken = {name.partition(".")[0] for name in span.attributes}
    if "llm" in spoken:
        # OpenInference and the oldest conventions share this beginning.
        spoken |= {".".join(name.split(".", 2)[:2]) for name in span.attributes if name.startswith("llm.")}
    if any(event.name.startswith("gen_ai.") for event in span.events):
        spoken.add("gen_ai")
    return merged(read(span) for begins, read in DIALECTS if not begins.isdisjoint(spoken))


def nodes(spans: Sequence[SpanData], facts_by_id: Mapping[str, SpanFacts]) -> list[SpanNode]:
    """The steps, oldest first, each knowing the nearest one above it."""
    found = {
        span.id: SpanNode(span, facts_by_id[span.id], kind) for span in spans if (kind := facts_by_id[span.id].kind) is not None
    }
    above = {span.id: span.parent for span in spans}
    for node in found.values():
        node.parent = _nearest(node.span.id, above, found)
        if node.parent is not None:
            node.parent.children.append(node)
    _cut_rings(found.values())
    for node in _deepest_first(found.values()):
        _settle(node)
    kept = _without_duplicates([node for node in found.values() if node.parent is not node])
    for node in kept:
        node.reply = replies_joined(node.facts.replies)
    return kept


def _nearest(id: str, above: Mapping[str, str | None], found: Mapping[str, SpanNode]) -> SpanNode | None:
    seen = {id}
    at = above.get(id)
    while at is not None and at not in seen:
        if at in found:
            return found[at]
        seen.add(at)
        at = above.get(at)
    return None


def _cut_rings(found: Iterable[SpanNode]) -> None:
    """Spans that are each other's parents have none."""
    for node in found:
        seen = {id(node)}
        at = node.parent
        while at is not None and id(at) not in seen:
            seen.add(id(at))
            at = at.parent
        if at is node and node.parent is not None:
            node.parent.children.remove(node)
            node.parent = None


def _deepest_first(found: Iterable[SpanNode]) -> list[SpanNode]:
    order: list[SpanNode] = []
    stack = [node for node in found if node.parent is None]
    while stack:
        node = stack.pop()
        order.append(node)
        stack += node.children
    return order[::-1]


def _settle(node: SpanNode) -> None:
    """Decide what a node stands for, knowing what was settled for those below it."""
    calls = [child for child in node.children if child.kind is SpanKind.CALL]
    if node.kind is SpanKind.OUTER:
        node.kind = SpanKind.AGENT if calls else SpanKind.CALL
    elif node.kind is SpanKind.CALL and calls:
        if len(calls) == 1 and _same_call(node.facts, calls[0].facts):
            _absorb(node, calls[0])
        elif len(calls) > 1 and not _is_another(node.facts, calls):
            node.kind = SpanKind.AGENT
    elif node.kind is SpanKind.TOOL:
        for child in [child for child in node.children if child.kind is SpanKind.TOOL and _same_tool(node.facts, child.facts)]:
            _absorb(node, child)


def _same_call(outer: SpanFacts, inner: SpanFacts) -> bool:
    """A call of a model within a call of a model is the same, unless their answers are different."""
    if outer.response_id is not None and inner.response_id is not None:
        return outer.response_id == inner.response_id
    one, other = replies_joined(outer.replies), replies_joined(inner.replies)
    if one is None or other is None or not one.text or not other.text:
        return True
    # Instrumentations cut long texts, each at a length of its own.
    short = min(len(one.text.strip()), len(other.text.strip()), _TELLING)
    return one.text.strip()[:short] == other.text.strip()[:short]


def _is_another(outer: SpanFacts, calls: Sequence[SpanNode]) -> bool:
    """Whether it has an answer that none of the calls within it has."""
    return outer.response_id is not None and all(
        call.facts.response_id is not None and call.facts.response_id != outer.response_id for call in calls
    )


def _same_tool(outer: SpanFacts, inner: SpanFacts) -> bool:
    return outer.name == inner.name and (outer.call_id is None or inner.call_id is None or outer.call_id == inner.call_id)


def _absorb(node: SpanNode, other: SpanNode) -> None:
    """`other` tells of the same: what `node` does not tell, it adds; what was below it is now below `node`."""
    node.facts = replace(merged((node.facts, other.facts)), kind=node.facts.kind)
    node.also = (*node.also, other.span, *other.also)
    if other in node.children:
        node.children.remove(other)
    for child in other.children:
        child.parent = node
        node.children.append(child)
    if other.parent is not None and other.parent is not node and other in other.parent.children:
        other.parent.children.remove(other)
    other.children = []
    other.parent = other


def _without_duplicates(found: Sequence[SpanNode]) -> list[SpanNode]:
    """Two calls that have the same answer at the same time are one: two instrumentations side by side."""
    first: dict[str, SpanNode] = {}
    nodes: list[SpanNode] = []
    for node in found:
        id = node.facts.response_id if node.kind is SpanKind.CALL else None
        if id is not None and id in first and node.span.began <= first[id].span.ended:
            _absorb(first[id], node)
            continue
        if id is not None:
            first[id] = node
        nodes.append(node)
    return nodes


# Steps of a trace, made of what its spans tell.

_Place = tuple[int, int, str, int]
"""Sorts steps: when it began, how deep it stands, the span, and its number within the span."""


@dataclass(slots=True)
class _Ids:
    """The ids of the steps: a tool call has the id that the model gave it, where that is one of a kind."""

    of_node: dict[int, str]
    taken: set[str]

    def parent(self, node: SpanNode) -> str | None:
        return self.of_node[id(node.parent)] if node.parent is not None else None


def steps(nodes: Sequence[SpanNode]) -> tuple[Step, ...]:
    """Every step, oldest first: each call, what the model thought before it answered, the tools that it asks for or that were
    used, the agents."""
    used = _matched(nodes)
    ids = _ids(nodes)
    results = _results(nodes)
    new = _continuations(nodes)
    placed: list[tuple[_Place, Step]] = []
    for node in nodes:
        place = (node.span.began, _depth(node), node.span.id)
        if node.kind is SpanKind.CALL:
            made = _call(node, ids, new.get(id(node)))
            placed += [((*place, number), step) for number, step in enumerate(made)]
            asked = [call for call in _calls_of(node) if (node.span.id, call) not in used.asked]
            after = (max(node.span.ended, node.span.began), *place[1:])
            placed += [
                ((*after, 2 + number), _unreported_call(call, number, node, ids, results)) for number, call in enumerate(asked)
            ]
        elif node.kind is SpanKind.TOOL:
            placed.append(((*place, 0), _tool(node, ids, used.of_tool.get(id(node)))))
        else:
            placed.append(((*place, 0), _agent_step(node, ids)))
    return tuple(step for _, step in sorted(placed, key=lambda each: each[0]))


def raw(span: SpanData, also: Iterable[SpanData] = ()) -> Mapping[str, Any]:
    """All attributes of a step's span, and of those that told of the same; what else the span has, under `span.`."""
    fields: dict[str, Any] = {}
    for other in also:
        fields |= other.attributes
    fields |= span.attributes
    fields["span.name"] = span.name
    fields["span.kind"] = span.kind
    if span.scope:
        fields["span.scope"] = span.scope
    # An event without a word of its own, as for each piece of a stream, says only that it was.
    events = [
        {"name": each.name, **({"body": each.body} if each.body is not None else {}), "attributes": dict(each.attributes)}
        for each in span.events
        if each.attributes or each.body is not None
    ]
    if events:
        fields["span.events"] = events
    return fields


@dataclass(slots=True)
class _Used:
    of_tool: dict[int, tuple[SpanNode, ToolUse]]
    """For a tool's node, the call that asked for it."""
    asked: set[tuple[str, ToolUse]]
    """What was asked for, by the span of the call, and was reported as a tool's span."""


def _matched(nodes: Sequence[SpanNode]) -> _Used:
    """Which tool was used because of which call: by the id of the tool call, else by the tool's name, oldest first."""
    asked = [(node, call) for node in nodes if node.kind is SpanKind.CALL for call in _calls_of(node)]
    by_id: dict[str, tuple[SpanNode, ToolUse]] = {}
    for node, call in asked:
        if call.id:
            by_id.setdefault(call.id, (node, call))
    used = _Used({}, set())
    tools = [node for node in nodes if node.kind is SpanKind.TOOL]
    for tool in tools:
        match = by_id.get(tool.facts.call_id or "")
        if match:
            used.of_tool[id(tool)] = match
            used.asked.add((match[0].span.id, match[1]))
    for tool in tools:
        if id(tool) in used.of_tool:
            continue
        for node, call in asked:
            taken = (node.span.id, call) in used.asked
            if (
                not taken
                and call.tool == tool.facts.name
                and node.span.began <= tool.span.began
                and not _both_have_ids(call, tool)
            ):
                used.of_tool[id(tool)] = (node, call)
                used.asked.add((node.span.id, call))
                break
    return used


def _both_have_ids(call: ToolUse, tool: SpanNode) -> bool:
    return bool(call.id and tool.facts.call_id)


def _calls_of(node: SpanNode) -> tuple[ToolUse, ...]:
    return node.reply.calls if node.reply else ()


def _ids(nodes: Sequence[SpanNode]) -> _Ids:
    ids = _Ids({}, {node.span.id for node in nodes})
    for node in nodes:
        own = node.facts.call_id if node.kind is SpanKind.TOOL else None
        if own and own not in ids.taken:
            ids.taken.add(own)
        else:
            own = node.span.id
        ids.of_node[id(node)] = own
    return ids


def _results(nodes: Sequence[SpanNode]) -> Mapping[str, str]:
    """What tools answered, by the id of the tool call, from the messages that models were sent afterwards."""
    results: dict[str, str] = {}
    for node in nodes:
        for message in node.facts.messages:
            if message.role == "tool" and message.answers and message.answers not in results:
                results[message.answers] = message.text
    return results


def _call(node: SpanNode, ids: _Ids, new: "_Continuation | None") -> list[Step]:
    facts, span = node.facts, node.span
    own = ids.of_node[id(node)]
    reply = node.reply or Turn("assistant")
    reply = reply._replace(
        model=facts.model or "",
        usage=facts.usage,
        cost=facts.cost,
        started_at=span.started_at,
        seconds=span.seconds,
        first_token_seconds=facts.first_token_seconds,
        finish=facts.finish or reply.finish,
        error=span.error,
        response_id=facts.response_id,
        raw=raw(span, node.also),
    )
    sent = tuple(map(as_message, new.messages if new else facts.messages))
    call = model_call(reply, sent, id=own, parent=ids.parent(node), continues=ids.of_node[id(new.after)] if new else None)
    if reply.thought:
        return [call, Reasoning(text=reply.thought, started_at=span.started_at, id=f"{own}.thought", parent=own)]
    return [call]


def _unreported_call(asked: ToolUse, number: int, node: SpanNode, ids: _Ids, results: Mapping[str, str]) -> ToolCall:
    """A tool call that no span tells of. Its result is known where a model was sent it later; a call whose result is not
    known has not failed for that: whoever recorded the call did not see the tool."""
    own = asked.id if asked.id and asked.id not in ids.taken else f"{node.span.id}.{number}"
    ids.taken.add(own)
    result = results.get(asked.id, "") if asked.id else ""
    return ToolCall(
        tool=asked.tool, arguments=asked.arguments, result=result, ok=not failed(result), id=own, parent=ids.of_node[id(node)]
    )


def _tool(node: SpanNode, ids: _Ids, asked: tuple[SpanNode, ToolUse] | None) -> ToolCall:
    facts, span = node.facts, node.span
    result = facts.result or ""
    return ToolCall(
        tool=facts.name or (asked[1].tool if asked else span.name),
        arguments=facts.arguments or (asked[1].arguments if asked else ""),
        result=result,
        ok=span.error is None and not failed(result),
        error=span.error,
        started_at=span.started_at,
        seconds=span.seconds,
        id=ids.of_node[id(node)],
        parent=ids.of_node[id(asked[0])] if asked else ids.parent(node),
        raw=raw(span, node.also),
    )


def _agent_step(node: SpanNode, ids: _Ids) -> AgentCall:
    facts, span = node.facts, node.span
    return AgentCall(
        agent=facts.name or facts.agent or span.name,
        input=facts.input or "",
        output=facts.output or "",
        error=span.error,
        started_at=span.started_at,
        seconds=span.seconds,
        id=ids.of_node[id(node)],
        parent=ids.parent(node),
        raw=raw(span, node.also),
    )


def _depth(node: SpanNode) -> int:
    depth = 0
    while node.parent is not None:
        node, depth = node.parent, depth + 1
    return depth


@dataclass(slots=True)
class _Continuation:
    """What was new in a call, after another."""

    after: SpanNode
    messages: tuple[Turn, ...]


def _continuations(nodes: Sequence[SpanNode]) -> Mapping[int, _Continuation]:
    """For each call that was sent a conversation again, which call it goes on from, and what was new.

    Messages are compared by role and text; those of an assistant that only ask for tools are passed over, since many
    instrumentations leave them out when they are sent back.
    """
    ended: dict[int, SpanNode] = {}
    continuations: dict[int, _Continuation] = {}
    for node in nodes:
        if node.kind is not SpanKind.CALL:
            continue
        marks = list(_marks(node.facts.messages))
        for mark, end in reversed(marks[:-1]):
            if mark in ended:
                rest = node.facts.messages[end:]
                while rest and rest[0].role == "assistant" and not rest[0].text:
                    rest = rest[1:]
                continuations[id(node)] = _Continuation(ended[mark], rest)
                break
        whole = (*node.facts.messages, Turn("assistant", node.reply.text)) if node.reply else node.facts.messages
        for mark, _ in list(_marks(whole))[-1:]:
            ended[mark] = node
    return continuations


def _marks(messages: Iterable[Turn]) -> Iterable[tuple[int, int]]:
    """After each message, what stands for all up to it, and how many that are."""
    mark = 0
    for number, message in enumerate(messages, 1):
        if message.role == "assistant" and not message.text:
            continue
        mark = hash((mark, message.role, message.text.strip()))
        yield mark, number


_NOBODY = "unknown_service"
"""How the SDKs name a service that nobody named."""


def traces(rows: Mapping[str, Iterable[SpanBytes]]) -> list[Trace]:
    """The traces that have a step in them, by their ids' spans. A trace of, say, HTTP requests alone is none of an agent."""
    made = (trace(id, spans(found)) for id, found in rows.items())
    return [each for each in made if each is not None]


def trace(id: str, found: Sequence[SpanData]) -> Trace | None:
    """One trace of its spans, oldest first; `None` where no span tells of an agent's work."""
    facts_by_id = {span.id: facts_of(span) for span in found}
    made = nodes(found, facts_by_id)
    if not made:
        return None
    known = {span.id for span in found}
    roots = [span for span in found if span.parent not in known] or list(found[:1])
    top = facts_by_id[roots[0].id]
    whole = top.kind in (None, SpanKind.AGENT, SpanKind.OUTER)
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
        session=next((each.session for each in facts_by_id.values() if each.session), None)
        or word(first(attributes, "journeyman.session", "session.id", "langfuse.session.id")),
        agent=_agent(made, found),
        input=(_readable(top.input, "user") if whole else None) or _agents(made, "input"),
        output=(_readable(top.output, "assistant") if whole else None) or _agents(made, "output"),
        source="otlp",
        raw={"resource": dict(roots[0].resource), "name": roots[0].name},
    )


def without_duplicates(found: Iterable[Trace]) -> list[Trace]:
    """Each trace but those of which every call was made within another one too, as is the case where a client reports beside
    an instrumentation, each in a trace of its own. Of two that hold the same calls, the one with more steps stays, then the one
    that says more.

    A call is known by the id of its answer and by its time: a recorded answer may be played back as often as one likes.
    """
    ranked = sorted(found, key=lambda each: (-len(each.steps), -len(str(each.steps)), each.id))
    seen: dict[str, list[ModelCall]] = {}
    traces: list[Trace] = []
    for each in ranked:
        if each.calls and all(
            any(overlap(call, other) for other in seen.get(call.response_id or "", ())) for call in each.calls
        ):
            continue
        traces.append(each)
        for call in each.calls:
            if call.response_id:
                seen.setdefault(call.response_id, []).append(call)
    return sorted(traces, key=lambda each: (each.started_at, each.id))


def overlap(one: ModelCall, other: ModelCall) -> bool:
    """Whether two calls went on at the same time; where a time is not known, they may have."""
    if one.started_at is None or other.started_at is None or one.seconds is None or other.seconds is None:
        return True
    apart = (other.started_at - one.started_at).total_seconds()
    return -other.seconds <= apart <= one.seconds


def _agent(made: Sequence[SpanNode], found: Sequence[SpanData]) -> str | None:
    """Who did it: the first agent that is named as one; else the service, where somebody named it."""
    named = (node.facts.agent for node in made)
    service = next((str(name) for span in found if (name := span.resource.get("service.name"))), "")
    return next((name for name in named if name), None) or (service if not service.startswith(_NOBODY) else None) or None


def _agents(made: Sequence[SpanNode], what: str) -> str | None:
    """What the first agent was asked, or the last one answered, where no call of a model tells it."""
    if any(
        getattr(node.facts, {"input": "messages", "output": "replies"}[what]) for node in made if node.kind is SpanKind.CALL
    ):
        return None
    facts = [text for node in made if node.kind is SpanKind.AGENT and (text := getattr(node.facts, what))]
    return (facts[0] if what == "input" else facts[-1]) if facts else None


def _end(found: Sequence[SpanData]) -> datetime | None:
    last = max(span.ended for span in found)
    return moment(last).astimezone(UTC) if last else None


_WORDS = ("input", "question", "query", "prompt", "user_input", "new_message", "message", "content", "text", "output", "answer")


def _readable(value: str | None, role: str) -> str | None:
    """What a person said or was told. `None` where what is written there is meant for programs: the first message and the last
    reply tell it better."""
    inner = parsed_if_json(value)
    if isinstance(inner, str) or inner is None:
        return value
    rows = inner if isinstance(inner, list) else inner.get("messages")
    if isinstance(rows, list) and rows and all(isinstance(each, Mapping) and _ROLE & set(each) for each in rows):
        words = [each.text for each in messages_of(rows, role) if each.role == role and each.text]
        return words[-1] if words else None
    if isinstance(inner, Mapping):
        for name in _WORDS:
            if isinstance(inner.get(name), str):
                return str(inner[name])
            if isinstance(inner.get(name), Mapping):
                words = [each.text for each in messages_of(inner[name], role) if each.text]
                return words[-1] if words else None
    return None


_ROLE = frozenset({"role", "type"})
