"""What waits on its way into the store: bounded in number and bytes, in the order it came."""

import fcntl
import json
import logging
import os
import struct
import threading
import time
import zlib
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator, Sequence
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

# Where traces wait while the store cannot take them: a file of this process, first in, first out.
#
# Each record is its length and checksum, and a trace as compressed JSON. A record that was torn by a crash, and whatever stands
# behind it, is left out. A process holds a lock on its file while it lives, so a file without one was left behind, and whoever
# starts next goes on with it.

log = logging.getLogger(__name__)

ENDING = ".spill"
_HEAD = struct.Struct("<II")
_LARGEST = 1 << 30
"""Bytes of a record; a length beyond it is a torn or foreign file."""


@dataclass(frozen=True, slots=True)
class SpilledTraces:
    """The first traces of a queue."""

    traces: tuple[Trace, ...]
    records: int
    """How many records they were; more than there are traces where some could not be read."""
    end: int
    """The position behind them."""


class Spill:
    """A queue of traces on the disk, bounded in bytes. Not for several threads at once.

    A record is with the operating system when `append` returns: it outlives the process, though not a loss of power.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        """Nothing is touched before the first `append`.

        Args:
            folder: Where the file stands; made when it is needed.
            limit: Bytes that may wait.
        """
        self._folder = folder
        self._limit = limit
        self._file: int | None = None
        self._path: Path | None = None
        self._head = 0
        self._tail = 0
        self.records = 0
        """How many wait."""

    def append(self, trace: Trace) -> bool:
        """Put a trace last; whether it found room. A disk that refuses has none.

        Raises:
            Unkeepable: It holds what cannot be written as JSON.
        """
        record = pack(trace)
        if self._tail - self._head + len(record) > self._limit:
            return False
        try:
            self._write(record)
        except OSError as error:
            log.warning("a trace could not be spilled into %s: %s", self._folder, error.strerror)
            return False
        self.records += 1
        return True

    def first(self, most: int) -> SpilledTraces:
        """What has waited longest, at most so many. It goes on waiting until `forget`."""
        if self._file is None or not self.records:
            return SpilledTraces((), 0, self._head)
        parts = list(islice(read(self._file, self._head), most))
        traces = tuple(trace for trace, _ in parts if trace is not None)
        if parts:
            return SpilledTraces(traces, len(parts), parts[-1][1])
        # Something else has written into the file: what cannot be read does not come back by waiting.
        log.warning("%d traces in %s cannot be read any more", self.records, self._path)
        return SpilledTraces((), self.records, self._tail)

    def forget(self, part: SpilledTraces) -> None:
        """Take away what `first` gave."""
        self._head = part.end
        self.records = max(0, self.records - part.records)
        if not self.records:
            self._cut(0)

    def recover(self) -> int:
        """Take over what processes that are gone have left; how many traces. Call it before the first `append`."""
        count = 0
        for path in sorted(self._folder.glob(f"*{ENDING}")):
            if (file := _lock(path)) is not None:
                try:
                    count += self._take(file, path)
                finally:
                    os.close(file)
        return count

    def close(self) -> None:
        """Let go of the file. It stays when traces wait in it."""
        if self._file is None or self._path is None:
            return
        if not self.records:
            self._path.unlink(missing_ok=True)
        os.close(self._file)
        self._file = None

    def _take(self, file: int, path: Path) -> int:
        tail, records = self._tail, self.records
        try:
            for trace, _ in read(file, 0):
                if trace is not None:
                    self._write(pack(trace))
                    self.records += 1
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("what %s holds cannot be taken over: %s", path, error.strerror)
            self.records = records
            self._cut(tail)
        return self.records - records

    def _write(self, record: bytes) -> None:
        file = self._open()
        if (written := os.pwrite(file, record, self._tail)) < len(record):
            # A disk that is nearly full takes a part, and then refuses.
            os.pwrite(file, record[written:], self._tail + written)
        self._tail += len(record)

    def _open(self) -> int:
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            name = self._folder / f"{time.time_ns()}-{os.getpid()}"
            file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            # Only what is locked has the ending, so that nobody takes it for left behind.
            self._path = name.rename(name.with_suffix(ENDING))
            self._file = file
        return self._file

    def _cut(self, tail: int) -> None:
        self._head, self._tail = min(self._head, tail), tail
        if self._file is not None:
            with suppress(OSError):
                os.ftruncate(self._file, tail)


@cache
def _traces() -> "TypeAdapter[Trace]":
    # Only what is spilled pays for pydantic.
    from pydantic import TypeAdapter

    return TypeAdapter(Trace)


def pack(trace: Trace) -> bytes:
    """A trace as a record."""
    # Not `dump_json`: it refuses a lone surrogate, which an agent's text may well hold.
    try:
        text = json.dumps(_traces().dump_python(trace, mode="json", fallback=str))
    except (TypeError, ValueError, RecursionError) as error:
        raise Unkeepable(f"the trace {trace.id!r} cannot be written as JSON: {error}") from error
    body = zlib.compress(text.encode(), 1)
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def read(file: int, start: int) -> Iterator[tuple[Trace | None, int]]:
    """The whole records from a position on, each with the position behind it; `None` for one that is whole, but of another
    version of the program. Ends where one is torn."""
    at = start
    while len(head := os.pread(file, _HEAD.size, at)) == _HEAD.size:
        length, checksum = _HEAD.unpack(head)
        body = os.pread(file, length, at + _HEAD.size) if 0 < length <= _LARGEST else b""
        if len(body) < length or not body or zlib.crc32(body) != checksum:
            return
        at += _HEAD.size + length
        yield _parse(body), at


def _parse(body: bytes) -> Trace | None:
    try:
        return _traces().validate_python(json.loads(zlib.decompress(body)))
    except (ValueError, zlib.error):
        log.warning("a spilled trace cannot be read, and is left out")
        return None


def _lock(path: Path) -> int | None:
    """The file, locked; `None` when its process lives, or when somebody else has just taken it over."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(file).st_ino:
            return file
    except OSError:
        pass
    os.close(file)
    return None


_SHARE = 4
"""A quarter of the memory may be full of prepared traces; what is more goes to the disk, before the store has refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """Traces to be written."""

    traces: Sequence[Trace]
    items: Sequence[tuple[str, Waiting]] = ()
    """Where they wait, in memory."""
    part: SpilledTraces | None = None
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
                    # With the operating system: it outlives this process.
                    self._drop(id, item)
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
