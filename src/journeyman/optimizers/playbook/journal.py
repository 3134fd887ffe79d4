"""Every change to a playbook, one line each, in a file that is only ever appended to.

A line is `{"n", "previous", <change>, "hash"}`. `n` is the revision it leads to; `previous` is the hash of the line before;
`hash` is the SHA-256 of the line as it stands, without its hash. The change is one of

    "playbook"   the playbook that the journal starts from: line 1, revision 0
    "batch"      deltas that were merged
    "restore"    the number of an earlier revision that was brought back

So a line that was altered, dropped or moved is found, and named by file and line. What has no newline at its end was never
acknowledged (a crash came first): it is ignored, and cut off before the next line is written.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import TypeAdapter

from journeyman.core.errors import PlaybookError, boundary
from journeyman.core.playbook import (
    Add,
    Batch,
    Bullet,
    Delta,
    Evidence,
    Hold,
    Lock,
    Merge,
    MoveTo,
    Playbook,
    Retire,
    Support,
    UpdateBullet,
    Vote,
)
from journeyman.io.atomic import atomic_write


@dataclass(frozen=True, slots=True)
class Restore:
    """The state of an earlier revision, brought back."""

    revision: int
    at: str = ""


Change = Playbook | Batch | Restore


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a journal, verified."""

    revision: int
    previous: str
    hash: str
    change: Change


class Journal:
    """A journal open for appending. One process at a time: a second writer is noticed, and refused."""

    def __init__(self, path: Path) -> None:
        """Read and verify the journal that is there; `Journal.create` begins one."""
        self.path = path
        states, last, self._end = _replayed(path, None)
        self.playbook = states[last.revision]
        """The newest revision."""
        self.revision = last.revision
        self.head = last.hash
        """The hash of the last line: who keeps it can tell that none was cut off since."""
        self._size = path.stat().st_size

    @classmethod
    def create(cls, path: Path, initial: Playbook | None = None) -> "Journal":
        """Begin a journal with a playbook, an empty one by default. There must be none at the path yet."""
        if path.exists():
            raise PlaybookError(f"{path} is there already; open it, or begin the journal elsewhere")
        line, _ = _line(0, "", initial or Playbook())
        with atomic_write(path) as part:
            part.write_bytes(line)
        return cls(path)

    @property
    def newest(self) -> bool:
        """Whether the file still ends where it did: nobody else has written to it."""
        return self.path.stat().st_size == self._size

    def append(self, batch: Batch) -> Playbook:
        """Merge a batch: when this returns, it is on the disk. One that is there already is not written again."""
        if batch.id in self.playbook.batches:
            return self.playbook
        return self._append(batch, self.playbook.apply(batch))

    def restore(self, revision: int, at: str = "") -> Playbook:
        """Bring an earlier revision back, as a new one: nothing is taken out of the journal.

        Bullets are as they were then. Those born since are retired, so that their ids are not used again; those that are
        locked now stay as they are; batches merged since are not merged once more.
        """
        past = replay(self.path, revision)
        return self._append(Restore(revision, at), _restored(past, self.playbook, Restore(revision, at)))

    def _append(self, change: Change, after: Playbook) -> Playbook:
        line, digest = _line(self.revision + 1, self.head, change)
        try:
            with self.path.open("r+b") as file:
                self._write(file, line)
        except OSError as error:
            raise PlaybookError(
                f"{self.path} could not be written: {error.strerror or error}; the playbook is as it was before"
            ) from error
        self._end = self._size = self._end + len(line)
        self.revision, self.head, self.playbook = self.revision + 1, digest, after
        return after

    def _write(self, file: BinaryIO, line: bytes) -> None:
        if os.fstat(file.fileno()).st_size != self._size:
            raise PlaybookError(f"{self.path} was changed by another process since it was opened; open it again")
        file.truncate(self._end)
        self._size = self._end
        file.seek(self._end)
        try:
            _write(file.fileno(), line)
        except OSError:
            # The disk took half of it: the next line begins where this one did.
            file.truncate(self._end)
            raise


def replay(path: Path, until: int | None = None) -> Playbook:
    """The playbook at a revision, the newest by default, rebuilt from the beginning and verified on the way."""
    states, last, _ = _replayed(path, until)
    return states[last.revision]


def read(path: Path) -> Iterator[Entry]:
    """The entries, oldest first, each verified before it is given. Raises `PlaybookError` where the chain breaks."""
    return (entry for entry, _ in _entries(path))


def _replayed(path: Path, until: int | None) -> tuple[dict[int, Playbook], Entry, int]:
    """The last revision asked for (and those that were restored), its entry, and where its line ends."""
    entries: list[tuple[Entry, int]] = []
    for entry, end in _entries(path):
        entries.append((entry, end))
        if entry.revision == until:
            break
    last, end = entries[-1]
    if until is not None and last.revision != until:
        raise PlaybookError(f"{path} has no revision {until}; it has 0 to {last.revision}")
    wanted = {entry.change.revision for entry, _ in entries if isinstance(entry.change, Restore)} | {last.revision}
    states: dict[int, Playbook] = {}
    playbook = Playbook()
    waiting: list[Batch] = []
    for entry, _ in entries:
        match entry.change:
            case Playbook():
                playbook = entry.change
            case Batch():
                # Merged together, they share one pass over the bullets.
                waiting.append(entry.change)
            case Restore():
                playbook = _restored(states[entry.change.revision], playbook.apply(*waiting), entry.change)
                waiting = []
        if entry.revision in wanted:
            playbook, waiting = playbook.apply(*waiting), []
            states[entry.revision] = playbook
    return states, last, end


