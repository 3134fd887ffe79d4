"""The way into the store that nobody waits for.

Two threads: one prepares what was handed over (reads exchanges, takes out secrets), the other alone talks with the store. So a
store that hangs keeps nobody from preparing, and what there is no room for in memory goes into the spill file.

    submit, add ─▶ line ──prepare──▶ ready ──────────▶ store
                                       └──▶ spill ──▶
    spans ──────▶ line ──prepare──▶ spans ───────────▶ store ─assemble─▶ traces
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path

from journeyman.core.errors import JourneymanError, StoreError, Unkeepable
from journeyman.core.trace import Trace
from journeyman.serving.ingest.base import Health, RecordCleaner
from journeyman.serving.ingest.queues import BoundedQueue, Pipe, QueueLimits, Waiting, weight
from journeyman.stores.traces.base import SpanRow, TraceStore
from journeyman.tracing.wire.dialects import Exchange

# Raw spans become traces: what came, by trace, is read again whole, and the trace replaced.

log = logging.getLogger(__name__)

ReadSpans = Callable[[Sequence[SpanRow]], Sequence[Trace]]
"""Makes traces of all spans of some traces."""

LEAST_PAUSE = 0.3
"""Seconds between two turns, so that a trace whose spans trickle in is not read again for each of them."""
MOST_TRACES = 100
"""Of one turn."""
TOGETHER = 10
"""Traces whose spans are in memory at once."""
LONGEST, HURRIED = 0.2, 0.05
"""Seconds after which a turn begins nothing new, as what comes in waits meanwhile; and where somebody waits for it."""


class SpanAssembler:
    """One turn after the other, each bounded. For one thread."""

    def __init__(self, read: ReadSpans, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self.due: float | None = clock()
        """When the next turn is wanted; `None` when nothing waits. The first looks for what others have left."""
        self.failures = 0
        """Traces whose spans could not be read."""

    def wanted(self) -> None:
        """Spans have come."""
        if self.due is None:
            self.due = self._clock() + LEAST_PAUSE

    def turn(self, store: TraceStore, interrupted: Callable[[], bool] = lambda: False) -> int:
        """Make traces of what has waited longest; how many. While `interrupted`, fewer: who waits goes first, as a rule.

        Raises:
            StoreError: The store refuses; what it did not take stays pending.
        """
        began = self._clock()
        ids = store.pending(MOST_TRACES)
        if not ids:
            self.due = None
            return 0
        made = done = 0
        while done < len(ids) and self._clock() - began < (HURRIED if interrupted() else LONGEST):
            made += self._settle(store, ids[done : done + TOGETHER])
            done += TOGETHER
        now = self._clock()
        self.due = now if done < len(ids) or len(ids) == MOST_TRACES else now + max(LEAST_PAUSE, now - began)
        return made

    def _settle(self, store: TraceStore, ids: Sequence[str]) -> int:
        spans = store.spans(ids)
        traces = self._traces(spans)
        counts = {id: len(spans.get(id, ())) for id in ids}
        try:
            store.settle(counts, traces)
        except StoreError as error:
            if len(ids) > 1:
                return sum(self._settle(store, [id]) for id in ids)
            # A store that takes nothing refuses this as well; one that refuses the trace alone is not asked for it again.
            store.settle(counts, ())
            self._given_up(ids[0], error)
            return 0
        return len(traces)

    def _traces(self, spans: Mapping[str, Sequence[SpanRow]]) -> Sequence[Trace]:
        try:
            return self._read([row for rows in spans.values() for row in rows])
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - one trace that nobody can read must not hold up the others
            return [trace for id, rows in spans.items() for trace in self._alone(id, rows)]

    def _alone(self, id: str, rows: Sequence[SpanRow]) -> Sequence[Trace]:
        try:
            return self._read(rows)
        except Exception as error:  # noqa: BLE001 - its spans are kept, and can be read anew by a later version
            self._given_up(id, error)
            return ()

    def _given_up(self, id: str, error: Exception) -> None:
        self.failures += 1
        # The type alone: a message may quote what was said.
        log.warning("no trace can be made of the spans of %s: %s", id, type(error).__name__)


# Two threads of one interpreter that work at the same time are slower than one after the other: let them take turns.

PATIENCE = 0.1
"""Seconds after which who waits goes on out of turn: the other may hang, in a store that does."""
_GROUP = 256
"""Things, or spans, of one turn."""
_STEP = 0.0005
"""Seconds between two turns, in which the other takes its own."""


class TurnTaking:
    """For two threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def mine(self) -> Iterator[None]:
        """Work that is done while the other waits, as a rule."""
        got = self._lock.acquire(timeout=PATIENCE)
        try:
            yield
        finally:
            if got:
                self._lock.release()

    def groups(self, items: Sequence[Waiting]) -> Iterator[Sequence[Waiting]]:
        """What was handed over, in parts that take a few hundredths of a second, each in a turn of its own."""
        group: list[Waiting] = []
        size = 0
        for item in items:
            group.append(item)
            size += max(1, len(item.rows))
            if size >= _GROUP:
                with self.mine():
                    yield group
                group, size = [], 0
                time.sleep(_STEP)
        if group:
            with self.mine():
                yield group


