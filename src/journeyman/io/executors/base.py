"""Who does much of the same at once."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Protocol, Self, TypeVar

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
