"""Logs of the day and workspaces of agents: files of text in a folder, a document each, anew when it changes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from journeyman.core.document import Document
from journeyman.core.errors import InputError
from journeyman.tracing import fields
from journeyman.tracing.importers.source import ALL_FILES, FileChoice, Problem
from journeyman.tracing.sources.base import Item, SourceFinding, State
from journeyman.tracing.sources.files import FileUnit, below, changed, finding

_TEXTS = ("**/*.md", "**/*.txt", "**/*.rst", "**/*.org", "**/*.adoc", "**/*.log")
_WORKSPACE = ("**/*.md", "**/*.txt", "**/*.json", "**/*.yaml", "**/*.yml", "**/*.log")
_OTHERS = ("**/.git/**", "**/node_modules/**")
_LONGEST = 4 * 2**20
"""Bytes of a file; a longer one is no text that somebody wrote."""


class TextFiles:
    """Files of text in a folder."""

    def __init__(self, kind: str, path: Path, patterns: Sequence[str], is_a: Callable[[str], str]) -> None:
        self.kind, self._root = kind, path.expanduser().absolute()
        self._patterns, self._is_a = patterns, is_a
        self.choice: FileChoice = ALL_FILES

    def find(self) -> SourceFinding | None:
        return finding(self._root, self._units()) if self._root.exists() else None

    def read(self, states: Mapping[str, State]) -> Iterator[Item]:
        """
        Raises:
            InputError: There is no such folder.
        """
        if not self._root.exists():
            raise InputError(f"there is nothing at {self._root}")
        yield from changed(self._units(), states, self._document)

    def people(self) -> Iterable[str]:
        return ()

    def watched(self) -> Sequence[Path]:
        return [self._root]

    def _units(self) -> Iterator[FileUnit]:
        return (FileUnit(path, (path,)) for path in below(self._root, self._patterns, self._all_but_others()))

    def _all_but_others(self) -> FileChoice:
        return replace(self.choice, exclude=(*self.choice.exclude, *_OTHERS))

    def _document(self, unit: FileUnit, _: State) -> Iterator[Document | Problem]:
        path = unit.path
        with path.open("rb") as file:
            data = file.read(_LONGEST + 1)
        if len(data) > _LONGEST or b"\0" in data:
            yield Problem(str(path), "is no text" if b"\0" in data else f"is longer than {_LONGEST >> 20} MB")
            return
        text = data.decode("utf-8-sig", errors="replace")
        key = path.relative_to(self._root).as_posix() if path != self._root else path.name
        kind, told = self._is_a(key), fields.parsed(text) if path.suffix == ".json" else None
        at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        yield Document(
            source=self.kind, key=key, kind=kind, text=text, title=_title(text, told, path), author=_author(told, key, kind),
            at=at, where=str(self._root),
        )  # fmt: skip


def _title(text: str, told: Any, path: Path) -> str:
    """What stands over it: its first heading; of a status, what it says that is being done; else the file's name."""
    named = fields.first(fields.mapping(told), "title", "subject", "current_task", "current_mission")
    if isinstance(named, str):
        return named[:200]
    heading = next((line.lstrip("# ").strip() for line in text.splitlines()[:50] if line.startswith("#")), "")
    return heading[:200] or path.name


def _author(told: Any, key: str, kind: str) -> str | None:
    """The agent whose workspace it is in, or who says so in it."""
    named = fields.first(fields.mapping(told), "agent_id", "agent", "from", "sender", "author")
    if isinstance(named, str):
        return named
    return key.partition("/")[0] if kind in ("status", "inbox") and "/" in key else None


def devlogs(path: Path | None = None) -> TextFiles:
    return TextFiles("devlogs", path or Path("devlogs"), _TEXTS, lambda _: "devlog")


def workspaces(path: Path | None = None) -> TextFiles:
    """Agents' own workspaces: `AGENT/status.json`, `AGENT/inbox/…`, and notes beside them."""

    def kind(key: str) -> str:
        folders = key.lower().split("/")
        if any(part in ("inbox", "outbox", "messages") for part in folders[:-1]):
            return "inbox"
        return "status" if folders[-1].startswith("status") else "note"

    return TextFiles("workspaces", path or Path("agent_workspaces"), _WORKSPACE, kind)
