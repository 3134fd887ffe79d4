"""Which arm a session is on: drawn once, on disk before a model is asked, and the same in every gateway.

The first row about a session holds, whoever wrote it. While the store does not answer, a session that nobody has drawn yet is
served what is in production, and left out of the test for good.
"""

import asyncio
import hashlib
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from journeyman.core.errors import StoreError
from journeyman.core.rollout import PRODUCTION, Rollout, drawn, unit_of
from journeyman.serving.releases.context import SessionArm
from journeyman.stores.base import Assignment

if TYPE_CHECKING:
    from journeyman.stores.rollouts import RolloutStore

CACHED = 100_000
"""Sessions whose arm is remembered; of others the store is asked."""
AT_ONCE = 500
"""Assignments in one transaction."""
DRAWN, DEGRADED = "drawn", "degraded"
"""Why a session is on its arm."""
_LONGEST_SECONDS = 2.0
"""For which what is being written is waited for."""
_FAILURES, _REST_SECONDS = 5, 5.0
"""After so many failures in a row the store is left alone for so long."""


class AssignmentWriter:
    """Writes assignments in a thread of its own, as many in one transaction as are waiting."""

    def __init__(self, open_store: "Callable[[], RolloutStore]") -> None:
        self._open = open_store
        self._waiting: queue.SimpleQueue[tuple[Assignment, Future[Assignment]] | None] = queue.SimpleQueue()
        self._over = False
        self._store: RolloutStore | None = None
        self._tried = threading.Event()
        self._thread = threading.Thread(target=self._run, name="assignments", daemon=True)
        self._thread.start()

    def put(self, wanted: Assignment) -> "Future[Assignment]":
        """What holds of the session, once it is on disk."""
        future: Future[Assignment] = Future()
        self._waiting.put((wanted, future))
        return future

    def warm(self, seconds: float) -> None:
        """Wait until the store was opened, or could not be: whoever comes first need not wait for it."""
        self._tried.wait(seconds)

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join(30)

    def _run(self) -> None:
        with suppress(StoreError):
            self._store = self._open()
        self._tried.set()
        while batch := self._batch():
            # From here on nobody can take it back: it is written, or it is said that it was not.
            going = [(wanted, future) for wanted, future in batch if future.set_running_or_notify_cancel()]
            try:
                self._store = self._store or self._open()
                kept = self._store.assign([wanted for wanted, _ in going]) if going else ()
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody waits for ever
                for _, future in going:
                    future.set_exception(StoreError(f"assignments cannot be kept: {error}"))
            else:
                for (_, future), each in zip(going, kept, strict=True):
                    future.set_result(each)
        if self._store is not None:
            self._store.close()

    def _batch(self) -> list[tuple[Assignment, "Future[Assignment]"]]:
        """What waits, at least one; nothing at the end."""
        if self._over or (first := self._waiting.get()) is None:
            return []
        batch = [first]
        with suppress(queue.Empty):
            while len(batch) < AT_ONCE and (more := self._waiting.get_nowait()) is not None:
                batch.append(more)
            self._over = len(batch) < AT_ONCE
        return batch


class Assigner:
    """Puts sessions on arms. For one event loop."""

    def __init__(
        self,
        open_store: "Callable[[], RolloutStore]",
        *,
        timeout_seconds: float = 0.1,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """
        Args:
            open_store: Opens one that does not wait for long itself.
            timeout_seconds: For which a session's first request waits for its turn.
        """
        self._writer = AssignmentWriter(open_store)
        self._timeout = timeout_seconds
        self._clock = clock
        self._arms: OrderedDict[tuple[str, str], SessionArm] = OrderedDict()
        self._going: dict[tuple[str, str], asyncio.Future[SessionArm]] = {}
        self._unsaid: list[Assignment] = []
        self._failures, self._rests_until = 0, 0.0
        self.degraded = 0
        """Sessions that were served production as the store did not answer."""

    def warm(self, seconds: float = 10.0) -> None:
        """Wait until the store was opened, or could not be."""
        self._writer.warm(seconds)

    async def arm(self, rollout: Rollout, session: str) -> SessionArm:
        """Where a session is in a rollout; it is drawn where nobody knows it yet."""
        unit = unit_of(rollout.salt, session)
        key = (rollout.id, unit.id)
        if (known := self._arms.get(key)) is not None:
            self._arms.move_to_end(key)
            return known
        if (going := self._going.get(key)) is None:
            event = rollout.events[-1].number
            wanted = Assignment(rollout.id, unit.id, drawn(unit.bucket, rollout.shares), event, DRAWN, self._clock())
            going = self._going[key] = asyncio.ensure_future(self._found(key, wanted))
        # Requests of one session that come at once are told the same, also when the first of them hangs up.
        return await asyncio.shield(going)

    async def _found(self, key: tuple[str, str], wanted: Assignment) -> SessionArm:
        try:
            arm = self._arms[key] = await self._kept(wanted)
        finally:
            del self._going[key]
        if len(self._arms) > CACHED:
            self._arms.popitem(last=False)
        return arm

    async def _kept(self, wanted: Assignment) -> SessionArm:
        if monotonic() >= self._rests_until:
            try:
                kept = await self._written(wanted)
            except (StoreError, TimeoutError):
                self._failures += 1
                if self._failures >= _FAILURES:
                    self._failures, self._rests_until = 0, monotonic() + _REST_SECONDS
            else:
                self._failures = 0
                self._say()
                return SessionArm(kept.rollout_id, kept.unit, kept.arm, kept.event, kept.why == DRAWN)
        self.degraded += 1
        if len(self._unsaid) < CACHED:
            self._unsaid.append(wanted._replace(arm=PRODUCTION, why=DEGRADED))
        return SessionArm(wanted.rollout_id, wanted.unit, PRODUCTION, wanted.event, counts=False)

    async def _written(self, wanted: Assignment) -> Assignment:
        """
        Raises:
            StoreError: It is not written.
            TimeoutError: It was taken back before it was; or nobody knows, after long.
        """
        written = self._writer.put(wanted)
        kept = asyncio.wrap_future(written)
        try:
            return await asyncio.wait_for(asyncio.shield(kept), self._timeout)
        except TimeoutError:
            if written.cancel():
                raise
            # It is being written: whoever does not wait for what comes of it may serve the session two arms.
            return await asyncio.wait_for(kept, _LONGEST_SECONDS)

    def _say(self) -> None:
        """Tell the store, which answers again, who was served production meanwhile: they stay there, whoever asks."""
        said, self._unsaid = self._unsaid, []
        for each in said:
            self._writer.put(each)

    def close(self) -> None:
        if self._unsaid:
            self._say()
        self._writer.close()


# What a session is.


class Beginning(Protocol):
    """A conversation of which it is known how it begins."""

    @property
    def beginning(self) -> bytes:
        """What all its requests have in common."""


def session_of(labels: Mapping[str, str], body: Beginning) -> str:
    """What a session is known by: its name, else how its conversation begins."""
    if session := labels.get("session"):
        return session_key(session)
    return f"beginning:{hashlib.blake2b(body.beginning, digest_size=16).hexdigest()}"


def session_key(session: str) -> str:
    """What a session with a name is drawn by."""
    return f"session:{session}"
