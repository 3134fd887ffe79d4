"""What an importer is: it says whether a record is its own, and what traces are in it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from journeyman.core.errors import TraceError
from journeyman.tracing.base import RecordedTrace

Row = Mapping[str, Any]


class Importer(Protocol):
    """One way to write traces down; what a class of one's own must have. It may also say `unique`, as in `Format`."""

    def recognises(self, record: Row) -> bool:
        """Whether a record, a JSON object, is of this format."""

    def read(self, record: Row) -> Iterable[RecordedTrace | TraceError]:
        """The traces of a record; what of it is broken comes as an error between them, or is raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """An importer made of two functions."""

    name: str
    recognises: Callable[[Row], bool]
    """Whether a record is of this format. Asked in the order of the registry's table: the narrower ones come first."""
    read: Callable[[Row], Iterable[RecordedTrace | TraceError]]
    """The traces of a record; what of it is broken comes as an error between them, or is raised."""
    unique: bool = False
    """Whether the ids that it writes are unique in the world."""
