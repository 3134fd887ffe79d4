"""The wiring of what is watched: from what passes and what is reported, through redaction, into the store.

intake = open_apart(store_url, spill, settings)      # in a process of its own, for a server
intake = open_intake(store_url, spill, settings)     # in threads of this one
"""

import gc
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from journeyman.capture.exchanges.join import Joiner
from journeyman.capture.redact import Redactor
from journeyman.core.messages import Usage
from journeyman.errors import StoreError
from journeyman.intake.apart import ApartIntake, run
from journeyman.intake.clean import Cleaner
from journeyman.intake.queues import Limits
from journeyman.intake.writer import StoreIntake
from journeyman.stores.opening import make_ready
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Query, SpanRow, TraceStore
from journeyman.trace import Trace
from journeyman.upstreams import RecordSettings

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
    joiner = Joiner(price=_price, past=_Past(store_url))
    cleaner = Cleaner(
        redactor=Redactor(settings.redact), content=settings.content, read=lambda exchange: (joiner.join(exchange),)
    )
    limits = Limits(bytes=settings.buffer_mb << 20, spill_bytes=settings.spill_mb << 20)
    return StoreIntake(lambda: opened(store_url), cleaner=cleaner, read_spans=_read_spans, spill=spill, limits=limits)


def open_apart(store_url: str, spill: Path, settings: RecordSettings) -> ApartIntake:
    """The same in a process of its own, which does not take time from this one.

    Raises:
        InputError: A pattern of `settings.redact` cannot be used.
    """
    Redactor(settings.redact)
    return ApartIntake((sys.executable, "-m", "journeyman.recording"), (store_url, spill, settings))


def _main(descriptor: int) -> None:
    for told in (signal.SIGINT, signal.SIGTERM):
        # It ends when the server has handed over the last; that one is told to stop.
        signal.signal(told, signal.SIG_IGN)
    # What is held is a great many small things that live long and stand in no circle: looking through them again and again
    # takes a fifth of the time.
    gc.set_threshold(20_000, 20, 50)
    # Where there is too little of the machine, answers go first: what is to be recorded can wait.
    os.nice(5)
    run(descriptor, lambda settings: open_intake(*settings, opened=_up_to_date))


def _up_to_date(store_url: str) -> TraceStore:
    from journeyman.stores.schema import HEAD, step_of

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


def _price(base_url: str, model: str, usage: Usage) -> float | None:
    # The list of prices takes a quarter of a second to load: nobody waits for it before the first call.
    from journeyman.models.prices import cost

    return cost(base_url, model, usage.input, usage.output, usage.cached, usage.written)


def _read_spans(rows: Sequence[SpanRow]) -> Sequence[Trace]:
    from journeyman.capture.otlp import read
    from journeyman.pricing import priced

    by_trace: defaultdict[str, list[SpanRow]] = defaultdict(list)
    for row in rows:
        by_trace[row.trace_id].append(row)
    return [priced(trace) for trace in read.traces(by_trace)]


if __name__ == "__main__":
    _main(int(sys.argv[1]))
