"""Figures that are costly to count are counted at most a small share of the time."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Generic, TypeVar

Value = TypeVar("Value")
SHARE = 20
"""A value is shown for this many times as long as it took to count: counting takes a twentieth of the time at most."""
LONGEST = 60.0
"""Seconds, after which it is counted again whatever it took."""
KEPT = 64


@dataclass(frozen=True, slots=True)
class Counted(Generic[Value]):
    """A value, and how old it may get."""

    value: Value
    at: datetime
    until: float


class Remembered(Generic[Value]):
    """Values by key, for several threads: of those who want the same one at once, one counts and the others wait."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[object, Counted[Value]] = OrderedDict()
        self._locks: dict[object, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: object, count: Callable[[], Value]) -> Counted[Value]:
        """The value of a key, counted now or a short while ago."""
        with self._lock:
            turn = self._locks.setdefault(key, threading.Lock())
        with turn:
            known = self._known.get(key)
            if known is not None and self._clock() < known.until:
                return known
            began = self._clock()
            value = count()
            now = self._clock()
            counted = Counted(value, datetime.now(UTC), now + min(LONGEST, SHARE * (now - began)))
            with self._lock:
                self._known[key] = counted
                self._known.move_to_end(key)
                while len(self._known) > KEPT:
                    self._locks.pop(self._known.popitem(last=False)[0], None)
            return counted
