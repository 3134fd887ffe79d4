"""What those who watch agents hand over, and what they are told."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from journeyman.core.trace import Trace
from journeyman.stores.traces.base import SpanRow
from journeyman.tracing.wire.base import Exchange


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

    def offer(self, exchange: Exchange) -> None:
        """Take an exchange. Never blocks and never raises: where the store is slow, it waits in memory, then in a spill file of
        bounded size, and is then dropped and counted."""

    def add(self, trace: Trace) -> None:
        """Take a trace that is ready, in the same way."""

    def spans(self, spans: Sequence[SpanRow]) -> "Future[None]":
        """Take raw spans. The future is done when they are on disk, and fails with `StoreError` when they cannot be: then
        nothing of them is kept, and who sent them must send them again."""

    def flush(self, timeout: float) -> bool:
        """Wait until all that was handed over before is in the store and made into traces; whether that came in time."""

    def health(self) -> Health: ...

    def close(self, timeout: float = 10.0) -> None:
        """Write what can be written in that time, spill the rest, and stop."""
