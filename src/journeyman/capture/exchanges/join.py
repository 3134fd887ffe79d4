"""Exchanges become traces: one conversation, one trace, however many requests it was sent in.

A request goes on with the conversation that is its longest beginning, answer included. Where the same was said in several
conversations, each is gone on with once before one is gone on with twice: they are alike, so it does not matter which is which.
A request that goes on where another did already (asked again, taken back, several attempts) is a branch in the same trace. One
that failed and is sent again is in the trace of the one that failed. All else is a trace of its own.

Labels decide first: requests whose session, task, agent, parent or trace differ are never of one conversation. `trace` names
the trace. `parent` names a step (a call, a provider's answer, a tool call) or a trace, and the conversation becomes work that
was handed to an agent there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from journeyman.capture.exchanges.base import Dialect, Exchange
from journeyman.capture.exchanges.chain import Marks, link, named
from journeyman.capture.exchanges.known import MOST_TEXT, End, Known, Past
from journeyman.capture.exchanges.read import read
from journeyman.capture.exchanges.reading import Reading
from journeyman.capture.exchanges.steps import Heard, begun, grow
from journeyman.core.messages import Usage
from journeyman.trace import ModelCall, Trace

__all__ = ["Joiner", "Past", "Price"]

Price = Callable[[str, str, Usage], float | None]
"""US dollars for a call, by the base URL of the server and the model; `None` when there is no known price."""

_SEED = ("session", "task", "agent", "parent", "trace")
_MOST_TRIES = 8
"""Failed calls in a row that are taken for one request sent again and again."""
_MOST_FORKS = 64
"""Times that one call is gone on from within its trace; what goes on from it then is a trace of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Where an exchange belongs."""

    trace: Trace | None = None
    """`None` for a new one."""
    at: End | None = None
    """What it goes on from; `None` when it is the first of its conversation."""

    @property
    def continues(self) -> str | None:
        return self.at.call if self.at else None

    @property
    def turns(self) -> int:
        """Turns of the request that are in the trace already."""
        return self.at.turns if self.at else 0


class Joiner:
    """Puts exchanges into traces, one after the other. For one thread."""

    def __init__(self, *, price: Price, past: Past | None = None, most_text: int = MOST_TEXT) -> None:
        """
        Args:
            price: What a call costs.
            past: Asked for traces that are not in memory: by id, once for each session, and once for the latest.
            most_text: Characters of traces that are kept in memory.
        """
        self._price = price
        self._known = Known(past, most_text=most_text)

    def join(self, exchange: Exchange) -> Trace:
        """The trace that the exchange belongs to, as it now is. The same exchange again changes nothing.

        Raises:
            Exception: What `past` raises; nothing has changed then, and the same exchange can be joined later.
        """
        if (home := self._known.home(exchange.id)) and (trace := self._trace(home)):
            return trace
        reading = read(exchange)
        marks = None
        if exchange.dialect is not Dialect.EMBEDDINGS:
            marks = Marks.of(reading, (exchange.labels.get(name) for name in _SEED))
        found = self._find(exchange, reading, marks)
        cost = self._price(exchange.base_url, reading.model, reading.usage) if reading.model else None
        ends = _marked(exchange.dialect, reading, marks) if marks else {}
        trace, new = grow(found.trace or begun(exchange, reading), Heard(exchange, reading, cost, ends), found.at)
        self._known.put(trace, new)
        call = next(step for step in new if isinstance(step, ModelCall))
        if marks is not None:
            self._remember(call, trace.id, reading, found, marks)
        return trace

    def recall(self, traces: Iterable[Trace]) -> None:
        """Remember traces that were joined before, by this process or another, so that their conversations go on."""
        for trace in traces:
            if self._known.held(trace.id) is not None:
                continue
            # What people said of it since is the store's to keep.
            bare = replace(trace, label=None, rewards=())
            self._known.put(bare, bare.steps)
            gone_on = [call.continues for call in bare.calls]
            for call in bare.calls:
                for key, turns in _ends(call):
                    self._known.add(key, End(bare.id, call.id, turns, call.parent, gone_on.count(call.id)))

    def _find(self, exchange: Exchange, reading: Reading, marks: Marks | None) -> _Found:
        wanted, parent = exchange.labels.get("trace"), exchange.labels.get("parent")
        forced = self._trace(wanted) if wanted else None
        place = self._end(reading, marks) or self._older(exchange, reading, marks) if marks else None
        if place is not None and (trace := self._trace(place.trace)) is not None:
            place.used += 1
            return _Found(trace=trace, at=place)
        if not wanted and parent:
            forced = self._trace(self._known.home(parent) or parent)
        return _Found(trace=forced)

    def _end(self, reading: Reading, marks: Marks) -> End | None:
        """The longest known beginning of a request."""
        if again := self._known.ends(marks.again):
            return again[-1]
        for turn, key in zip(reversed(reading.turns), reversed(marks.turns), strict=True):
            if turn.role == "assistant" and (ends := self._known.ends(key)):
                return _free(ends)
        if marks.begin == marks.seed:
            return None
        ends = self._known.ends(marks.begin)
        return ends[-1] if ends else None

    def _older(self, exchange: Exchange, reading: Reading, marks: Marks) -> End | None:
        """The same, once what is kept of the session was asked for, or of those without one."""
        goes_on = marks.begin != marks.seed or any(turn.role == "assistant" for turn in reading.turns)
        if not goes_on and not exchange.labels.get("parent"):
            return None
        traces = self._known.older(exchange.labels.get("session") or None)
        self.recall(traces)
        return self._end(reading, marks) if traces else None

    def _trace(self, id: str) -> Trace | None:
        if (held := self._known.held(id)) is not None:
            return held
        if (kept := self._known.kept(id)) is not None:
            self.recall([kept])
        return self._known.held(id)

    def _remember(self, call: ModelCall, trace: str, reading: Reading, found: _Found, marks: Marks) -> None:
        known = self._known
        again = marks.again
        tries = max((end.used for end in known.ends(again)), default=1)
        known.drop(again)
        here = End(trace, found.continues, found.turns, call.parent)
        if reading.error is not None and tries < _MOST_TRIES:
            known.add(again, replace(here, used=tries))
        for key, turns in _ends(call):
            known.add(key, End(trace, call.id, turns, call.parent))
        for other in reading.others:
            known.add(link(marks.sent, other), replace(here))


def _free(ends: Sequence[End]) -> End | None:
    fresh = next((end for end in ends if not end.used), None)
    if fresh is None and ends[-1].used < _MOST_FORKS:
        return ends[-1]
    return fresh


def _marked(dialect: Dialect, reading: Reading, marks: Marks) -> dict[str, int]:
    """Where the conversation of a call can be gone on from, and how many turns of the next request are known then.

    It is kept with the call, so that a conversation goes on although whoever joined it has ended.
    """
    if not reading.answered:
        return {}
    sent = len(reading.turns)
    found = {marks.end.hex(): sent + 1}
    if reading.turns and reading.turns[-1].role == "assistant":
        # The beginning of the reply was put into the model's mouth, and the two come back as one message.
        whole = reading.reply._replace(text=reading.turns[-1].text + reading.reply.text)
        found[link(marks.before(1), whole).hex()] = sent
    if reading.response_id and dialect is Dialect.RESPONSES:
        found[named(marks.seed, "behind", reading.response_id).hex()] = 0
    if reading.thread:
        found[named(marks.seed, "thread", reading.thread).hex()] = 0
    return found


def _ends(call: ModelCall) -> Iterator[tuple[bytes, int]]:
    """The same, read back."""
    marks = call.raw.get("ends")
    for key, turns in marks.items() if isinstance(marks, Mapping) else ():
        if isinstance(key, str) and len(key) == 32 and isinstance(turns, int):
            yield bytes.fromhex(key), turns
