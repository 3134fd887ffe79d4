"""Two threads of one interpreter that work at the same time are slower than one after the other: let them take turns."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from journeyman.intake.queues import Waiting

PATIENCE = 0.1
"""Seconds after which who waits goes on out of turn: the other may hang, in a store that does."""
_GROUP = 256
"""Things, or spans, of one turn."""
_STEP = 0.0005
"""Seconds between two turns, in which the other takes its own."""


class Turns:
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
