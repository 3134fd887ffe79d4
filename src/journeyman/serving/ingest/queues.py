"""What waits on its way into the store: bounded in number and bytes, in the order it came."""

import json
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Collection, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from journeyman.core.errors import StoreError, Unkeepable
from journeyman.core.trace import ModelCall, Trace
from journeyman.serving.ingest.base import RecordCleaner
from journeyman.serving.ingest.spill import Spill, SpilledPart
from journeyman.stores.traces.base import SpanRow
from journeyman.tracing.wire.dialects import Exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """How much may wait, and how long."""

    things: int = 20_000
    """Exchanges, traces and batches of spans in memory."""
    bytes: int = 64 * 2**20
    """Of them, about."""
    spill_bytes: int = 512 * 2**20
    """Of the spill file."""
    linger: float = 0.2
    """Seconds for which an exchange waits for others, so that they are written together. Spans, which are answered only when
    they are stored, do not wait."""
    batch: int = 256
    """Traces that are written together."""
    patience: float = 8.0
    """Seconds after which spans that the store does not take are refused; exporters give up after ten."""


@dataclass(slots=True, kw_only=True, eq=False)
class Waiting:
    """Something that waits, and what it weighs."""

    what: Exchange | Trace | None = None
    rows: Sequence[SpanRow] = ()
    """Spans of one request, instead."""
    weight: int
    things: int = 1
    """How many things that were handed over are in it: of a conversation's traces only the latest is written."""
    since: float = field(default_factory=time.monotonic)
    told: "list[Future[None]]" = field(default_factory=list)
    """Those who wait to hear that it is kept."""

    def kept(self) -> None:
        for each in self.told:
            with suppress(InvalidStateError):
                each.set_result(None)
        self.told = []

    def lost(self, reason: str) -> None:
        for each in self.told:
            with suppress(InvalidStateError):
                each.set_exception(StoreError(reason))
        self.told = []

    @property
    def trace(self) -> Trace:
        """What waits, once it is prepared."""
        assert isinstance(self.what, Trace)
        return self.what


class BoundedQueue:
    """What was handed over and not looked at yet, and the count of all that is in memory. For many threads."""

    def __init__(self, limits: QueueLimits) -> None:
        self.lock = threading.RLock()
        self.arrived = threading.Condition(self.lock)
        self.left = threading.Condition(self.lock)
        """Something is not in memory any more."""
        self.items: deque[Waiting] = deque()
        self.urgent: deque[Waiting] = deque()
        """What somebody waits for: it does not stand behind what nobody does."""
        self.things = 0
        self.bytes = 0
        """Held in memory, from here to the store."""
        self.span_batches = 0
        """Of these."""
        self.dropped = 0
        self.closed = False
        self._hurry = False
        self._limits = limits

    def put(self, item: Waiting) -> bool:
        """Whether there was room."""
        with self.lock:
            full = self.things + item.things > self._limits.things or self.bytes + item.weight > self._limits.bytes
            if self.closed or full:
                return False
            into = self.urgent if item.told else self.items
            into.append(item)
            self.things += item.things
            self.bytes += item.weight
            self.span_batches += bool(item.rows)
            # Who waits is woken once for a group, not once for each: waking costs more than putting.
            if len(into) == 1:
                self.arrived.notify()
        return True

    def hurry(self) -> None:
        """Let nobody wait for more."""
        with self.lock:
            self._hurry = True
            self.arrived.notify()

    def take(self, timeout: float) -> Sequence[Waiting]:
        """All that somebody waits for, and of the rest as much as is written together, after a moment in which more may come;
        nothing after `timeout` seconds."""
        with self.lock:
            self.arrived.wait_for(lambda: self.items or self._pressing, timeout)
            if len(self.items) < self._limits.batch:
                self.arrived.wait_for(lambda: self._pressing, self._limits.linger if self.items else 0)
            taken = [*self.urgent]
            self.urgent.clear()
            while self.items and len(taken) < self._limits.batch:
                taken.append(self.items.popleft())
            self._hurry = self._hurry and bool(self.items)
            return taken

    @property
    def _pressing(self) -> bool:
        return bool(self.urgent) or self._hurry or self.closed

    def release(self, item: Waiting, *, dropped: int = 0) -> None:
        """It is not in memory any more."""
        with self.lock:
            self.things -= item.things
            self.bytes -= item.weight
            self.span_batches -= bool(item.rows)
            self.dropped += dropped
            self.left.notify_all()


