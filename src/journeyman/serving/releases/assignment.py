"""Which arm a session is on: drawn once, on disk before a model is asked, and the same in every gateway.

The first row about a session holds, whoever wrote it. While the store does not answer, a session that is not known here is
served what is in production, and stays there for good, out of the test: what is told of it afterwards holds over what another
gateway may have drawn meanwhile. What others wrote is followed, so that their sessions are known here by then; of those that
write down in the same file whom they served so, it is known at once. Those that share nothing but a database promise each other
by way of it when they will not serve so, and draw nobody else (`stores.assignments`).
"""

import asyncio
import hashlib
import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from journeyman.core.errors import StoreError
from journeyman.core.rollout import PRODUCTION, Rollout, drawn, unit_of
from journeyman.serving.releases.beside import DegradedSessions
from journeyman.serving.releases.context import SessionArm
from journeyman.stores.base import DEGRADED, DRAWN, Assignment

if TYPE_CHECKING:
    from journeyman.stores.assignments import AssignmentStore

CACHED = 100_000
"""Sessions whose arm is remembered; of others the store is asked."""
AT_ONCE = 500
"""Assignments in one transaction."""
_TRIED_SECONDS = 1.2
"""For which a store is tried, that others may have locked or that may be starting, before it counts as away."""
_PAUSE_SECONDS = 0.02
_LONGEST_SECONDS = 1.0
"""For which what is being written is waited for."""
_RETRY_SECONDS = 0.1
"""After which a store that is away is tried again."""
PROMISED_SECONDS = 1.5
"""For which a gateway serves nobody without the store once it has promised it there. So long a session's first request waits
for a store that is away."""

_Wanted = tuple[Assignment, "Future[Assignment]"]


