"""What waits on its way into the store: bounded in number and bytes, in the order it came."""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice

from journeyman.core.trace import ModelCall, Trace
from journeyman.stores.traces.base import SpanRow
from journeyman.tracing.wire.base import Exchange


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
    done: "Future[None] | None" = None
    """Told when the spans are stored."""

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
        self.things = 0
        self.bytes = 0
        """Held in memory, from here to the store."""
        self.dropped = 0
        self.closed = False
        self._hurry = False
        self._limits = limits

    def put(self, item: Waiting, *, hurry: bool = False) -> bool:
        """Whether there was room."""
        with self.lock:
            full = self.things + item.things > self._limits.things or self.bytes + item.weight > self._limits.bytes
            if self.closed or full:
                return False
            self.items.append(item)
            self.things += item.things
            self.bytes += item.weight
            # Who waits is woken once for a group, not once for each: waking costs more than putting.
            if len(self.items) == 1 or (hurry and not self._hurry):
                self._hurry = self._hurry or hurry
                self.arrived.notify()
        return True

    def hurry(self) -> None:
        """Let nobody wait for more."""
        with self.lock:
            self._hurry = True
            self.arrived.notify()

    def take(self, timeout: float) -> Sequence[Waiting]:
        """All that is there, after a moment in which more may come; nothing after `timeout` seconds."""
        with self.lock:
            self.arrived.wait_for(lambda: self.items or self._hurry or self.closed, timeout)
            if self.items:
                self.arrived.wait_for(lambda: self._hurry or self.closed, self._limits.linger)
            self._hurry = False
            taken, self.items = self.items, deque()
            return taken

    def weigh(self, item: Waiting, weight: int) -> None:
        """It has become lighter or heavier."""
        with self.lock:
            self.bytes += weight - item.weight
        item.weight = weight

    def release(self, item: Waiting, *, dropped: int = 0) -> None:
        """It is not in memory any more."""
        with self.lock:
            self.things -= item.things
            self.bytes -= item.weight
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
