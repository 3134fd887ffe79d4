"""Exchanges become traces: one conversation, one trace, however many requests it was sent in.

A request goes on with the conversation that is its longest beginning, answer included. Where the same was said in several
conversations, each is gone on with once before one is gone on with twice: they are alike, so it does not matter which is which.
A request that goes on where another did already (asked again, taken back, several attempts) is a branch in the same trace. One
that failed and is sent again is in the trace of the one that failed. All else is a trace of its own.

Labels decide first: requests whose session, task, agent, parent or trace differ are never of one conversation. `trace` names
the trace. `parent` names a step (a call, a provider's answer, a tool call) or a trace, and the conversation becomes work that
was handed to an agent there.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, Self

from journeyman.core.messages import ToolUse, Turn, Usage
from journeyman.core.rollout import PRODUCTION
from journeyman.core.trace import MIRROR, AgentCall, ModelCall, Reasoning, Step, ToolCall, Trace
from journeyman.tracing.base import has_failed
from journeyman.tracing.builder import model_call
from journeyman.tracing.importers.finetuning import as_message
from journeyman.tracing.wire.dialects import Dialect, Exchange, ParsedExchange, read_exchange

# Telling by its messages which conversation a request goes on with.
#
# A conversation is sent whole each time. Its messages are hashed one behind the other, so that two conversations have the same
# digest at a place exactly when they were the same up to there. What clients change while they send a message again is not
# hashed: ids, spaces in JSON and around texts, whether a text comes as a string or in parts, reasoning.

_REMEMBERED_TEXT = 100_000
"""Characters of a text whose digest is remembered."""
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ConversationDigests:
    """The digests of one exchange."""

    seed: bytes
    """Of its labels: conversations whose labels differ never meet."""
    begin: bytes
    """Before its first turn: of the labels, and of what the server was told to go on from."""
    turns: tuple[bytes, ...]
    """Behind each turn that was sent."""
    end: bytes
    """Behind the reply."""
    again: bytes
    """Of the same request, sent again."""

    @classmethod
    def of(cls, reading: ParsedExchange, labels: Iterable[str | None]) -> Self:
        seed = begin = _seed(tuple(labels))
        if reading.behind:
            begin = named(seed, "behind", reading.behind)
        elif reading.thread:
            begin = named(seed, "thread", reading.thread)
        turns = []
        last = begin
        for turn in reading.turns:
            last = link(last, turn)
            turns.append(last)
        return cls(seed, begin, tuple(turns), link(last, reading.reply), named(last, "again"))

    @property
    def sent(self) -> bytes:
        """Behind all that was sent."""
        return self.before(0)

    def before(self, last: int) -> bytes:
        """Behind all that was sent but for the last turns."""
        place = len(self.turns) - last
        return self.turns[place - 1] if place > 0 else self.begin


@lru_cache(maxsize=1024)
def _seed(labels: tuple[str | None, ...]) -> bytes:
    return named(b"", *labels)


def link(before: bytes, turn: Turn) -> bytes:
    """The digest behind a turn."""
    role, text, calls = turn[0], turn[1], turn[2]
    if role == "system" and len(text) <= _REMEMBERED_TEXT:
        # It is said in every call.
        return _behind_instructions(before, text)
    if role == "assistant":
        # Some clients cut out what a model thought aloud before they send its reply again.
        text = _THOUGHT.sub("", text) if "</think>" in text else text
        if calls:
            text = "\x1e".join((text.strip(), *(f"{call.tool}\x1f{_canonical(call.arguments)}" for call in calls)))
    return _digest(before, f"{role}\x1d{text.strip()}")


@lru_cache(maxsize=256)
def _behind_instructions(before: bytes, text: str) -> bytes:
    return _digest(before, f"system\x1d{text.strip()}")


def named(before: bytes, *words: str | None) -> bytes:
    """The digest of words behind another digest."""
    return _digest(before, "\x1f".join("\x00" if word is None else word for word in words))


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return arguments.strip()


def _digest(before: bytes, text: str) -> bytes:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16, key=before).digest()


# What a joiner remembers: the ends of conversations, and the traces they are in. Bounded.

MOST_ENDS = 25_000
"""Ends of conversations that are remembered: some 10 MB."""
MOST_TEXT = 4_000_000
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
class Continuation:
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


class ConversationCache:
    """What was joined lately."""

    def __init__(self, past: Past | None, *, most_text: int = MOST_TEXT, most_ends: int = MOST_ENDS) -> None:
        self._past = past
        self._most_text = most_text
        self._most_ends = most_ends
        self._ends: OrderedDict[bytes, list[Continuation]] = OrderedDict()
        self._traces: OrderedDict[str, tuple[Trace, int]] = OrderedDict()
        self._text = 0
        self._homes: OrderedDict[str, str] = OrderedDict()
        self._asked: OrderedDict[str | None, None] = OrderedDict()

    def ends(self, key: bytes) -> Sequence[Continuation]:
        """The conversations with this digest, oldest first."""
        ends = self._ends.get(key, [])
        if ends:
            self._ends.move_to_end(key)
        return ends

    def add(self, key: bytes, end: Continuation) -> None:
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


# From what an exchange says to the steps of a trace.


class JoinedExchange(NamedTuple):
    """One exchange, and what is known of it."""

    exchange: Exchange
    reading: ParsedExchange
    cost: float | None
    ends: Mapping[str, int]
    """Kept in the call's `raw`; see `join`."""

    @property
    def until(self) -> datetime:
        return self.exchange.started_at + timedelta(seconds=self.exchange.seconds)