class AssignmentWriter:
    """Writes assignments in a thread of its own, as many in one transaction as are waiting."""

    def __init__(
        self, open_store: "Callable[[], AssignmentStore]", kept: DegradedSessions | None = None, name: str = ""
    ) -> None:
        """
        Args:
            kept: What the store is still to be told, also by the next process.
            name: Of the gateway, where others share the database alone.
        """
        self._open, self._name = open_store, name
        self._kept, self._said = kept, set[tuple[str, str]]()
        self._waiting: queue.SimpleQueue[_Wanted | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._store: AssignmentStore | None = None
        self._tried = threading.Event()
        self._turn = threading.Lock()
        self._unsaid: list[Assignment] = []
        self._knows_what_is_left, self._pressing = False, 0
        # The process before it may have promised that a moment ago.
        self._promised_until = monotonic() + PROMISED_SECONDS if name else 0.0
        self.is_away = False
        """Whether the store did not answer when it was last tried, which is done over and over."""
        self._thread = threading.Thread(target=self._run, name="assignments", daemon=True)
        self._thread.start()

    def put(self, wanted: Assignment) -> "Future[Assignment]":
        """What holds of the session, once it is on disk."""
        future: Future[Assignment] = Future()
        self._waiting.put((wanted, future))
        return future

    def tell(self, served: Assignment) -> bool:
        """Have it written as soon as the store answers, that a session is served production as it did not; whether it may be
        by now: as long as it is promised that nobody is, it may not."""
        with self._turn:
            if monotonic() < self._promised_until:
                return False
            self.is_away = True
            if self._kept is not None:
                with suppress(OSError):
                    self._kept.add(served)
            self._unsaid.append(served)
        self._waiting.put(None)
        return True

    @contextmanager
    def pressed(self) -> Iterator[None]:
        """Somebody waits to be served without the store: meanwhile nothing is promised anew."""
        with self._turn:
            self._pressing += 1
        try:
            yield
        finally:
            with self._turn:
                self._pressing -= 1

    def promise(self, store: "AssignmentStore", now: int, read_at: float) -> None:
        """Promise that nobody is served without asking for a while, where all who were have been told the store.

        Args:
            now: What the server's clock said. What stood there then is known here.
            read_at: When we had read that, by ours: by then it said more.
        """
        with self._turn:
            if self._unsaid or self._pressing or not self._knows_what_is_left:
                return
            self._promised_until = read_at + PROMISED_SECONDS
        store.promise(self._name, now + round(PROMISED_SECONDS * 1_000_000))

    def warm(self, seconds: float) -> None:
        """Wait until the store was opened, or could not be: whoever comes first need not wait for it."""
        self._tried.wait(seconds)

    def close(self) -> None:
        self._over.set()
        self._waiting.put(None)
        self._thread.join(30)

    def _run(self) -> None:
        with suppress(StoreError):
            self._store = self._open()
        self._unsaid += [] if self._kept is None else self._kept.left()
        self._knows_what_is_left = True
        self._tried.set()
        ends = False
        while not ends:
            # Whatever is in the queue at the end is still written.
            batch, ends = self._batch(waits=self.is_away or bool(self._unsaid)), self._over.is_set()
            # From here on nobody can take it back: it is written, or it is said that it was not.
            going = [(wanted, future) for wanted, future in batch if future.set_running_or_notify_cancel()]
            try:
                kept = self._tried_long([wanted for wanted, _ in going])
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody waits for ever
                self.is_away = True
                for _, future in going:
                    future.set_exception(StoreError(f"assignments cannot be kept: {error}"))
                self._over.wait(_RETRY_SECONDS)
            else:
                self.is_away = False
                self._unsaid += self._left_behind()
                for (_, future), each in zip(going, kept, strict=True):
                    future.set_result(each)
        self._end()

    def _end(self) -> None:
        if self._store is not None:
            if self._name and not self._unsaid:
                with suppress(StoreError):
                    self._store.withdraw(self._name)
            self._store.close()

    def _left_behind(self) -> list[Assignment]:
        """What nobody has told the store yet; it is told now what this one had to tell."""
        if self._kept is None:
            return []
        left = self._kept.left(self._said)
        if not left:
            self._said.clear()
        return left

    def _batch(self, *, waits: bool) -> list[_Wanted]:
        """What is there to be written; nothing where the store is only to be tried."""
        batch: list[_Wanted] = []
        with suppress(queue.Empty):
            first = self._waiting.get(timeout=_RETRY_SECONDS if waits else None)
            while len(batch) < AT_ONCE:
                if first is not None:
                    batch.append(first)
                first = self._waiting.get_nowait()
        return batch

    def _tried_long(self, wanted: Sequence[Assignment]) -> Sequence[Assignment]:
        until = monotonic() + _TRIED_SECONDS
        while True:
            try:
                return self._written(wanted)
            except StoreError:
                if self.is_away or self._over.is_set() or monotonic() > until:
                    raise
            self._over.wait(_PAUSE_SECONDS)

    def _written(self, wanted: Sequence[Assignment]) -> Sequence[Assignment]:
        """
        Raises:
            StoreError: The store does not answer; what it was told of `_unsaid` is not in there any more.
        """
        store = self._store = self._store or self._open()
        while some := self._unsaid[:AT_ONCE]:
            store.assign(some)
            self._said.update((each.rollout_id, each.unit) for each in some)
            del self._unsaid[: len(some)]
        return store.assign(wanted, gateway=self._name)


class Assigner:
    """Puts sessions on arms. For one event loop."""

    def __init__(
        self,
        open_store: "Callable[[], AssignmentStore]",
        *,
        kept: Path | None = None,
        name: str = "",
        timeout_seconds: float = 1.5,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """
        Args:
            open_store: Opens one that does not wait for long itself.
            kept: The file of what the store is still to be told, also by the next process, and by others that share it.
            name: Of the gateway, where others share the database alone: then `promise` is to be called again and again.
            timeout_seconds: For which a session's first request waits for its turn, while the store is not known to be away.
        """
        self._served = None if kept is None else DegradedSessions(kept)
        self._writer = AssignmentWriter(open_store, None if kept is None else DegradedSessions(kept), name=name)
        self._timeout = timeout_seconds
        self._clock = clock
        self._arms: OrderedDict[tuple[str, str], SessionArm] = OrderedDict()
        self._going: dict[tuple[str, str], asyncio.Future[SessionArm]] = {}
        self._news: deque[Assignment] = deque()
        self.degraded = 0
        """Sessions that were served production as the store did not answer."""

    @property
    def is_away(self) -> bool:
        """Whether the store did not answer when it was last tried, which is done over and over."""
        return self._writer.is_away

    def warm(self, seconds: float = 10.0) -> None:
        """Wait until the store was opened, or could not be."""
        self._writer.warm(seconds)

    def follow(self, found: Iterable[Assignment]) -> None:
        """Know what stands in the store, whoever wrote it. From any thread."""
        self._news.extend(found)

    def promise(self, store: "AssignmentStore", now: int, read_at: float) -> None:
        """As the writer's. From any thread."""
        self._writer.promise(store, now, read_at)

    async def arm(self, rollout: Rollout, session: str) -> SessionArm:
        """Where a session is in a rollout; it is drawn where nobody knows it yet."""
        self._hear()
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

    def _hear(self) -> None:
        if self._served is not None:
            self._news.extend(self._served.news())
        while self._news:
            each = self._news.popleft()
            key = (each.rollout_id, each.unit)
            # Whom this gateway has served production stays there, whatever the store has not heard yet.
            if (known := self._arms.get(key)) is None or known.counts:
                self._know(key, _arm(each))

    def _know(self, key: tuple[str, str], arm: SessionArm) -> None:
        self._arms[key] = arm
        if len(self._arms) > CACHED:
            self._arms.popitem(last=False)

    async def _found(self, key: tuple[str, str], wanted: Assignment) -> SessionArm:
        try:
            arm = await self._kept(wanted)
            # Another gateway may have had to serve it meanwhile.
            self._hear()
            if (told := self._arms.get(key)) is not None and not told.counts:
                return told
            self._know(key, arm)
        finally:
            del self._going[key]
        return arm

    async def _kept(self, wanted: Assignment) -> SessionArm:
        served = wanted._replace(arm=PRODUCTION, why=DEGRADED)
        if (kept := await self._asked(wanted)) is not None:
            return kept
        with self._writer.pressed():
            # Others that reach the store may have put the session on an arm, and then it is known here.
            while (known := self._known(wanted)) is None and not self._writer.tell(served):
                await asyncio.sleep(_PAUSE_SECONDS)
                if (kept := await self._asked(wanted)) is not None:
                    return kept
        self.degraded += known is None
        return known or _arm(served)

    def _known(self, wanted: Assignment) -> SessionArm | None:
        self._hear()
        return self._arms.get((wanted.rollout_id, wanted.unit))

    async def _asked(self, wanted: Assignment) -> SessionArm | None:
        """What holds by the store, where it answers."""
        if not self._writer.is_away:
            with suppress(StoreError, TimeoutError):
                kept = await self._written(wanted)
                self.degraded += kept.why == DEGRADED and kept.at == wanted.at
                return _arm(kept)
        return None

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
            # It is being written, and will most likely be.
            return await asyncio.wait_for(kept, _LONGEST_SECONDS)

    def close(self) -> None:
        self._writer.close()
        if self._served is not None:
            self._served.close()


def _arm(kept: Assignment) -> SessionArm:
    return SessionArm(kept.rollout_id, kept.unit, kept.arm, kept.event, counts=kept.why == DRAWN)


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
