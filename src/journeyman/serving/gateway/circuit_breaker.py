"""Leaves a server alone that keeps failing."""

from collections.abc import Callable
from enum import StrEnum


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"
    """Time to try: one request may."""


class Breaker:
    """Opens after failures in a row; after a while one request tries, and what comes of it decides."""

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float]) -> None:
        """`failures` 0 never opens it."""
        self._most = failures
        self._seconds = seconds
        self._clock = clock
        self._failures = 0
        self._opened_at: float | None = None
        self._probing = False

    @property
    def state(self) -> BreakerState:
        if self._opened_at is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self.wait > 0 else BreakerState.HALF_OPEN

    @property
    def wait(self) -> float:
        """Seconds until somebody may try; 0 when it is time, or there is nothing to wait for."""
        return 0.0 if self._opened_at is None else max(0.0, self._opened_at + self._seconds - self._clock())

    def enter(self) -> bool:
        """Whether a request may go. Each that goes ends in `succeeded`, `failed` or `left`."""
        if self._opened_at is None:
            return True
        if self.wait > 0 or self._probing:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        self._failures, self._opened_at, self._probing = 0, None, False

    def failed(self) -> None:
        self._failures += 1
        self._probing = False
        if self._most and self._failures >= self._most:
            self._opened_at = self._clock()

    def left(self) -> None:
        """The request ended without a word on the server: the client hung up."""
        self._probing = False