def _restored(past: Playbook, now: Playbook, restore: Restore) -> Playbook:
    before = {bullet.id: bullet for bullet in past.bullets}

    def then(bullet: Bullet) -> Bullet:
        if bullet.locked or (bullet.retired and bullet.id not in before):
            return bullet
        born_since = replace(bullet, retired=f"not in revision {restore.revision}", updated_at=restore.at or bullet.updated_at)
        return before.get(bullet.id, born_since)

    return replace(now, bullets=tuple(then(bullet) for bullet in now.bullets))


def _entries(path: Path) -> Iterator[tuple[Entry, int]]:
    """Each entry with the place in the file where its line ends."""
    previous, end = "", 0
    with boundary(PlaybookError, f"{path} could not be read"), path.open("rb") as file:
        for number, line in enumerate(file):
            if not line.endswith(b"\n"):
                break
            end += len(line)
            entry = _entry(line, number, previous, f"{path}:{number + 1}")
            previous = entry.hash
            yield entry, end
    if not end:
        raise PlaybookError(f"{path}:1: no journal begins here; if the file is empty, delete it and begin a new one")


def _entry(line: bytes, number: int, previous: str, where: str) -> Entry:
    body, _, tail = line.rpartition(b',"hash":"')
    digest = hashlib.sha256(body + b"}").hexdigest()
    if tail != digest.encode() + b'"}\n':
        raise PlaybookError(f"{where}: the line does not match its hash, so it was altered; bring the file back from a copy")
    with boundary(PlaybookError, f"{where}: no entry of a journal"):
        fields = json.loads(body + b"}")
        if fields["n"] != number or fields["previous"] != previous:
            raise PlaybookError(f"{where}: the line does not follow the one before it; bring the file back from a copy")
        change = _change(fields)
        if isinstance(change, Playbook) != (number == 0) or (isinstance(change, Restore) and not 0 <= change.revision < number):
            raise PlaybookError(f"{where}: this change cannot stand here; bring the file back from a copy")
    return Entry(revision=number, previous=previous, hash=digest, change=change)


def _line(revision: int, previous: str, change: Change) -> tuple[bytes, str]:
    fields = {"n": revision, "previous": previous, **_fields(change)}
    with boundary(PlaybookError, f"revision {revision} cannot be written as JSON in UTF-8"):
        body = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    digest = hashlib.sha256(body).hexdigest()
    return body[:-1] + b',"hash":"' + digest.encode() + b'"}\n', digest


def _write(file: int, line: bytes) -> None:
    view = memoryview(line)
    while view:
        view = view[os.write(file, view) :]
    os.fsync(file)


_OPS: dict[str, type[Delta]] = {
    "add": Add,
    "support": Support,
    "vote": Vote,
    "update": UpdateBullet,
    "merge": Merge,
    "retire": Retire,
    "lock": Lock,
    "hold": Hold,
    "evidence": Evidence,
    "move": MoveTo,
}
"""The word for each kind of delta in a file. Published words are never given another meaning."""

_NAMES = {kind: op for op, kind in _OPS.items()}
_DELTAS: dict[str, TypeAdapter[Delta]] = {op: TypeAdapter(kind) for op, kind in _OPS.items()}
_PLAYBOOK = TypeAdapter(Playbook)
_TEXT = TypeAdapter(str)


def delta_to_json(delta: Delta) -> dict[str, Any]:
    """A delta as a JSON object, with its kind as `op`."""
    op = _NAMES[type(delta)]
    return {"op": op, **_DELTAS[op].dump_python(delta, mode="json")}


def delta_from_json(fields: dict[str, Any]) -> Delta:
    """What `delta_to_json` wrote. Raises `PlaybookError` for anything else."""
    op = fields.get("op")
    if op not in _OPS:
        raise PlaybookError(f"no kind of delta {op!r}; there are {', '.join(_OPS)}")
    with boundary(PlaybookError, f"a delta of kind {op!r} could not be read"):
        return _DELTAS[op].validate_python({name: value for name, value in fields.items() if name != "op"})


def _fields(change: Change) -> dict[str, Any]:
    match change:
        case Playbook():
            fields = _PLAYBOOK.dump_python(change, mode="json")
            return {"playbook": {**fields, "batches": sorted(change.batches), "trained_on": sorted(change.trained_on)}}
        case Batch():
            said = {"id": change.id, "at": change.at, "deltas": [delta_to_json(delta) for delta in change.deltas]}
            return {"batch": {**said, "trained_on": sorted(change.trained_on)} if change.trained_on else said}
        case Restore():
            return {"restore": change.revision, "at": change.at}


def _change(fields: dict[str, Any]) -> Change:
    if "batch" in fields:
        batch = fields["batch"]
        deltas = tuple(delta_from_json(delta) for delta in batch["deltas"])
        # Journals of before do not say what a batch was learned from.
        id, at = (_TEXT.validate_python(batch[name]) for name in ("id", "at"))
        return Batch(id=id, at=at, deltas=deltas, trained_on=frozenset(batch.get("trained_on", ())))
    if "restore" in fields:
        return Restore(fields["restore"], fields["at"])
    return _PLAYBOOK.validate_python(fields["playbook"])
