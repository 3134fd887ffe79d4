"""The wiring of what is watched: from what passes and what is reported, through redaction, into the store.

intake = open_apart(store_url, spill, settings)      # in a process of its own, for a server
intake = open_intake(store_url, spill, settings)     # in threads of this one
"""

import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from journeyman.core.errors import JourneymanError, StoreError
from journeyman.core.messages import Usage
from journeyman.core.trace import Trace
from journeyman.experiments import settings
from journeyman.experiments.settings import RecordSettings
from journeyman.io.processes import spare_memory
from journeyman.serving.ingest.base import Health, RecordCleaner
from journeyman.serving.ingest.queues import QueueLimits
from journeyman.serving.ingest.writer import StoreIntake
from journeyman.stores import make_ready
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Query, SpanRow, TraceStore
from journeyman.tracing.redaction import Redactor
from journeyman.tracing.wire.assembler import ConversationAssembler
from journeyman.tracing.wire.dialects import Exchange

if TYPE_CHECKING:
    from journeyman.serving.watching import MonitorConfig

# A way into the store in a process of its own.
#
# What is recorded costs more work than what is passed on, and two threads of one interpreter stand in each other's way. So the
# server only hands over, over a socket pair, and another process reads, cleans and stores.

log = logging.getLogger(__name__)

_THINGS, _BYTES = 20_000, 64 << 20
"""What may wait here for the other process, which has its own room and its spill file."""
_TOGETHER, _PIECE = 256, 1 << 20
"""Things, and about how many bytes, that go over in one message."""
_LINGER = 0.05
"""Seconds for which exchanges wait for each other: a batch costs little more than one."""
_PAUSE = 1.0
"""Seconds before the process is started again."""
_LEAVING = 1.0
"""Seconds that a monitor beside it has to end."""
_NOTHING = Health(waiting=0, spilled=0, stored=0, dropped=0, retries=0, error=None)
_COUNTED = ("submit", "add", "keep")
"""What is recorded: it is lost where it finds no room, and counted."""
_URGENT = ("spans", "keep")
ENDED = "the process that records has ended, and is started again"


