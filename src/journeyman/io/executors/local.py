"""Workers on this machine: this process itself, or a pool of processes."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Self

from journeyman.core.errors import JourneymanError
from journeyman.io.executors.base import In, Out, in_order


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
