"""Who does much of the same at once, and workers on this machine: this process itself, or a pool of processes."""

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self, TypeVar

from journeyman.core.errors import JourneymanError

In = TypeVar("In")
Out = TypeVar("Out")
Pending = TypeVar("Pending")
Failed = Callable[[In, str], Out]
"""Makes the result of an item that was given up, from the item and the reason."""

ATTEMPTS = 3
"""Workers that an item may lose before it is given up."""


class ItemFailed(JourneymanError):
    """An item was given up: it took too long, or lost its worker each time."""


class Workers(Protocol):
    """One verb. Functions and values cross to other processes, so both must be able to be pickled by a worker's own library."""

    plain: ClassVar[bool]
    """Whether JSON alone crosses, and only functions that `registry.KINDS["jobs"]` or an installed package names."""

    def map(
        self,
        function: Callable[[In], Out],
        items: Iterable[In],
        *,
        seconds: float | None = None,
        failed: "Failed[In, Out] | None" = None,
    ) -> Iterator[Out]:
        """Each result once, in the order of the items, as soon as it and all before it are there.

        Only a few items more than there are workers are taken before they are needed: a file may be longer than memory. What
        the function raises is raised here, and nothing more is begun. An item whose worker is lost is given to another one.

        Args:
            seconds: How long one item may take.
            failed: Makes the result of an item that took longer, or lost its worker `ATTEMPTS` times.

        Raises:
            ItemFailed: There is such an item, and no `failed`.
        """

    def close(self) -> None:
        """End the workers, and what they are at. Not used afterwards."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


def in_order(
    items: Iterable[In],
    submit: Callable[[In], Pending],
    result: Callable[[Pending], Out],
    *,
    cancel: Callable[[Pending], object],
    most: int,
) -> Iterator[Out]:
    """The results of submitted items in the order of the items, with at most `most` of them, and one, under way.

    What is still under way when the caller stops, or when a result raises, is cancelled.
    """
    pending: deque[Pending] = deque()
    try:
        for item in items:
            pending.append(submit(item))
            if len(pending) > most:
                yield result(pending.popleft())
        while pending:
            yield result(pending.popleft())
    finally:
        for each in pending:
            cancel(each)


def settled(result: Callable[[], Out], item: In, failed: Failed[In, Out] | None) -> Out:
    """The result, or what `failed` makes of an item that was given up."""
    try:
        return result()
    except ItemFailed as error:
        if failed is None:
            raise
        return failed(item, str(error))


class _TimeUp(BaseException):
    """Not an `Exception`: what handles those must not go on when its time is up."""


def limited(function: Callable[[In], Out], item: In, seconds: float | None) -> Out:
    """The function's result. In a main thread it is interrupted when its time is up; elsewhere nobody can, and what it gives
    too late does not count.

    Raises:
        ItemFailed: It took too long.
    """
    if seconds is None:
        return function(item)
    late = ItemFailed(f"it took more than {seconds:g} s")
    if threading.current_thread() is not threading.main_thread():
        began = time.monotonic()
        found = function(item)
        if time.monotonic() - began > seconds:
            raise late
        return found

    def over(*_: object) -> None:
        raise _TimeUp

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return function(item)
    except _TimeUp:
        raise late from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Here:
    """No workers at all: one after the other, in this process."""

    plain: ClassVar[bool] = False

    def map(
        self,
        function: Callable[[In], Out],
        items: Iterable[In],
        *,
        seconds: float | None = None,
        failed: Failed[In, Out] | None = None,
    ) -> Iterator[Out]:
        """As promised by `Workers`."""
        for item in items:
            yield settled(partial(limited, function, item, seconds), item, failed)

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Processes(Here):
    """A pool of processes, each begun fresh: nothing of this one's threads, locks or open files is inherited.

    A thread stands beside each: it knows which item its process is at, ends it when the item's time is up, and begins another
    where it was killed.
    """

    def __init__(self, processes: int | None = None) -> None:
        """Begin when the first work comes.

        Args:
            processes: How many; as many as there are cores for this process, when nothing is said.
        """
        self.processes = processes or len(os.sched_getaffinity(0))
        self._threads = ThreadPoolExecutor(self.processes)
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()
        self._over = False

    def map(
        self,
        function: Callable[[In], Out],
        items: Iterable[In],
        *,
        seconds: float | None = None,
        failed: Failed[In, Out] | None = None,
    ) -> Iterator[Out]:
        """As promised by `Workers`."""

        def submit(item: In) -> tuple[In, Future[Out]]:
            return item, self._threads.submit(self.run, function, item, seconds)

        return in_order(
            items,
            submit,
            lambda pending: settled(pending[1].result, pending[0], failed),
            cancel=lambda pending: pending[1].cancel(),
            most=2 * self.processes,
        )

    def run(self, function: Callable[[In], Out], item: In, seconds: float | None = None) -> Out:
        """One item, waited for. May be called by as many threads at once as there are processes.

        Raises:
            ItemFailed: It took too long, or its process was killed `ATTEMPTS` times.
        """
        for _ in range(ATTEMPTS):
            child = self._taken()
            try:
                well, found = child.ask(function, item, seconds)
            except TimeoutError:
                raise ItemFailed(f"it took more than {seconds:g} s") from None
            except (EOFError, ConnectionError):
                continue
            finally:
                self._given_back(child)
            if well:
                return found  # type: ignore[no-any-return]
            raise found
        raise ItemFailed(
            f"a worker process was killed {ATTEMPTS} times by the same item, most likely for its memory; take fewer workers, "
            "or look into the system's log"
        )

    def _taken(self) -> "_Child":
        with self._lock:
            if self._over:
                raise JourneymanError("the workers were ended while there was work for them")
            child = self._idle.pop() if self._idle else _Child()
            self._busy.add(child)
            return child

    def _given_back(self, child: "_Child") -> None:
        with self._lock:
            self._busy.discard(child)
            if child.asked or self._over:
                child.end()
            else:
                self._idle.append(child)

    def close(self) -> None:
        with self._lock:
            self._over = True
            for child in self._busy:
                child.kill()
        self._threads.shutdown(cancel_futures=True)
        for child in self._idle:
            child.end()
        self._idle.clear()


class _Child:
    """A process that does one item after the other."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self.asked = False
        """Whether it has still to answer, and so is of no more use."""

    def ask(self, function: Callable[[Any], Any], item: Any, seconds: float | None) -> tuple[bool, Any]:
        """Whether it went well, and the result, or what was raised.

        Raises:
            TimeoutError: It took too long.
            EOFError, ConnectionError: The process is gone.
        """
        self.asked = True
        self._pipe.send((function, item))
        if not self._pipe.poll(seconds):
            raise TimeoutError
        answer: tuple[bool, Any] = self._pipe.recv()
        self.asked = False
        return answer

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(pipe: Connection) -> None:
    # Ctrl-C is for whoever began this process: it ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, ConnectionError):
        while True:
            function, item = pipe.recv()
            try:
                answer = True, function(item)
            except Exception as error:  # noqa: BLE001 - raised again where it was asked for
                error.add_note("".join(traceback.format_exception(error)))
                answer = False, error
            try:
                pipe.send(answer)
            except (ConnectionError, EOFError):
                raise
            except Exception as error:  # noqa: BLE001 - anything may fail while it is pickled
                pipe.send((False, JourneymanError(f"a result cannot cross to another process: {error}")))
