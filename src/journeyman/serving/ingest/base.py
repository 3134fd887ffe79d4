"""What those who watch agents hand over, and what they are told."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol

from journeyman.core.trace import Step, Trace
from journeyman.stores.traces.base import SpanRow
from journeyman.tracing.redaction import Redactor, shapes_only
from journeyman.tracing.wire.dialects import Exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the way into the store is."""

    waiting: int
    """Things in memory that are not in the store yet."""
    spilled: int
    """Exchanges and traces that wait in the spill file."""
    stored: int
    """Things that went into the store since the start."""
    dropped: int
    """Exchanges and traces that are lost since the start: memory and spill file were full."""
    retries: int
    """Times that the store refused, and was asked again."""
    error: str | None
    """What the store said last, while it refuses; `None` while all is well."""


class Intake(Protocol):
    """A way into the store that nobody waits for: one thread of its own writes, many threads hand over."""

    def submit(self, exchange: Exchange) -> None:
        """Take an exchange. Never blocks and never raises: where the store is slow, it waits in memory, then in a spill file of
        bounded size, and is then dropped and counted."""

    def keep(self, exchange: Exchange) -> "Future[None]":
        """Take an exchange. The future is done when it outlives this process, in the store or in the spill file, and fails with
        `StoreError` when neither takes it."""

    def add(self, trace: Trace) -> None:
        """Take a trace that is ready, in the same way as `submit`."""

    def spans(self, spans: Sequence[SpanRow]) -> "Future[None]":
        """Take raw spans. The future is done when they are on disk, and fails with `StoreError` when they cannot be: then
        nothing of them is kept, and who sent them must send them again."""

    def flush(self, timeout: float) -> bool:
        """Wait until all that was handed over before is in the store and made into traces; whether that came in time."""

    def health(self) -> Health: ...

    def close(self, timeout: float = 10.0) -> None:
        """Write what can be written in that time, spill the rest, and stop."""


log = logging.getLogger(__name__)

_SHORT = 4
"""Steps up to which a trace is looked through anew each time."""
_MOST = 300
"""Longer traces whose steps are remembered; and scopes of spans."""
_SCOPE = 4096
"""Bytes of a scope that is."""

ReadExchange = Callable[[Exchange], Sequence[Trace]]
"""Makes traces of an exchange: as a rule one, which may be one that it gave before, with a step more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCleaner:
    """Nothing gets past it into the store, the spill file or the log."""

    redactor: Redactor
    content: bool = True
    """Whether what was said is kept; else only shapes and numbers."""
    read: ReadExchange
    _known: OrderedDict[str, tuple[Sequence[Step], Sequence[Step]]] = field(
        default_factory=OrderedDict, init=False, repr=False, compare=False
    )
    _scopes: dict[bytes, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def exchange(self, exchange: Exchange) -> Sequence[Trace]:
        return [self.trace(trace) for trace in self.read(exchange)]

    def trace(self, trace: Trace) -> Trace:
        return self._kept(self._redacted(trace))

    def made_anew(self, trace: Trace) -> Trace:
        """The same of a trace whose steps are others each time that it is made, so that none of them is known again."""
        return self._kept(self.redactor.trace(trace))

    def _kept(self, clean: Trace) -> Trace:
        # Also where no content is kept: names of tools and models stay, and whatever a client wrote into them.
        return clean if self.content else shapes_only(clean)

    def _redacted(self, trace: Trace) -> Trace:
        """Of a conversation that grows, only the steps that it did not have before are looked through."""
        if (held := self._known.get(trace.id)) is None and len(trace.steps) <= _SHORT:
            return self.redactor.trace(trace)
        before, cleaned = held or ((), ())
        known = {id(old): new for old, new in zip(before, cleaned, strict=True)}
        fresh = [step for step in trace.steps if id(step) not in known]
        clean = self.redactor.trace(replace(trace, steps=tuple(fresh)))
        known |= {id(old): new for old, new in zip(fresh, clean.steps, strict=True)}
        steps = tuple(known[id(step)] for step in trace.steps)
        if len(steps) > _SHORT:
            # The steps are held, so that none of these ids is ever another one's.
            self._known.pop(trace.id, None)
            self._known[trace.id] = (trace.steps, steps)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)
        return replace(clean, steps=steps)

    def _suspects_scope(self, scope: bytes) -> bool:
        """Many spans have the same."""
        if (found := self._scopes.get(scope)) is None:
            found = self.redactor.suspects(scope)
            if len(self._scopes) >= _MOST:
                self._scopes.clear()
            if len(scope) <= _SCOPE:
                self._scopes[scope] = found
        return found

    def span(self, row: SpanRow) -> SpanRow:
        if self.content and not self.redactor.suspects(row.body) and not self._suspects_scope(row.scope):
            return row
        # The library of protobuf is wanted by those who send spans alone.
        from journeyman.tracing.otel import spans
        from journeyman.tracing.otel.wire import RawSpan

        clean = spans.redacted(RawSpan(row.trace_id, row.span_id, row.at, row.body, row.scope), self.redactor.text)
        if not self.content:
            clean = spans.without_content(clean)
        return SpanRow(*clean, packed=row.packed if clean.body == row.body else b"")
