"""Who does much of the same at once."""

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Protocol, Self, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


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