DEFAULT = QueueLimits()
FULL = "there is no room for more spans in memory until the store has caught up; send them again later"
_ROWS = 4000
"""Spans that are written together."""
_LATE = 0.5
"""Seconds for which traces are not made of spans while something waits to be written."""
_TRIES = 3
"""Refusals of the same trace, after which the one behind it is tried."""
_BREATH = 0.003
"""Seconds between two groups."""
_SLOW = 1.0
"""Seconds after which a store is slow."""
_DELAY = 0.1
_LONGEST_DELAY = 5.0
"""Seconds between two tries: doubled from the first to the longest, and spread at random."""


class StoreIntake:
    """Keeps what is handed over, in a store that may be slow or gone. Keeps the promises of `Intake`.

    Use one for a process, and close it: what is only in memory is lost with the process.
    """

    def __init__(
        self,
        open_store: Callable[[], TraceStore],
        *,
        cleaner: RecordCleaner,
        read_spans: ReadSpans | None = None,
        spill: Path,
        limits: QueueLimits = DEFAULT,
    ) -> None:
        """Starts at once. What earlier processes spilled, and the spans that they left unread, are seen to first.

        Args:
            open_store: Called in the writing thread, and again until it succeeds.
            cleaner: What happens to everything before it is kept.
            read_spans: Makes traces of spans; without it they are only kept.
            spill: The folder of the spill files. Several processes may share it.
        """
        self._line = BoundedQueue(limits)
        self._turns = TurnTaking()
        self._pipe = Pipe(self._line, cleaner, spill, limits)
        self._writer = _StoreThread(
            open_store, self._pipe, self._line, _span_assembler(read_spans, cleaner), limits, self._turns
        )
        self._limits = limits
        self._trouble: str | None = None
        self._threads = [
            threading.Thread(target=self._prepare, name="journeyman-intake", daemon=True),
            threading.Thread(target=self._writer.run, name="journeyman-store", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, exchange: Exchange) -> None:
        """Take an exchange. Never blocks, never raises."""
        size = 1000 + len(exchange.request) + len(exchange.response)
        self._put(Waiting(what=exchange, weight=size))

    def keep(self, exchange: Exchange) -> "Future[None]":
        """Take an exchange. The future is done when it is on disk, in the store or in the spill file."""
        done: Future[None] = Future()
        size = 1000 + len(exchange.request) + len(exchange.response)
        if not self._put(Waiting(what=exchange, weight=size, told=[done])):
            done.set_exception(StoreError("there is no room in memory until the store has caught up"))
        return done

    def add(self, trace: Trace) -> None:
        """Take a trace that is ready, in the same way."""
        self._put(Waiting(what=trace, weight=weight(trace)))

    def spans(self, spans: Sequence[SpanRow]) -> "Future[None]":
        """Take raw spans. The future is done when they are on disk, and fails with `StoreError` when they cannot be."""
        done: Future[None] = Future()
        size = 200 + sum(500 + len(row.body) + len(row.packed) for row in spans)
        if not self._line.put(Waiting(rows=tuple(spans), weight=size, told=[done])):
            done.set_exception(StoreError(FULL))
        return done

    def flush(self, timeout: float) -> bool:
        """Wait until nothing is left to do; whether that came in time."""
        deadline = time.monotonic() + timeout
        self._line.hurry()
        with self._line.lock:
            while not self._idle():
                if (left := deadline - time.monotonic()) <= 0:
                    return False
                # No longer than a moment: the assembler's end is told to nobody.
                self._line.left.wait(min(left, 0.1))
        return True

    def health(self) -> Health:
        with self._line.lock:
            return Health(
                waiting=self._line.things,
                spilled=self._pipe.spilled,
                stored=self._writer.stored,
                dropped=self._line.dropped,
                retries=self._writer.retries,
                error=self._writer.error or self._trouble,
            )

    def close(self, timeout: float = 10.0) -> None:
        """Write what can be written in that time, spill the rest, and stop."""
        deadline = time.monotonic() + timeout
        with self._line.lock:
            self._line.closed = True
            self._line.arrived.notify_all()
        self._threads[0].join(timeout)
        while self._writer.error is None and not self.flush(min(0.1, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                break
        self._writer.stop()
        self._threads[1].join(max(0.1, deadline - time.monotonic()))
        self._pipe.close()

    def _put(self, item: Waiting) -> bool:
        if self._line.put(item):
            return True
        with self._line.lock:
            self._line.dropped += 1
            first = self._line.dropped == 1
        if first:
            log.warning("the store does not keep up, and there is no more room: some of what is watched is not kept")
        return False

    def _idle(self) -> bool:
        return self._writer.recovered and self._line.things == 0 and self._pipe.spilled == 0 and self._writer.quiet

    def _prepare(self) -> None:
        while True:
            taken = self._line.take(1.0)
            for group in self._turns.groups(taken):
                for item in group:
                    self._pipe.prepare(item)
                self._writer.wake()
            self._make_room()
            if self._line.closed and not taken:
                return

    def _make_room(self) -> None:
        try:
            self._pipe.overflow(everything=self._writer.stuck)
            self._pipe.refuse(time.monotonic() - self._limits.patience, FULL)
        except Exception as error:  # noqa: BLE001 - without this thread nothing is recorded any more, and nobody would know
            self._trouble = f"what waits could not be put aside: {type(error).__name__}: {error}"
            log.warning(self._trouble)
        else:
            self._trouble = None


def _span_assembler(read: ReadSpans | None, cleaner: RecordCleaner) -> SpanAssembler | None:
    if read is None:
        return None
    # Cleaned once more: what was in pieces in the spans stands together in the trace.
    return SpanAssembler(lambda rows: [cleaner.made_anew(trace) for trace in read(rows)])


class _StoreThread:
    """The thread that talks with the store."""

    def __init__(
        self,
        open_store: Callable[[], TraceStore],
        pipe: Pipe,
        line: BoundedQueue,
        assembler: SpanAssembler | None,
        limits: QueueLimits,
        turns: TurnTaking,
    ) -> None:
        self._open_store = open_store
        self._pipe = pipe
        self._line = line
        self._assembler = assembler
        self._limits = limits
        self._turns = turns
        self._work = threading.Condition(line.lock)
        self._stopped = False
        self._store: TraceStore | None = None
        self._failures = 0
        self._since: float | None = None
        self.recovered = False
        """Whether what others left in their spill files is known: before, nothing can be said to be done."""
        self.stored = 0
        self.retries = 0
        self.error: str | None = None

    @property
    def quiet(self) -> bool:
        """Nothing is left to be made of spans."""
        return self._assembler is None or self._assembler.due is None

    @property
    def stuck(self) -> bool:
        """The store refuses, or takes so long that what waits is better kept on the disk."""
        since = self._since
        return self.error is not None or (since is not None and time.monotonic() - since > _SLOW)

    def wake(self) -> None:
        with self._work:
            self._work.notify()

    def stop(self) -> None:
        with self._work:
            self._stopped = True
            self._work.notify()

    def run(self) -> None:
        self._pipe.recover()
        self.recovered = True
        while not self._stopped:
            self._since = time.monotonic()
            try:
                self._turn()
            except JourneymanError as error:
                self._refused(str(error))
            except Exception as error:  # noqa: BLE001 - a fault of ours in one trace must not end the recording of all others
                # The type alone: a message may quote what was said.
                self._refused(f"the store failed in an unexpected way ({type(error).__name__})")
            else:
                self._accepted()
            self._since = None
            self._rest()
        if self._store is not None:
            with suppress(StoreError):
                self._store.close()

    def _turn(self) -> None:
        if self._store is None:
            self._store = self._open_store()
        with self._turns.mine():
            self._write_spans(self._store)
            self._write_traces(self._store)
        assembler = self._assembler
        if assembler is None or assembler.due is None or self._stopped:
            return
        late = time.monotonic() - assembler.due
        if late >= (_LATE if self._pipe.work else 0):
            assembler.turn(self._store, lambda: self._pipe.urgent)

    def _write_spans(self, store: TraceStore) -> None:
        batches = self._pipe.first_spans(_ROWS)
        if not batches:
            return
        rows = [row for batch in batches for row in batch.rows]
        store.add_spans(rows)
        self.stored += len(rows)
        if self._assembler is not None:
            self._assembler.wanted()
        self._pipe.drop_spans(batches)
        for batch in batches:
            batch.kept()

    def _write_traces(self, store: TraceStore) -> None:
        # After a refusal one at a time, then the one behind it: it may be that a single trace is what the store does not take.
        part = self._pipe.first_traces(1 if self._failures else self._limits.batch, skip=int(self._failures > _TRIES))
        refused = _add(store, part.traces)
        if part.traces or part.part is not None:
            self.stored += self._pipe.drop_traces(part, refused)

    def _accepted(self) -> None:
        if self._failures:
            log.warning("the store takes traces again")
        self._failures = 0
        self.error = None

    def _refused(self, said: str) -> None:
        if not self._failures:
            log.warning("the store refuses, and is asked again: %s", said)
        self._failures += 1
        self.retries += 1
        self.error = said
        self._pipe.free_spans()
        # So that what is in memory goes to the disk now.
        self._line.hurry()

    def _rest(self) -> None:
        with self._work:
            if self._failures:
                delay = min(_LONGEST_DELAY, _DELAY * 2 ** min(self._failures, 10)) * random.uniform(0.5, 1.5)
                self._work.wait_for(lambda: self._stopped, delay)
                return
            self._line.left.notify_all()
            if self._stopped:
                return
            if self._pipe.work:
                # Another process that waits for its turn must find the store free for a moment.
                self._work.wait_for(lambda: self._stopped, _BREATH)
                return
            due = self._assembler.due if self._assembler is not None else None
            self._work.wait(None if due is None else max(0.0, due - time.monotonic()))


def _add(store: TraceStore, traces: Sequence[Trace]) -> Collection[str]:
    """Store what can be kept; the ids of what cannot."""
    if not traces:
        return ()
    try:
        store.add(traces)
    except Unkeepable as error:
        if len(traces) > 1:
            return [id for trace in traces for id in _add(store, [trace])]
        log.warning("trace %r is left out: %s", traces[0].id, error)
        return [traces[0].id]
    return ()
