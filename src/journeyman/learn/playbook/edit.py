"""Changes made to a playbook file by hand: each goes to the journal beside the file first, so each can be undone.

The journal of `oslo.json` is `oslo.journal.jsonl`. It begins with the first change. Who changes a file is alone with it from
reading to writing, so processes that share one lose none of each other's changes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from journeyman.errors import InputError, PlaybookError
from journeyman.io.locks import locked
from journeyman.learn.playbook import files, formats
from journeyman.learn.playbook.formats.base import json_of
from journeyman.learn.playbook.journal import Entry, Journal, read, replay
from journeyman.playbook import Batch, Delta, Playbook


@dataclass(frozen=True, slots=True)
class Edited:
    """A playbook after a change."""

    playbook: Playbook
    revision: int | None
    """In the journal; `None` where nothing was written to one."""
    moved: Path | None = None
    """Where the journal went that knew nothing of the file as it was found."""


def journal_of(path: Path) -> Path:
    """The journal of a playbook file; a journal is its own."""
    return path if path.suffix == ".jsonl" else path.with_suffix(".journal.jsonl")


def at_revision(name: str) -> Playbook:
    """The playbook called `FILE`, or `FILE@3`: its revision 3, out of the journal beside it."""
    path, _, revision = name.rpartition("@")
    if path and revision.isdecimal() and not Path(name).exists():
        return replay(_journal(Path(path)), int(revision))
    return replay(Path(name)) if name.endswith(".jsonl") else files.load(name)


def batch(playbook: Playbook, verb: str, deltas: Sequence[Delta], at: str) -> Batch:
    """Deltas as one batch, whose id says what was done to which playbook."""
    return Batch(id=f"{verb} {files.digest(playbook)[:16]}", deltas=tuple(deltas), at=at)


def change(path: Path, batch: Batch) -> Edited:
    """Merge a batch into a playbook file, in place: `merge`, where the batch does not depend on what is there."""
    return merge(path, lambda _: batch)


def merge(path: Path, make: Callable[[Playbook], Batch], *, new: Playbook | None = None) -> Edited:
    """Merge a batch into a playbook file, in place. The journal is written first, then the file.

    What a crash kept from the file between the two is in the journal, and is merged upon. A file that its journal knows nothing
    of, since a training run or an editor has written it, begins a new journal; the old one is moved aside.

    Args:
        make: The batch for the newest playbook. It is called while the file is locked, so it should not wait for anybody.
        new: What a file begins as that is not there.

    Raises:
        InputError: The file is not there (and there is no `new`), or of another system's format.
        PlaybookError: Another process was busy with it for too long.
    """
    with locked(path):
        if new is not None and not path.exists():
            files.save(new, path)
        found = editable(path)
        journal, moved = _following(path), None
        before = journal.playbook if journal else found
        batch = make(before)
        after = before.apply(batch)
        if replace(after, batches=before.batches) == before:
            return Edited(before, None)
        if journal is None:
            journal, moved = _begun(path, found)
        after = journal.append(batch)
        files.save(after, path)
        return Edited(after, journal.revision, moved)


def restore(path: Path, revision: int, at: str) -> Edited:
    """Bring an earlier revision back, as a new one, and write the file."""
    _journal(path)
    with locked(path):
        journal = Journal(_journal(path))
        if path != journal.path and path.exists() and not _known(path, journal):
            raise PlaybookError(
                f"{path} was written by another program since revision {journal.revision}; "
                "move it elsewhere, then restore again"
            )
        after = journal.restore(revision, at)
        if path != journal.path:
            files.save(after, path)
        return Edited(after, journal.revision)


def revisions(path: Path) -> list[Entry]:
    """The entries of the journal beside a playbook file, oldest first, each verified."""
    return list(read(_journal(path)))


def _known(path: Path, journal: Journal) -> bool:
    """Whether a file is as the journal says, or as it was before the last change, which a crash may have kept from the file."""
    found = files.digest(files.load(path))
    if found == files.digest(journal.playbook):
        return True
    return journal.revision > 0 and found == files.digest(replay(journal.path, journal.revision - 1))


def _journal(path: Path) -> Path:
    journal = journal_of(path)
    if not journal.exists():
        playbook = files.load(path)
        runs = sorted({bullet.provenance.run for bullet in playbook.bullets if bullet.provenance.run})
        own = (
            f"; what training did to it is in the journals of its runs: .journeyman/runs/*-{runs[-1]}/journal.jsonl"
            if runs
            else ""
        )
        raise InputError(f"{path} has no journal of changes by commands; one begins with the first such change{own}")
    return journal


def editable(path: Path) -> Playbook:
    """The playbook in a file that may be changed in place.

    Raises:
        InputError: It is not there, or of another system's format.
        PlaybookError: It holds no playbook.
    """
    text = files.read_text(path)
    data = json_of(text, str(path)) if formats.is_json(text) else None
    if not (isinstance(data, dict) and isinstance(data.get("bullets"), list)):
        files.loads(text, str(path))
        raise InputError(f"{path} is not a playbook file: bring it in with `journeyman playbook import {path} --output FILE`")
    return files.loads(text, str(path))


def _following(path: Path) -> Journal | None:
    """The journal beside a file, if it knows the file."""
    there = journal_of(path)
    journal = Journal(there) if there.exists() else None
    return journal if journal and _known(path, journal) else None


def _begun(path: Path, playbook: Playbook) -> tuple[Journal, Path | None]:
    """A new journal; one that is in its place goes aside."""
    there, moved = journal_of(path), None
    if there.exists():
        moved = _aside(there)
        there.rename(moved)
    return Journal.create(there, playbook), moved


def _aside(path: Path) -> Path:
    for number in range(1, 10_000):
        aside = path.with_name(f"{path.name}.{number}")
        if not aside.exists():
            return aside
    raise PlaybookError(f"{path} cannot be moved aside: there are too many old journals; remove some")