def new_trace(exchange: Exchange, reading: ParsedExchange) -> Trace:
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
        source=MIRROR if exchange.served.get("mirror", {}).get("arm", PRODUCTION) != PRODUCTION else "gateway",
    )


def with_exchange(trace: Trace, heard: JoinedExchange, at: Continuation | None) -> tuple[Trace, list[Step]]:
    """The trace with an exchange in it, and the steps that it did not have before: the call, what the model thought, and the
    tools that it asks for.

    Args:
        at: What the exchange goes on from; `None` for the first of its conversation.
    """
    exchange, reading = heard.exchange, heard.reading
    turns: Sequence[Turn] = reading.turns[at.turns :] if at else reading.turns
    if reading.behind or reading.thread:
        turns = _without_repeated_instructions(trace, turns)
    known = _answered(trace.steps, at.call, turns, exchange.started_at) if at and at.call else trace.steps
    known, handed, parent = _handed_work(trace, known, heard, at)
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


def _call(heard: JoinedExchange, turns: Sequence[Turn], *, continues: str | None, parent: str | None) -> ModelCall:
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
    sent = tuple(map(as_message, turns))
    return model_call(reply, sent, id=exchange.id, parent=parent, continues=continues, shown=exchange.shown)


def _raw(heard: JoinedExchange) -> dict[str, Any]:
    exchange = heard.exchange
    raw: dict[str, Any] = {"dialect": exchange.dialect.value, "status": exchange.status, "streamed": exchange.streamed}
    told = {"upstream": exchange.upstream, "base_url": exchange.base_url, "principal": exchange.labels.get("principal")}
    raw |= {name: each for name, each in told.items() if each}
    if heard.ends:
        raw["ends"] = dict(heard.ends)
    return {**raw, **exchange.served, **heard.reading.raw}


def _thoughts(heard: JoinedExchange) -> list[Reasoning]:
    exchange = heard.exchange
    return [
        Reasoning(text=text, started_at=exchange.started_at, id=f"{exchange.id}/thought/{number}", parent=exchange.id)
        for number, text in enumerate(heard.reading.reasoning)
    ]


def _tools(heard: JoinedExchange, taken: Collection[str]) -> list[ToolCall]:
    ids = set(taken)
    calls: list[ToolCall] = []
    for number, call in enumerate(heard.reading.reply.calls):
        # Some servers number the calls of each answer anew, and some give no ids at all.
        id = call.id if call.id and call.id not in ids else f"{heard.exchange.id}/tool/{number}"
        ids.add(id)
        calls.append(_tool(heard, call, id))
    return calls


