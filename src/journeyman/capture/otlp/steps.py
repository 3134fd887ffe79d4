"""Steps of a trace, made of what its spans tell."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from journeyman.capture.base import failed
from journeyman.capture.bracketed import as_message
from journeyman.capture.builder import model_call
from journeyman.capture.otlp.nodes import Node
from journeyman.capture.otlp.spans import Span
from journeyman.capture.otlp.told import Kind
from journeyman.core.messages import ToolUse, Turn
from journeyman.trace import AgentCall, Reasoning, Step, ToolCall

_Place = tuple[int, int, str, int]
"""Sorts steps: when it began, how deep it stands, the span, and its number within the span."""


@dataclass(slots=True)
class _Ids:
    """The ids of the steps: a tool call has the id that the model gave it, where that is one of a kind."""

    of_node: dict[int, str]
    taken: set[str]

    def parent(self, node: Node) -> str | None:
        return self.of_node[id(node.parent)] if node.parent is not None else None


def steps(nodes: Sequence[Node]) -> tuple[Step, ...]:
    """Every step, oldest first: each call, what the model thought before it answered, the tools that it asks for or that were
    used, the agents."""
    used = _matched(nodes)
    ids = _ids(nodes)
    results = _results(nodes)
    new = _new(nodes)
    placed: list[tuple[_Place, Step]] = []
    for node in nodes:
        place = (node.span.began, _depth(node), node.span.id)
        if node.kind is Kind.CALL:
            made = _call(node, ids, new.get(id(node)))
            placed += [((*place, number), step) for number, step in enumerate(made)]
            asked = [call for call in _asked(node) if (node.span.id, call) not in used.asked]
            after = (max(node.span.ended, node.span.began), *place[1:])
            placed += [
                ((*after, 2 + number), _unreported(call, number, node, ids, results)) for number, call in enumerate(asked)
            ]
        elif node.kind is Kind.TOOL:
            placed.append(((*place, 0), _tool(node, ids, used.of_tool.get(id(node)))))
        else:
            placed.append(((*place, 0), _agent(node, ids)))
    return tuple(step for _, step in sorted(placed, key=lambda each: each[0]))


def raw(span: Span, also: Iterable[Span] = ()) -> Mapping[str, Any]:
    """All attributes of a step's span, and of those that told of the same; what else the span has, under `span.`."""
    found: dict[str, Any] = {}
    for other in also:
        found |= other.attributes
    found |= span.attributes
    found["span.name"] = span.name
    found["span.kind"] = span.kind
    if span.scope:
        found["span.scope"] = span.scope
    # An event without a word of its own, as for each piece of a stream, says only that it was.
    events = [
        {"name": each.name, **({"body": each.body} if each.body is not None else {}), "attributes": dict(each.attributes)}
        for each in span.events
        if each.attributes or each.body is not None
    ]
    if events:
        found["span.events"] = events
    return found


@dataclass(slots=True)
class _Used:
    of_tool: dict[int, tuple[Node, ToolUse]]
    """For a tool's node, the call that asked for it."""
    asked: set[tuple[str, ToolUse]]
    """What was asked for, by the span of the call, and was reported as a tool's span."""


def _matched(nodes: Sequence[Node]) -> _Used:
    """Which tool was used because of which call: by the id of the tool call, else by the tool's name, oldest first."""
    asked = [(node, call) for node in nodes if node.kind is Kind.CALL for call in _asked(node)]
    by_id: dict[str, tuple[Node, ToolUse]] = {}
    for node, call in asked:
        if call.id:
            by_id.setdefault(call.id, (node, call))
    found = _Used({}, set())
    tools = [node for node in nodes if node.kind is Kind.TOOL]
    for tool in tools:
        match = by_id.get(tool.told.call_id or "")
        if match:
            found.of_tool[id(tool)] = match
            found.asked.add((match[0].span.id, match[1]))
    for tool in tools:
        if id(tool) in found.of_tool:
            continue
        for node, call in asked:
            taken = (node.span.id, call) in found.asked
            if not taken and call.tool == tool.told.name and node.span.began <= tool.span.began and not _both(call, tool):
                found.of_tool[id(tool)] = (node, call)
                found.asked.add((node.span.id, call))
                break
    return found


def _both(call: ToolUse, tool: Node) -> bool:
    return bool(call.id and tool.told.call_id)


def _asked(node: Node) -> tuple[ToolUse, ...]:
    return node.reply.calls if node.reply else ()


def _ids(nodes: Sequence[Node]) -> _Ids:
    ids = _Ids({}, {node.span.id for node in nodes})
    for node in nodes:
        own = node.told.call_id if node.kind is Kind.TOOL else None
        if own and own not in ids.taken:
            ids.taken.add(own)
        else:
            own = node.span.id
        ids.of_node[id(node)] = own
    return ids


