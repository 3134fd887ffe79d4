"""What is prepared and waits for the store: traces in memory and behind them on the disk, spans in memory alone."""

import logging
import threading
from collections import deque
from collections.abc import Collection, Sequence
from concurrent.futures import InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from journeyman.capture.exchanges.base import Exchange
from journeyman.errors import StoreError, Unkeepable
from journeyman.intake.clean import Cleaner
from journeyman.intake.queues import Limits, Line, Ready, Waiting, weight
from journeyman.intake.spill import Part, Spill
from journeyman.trace import Trace

log = logging.getLogger(__name__)

_SHARE = 4
"""A quarter of the memory may be full of prepared traces; what is more goes to the disk, before the store has refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """Traces to be written."""

    traces: Sequence[Trace]
    items: Sequence[tuple[str, Waiting]] = ()
    """Where they wait, in memory."""
    part: Part | None = None
    """Or where they wait, in the spill file."""
    passed: int = 0
    """How many stand before them, and are given up when these are taken."""


class Pipe:
    """Between two threads: one prepares, the other takes. What was handed over first is given first."""

    def __init__(self, line: Line, cleaner: Cleaner, folder: Path, limits: Limits) -> None:
        self._line = line
        self._cleaner = cleaner
        self._limits = limits
        self._ready = Ready()
        self._spans: deque[Waiting] = deque()
        self._busy: frozenset[int] = frozenset()
        self._spill = Spill(folder, limits.spill_bytes)
        # While it is held nothing goes from memory to the disk, so that the order holds. Who hands over never waits for it.
        self._moving = threading.Lock()

    @property
    def spilled(self) -> int:
        return self._spill.records

    @property
    def work(self) -> bool:
        """Whether something can be written."""
        return bool(self._spans or self._ready.items or self._spill.records)

    @property
    def urgent(self) -> bool:
        """Whether somebody waits to hear that something was written."""
        return bool(self._spans)

    def adopt(self) -> None:
        """Go on with what other processes have spilled, and did not live to write."""
        with self._moving:
            if count := self._spill.adopt():
                log.info("%d traces that were spilled before are written now", count)

    # -- for who prepares

    def prepare(self, item: Waiting) -> None:
        try:
            if item.done is not None:
                item.rows = tuple(map(self._cleaner.span, item.rows))
                with self._line.lock:
                    self._spans.append(item)
                return
            traces = self._traces(item.what)
        except Exception as error:  # noqa: BLE001 - what cannot be read must not end the recording of all others
            # The type alone: a message may quote what was said.
            log.warning("something that was recorded cannot be read: %s", type(error).__name__, exc_info=False)
            self._line.release(item, dropped=item.things)
            if item.done is not None:
                item.done.set_exception(StoreError("these spans cannot be read"))
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
                else:
                    self._drop(id, item)

    def refuse(self, before: float, reason: str) -> None:
        """Give up spans that have waited since before then, and are not being written just now."""
        with self._line.lock:
            late = [item for item in self._spans if item.since < before and id(item) not in self._busy]
            for item in late:
                self._spans.remove(item)
        for item in late:
            self._line.release(item)
            _fail(item, reason)

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
                passed = min(skip, max(0, len(part.traces) - 1))
                return Next(traces=part.traces[passed:], part=part, passed=passed)
            with self._line.lock:
                items = self._ready.first(most + skip)
        passed = min(skip, max(0, len(items) - 1))
        return Next(traces=[item.trace for _, item in items[passed:]], items=items, passed=passed)

    def drop_traces(self, taken: Next, refused: Collection[str] = ()) -> int:
        """They are stored, but those whose ids are `refused`; how many things that were handed over are in them."""
        if taken.part is not None:
            with self._moving:
                self._spill.forget(taken.part)
            with self._line.lock:
                self._line.dropped += taken.passed + len(refused)
                self._line.left.notify_all()
            return len(taken.traces) - len(refused)
        stored = 0
        for number, (id, item) in enumerate(taken.items):
            lost = number < taken.passed or id in refused
            # What went to the disk meanwhile is counted when it comes from there.
            if self._drop(id, item, dropped=item.things if lost else 0) and not lost:
                stored += item.things
        return stored

    def close(self) -> None:
        """Spill what is left, and refuse the spans."""
        self.overflow(everything=True)
        self.refuse(float("inf"), "the intake was closed before these spans could be stored; send them again")
        with self._moving:
            self._spill.close()
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
                if (older := self._ready.put(trace.id, new)) is not None:
                    new.things += older.things
                    older.things = 0
                    self._line.release(older)
            self._line.release(item)

    def _drop(self, id: str, item: Waiting, *, dropped: int = 0) -> bool:
        """Whether it was still there."""
        with self._line.lock:
            if found := self._ready.drop(id, item):
                self._line.release(item, dropped=dropped)
        return found


def _fail(item: Waiting, reason: str) -> None:
    if item.done is not None:
        with suppress(InvalidStateError):
            item.done.set_exception(StoreError(reason))
