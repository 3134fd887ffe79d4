"""What is done to everything before it is stored: exchanges are read; secrets go, and content where it is not kept."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from journeyman.capture.exchanges.base import Exchange
from journeyman.capture.redact import Redactor
from journeyman.capture.shapes import shapes_only
from journeyman.stores.traces.base import SpanRow
from journeyman.trace import Trace

log = logging.getLogger(__name__)

ReadExchange = Callable[[Exchange], Sequence[Trace]]
"""Makes traces of an exchange: as a rule one, which may be one that it gave before, with a step more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaner:
    """Nothing gets past it into the store, the spill file or the log."""

    redactor: Redactor
    content: bool = True
    """Whether what was said is kept; else only shapes and numbers."""
    read: ReadExchange

    def exchange(self, exchange: Exchange) -> Sequence[Trace]:
        return [self.trace(trace) for trace in self.read(exchange)]

    def trace(self, trace: Trace) -> Trace:
        # Also where no content is kept: names of tools and models stay, and whatever a client wrote into them.
        clean = self.redactor.trace(trace)
        return clean if self.content else shapes_only(clean)

    def span(self, row: SpanRow) -> SpanRow:
        if self.content and not self.redactor.suspects(row.body) and not self.redactor.suspects(row.scope):
            return row
        # The library of protobuf is wanted by those who send spans alone.
        from journeyman.capture.otlp import redact
        from journeyman.capture.otlp.wire import RawSpan

        raw = RawSpan(trace_id=row.trace_id, span_id=row.span_id, at=row.at, body=row.body, scope=row.scope)
        clean = redact.redacted(raw, self.redactor.text)
        if not self.content:
            clean = redact.without_content(clean)
        return replace(row, body=clean.body, scope=clean.scope)