def _results(nodes: Sequence[Node]) -> Mapping[str, str]:
    """What tools answered, by the id of the tool call, from the messages that models were sent afterwards."""
    found: dict[str, str] = {}
    for node in nodes:
        for message in node.told.said:
            if message.role == "tool" and message.answers and message.answers not in found:
                found[message.answers] = message.text
    return found


def _call(node: Node, ids: _Ids, new: "_New | None") -> list[Step]:
    told, span = node.told, node.span
    own = ids.of_node[id(node)]
    reply = node.reply or Turn("assistant")
    reply = reply._replace(
        model=told.model or "",
        usage=told.usage,
        cost=told.cost,
        started_at=span.started_at,
        seconds=span.seconds,
        first_token_seconds=told.first_token_seconds,
        finish=told.finish or reply.finish,
        error=span.error,
        response_id=told.response_id,
        raw=raw(span, node.also),
    )
    sent = tuple(map(as_message, new.said if new else told.said))
    call = model_call(reply, sent, id=own, parent=ids.parent(node), continues=ids.of_node[id(new.after)] if new else None)
    if reply.thought:
        return [call, Reasoning(text=reply.thought, started_at=span.started_at, id=f"{own}.thought", parent=own)]
    return [call]


def _unreported(asked: ToolUse, number: int, node: Node, ids: _Ids, results: Mapping[str, str]) -> ToolCall:
    """A tool call that no span tells of. Its result is known where a model was sent it later; a call whose result is not
    known has not failed for that: whoever recorded the call did not see the tool."""
    own = asked.id if asked.id and asked.id not in ids.taken else f"{node.span.id}.{number}"
    ids.taken.add(own)
    result = results.get(asked.id, "") if asked.id else ""
    return ToolCall(
        tool=asked.tool, arguments=asked.arguments, result=result, ok=not failed(result), id=own, parent=ids.of_node[id(node)]
    )


def _tool(node: Node, ids: _Ids, asked: tuple[Node, ToolUse] | None) -> ToolCall:
    told, span = node.told, node.span
    result = told.result or ""
    return ToolCall(
        tool=told.name or (asked[1].tool if asked else span.name),
        arguments=told.arguments or (asked[1].arguments if asked else ""),
        result=result,
        ok=span.error is None and not failed(result),
        error=span.error,
        started_at=span.started_at,
        seconds=span.seconds,
        id=ids.of_node[id(node)],
        parent=ids.of_node[id(asked[0])] if asked else ids.parent(node),
        raw=raw(span, node.also),
    )


def _agent(node: Node, ids: _Ids) -> AgentCall:
    told, span = node.told, node.span
    return AgentCall(
        agent=told.name or told.agent or span.name,
        input=told.input or "",
        output=told.output or "",
        error=span.error,
        started_at=span.started_at,
        seconds=span.seconds,
        id=ids.of_node[id(node)],
        parent=ids.parent(node),
        raw=raw(span, node.also),
    )


def _depth(node: Node) -> int:
    depth = 0
    while node.parent is not None:
        node, depth = node.parent, depth + 1
    return depth


@dataclass(slots=True)
class _New:
    """What was new in a call, after another."""

    after: Node
    said: tuple[Turn, ...]


def _new(nodes: Sequence[Node]) -> Mapping[int, _New]:
    """For each call that was sent a conversation again, which call it goes on from, and what was new.

    Messages are compared by role and text; those of an assistant that only ask for tools are passed over, since many
    instrumentations leave them out when they are sent back.
    """
    ended: dict[int, Node] = {}
    found: dict[int, _New] = {}
    for node in nodes:
        if node.kind is not Kind.CALL:
            continue
        marks = list(_marks(node.told.said))
        for mark, end in reversed(marks[:-1]):
            if mark in ended:
                rest = node.told.said[end:]
                while rest and rest[0].role == "assistant" and not rest[0].text:
                    rest = rest[1:]
                found[id(node)] = _New(ended[mark], rest)
                break
        whole = (*node.told.said, Turn("assistant", node.reply.text)) if node.reply else node.told.said
        for mark, _ in list(_marks(whole))[-1:]:
            ended[mark] = node
    return found


def _marks(said: Iterable[Turn]) -> Iterable[tuple[int, int]]:
    """After each message, what stands for all up to it, and how many that are."""
    mark = 0
    for number, message in enumerate(said, 1):
        if message.role == "assistant" and not message.text:
            continue
        mark = hash((mark, message.role, message.text.strip()))
        yield mark, number