class Ready:
    """Traces that can be written: the latest of each id, in the order in which these came. Used under the line's lock."""

    def __init__(self) -> None:
        self.items: OrderedDict[str, Waiting] = OrderedDict()
        self.bytes = 0

    def put(self, id: str, item: Waiting) -> Waiting | None:
        """What it replaces: an older version of the same trace."""
        older = self.items.pop(id, None)
        self.bytes += item.weight - (older.weight if older else 0)
        self.items[id] = item
        return older

    def first(self, most: int) -> Sequence[tuple[str, Waiting]]:
        return list(islice(self.items.items(), most))

    def drop(self, id: str, item: Waiting) -> bool:
        """Take it out, unless it has gone, or a newer version stands in its place."""
        if self.items.get(id) is not item:
            return False
        del self.items[id]
        self.bytes -= item.weight
        return True


def weight(trace: Trace) -> int:
    """About how many bytes a trace takes in memory."""
    size = 1000
    for step in trace.steps:
        size += 1500
        if isinstance(step, ModelCall):
            size += len(step.prompt) + len(step.reply) + sum(200 + len(message.text) for message in step.messages)
        else:
            size += sum(len(value) for name in step.__slots__ if isinstance(value := getattr(step, name), str))
    return size


if TYPE_CHECKING:
    from pydantic import TypeAdapter

log = logging.getLogger(__name__)


def spill_of_traces(folder: Path, limit: int) -> Spill[Trace]:
    """Where traces wait while the store cannot take them. It outlives the process, though not a loss of power."""
    return Spill(folder, limit, write=_json, read=_parse)


@cache
def _traces() -> "TypeAdapter[Trace]":
    # Only what is spilled pays for pydantic.
    from pydantic import TypeAdapter

    return TypeAdapter(Trace)


def _json(trace: Trace) -> str:
    # Not `dump_json`: it refuses a lone surrogate, which an agent's text may well hold.
    try:
        return json.dumps(_traces().dump_python(trace, mode="json", fallback=str))
    except (TypeError, ValueError, RecursionError) as error:
        raise Unkeepable(f"the trace {trace.id!r} cannot be written as JSON: {error}") from error


def _parse(told: object) -> Trace:
    return _traces().validate_python(told)