class SubprocessIntake:
    """Keeps the promises of `Intake` by handing everything to a process that keeps them."""

    def __init__(self, command: Sequence[str], settings: Any) -> None:
        """Starts at once.

        Args:
            command: Starts the process; the number of a file descriptor is added, which `run` is given there.
            settings: Sent to it first. What it is made of stands on no command line.
        """
        self._command = tuple(command)
        self._settings = settings
        self._changed = threading.Condition()
        self._waiting: deque[tuple[tuple[Any, ...], int]] = deque()
        self._urgent: deque[tuple[tuple[Any, ...], int]] = deque()
        """What somebody waits for: it does not stand behind what nobody does."""
        self._bytes = 0
        self._asked: dict[int, Future[Any]] = {}
        self._numbers = count()
        self._hurry = self._closing = False
        self._dropped = 0
        self._sent = 0
        self._before = _NOTHING
        """What processes before this one have done."""
        self._said = _NOTHING
        self._error: str | None = None
        self._start()
        self._sender = threading.Thread(target=self._send, name="journeyman-handover", daemon=True)
        self._sender.start()

    def submit(self, exchange: Exchange) -> None:
        """Take an exchange. Never blocks, never raises."""
        self._put(("submit", exchange), 1000 + len(exchange.request) + len(exchange.response))

    def keep(self, exchange: Exchange) -> "Future[None]":
        """Take an exchange. The future is done when it is on disk, in the store or in the spill file."""
        return self._ask("keep", exchange, 1000 + len(exchange.request) + len(exchange.response))

    def add(self, trace: Trace) -> None:
        """Take a trace that is ready, in the same way."""
        self._put(("add", trace), 1000 * (1 + len(trace.steps)))

    def spans(self, spans: Sequence[SpanRow]) -> "Future[None]":
        """Take raw spans. The future is done when they are on disk, and fails with `StoreError` when they cannot be."""
        # As plain tuples: each object of a class takes as long to be handed over as its bytes.
        return self._ask("spans", tuple(map(tuple, spans)), sum(500 + len(row.body) + len(row.packed) for row in spans))

    def flush(self, timeout: float) -> bool:
        """Wait until all that was handed over before is in the store; whether that came in time."""
        try:
            return bool(self._ask("flush", timeout, 0).result(timeout + 1))
        except (StoreError, TimeoutError):
            return False

    def health(self) -> Health:
        with self._changed:
            said, before = self._said, self._before
            under_way = max(0, self._sent - said.stored - said.spilled - said.dropped)
            return Health(
                waiting=len(self._waiting) + len(self._urgent) + under_way,
                spilled=said.spilled,
                stored=before.stored + said.stored,
                dropped=self._dropped + before.dropped + said.dropped,
                retries=before.retries + said.retries,
                error=self._error or said.error,
            )

    def close(self, timeout: float = 10.0) -> None:
        """Write what can be written in that time, spill the rest, and stop."""
        with self._changed:
            self._closing = True
            self._waiting.append((("close", timeout), 0))
            self._changed.notify_all()
        self._sender.join(timeout)
        try:
            self._process.wait(timeout + 2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
        self._ear.join(5)
        self._socket.close()

    def _ask(self, what: str, value: Any, weight: int) -> "Future[Any]":
        answer: Future[Any] = Future()
        number = next(self._numbers)
        with self._changed:
            self._asked[number] = answer
            self._hurry = True
        if not self._put((what, number, value), weight):
            with self._changed:
                self._asked.pop(number, None)
            answer.set_exception(StoreError("too much waits for the store: send it again in a while"))
        return answer

    def _put(self, what: tuple[Any, ...], weight: int) -> bool:
        with self._changed:
            if self._closing or len(self._waiting) + len(self._urgent) >= _THINGS or self._bytes + weight > _BYTES:
                self._dropped += what[0] in _COUNTED
                return False
            (self._urgent if what[0] in _URGENT else self._waiting).append((what, weight))
            self._bytes += weight
            if len(self._waiting) == 1 or self._hurry:
                self._changed.notify()
        return True

    # -- to the other process, and from it

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            number = theirs.fileno()
            # Its own group: Ctrl-C is for the server, which tells it when to end.
            self._process = subprocess.Popen(
                [*self._command, str(number)], pass_fds=(number,), stdin=subprocess.DEVNULL, process_group=0
            )
            self._socket = Connection(ours.detach())
        self._socket.send(self._settings)
        self._ear = threading.Thread(target=self._listen, args=(self._socket,), name="journeyman-heard", daemon=True)
        self._ear.start()

    def _send(self) -> None:
        while not self._over():
            batch = self._next_batch()
            try:
                self._socket.send([what for what, _ in batch])
            except OSError:
                self._lost(batch)
                if not self._started_again():
                    return

    def _started_again(self) -> bool:
        """Whether there is a process again: `False` only when this intake is closed first."""
        while not self._closing:
            time.sleep(_PAUSE)
            try:
                self._start()
            except OSError as error:
                # No memory or no process is left, which may pass; what comes in waits meanwhile.
                log.warning("the process that records cannot be started: %s", error.strerror or error)
            else:
                return True
        return False

    def _over(self) -> bool:
        return self._closing and not self._waiting and not self._urgent

    def _next_batch(self) -> list[tuple[tuple[Any, ...], int]]:
        with self._changed:
            while not self._waiting and not self._urgent:
                self._changed.wait()
            hurry = self._hurry or self._closing
        if not hurry:
            time.sleep(_LINGER)
        with self._changed:
            batch: list[tuple[tuple[Any, ...], int]] = []
            size = 0
            while (first := self._urgent or self._waiting) and len(batch) < _TOGETHER and size < _PIECE:
                batch.append(first.popleft())
                size += batch[-1][1]
            self._bytes -= size
            self._sent += sum(what[0] in _COUNTED for what, _ in batch)
            self._hurry = bool(self._urgent) or any(what[0] not in _COUNTED for what, _ in self._waiting)
        return batch

    def _listen(self, connection: Connection) -> None:
        # A process that ends closes its side, whatever it dies of.
        with suppress(EOFError, OSError):
            while True:
                self._handle(connection.recv())

    def _handle(self, message: tuple[Any, ...]) -> None:
        what, *rest = message
        if what == "health":
            with self._changed:
                self._said, self._error = rest[0], None
            return
        with self._changed:
            answer = self._asked.pop(rest[0], None)
        if answer is not None and not answer.done():
            if isinstance(rest[1], StoreError):
                answer.set_exception(rest[1])
            else:
                answer.set_result(rest[1])

    def _lost(self, batch: Sequence[tuple[tuple[Any, ...], int]]) -> None:
        """The process is gone, with what it had not stored: that was never acknowledged, and is counted."""
        log.warning(ENDED)
        self._process.wait()
        # What it said last.
        self._ear.join(5)
        with self._changed:
            said, before = self._said, self._before
            lost = max(0, self._sent - said.stored - said.dropped - said.spilled)
            self._before = replace(
                before,
                stored=before.stored + said.stored,
                dropped=before.dropped + said.dropped + lost,
                retries=before.retries + said.retries,
            )
            self._said, self._sent, self._error = _NOTHING, 0, ENDED
            failed, self._asked = list(self._asked.values()), {}
        for each in failed:
            if not each.done():
                each.set_exception(StoreError(ENDED))


def run(descriptor: int, opened: Callable[[Any], Any]) -> None:
    """What the other process does: take, until it is told to close or the server is gone. `opened` makes an `Intake` of the
    settings."""
    connection = Connection(descriptor)
    intake = opened(connection.recv())
    mouth = threading.Lock()

    def say(*message: Any) -> None:
        # The server may be gone; what it handed over is stored all the same.
        with suppress(OSError), mouth:
            connection.send(message)

    ended = threading.Event()
    threading.Thread(target=_tell_health, args=(intake, say, ended), name="journeyman-health", daemon=True).start()
    timeout = 10.0
    with suppress(EOFError, OSError):
        while not ended.is_set():
            for what, *rest in connection.recv():
                if what == "close":
                    timeout = rest[0]
                    ended.set()
                else:
                    _take(intake, what, rest, say)
    ended.set()
    intake.close(timeout)
    say("health", intake.health())


def _tell_health(intake: Any, say: Callable[..., None], ended: threading.Event) -> None:
    said = None
    while not ended.wait(0.1):
        now = intake.health()
        if now != said:
            say("health", now)
            said = now


def _take(intake: Any, what: str, rest: Sequence[Any], say: Callable[..., None]) -> None:
    if what == "submit":
        intake.submit(rest[0])
    elif what == "add":
        intake.add(rest[0])
    elif what in _URGENT:
        taken = intake.spans(tuple(map(SpanRow._make, rest[1]))) if what == "spans" else intake.keep(rest[1])
        taken.add_done_callback(lambda done: say("answer", rest[0], done.exception()))
    else:
        # Waiting must not keep what comes after from being taken.
        wait = threading.Thread(
            target=lambda: say("answer", rest[0], intake.flush(rest[1])), name="journeyman-flush", daemon=True
        )
        wait.start()


_LATEST = 20
"""Traces of a session that a conversation may go on from."""
_RECENT = 200
"""Traces that a conversation without a session may go on from after a restart."""


def open_intake(
    store_url: str, spill: Path, settings: RecordSettings, *, opened: Callable[[str], TraceStore] = open_traces
) -> StoreIntake:
    """A way into the store, for one process. It starts at once, also when the store cannot be opened yet.

    Args:
        store_url: As `open_traces` takes it.
        spill: The folder of what waits while the store is slow or gone.
        opened: What opens the store.
    """
    joiner = ConversationAssembler(price=price, past=_Past(store_url))
    cleaner = RecordCleaner(
        redactor=Redactor(settings.redact), content=settings.content, read=lambda exchange: (joiner.join(exchange),)
    )
    limits = QueueLimits(bytes=settings.buffer_mb << 20, spill_bytes=settings.spill_mb << 20)
    return StoreIntake(lambda: opened(store_url), cleaner=cleaner, read_spans=_read_spans, spill=spill, limits=limits)


def open_apart(
    store_url: str, spill: Path, settings: RecordSettings, watched: "MonitorConfig | None" = None
) -> SubprocessIntake:
    """The same in a process of its own, which does not take time from this one.

    Args:
        watched: What is watched in that process, too: one of its own would load all the same once more.

    Raises:
        InputError: A pattern of `settings.redact` cannot be used.
    """
    Redactor(settings.redact)
    return SubprocessIntake((sys.executable, "-m", "journeyman.serving.ingest.factory"), (store_url, spill, settings, watched))


def _main(descriptor: int) -> None:
    for told in (signal.SIGINT, signal.SIGTERM):
        # It ends when the server has handed over the last; that one is told to stop.
        signal.signal(told, signal.SIG_IGN)
    spare_memory()
    # What is held is a great many small things that live long and stand in no circle: looking through them again and again
    # takes a fifth of the time.
    gc.set_threshold(20_000, 20, 50)
    # Where there is too little of the machine, answers go first: what is to be recorded can wait.
    os.nice(5)
    # What models of one's own cost. The server has read the same, and would have complained.
    with suppress(JourneymanError):
        settings.load()
    over = threading.Event()
    run(descriptor, lambda told: _opened(over, *told))
    # Whatever it is at is done or undone as a whole, and what it holds is given back.
    over.set()
    if watching := [each for each in threading.enumerate() if each.name == "monitor"]:
        watching[0].join(_LEAVING)


def _opened(
    over: threading.Event, store_url: str, spill: Path, settings: RecordSettings, watched: "MonitorConfig | None" = None
) -> StoreIntake:
    if watched is not None:
        from journeyman.serving.watching import watch_beside

        watch_beside(watched, over)
    return open_intake(store_url, spill, settings, opened=_open_migrated)


def _open_migrated(store_url: str) -> TraceStore:
    from journeyman.stores.engine import HEAD, step_of

    if step_of(store_url) != HEAD:
        make_ready(store_url)
    return open_traces(store_url)


class _Past:
    """What the store knows of conversations that are no longer in memory. A store that is ill knows nothing."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._store: TraceStore | None = None

    def get(self, trace_id: str) -> Trace | None:
        with suppress(StoreError):
            return self._opened().get(trace_id)
        return None

    def session(self, session: str) -> Iterable[Trace]:
        return self._newest(Query(session=session), _LATEST)

    def latest(self) -> Iterable[Trace]:
        return self._newest(Query(source="gateway"), _RECENT)

    def _newest(self, query: Query, most: int) -> Iterable[Trace]:
        """Oldest first."""
        with suppress(StoreError):
            store = self._opened()
            lines = store.page(query, limit=most).lines
            return [trace for line in reversed(lines) if (trace := store.get(line.id)) is not None]
        return ()

    def _opened(self) -> TraceStore:
        if self._store is None:
            self._store = open_traces(self._url)
        return self._store


def price(base_url: str, model: str, usage: Usage) -> float | None:
    """US dollars for a call; `None` when there is no known price."""
    # The list of prices takes a quarter of a second to load: nobody waits for it before the first call.
    from journeyman.models.pricing import cost

    return cost(base_url, model, usage.input, usage.output, usage.cached, usage.written)


def _read_spans(rows: Sequence[SpanRow]) -> Sequence[Trace]:
    from journeyman.models.pricing import priced
    from journeyman.tracing.otel import read

    by_trace: defaultdict[str, list[SpanRow]] = defaultdict(list)
    for row in rows:
        by_trace[row.trace_id].append(row)
    return [priced(trace) for trace in read.traces(by_trace)]


if __name__ == "__main__":
    _main(int(sys.argv[1]))
