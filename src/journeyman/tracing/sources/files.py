"""Files that grow, are rewritten, rotated and cut off: which of them changed, and what stands in them that was not read yet.

No event is trusted: whether a file is as it was is told by its number, size and time, and whether it still begins with what was
read by a digest.
"""

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from journeyman.core.errors import InputError, TraceError
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.reading import complete
from journeyman.tracing.importers.source import ALL_FILES, LONGEST, FileChoice, Format, LineCensus, Problem, Row
from journeyman.tracing.sources.base import Bookmark, SourceFinding, State

_HEAD, _TAIL = 4096, 256
"""Bytes at the beginning, and before the place up to which was read, by which a file is known again."""


@dataclass(frozen=True, slots=True)
class FileUnit:
    """Files that are read together: one, or all of a session."""

    path: Path
    files: tuple[Path, ...]

    def signature(self) -> State:
        """What changes when one of them does.

        Raises:
            OSError: The first cannot be looked at, or is no file.
        """
        count, size, newest = 0, 0, 0
        told = self.path.stat()
        if not stat.S_ISREG(told.st_mode):
            raise OSError("is no regular file")
        for each in self.files:
            try:
                about = each.stat()
            except OSError:
                continue
            count, size, newest = count + 1, size + about.st_size, max(newest, about.st_mtime_ns)
        return {"inode": told.st_ino, "files": count, "size": size, "time": newest}


def below(root: Path, patterns: Iterable[str], choice: FileChoice = ALL_FILES) -> Iterator[Path]:
    """The files below a folder that are like one of the patterns and of the choice, sorted; or the file itself, whatever it is
    called.

    Links to folders are not followed.

    Raises:
        InputError: There is nothing at the path.
    """
    if root.is_file():
        yield root
        return
    if not root.exists():
        raise InputError(f"there is nothing at {root}")
    wanted = FileChoice(include=tuple(patterns))
    for folder, inner, names in os.walk(root):
        inner.sort()
        for name in sorted(names):
            path = Path(folder, name)
            within = path.relative_to(root).as_posix()
            if wanted.takes(within) and choice.takes(within):
                yield path


def finding(root: Path, units: Iterable[FileUnit], *, days: float | None = None) -> SourceFinding | None:
    """What is there, by names, sizes and times; `None` where nothing is.

    Args:
        days: After so many days without a change, the program that wrote a file deletes it.
    """
    count, size, times = 0, 0, []
    for unit in units:
        try:
            told = unit.signature()
        except OSError:
            continue
        if told["size"]:
            count, size = count + 1, size + told["size"]
            times.append(told["time"] / 1e9)
    if not times:
        return None
    oldest, newest = (datetime.fromtimestamp(at, UTC) for at in (min(times), max(times)))
    lost = None if days is None else datetime.fromtimestamp(min(times) + days * 86_400, UTC)
    return SourceFinding(path=root, files=count, bytes=size, oldest=oldest, newest=newest, lost_at=lost)


def changed(
    units: Iterable[FileUnit], states: Mapping[str, State], read: Callable[[FileUnit, State], Iterator[Any]]
) -> Iterator[Any]:
    """What `read` gives of units that are not as they were, each with a bookmark behind it; what cannot be read is named."""
    for unit in units:
        key = str(unit.path)
        before = states.get(key, {})
        try:
            now = unit.signature()
            if now["size"] == 0 or now.items() <= before.items():
                continue
            further: State = {}
            for one in read(unit, before):
                if isinstance(one, Bookmark):
                    further = one.state or {}
                else:
                    yield one
        except OSError as error:
            yield Problem(key, f"was left out: {error.strerror or error}")
            continue
        except InputError as error:
            yield Problem(key, str(error).removeprefix(f"{key} "))
            now = unit.signature()
        yield Bookmark(key, {**now, **further})


def follow(path: Path, format: Format, state: State) -> Iterator[RecordedTrace | Problem | Bookmark]:
    """The traces of a file of lines from the last one that was still going on; then how far it was read.

    A line without its end that is no value yet is being written, and is left for the next time.

    Raises:
        OSError: The file cannot be read.
    """
    several = format.several
    assert several is not None
    with path.open("rb") as file:
        at, line = (int(state["at"]), int(state["line"])) if _goes_on(file, state) else (0, 0)
        head: Row | None = state.get("head") if at else None
        file.seek(at)
        census = LineCensus(state.get("census") if at else None)
        before = census.told()
        group = _Group(path, format, head, [], census)
        open_at, open_line = at, line
        for text in iter(lambda: file.readline(LONGEST), b""):
            line += 1
            value = _value(text)
            if isinstance(value, dict) and several.begins(value):
                yield from group.traces()
                before = census.told()
                head = several.carried(group.rows) if group.rows else None
                group = _Group(path, format, head, [value], census)
                open_at, open_line = at, line - 1
            elif isinstance(value, dict) and several.belongs(value):
                group.rows.append(value)
            elif text.strip() and text.endswith(b"\n"):
                yield Problem(f"{path}:{line}", "is not JSON" if value is None else several.otherwise)
            at += len(text)
        yield from group.traces()
        yield from census.problems(str(path))
        known = {"at": open_at, "line": open_line, "head": head, "census": before}
        yield Bookmark(str(path), {**known, "mark": _mark(file, open_at), "end": at})


class _Group:
    """Lines that belong together."""

    def __init__(self, path: Path, format: Format, carried: Row | None, rows: list[Row], census: LineCensus) -> None:
        self._path, self._format, self._census = path, format, census
        self._carried = carried
        self.rows = [*([] if carried is None else [carried]), *rows]

    def traces(self) -> Iterator[RecordedTrace | Problem]:
        if self.rows and self._format.several and self._format.read:
            record = self._format.several.joined([*self.rows])
            own = self.rows if self._carried is None else self.rows[1:]
            self._census.take(self._format.kinds(self._format.several.joined([*own])) if own else ())
            for found in self._format.read(record):
                if isinstance(found, TraceError):
                    yield Problem(str(self._path), str(found))
                else:
                    yield complete(found, self._format, str(self._path))


def _value(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _goes_on(file: IO[bytes], state: State) -> bool:
    """Whether a file still begins with what was read of it."""
    size = os.fstat(file.fileno()).st_size
    return "mark" in state and size >= state["end"] and _mark(file, state["at"]) == state["mark"]


def _mark(file: IO[bytes], at: int) -> str:
    """A digest of how a file begins, and of what stands before a place. The head ends there: what comes behind may change."""
    file.seek(0)
    head = file.read(min(_HEAD, at))
    file.seek(max(0, at - _TAIL))
    return hashlib.sha256(head + file.read(min(_TAIL, at))).hexdigest()[:16]
