"""Where traces that are recorded in the process come together."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from journeyman.core.trace import Trace
from journeyman.tracing.recorder import Recording, Tree, opened

log = logging.getLogger(__name__)

KEPT = 10_000
"""Traces that a collector holds in memory; older ones are in the store alone."""


class Sink(Protocol):
    """Where traces go that shall last. A store of traces is one."""

    def add(self, traces: Iterable[Trace]) -> object: ...

    def label(self, trace_id: str, good: bool | None, *, who: str, at: datetime) -> None: ...


class Collector:
    """Collects traces. May be used by several threads. What its sink makes of them never reaches the agent that is recorded."""

    def __init__(
        self, sink: Sink | None = None, *, agent: str | None = None, session: str | None = None, kept: int = KEPT
    ) -> None:
        """
        Args:
            sink: Gets every trace when it ends, in the thread that ended it; `None` keeps them in memory alone.
            agent: Who makes the attempts, where a trace does not say.
            session: What the traces have in common.
            kept: Traces that are held in memory.
        """
        self._sink = sink
        self._agent = agent
        self._session = session
        self._kept = kept
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        self._lock = threading.Lock()
        self._lost = 0

    def trace(self, input: Any = None, *, agent: str | None = None, **about: Any) -> Recording:
        """A trace that begins now, for a `with`. Inside another one of this collector it is the work of a sub-agent there.

        Args:
            input: What is asked.
            about: Other fields of `Trace`: id, task_id, candidate_id, domain, session, raw, …
        """
        if self._session is not None:
            about.setdefault("session", self._session)
        return opened(self._keep, input, agent=agent or self._agent, about=about)

    @property
    def traces(self) -> tuple[Trace, ...]:
        """Those that ended and are in memory, oldest first."""
        with self._lock:
            return tuple(self._traces.values())

    def get_unlabeled_traces(self, limit: int | None = None) -> list[Trace]:
        """Those that nobody has judged, newest first."""
        return [trace for trace in reversed(self.traces) if trace.label is None][:limit]

    def label_trace(self, trace_id: str, good: bool | None, *, who: str = "user") -> None:
        """Say whether a trace was good; `None` takes it back.

        Raises:
            KeyError: The collector has no such trace, and neither has its store.
            StoreError: The store could not keep it.
        """
        with self._lock:
            held = self._traces.get(trace_id)
            if held is not None:
                self._traces[trace_id] = replace(held, label=good)
        if self._sink is not None:
            self._sink.label(trace_id, good, who=who, at=datetime.now(UTC))
        elif held is None:
            raise KeyError(f"no trace {trace_id!r} was collected")

    def get_statistics(self) -> Mapping[str, int]:
        """Counts over the traces in memory; `lost` counts those that the store did not take."""
        traces = self.traces
        labels = [trace.label for trace in traces]
        return {
            "total": len(traces),
            "labeled": len(labels) - labels.count(None),
            "unlabeled": labels.count(None),
            "good": labels.count(True),
            "bad": labels.count(False),
            "failed": sum(trace.error is not None for trace in traces),
            "model_calls": sum(len(trace.calls) for trace in traces),
            "tool_calls": sum(len(trace.tool_calls) for trace in traces),
            "lost": self._lost,
        }

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until all that ended is in the store; whether that came in time."""
        wait = getattr(self._sink, "flush", None)
        return True if wait is None else bool(wait(timeout))

    def keep(self, trace: Trace) -> None:
        """Take a trace that is ready, or one that was given before and has grown. Never raises: an agent goes on, whatever a
        store says."""
        self._taken(lambda: trace)

    def _keep(self, tree: Tree) -> None:
        self._taken(tree.trace)

    def _taken(self, made: Callable[[], Trace]) -> None:
        try:
            trace = made()
            with self._lock:
                known = self._traces.get(trace.id)
                self._traces[trace.id] = replace(trace, label=known.label) if known else trace
                while len(self._traces) > self._kept:
                    self._traces.popitem(last=False)
            if self._sink is not None:
                self._sink.add([trace])
        except Exception as error:  # noqa: BLE001 - the boundary to the agent that is recorded
            self._lost += 1
            log.warning("a trace could not be kept: %s", type(error).__name__)