def _tool(heard: JoinedExchange, call: ToolUse, id: str) -> ToolCall:
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
        index: step
        for index, step in enumerate(known)
        if isinstance(step, ToolCall) and step.parent == asker and step.raw.get("answered") is False
    }
    alone = len(waiting) == 1
    filled: dict[int, Step] = {}
    for turn in turns:
        if turn.role == "tool" and waiting:
            index = _call_answered(turn, waiting)
            filled[index] = _with_answer(waiting.pop(index), turn, at if alone else None)
    return [filled.get(index, step) for index, step in enumerate(known)] if filled else known


def _call_answered(turn: Turn, waiting: Mapping[int, ToolCall]) -> int:
    named = [place for place, step in waiting.items() if turn.answers and step.raw.get("asked_as") == turn.answers]
    same = [place for place, step in waiting.items() if turn.tool and step.tool == turn.tool]
    return (*named, *same, *waiting)[0]


def _with_answer(step: ToolCall, turn: Turn, until: datetime | None) -> ToolCall:
    seconds = (until - step.started_at).total_seconds() if until and step.started_at else None
    return replace(
        step,
        result=turn.text,
        ok=not has_failed(turn.failed, turn.text),
        seconds=seconds if seconds is None or seconds >= 0 else None,
        raw={key: value for key, value in step.raw.items() if key != "answered"},
    )


def _handed_work(
    trace: Trace, known: Sequence[Step], heard: JoinedExchange, at: Continuation | None
) -> tuple[Sequence[Step], list[Step], str | None]:
    """The steps, with what is known now of the work that an agent was handed; that work, where it is new; the call's parent."""
    exchange, reading = heard.exchange, heard.reading
    if at is not None:
        known = [_with_outcome(step, heard) if step.id == at.parent and isinstance(step, AgentCall) else step for step in known]
        return known, [], at.parent
    label, agent = exchange.labels.get("parent"), exchange.labels.get("agent")
    parent = _parent_named(known, label) if label and label != trace.id else None
    if not label or not agent or not known:
        return known, [], parent
    asked = next((turn.text for turn in reading.turns if turn.role == "user"), "")
    work = AgentCall(agent=agent, input=asked, started_at=exchange.started_at, id=f"{exchange.id}/agent", parent=parent)
    return known, [_with_outcome(work, heard)], work.id


def _parent_named(known: Sequence[Step], label: str) -> str:
    """The step that a client means: by its id, by the provider's, or as it named it for a reason of its own."""
    for step in known:
        if isinstance(step, ModelCall) and step.response_id == label:
            return step.id
        if isinstance(step, ToolCall) and step.raw.get("asked_as") == label:
            return step.id
    return label


def _with_outcome(work: AgentCall, heard: JoinedExchange) -> AgentCall:
    seconds = (heard.until - work.started_at).total_seconds() if work.started_at else None
    return replace(work, output=heard.reading.reply.text or work.output, error=heard.reading.error, seconds=seconds)


def _without_repeated_instructions(trace: Trace, turns: Sequence[Turn]) -> Sequence[Turn]:
    """Without the instructions that were said before: where the server keeps the conversation, they are sent each time."""
    said = {message.text for call in trace.calls for message in call.messages if message.role == "system"}
    return [turn for turn in turns if turn.role != "system" or turn.text not in said]


def _in_order(known: Sequence[Step], new: Sequence[Step]) -> tuple[Step, ...]:
    """Oldest first. Calls that ran side by side are told of in the order in which they ended."""
    began = new[0].started_at
    if not known or began is None or (known[-1].started_at or began) <= began:
        return (*known, *new)
    return tuple(sorted((*known, *new), key=lambda step: step.started_at or began))


Price = Callable[[str, str, Usage], float | None]
"""US dollars for a call, by the base URL of the server and the model; `None` when there is no known price."""

