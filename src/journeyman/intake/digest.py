"""Raw spans become traces: what came, by trace, is read again whole, and the trace replaced."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from journeyman.errors import StoreError
from journeyman.stores.traces.base import SpanRow, TraceStore
from journeyman.trace import Trace

log = logging.getLogger(__name__)

ReadSpans = Callable[[Sequence[SpanRow]], Sequence[Trace]]
"""Makes traces of all spans of some traces."""

LEAST_PAUSE = 0.3
"""Seconds between two turns, so that a trace whose spans trickle in is not read again for each of them."""
MOST_TRACES = 100
"""Of one turn."""
TOGETHER = 10
"""Traces whose spans are in memory at once."""
LONGEST = 0.2
"""Seconds after which a turn begins nothing new: what comes in waits meanwhile."""


class Digest:
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
        """Make traces of what has waited longest; how many. Once `interrupted`, it ends soon.

        Raises:
            StoreError: The store refuses; what it did not take stays pending.
        """
        began = self._clock()
        ids = store.pending(MOST_TRACES)
        if not ids:
            self.due = None
            return 0
        made = done = 0
        while done < len(ids) and self._clock() - began < LONGEST and not (done and interrupted()):
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
