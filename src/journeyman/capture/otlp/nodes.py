"""Which spans are steps, each once.

The same work is often told of twice: by a client's own spans under an outer instrumentation, by a function around it, by sums
on the span of an agent.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from journeyman.capture.otlp import frameworks, genai, openinference, vercel
from journeyman.capture.otlp.spans import Span
from journeyman.capture.otlp.told import Kind, Told, merged, replies_joined
from journeyman.core.messages import Turn

_SHARED = frozenset({"session", "input", "output"})
DIALECTS: tuple[tuple[frozenset[str], Callable[[Span], Told]], ...] = (
    (frozenset({"ai", "operation"}), vercel.read),
    (frozenset({"gen_ai", "traceloop", "llm.request", "llm.response", "llm.usage", "llm.completions"}), genai.read),
    (frozenset({"gcp"}), frameworks.adk),
    (_SHARED | {"openinference", "llm", "embedding", "tool", "retrieval", "reranker", "agent"}, openinference.read),
    (frozenset({"agent_name", "tool_arguments", "tool_response", "events", "request_data"}), frameworks.pydantic_ai),
    (_SHARED | {"langfuse"}, frameworks.langfuse),
    (frozenset({"langsmith"}), frameworks.langsmith),
    (frozenset({"mlflow"}), frameworks.mlflow),
)
"""How the names of a dialect's attributes begin, and what reads them. Of each thing, the first that tells it is believed."""


_TELLING = 100
"""Characters by which two answers are told apart."""


@dataclass(slots=True)
class Node:
    """A span that is a step, with those that tell of the same."""

    span: Span
    told: Told
    kind: Kind
    parent: "Node | None" = None
    children: "list[Node]" = field(default_factory=list)
    also: tuple[Span, ...] = ()
    """Spans that told of the same."""
    reply: Turn | None = None
    """What a model answered, all that was told of it together."""


def told(span: Span) -> Told:
    """What a span tells, in whichever dialects it speaks; many speak two."""
    spoken = {name.partition(".")[0] for name in span.attributes}
    if "llm" in spoken:
        # OpenInference and the oldest conventions share this beginning.
        spoken |= {".".join(name.split(".", 2)[:2]) for name in span.attributes if name.startswith("llm.")}
    if any(event.name.startswith("gen_ai.") for event in span.events):
        spoken.add("gen_ai")
    return merged(read(span) for begins, read in DIALECTS if not begins.isdisjoint(spoken))


def nodes(spans: Sequence[Span], tolds: Mapping[str, Told]) -> list[Node]:
    """The steps, oldest first, each knowing the nearest one above it."""
    found = {span.id: Node(span, tolds[span.id], kind) for span in spans if (kind := tolds[span.id].kind) is not None}
    above = {span.id: span.parent for span in spans}
    for node in found.values():
        node.parent = _nearest(node.span.id, above, found)
        if node.parent is not None:
            node.parent.children.append(node)
    _cut_rings(found.values())
    for node in _deepest_first(found.values()):
        _settle(node)
    kept = _once([node for node in found.values() if node.parent is not node])
    for node in kept:
        node.reply = replies_joined(node.told.replies)
    return kept


def _nearest(id: str, above: Mapping[str, str | None], found: Mapping[str, Node]) -> Node | None:
    seen = {id}
    at = above.get(id)
    while at is not None and at not in seen:
        if at in found:
            return found[at]
        seen.add(at)
        at = above.get(at)
    return None


def _cut_rings(found: Iterable[Node]) -> None:
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


def _deepest_first(found: Iterable[Node]) -> list[Node]:
    order: list[Node] = []
    stack = [node for node in found if node.parent is None]
    while stack:
        node = stack.pop()
        order.append(node)
        stack += node.children
    return order[::-1]


def _settle(node: Node) -> None:
    """Decide what a node stands for, knowing what was settled for those below it."""
    calls = [child for child in node.children if child.kind is Kind.CALL]
    if node.kind is Kind.OUTER:
        node.kind = Kind.AGENT if calls else Kind.CALL
    elif node.kind is Kind.CALL and calls:
        if len(calls) == 1 and _same_call(node.told, calls[0].told):
            _absorb(node, calls[0])
        elif len(calls) > 1 and not _is_another(node.told, calls):
            node.kind = Kind.AGENT
    elif node.kind is Kind.TOOL:
        for child in [child for child in node.children if child.kind is Kind.TOOL and _same_tool(node.told, child.told)]:
            _absorb(node, child)


def _same_call(outer: Told, inner: Told) -> bool:
    """A call of a model within a call of a model is the same, unless their answers are different."""
    if outer.response_id is not None and inner.response_id is not None:
        return outer.response_id == inner.response_id
    one, other = replies_joined(outer.replies), replies_joined(inner.replies)
    if one is None or other is None or not one.text or not other.text:
        return True
    # Instrumentations cut long texts, each at a length of its own.
    short = min(len(one.text.strip()), len(other.text.strip()), _TELLING)
    return one.text.strip()[:short] == other.text.strip()[:short]


def _is_another(outer: Told, calls: Sequence[Node]) -> bool:
    """Whether it has an answer that none of the calls within it has."""
    return outer.response_id is not None and all(
        call.told.response_id is not None and call.told.response_id != outer.response_id for call in calls
    )


def _same_tool(outer: Told, inner: Told) -> bool:
    return outer.name == inner.name and (outer.call_id is None or inner.call_id is None or outer.call_id == inner.call_id)


def _absorb(node: Node, other: Node) -> None:
    """`other` tells of the same: what `node` does not tell, it adds; what was below it is now below `node`."""
    node.told = replace(merged((node.told, other.told)), kind=node.told.kind)
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


def _once(found: Sequence[Node]) -> list[Node]:
    """Two calls that have the same answer at the same time are one: two instrumentations side by side."""
    first: dict[str, Node] = {}
    kept: list[Node] = []
    for node in found:
        id = node.told.response_id if node.kind is Kind.CALL else None
        if id is not None and id in first and node.span.began <= first[id].span.ended:
            _absorb(first[id], node)
            continue
        if id is not None:
            first[id] = node
        kept.append(node)
    return kept