_SEED = ("session", "task", "agent", "parent", "trace")
_MOST_TRIES = 8
"""Failed calls in a row that are taken for one request sent again and again."""
_MOST_FORKS = 64
"""Times that one call is gone on from within its trace; what goes on from it then is a trace of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placement:
    """Where an exchange belongs."""

    trace: Trace | None = None
    """`None` for a new one."""
    at: Continuation | None = None
    """What it goes on from; `None` when it is the first of its conversation."""

    @property
    def continues(self) -> str | None:
        return self.at.call if self.at else None

    @property
    def turns(self) -> int:
        """Turns of the request that are in the trace already."""
        return self.at.turns if self.at else 0


class ConversationAssembler:
    """Puts exchanges into traces, one after the other. For one thread."""

    def __init__(self, *, price: Price, past: Past | None = None, most_text: int = MOST_TEXT) -> None:
        """
        Args:
            price: What a call costs.
            past: Asked for traces that are not in memory: by id, once for each session, and once for the latest.
            most_text: Characters of traces that are kept in memory.
        """
        self._price = price
        self._known = ConversationCache(past, most_text=most_text)

    def join(self, exchange: Exchange) -> Trace:
        """The trace that the exchange belongs to, as it now is. The same exchange again changes nothing.

        Raises:
            Exception: What `past` raises; nothing has changed then, and the same exchange can be joined later.
        """
        if (home := self._known.home(exchange.id)) and (trace := self._trace(home)):
            return trace
        reading = read_exchange(exchange)
        marks = None
        if exchange.dialect is not Dialect.EMBEDDINGS:
            marks = ConversationDigests.of(reading, (exchange.labels.get(name) for name in _SEED))
        found = self._find(exchange, reading, marks)
        cost = self._price(exchange.base_url, reading.model, reading.usage) if reading.model else None
        ends = _continuations(exchange.dialect, reading, marks) if marks else {}
        trace, new = with_exchange(
            found.trace or new_trace(exchange, reading), JoinedExchange(exchange, reading, cost, ends), found.at
        )
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
                for key, turns in _stored_continuations(call):
                    self._known.add(key, Continuation(bare.id, call.id, turns, call.parent, gone_on.count(call.id)))

    def _find(self, exchange: Exchange, reading: ParsedExchange, marks: ConversationDigests | None) -> _Placement:
        wanted, parent = exchange.labels.get("trace"), exchange.labels.get("parent")
        forced = self._trace(wanted) if wanted else None
        place = self._end(reading, marks) or self._older(exchange, reading, marks) if marks else None
        if place is not None and (trace := self._trace(place.trace)) is not None:
            place.used += 1
            return _Placement(trace=trace, at=place)
        if not wanted and parent:
            forced = self._trace(self._known.home(parent) or parent)
        return _Placement(trace=forced)

    def _end(self, reading: ParsedExchange, marks: ConversationDigests) -> Continuation | None:
        """The longest known beginning of a request."""
        if again := self._known.ends(marks.again):
            return again[-1]
        for turn, key in zip(reversed(reading.turns), reversed(marks.turns), strict=True):
            if turn.role == "assistant" and (ends := self._known.ends(key)):
                return _least_used(ends)
        if marks.begin == marks.seed:
            return None
        ends = self._known.ends(marks.begin)
        return ends[-1] if ends else None

    def _older(self, exchange: Exchange, reading: ParsedExchange, marks: ConversationDigests) -> Continuation | None:
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

    def _remember(
        self, call: ModelCall, trace: str, reading: ParsedExchange, found: _Placement, marks: ConversationDigests
    ) -> None:
        known = self._known
        again = marks.again
        tries = max((end.used for end in known.ends(again)), default=1)
        known.drop(again)
        here = Continuation(trace, found.continues, found.turns, call.parent)
        if reading.error is not None and tries < _MOST_TRIES:
            known.add(again, replace(here, used=tries))
        for key, turns in _stored_continuations(call):
            known.add(key, Continuation(trace, call.id, turns, call.parent))
        for other in reading.others:
            known.add(link(marks.sent, other), replace(here))


def _least_used(ends: Sequence[Continuation]) -> Continuation | None:
    fresh = next((end for end in ends if not end.used), None)
    if fresh is None and ends[-1].used < _MOST_FORKS:
        return ends[-1]
    return fresh


def _continuations(dialect: Dialect, reading: ParsedExchange, marks: ConversationDigests) -> dict[str, int]:
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


def _stored_continuations(call: ModelCall) -> Iterator[tuple[bytes, int]]:
    """The same, read back."""
    marks = call.raw.get("ends")
    for key, turns in marks.items() if isinstance(marks, Mapping) else ():
        if isinstance(key, str) and len(key) == 32 and isinstance(turns, int):
            yield bytes.fromhex(key), turns
