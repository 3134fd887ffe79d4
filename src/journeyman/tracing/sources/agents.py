"""Sessions of coding agents on this machine, where their programs keep them."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journeyman.tracing import fields
from journeyman.tracing.importers import reading
from journeyman.tracing.importers.source import ALL_FILES, FileChoice
from journeyman.tracing.sources.base import Item, SourceFinding, State
from journeyman.tracing.sources.files import FileUnit, below, changed, finding, follow

_KEPT_DAYS = 30
"""For so long Claude Code keeps a session that nobody goes on with, unless its settings say otherwise."""


@dataclass(frozen=True, slots=True)
class _Agent:
    """Where a program keeps its sessions."""

    roots: Callable[[Path], Sequence[Path]]
    """In somebody's home."""
    patterns: tuple[str, ...]
    together: Callable[[Path], tuple[Path, ...]] = lambda path: (path,)
    """The files that are read with one that is like the patterns."""


def _variable(name: str, otherwise: Path) -> Path:
    return Path(os.environ[name]).expanduser() if os.environ.get(name) else otherwise


def _opencode_files(path: Path) -> tuple[Path, ...]:
    storage = path.parent.parent.parent
    messages = sorted((storage / "message" / path.stem).glob("*.json"))
    parts = (part for message in messages for part in sorted((storage / "part" / message.stem).glob("*.json")))
    return (path, *messages, *parts)


def _events_of(path: Path) -> tuple[Path, ...]:
    return tuple(sorted(path.parent.glob("*.json")))


_AGENTS: Mapping[str, _Agent] = {
    "claude-code": _Agent(
        lambda home: (_variable("CLAUDE_CONFIG_DIR", home / ".claude") / "projects",), ("**/*.jsonl", "**/*.jsonl.[0-9]*")
    ),
    "codex": _Agent(
        lambda home: [_variable("CODEX_HOME", home / ".codex") / name for name in ("sessions", "archived_sessions")],
        ("**/rollout-*.jsonl",),
    ),
    "gemini": _Agent(lambda home: (home / ".gemini/tmp",), ("*/chats/*.json", "*/chats/*.jsonl")),
    "opencode": _Agent(
        lambda home: (_variable("XDG_DATA_HOME", home / ".local/share") / "opencode/storage",),
        ("session/*/ses*.json",),
        _opencode_files,
    ),
    "openhands": _Agent(lambda home: (home / ".openhands",), ("**/events/0.json", "**/events/event-00000-*.json"), _events_of),
    "cursor": _Agent(
        lambda home: (
            *(
                place / "Cursor/User"
                for place in (home / ".config", home / "Library/Application Support", home / "AppData/Roaming")
            ),
            home / ".cursor/projects",
        ),
        ("globalStorage/state.vscdb", "**/agent-transcripts/**.jsonl"),
    ),
    # Beside the code that it works on, which may be anywhere: only here is looked unasked.
    "aider": _Agent(lambda _: (Path.cwd(),), ("**/.aider.chat.history.md",)),
}


class AgentSessions:
    """The sessions of one program: where it keeps them, or in a file or folder that is named."""

    def __init__(self, kind: str, path: Path | None = None) -> None:
        self.kind, self._agent = kind, _AGENTS[kind]
        self._named = path
        self.choice: FileChoice = ALL_FILES
        self._roots = [path.expanduser()] if path else list(self._agent.roots(Path.home()))

    def find(self) -> SourceFinding | None:
        found = [(root, finding(root, self._units_of(root), days=self._days)) for root in self._roots if root.exists()]
        return next((each for _, each in found if each is not None), None)

    def read(self, states: Mapping[str, State]) -> Iterator[Item]:
        """
        Raises:
            InputError: There is nothing at the path that was named.
        """
        format = reading.importer(self.kind)

        def read(unit: FileUnit, state: State) -> Iterator[Any]:
            if format.several is not None and format.unique and unit.path.suffix != ".json":
                return follow(unit.path, format, state)
            return reading.read(unit.path, self.kind)

        for root in self._roots:
            if root.exists() or self._named:
                yield from changed(self._units_of(root), states, read)

    def people(self) -> Iterable[str]:
        return ()

    def watched(self) -> Sequence[Path]:
        return [root for root in self._roots if root.exists()]

    def _units_of(self, root: Path) -> Iterator[FileUnit]:
        for path in below(root, self._agent.patterns, self.choice):
            yield FileUnit(path, self._agent.together(path))

    @property
    def _days(self) -> float | None:
        """After how many days the program deletes what nobody touched."""
        if self.kind != "claude-code":
            return None
        settings = self._roots[0].parent / "settings.json"
        try:
            said = fields.mapping(fields.parsed(settings.read_bytes())).get("cleanupPeriodDays")
        except OSError:
            said = None
        return fields.number(said) or _KEPT_DAYS


def claude_code(path: Path | None = None) -> AgentSessions:
    return AgentSessions("claude-code", path)


def codex(path: Path | None = None) -> AgentSessions:
    return AgentSessions("codex", path)


def gemini(path: Path | None = None) -> AgentSessions:
    return AgentSessions("gemini", path)


def opencode(path: Path | None = None) -> AgentSessions:
    return AgentSessions("opencode", path)


def openhands(path: Path | None = None) -> AgentSessions:
    return AgentSessions("openhands", path)


def cursor(path: Path | None = None) -> AgentSessions:
    return AgentSessions("cursor", path)


def aider(path: Path | None = None) -> AgentSessions:
    return AgentSessions("aider", path)
