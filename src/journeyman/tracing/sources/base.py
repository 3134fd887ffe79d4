"""What a source is: something that can be read again and again, and tells how far it was read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from journeyman.core.document import Document
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.source import Problem

State = Mapping[str, Any]
"""How far something was read, as JSON. It is kept: no words of anybody's may stand in it."""


@dataclass(frozen=True, slots=True)
class Bookmark:
    """How far what stands under a key was read: all that came before it in the stream is to be kept with it, or before."""

    key: str
    state: State | None
    """`None` where there is nothing any more."""


Item = RecordedTrace | Document | Problem | Bookmark


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFinding:
    """What there is to be read of a source, from names, sizes and times alone."""

    path: Path
    files: int
    bytes: int
    oldest: datetime | None = None
    newest: datetime | None = None
    lost_at: datetime | None = None
    """When the first of it will be deleted by the program that wrote it."""


class WorkSource(Protocol):
    """One place that can be read. A class of one's own is named as `module:Class`, and made with `path=`."""

    kind: str
    """Whose documents and states these are: `claude-code`, `git`, …"""

    def find(self) -> SourceFinding | None:
        """What there is; `None` where there is nothing. No file is opened."""

    def read(self, states: Mapping[str, State]) -> Iterator[Item]:
        """What is new since the bookmarks of before, with new ones between."""

    def people(self) -> Iterable[str]:
        """Names of people that the source knows of, to be masked in all texts."""

    def watched(self) -> Sequence[Path]:
        """Folders, or files, in which something changes when there is more to read."""