_SHARE = 4
"""A quarter of the memory may be full of prepared traces; what is more goes to the disk, before the store has refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """Traces to be written."""

    traces: Sequence[Trace]
    items: Sequence[tuple[str, Waiting]] = ()
    """Where they wait, in memory."""
    part: SpilledPart[Trace] | None = None
    """Or where they wait, in the spill file."""
    passed: int = 0
    """How many stand before them, and are given up when these are taken."""


class Pipe:
    """Between two threads: one prepares, the other takes. What was handed over first is given first."""

    def __init__(self, line: BoundedQueue, cleaner: RecordCleaner, folder: Path, limits: QueueLimits) -> None:
        self._line = line
        self._cleaner = cleaner
        self._limits = limits
        self._ready = Ready()
        self._spans: deque[Waiting] = deque()
        self._busy: frozenset[int] = frozenset()
        self._spill = spill_of_traces(folder, limits.spill_bytes)
        # While it is held nothing goes from memory to the disk, so that the order holds. Who hands over never waits for it.
        self._moving = threading.Lock()
        self._counted = 0
        """Of what lies on the disk, what was stored from memory while it was moved there."""

    @property
    def spilled(self) -> int:
        return self._spill.records

    @property
    def work(self) -> bool:
        """Whether something can be written."""
        return bool(self._spans or self._ready.items or self._spill.records)

    @property
    def urgent(self) -> bool:
        """Whether somebody waits to hear that spans were written, prepared yet or not."""
        return self._line.span_batches > 0

    def recover(self) -> None:
        """Go on with what other processes have spilled, and did not live to write."""
        with self._moving:
            if count := self._spill.recover():
                log.info("%d traces that were spilled before are written now", count)

    # -- for who prepares

    def prepare(self, item: Waiting) -> None:
        try:
            if item.rows:
                item.rows = tuple(map(self._cleaner.span, item.rows))
                with self._line.lock:
                    self._spans.append(item)
                return
            traces = self._traces(item.what)
        except Exception as error:  # noqa: BLE001 - what cannot be read must not end the recording of all others
            # The type alone: a message may quote what was said.
            log.warning("something that was recorded cannot be read: %s", type(error).__name__, exc_info=False)
            self._line.release(item, dropped=item.things)
            item.lost("what was handed over cannot be read")
            return
        self._replace(item, traces)

    def overflow(self, *, everything: bool) -> None:
        """Move prepared traces from memory to the disk, oldest first, while there is room: all, or when they take too much."""
        while everything or self._ready.bytes > self._limits.bytes // _SHARE or self._crowded:
            with self._moving:
                with self._line.lock:
                    first = self._ready.first(1)
                if not first:
                    return
                ((id, item),) = first
                try:
                    if not self._spill.append(item.trace):
                        return
                except Unkeepable as error:
                    log.warning("trace %r is left out: %s", id, error)
                    self._drop(id, item, dropped=item.things)
                    item.lost(f"the trace cannot be kept: {error}")
                else:
                    # With the operating system: it outlives this process. Where it was stored meanwhile it is counted already.
                    if not self._drop(id, item):
                        self._counted += 1
                    item.kept()

    def refuse(self, before: float, reason: str) -> None:
        """Give up spans that have waited since before then, and are not being written just now."""
        with self._line.lock:
            late = [item for item in self._spans if item.since < before and id(item) not in self._busy]
            for item in late:
                self._spans.remove(item)
        for item in late:
            self._line.release(item)
            item.lost(reason)

    # -- for who writes

    def first_spans(self, rows: int) -> Sequence[Waiting]:
        """Batches of spans, about so many rows; they are not refused until `drop_spans`, or the next call."""
        found, count = [], 0
        with self._line.lock:
            for item in self._spans:
                found.append(item)
                if (count := count + len(item.rows)) >= rows:
                    break
            self._busy = frozenset(map(id, found))
        return found

    def drop_spans(self, batches: Sequence[Waiting]) -> None:
        """They are stored."""
        with self._line.lock:
            for item in batches:
                self._spans.popleft()
                self._line.release(item)
            self._busy = frozenset()

    def free_spans(self) -> None:
        """They could not be stored, and may be given up."""
        with self._line.lock:
            self._busy = frozenset()

    def first_traces(self, most: int, *, skip: int = 0) -> Next:
        """The oldest traces, those on the disk before those in memory; they stay until `drop_traces`.

        Args:
            skip: How many to pass over, where there are more.
        """
        with self._moving:
            if self._spill.records:
                part = self._spill.first(most + skip)
                passed = min(skip, max(0, len(part.found) - 1))
                return Next(traces=part.found[passed:], part=part, passed=passed)
            with self._line.lock:
                items = self._ready.first(most + skip)
        passed = min(skip, max(0, len(items) - 1))
        return Next(traces=[item.trace for _, item in items[passed:]], items=items, passed=passed)

    def drop_traces(self, taken: Next, refused: Collection[str] = ()) -> int:
        """They are stored, but those whose ids are `refused`; how many things that were handed over are in them."""
        if taken.part is not None:
            with self._moving:
                self._spill.forget(taken.part)
                counted, self._counted = self._counted, 0
            with self._line.lock:
                self._line.dropped += taken.passed + len(refused)
                self._line.left.notify_all()
            return len(taken.traces) - len(refused) - counted
        stored = 0
        for number, (id, item) in enumerate(taken.items):
            lost = number < taken.passed or id in refused
            # What went to the disk meanwhile is counted when it comes from there.
            if self._drop(id, item, dropped=item.things if lost else 0):
                if lost:
                    item.lost("the store does not take this trace")
                else:
                    stored += item.things
                    item.kept()
        return stored

    def close(self) -> None:
        """Spill what is left, and refuse the spans."""
        self.overflow(everything=True)
        self.refuse(float("inf"), "the intake was closed before these spans could be stored; send them again")
        with self._moving:
            self._spill.close()
        for item in self._ready.items.values():
            item.lost("the intake was closed before this could be kept")
        if lost := sum(item.things for item in self._ready.items.values()):
            log.warning("%d things that were recorded are lost: neither the store nor the spill file took them", lost)
            with self._line.lock:
                self._line.dropped += lost

    @property
    def _crowded(self) -> bool:
        return len(self._ready.items) > self._limits.things // _SHARE

    def _traces(self, what: Exchange | Trace | None) -> Sequence[Trace]:
        if isinstance(what, Exchange):
            return self._cleaner.exchange(what)
        return [] if what is None else [self._cleaner.trace(what)]

    def _replace(self, item: Waiting, traces: Sequence[Trace]) -> None:
        with self._line.lock:
            for trace in traces:
                new = Waiting(what=trace, weight=weight(trace), things=0)
                self._line.bytes += new.weight
                new.things, item.things = item.things, 0
                new.told, item.told = item.told, []
                if (older := self._ready.put(trace.id, new)) is not None:
                    new.things += older.things
                    new.told += older.told
                    older.things, older.told = 0, []
                    self._line.release(older)
            self._line.release(item)
        # What makes no trace leaves nothing to wait for.
        item.kept()

    def _drop(self, id: str, item: Waiting, *, dropped: int = 0) -> bool:
        """Whether it was still there."""
        with self._line.lock:
            if found := self._ready.drop(id, item):
                self._line.release(item, dropped=dropped)
        return found
