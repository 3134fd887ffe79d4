"""What a joiner remembers: the ends of conversations, and the traces they are in. Bounded."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from journeyman.trace import AgentCall, ModelCall, Step, ToolCall, Trace

MOST_ENDS = 25_000
"""Ends of conversations that are remembered: some 10 MB."""
MOST_TEXT = 10_000_000
"""Characters of the traces that are held; longer ago ones are asked for where they are kept."""
MOST_ALIKE = 16
"""Conversations that are remembered for one and the same end."""


class Past(Protocol):
    """Where traces are kept that are not in memory."""

    def get(self, trace_id: str) -> Trace | None: ...

    def session(self, session: str) -> Iterable[Trace]:
        """The traces of a session, as many of the latest as make sense."""

    def latest(self) -> Iterable[Trace]:
        """The traces that conversations without a session may go on from, oldest first. Asked for once."""


@dataclass(slots=True)
class End:
    """A place that a request can go on from."""

    trace: str
    call: str | None
    """The call that the next one `continues`."""
    turns: int
    """How many turns of the request are in the trace up to there."""
    parent: str | None = None
    """The parent of what goes on from there."""
    used: int = 0
    """How often it was gone on from."""


class Known:
    """What was joined lately."""

    def __init__(self, past: Past | None, *, most_text: int = MOST_TEXT, most_ends: int = MOST_ENDS) -> None:
        self._past = past
        self._most_text = most_text
        self._most_ends = most_ends
        self._ends: OrderedDict[bytes, list[End]] = OrderedDict()
        self._traces: OrderedDict[str, tuple[Trace, int]] = OrderedDict()
        self._text = 0
        self._homes: OrderedDict[str, str] = OrderedDict()
        self._asked: OrderedDict[str | None, None] = OrderedDict()

    def ends(self, key: bytes) -> Sequence[End]:
        """The conversations with this digest, oldest first."""
        ends = self._ends.get(key, [])
        if ends:
            self._ends.move_to_end(key)
        return ends

    def add(self, key: bytes, end: End) -> None:
        ends = self._ends.setdefault(key, [])
        if all((each.trace, each.call) != (end.trace, end.call) for each in ends):
            ends.append(end)
            del ends[:-MOST_ALIKE]
        self._ends.move_to_end(key)
        while len(self._ends) > self._most_ends:
            self._ends.popitem(last=False)

    def drop(self, key: bytes) -> None:
        self._ends.pop(key, None)

    def home(self, id: str) -> str | None:
        """The id of the trace that a step, or a provider's answer, is in."""
        return self._homes.get(id)

    def held(self, id: str) -> Trace | None:
        """A trace that is in memory."""
        if (found := self._traces.get(id)) is None:
            return None
        self._traces.move_to_end(id)
        return found[0]

    def kept(self, id: str) -> Trace | None:
        """A trace that is not."""
        return self._past.get(id) if self._past is not None else None

    def older(self, session: str | None) -> Sequence[Trace]:
        """Traces of a session, or the latest of all, if they were not asked for before."""
        if self._past is None or session in self._asked:
            return ()
        found = tuple(self._past.latest() if session is None else self._past.session(session))
        self._asked[session] = None
        if None in self._asked:
            self._asked.move_to_end(None)
        if len(self._asked) > self._most_ends:
            self._asked.popitem(last=False)
        return found

    def put(self, trace: Trace, new: Iterable[Step]) -> None:
        """Hold a trace as it now is; `new` are the steps that it did not have before."""
        added = list(new)
        _, before = self._traces.get(trace.id, (trace, 0))
        grown = sum(map(_weight, added))
        self._text += grown
        self._traces[trace.id] = (trace, before + grown)
        self._traces.move_to_end(trace.id)
        while self._text > self._most_text and len(self._traces) > 1:
            self._text -= self._traces.popitem(last=False)[1][1]
        for step in added:
            self._settle(step.id, trace.id)
            if isinstance(step, ModelCall) and step.response_id:
                self._settle(step.response_id, trace.id)

    def _settle(self, id: str, trace: str) -> None:
        self._homes[id] = trace
        if len(self._homes) > 2 * self._most_ends:
            self._homes.popitem(last=False)


def _weight(step: Step) -> int:
    """Characters, and what holds them."""
    match step:
        case ModelCall():
            # Its messages hold the prompt a second time.
            return 2000 + 2 * len(step.prompt) + len(step.reply)
        case ToolCall():
            return 500 + len(step.arguments) + len(step.result)
        case AgentCall():
            return 500 + len(step.input) + len(step.output)
        case _:
            return 500 + len(step.text)
