"""Who does much of the same at once, and workers on this machine: this process itself, or a pool of processes."""

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Protocol, Self, TypeVar

from journeyman.core.errors import JourneymanError

In = TypeVar("In")
Out = TypeVar("Out")
Pending = TypeVar("Pending")


class Workers(Protocol):
    """One verb. Functions and values cross to other processes, so both must be able to be pickled by a worker's own library."""

    def map(self, function: Callable[[In], Out], items: Iterable[In]) -> Iterator[Out]:
        """Each result, in the order of the items, as soon as it and all before it are there.

        Only a few items more than there are workers are taken before they are needed: a file may be longer than memory. What
        the function raises is raised here, and nothing more is begun.
        """

    def close(self) -> None:
        """End the workers. Not used afterwards."""

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


class Here:
    """No workers at all: one after the other, in this process."""

    def map(self, function: Callable[[In], Out], items: Iterable[In]) -> Iterator[Out]:
        return map(function, items)

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Processes(Here):
    """A pool of processes, each begun fresh: nothing of this one's threads, locks or open files is inherited."""

    def __init__(self, processes: int | None = None) -> None:
        """Begin when the first work comes.

        Args:
            processes: How many; as many as there are cores for this process, when nothing is said.
        """
        self.processes = processes or len(os.sched_getaffinity(0))
        self._pool: ProcessPoolExecutor | None = None

    def map(self, function: Callable[[In], Out], items: Iterable[In]) -> Iterator[Out]:
        """As promised by `Workers`.

        Raises:
            JourneymanError: A worker was killed, as the system does when memory runs out.
        """
        pool = self._pool = self._pool or ProcessPoolExecutor(self.processes, multiprocessing.get_context("spawn"))
        try:
            yield from in_order(
                items,
                lambda item: pool.submit(function, item),
                lambda future: future.result(),
                cancel=lambda future: future.cancel(),
                most=2 * self.processes,
            )
        except BrokenProcessPool:
            raise JourneymanError(
                "a worker process was killed, most likely for its memory; take fewer workers, or look into the system's log"
            ) from None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
