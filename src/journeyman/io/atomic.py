"""Atomic writes: a file is there whole, or as it was before."""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError


@contextmanager
def atomic_write(path: Path, *, private: bool = True) -> Iterator[Path]:
    """Where to write what will stand at `path` when the block ends well: in its folder, which is made where it is missing.

    After the block the file is on the disk; after a crash the old one is there, or the new one. A link at `path` is replaced,
    not what it leads to.

    Args:
        private: The file is its owner's alone: rows may hold what is private. Otherwise it may be read as the umask says, or as
            the file could be that it replaces.

    Raises:
        InputError: It cannot be written, or the block raised an `OSError`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_file(path.parent, f".{path.name}.") as part:
            yield part
            commit(part, path, mode=None if private else _usual_mode(path))
    except OSError as error:
        raise InputError(f"{path} could not be written: {error.strerror or error}") from None


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8 whole or not at all, to be read as the umask says, or as the file could be that it replaces.

    Raises:
        InputError: It cannot be written.
    """
    with atomic_write(path, private=False) as part:
        part.write_bytes(encoded(text))


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """`write_text` of a JSON object, indented."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def encoded(text: str) -> bytes:
    """A text in UTF-8. Half a surrogate pair fits into none; within JSON its escape says the same."""
    return text.encode(errors="backslashreplace")


@contextmanager
def temporary_file(folder: Path, prefix: str) -> Iterator[Path]:
    """A new file for its owner alone in a folder; gone after the block where nobody has moved it. What others left there who
    were killed meanwhile goes as well."""
    _clear_away(folder.absolute(), prefix)
    handle, name = _locked(folder, prefix)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)
        os.close(handle)


_PART = ".part"


def _locked(folder: Path, prefix: str) -> tuple[int, str]:
    """A new file, locked: the lock goes with whoever writes, however that ends."""
    while True:
        handle, name = tempfile.mkstemp(prefix=prefix, suffix=_PART, dir=folder)
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle, name
        # Somebody cleared it away between the two.
        os.close(handle)


@cache
def _clear_away(folder: Path, prefix: str) -> None:
    """Remove unfinished files that nobody writes any more: once in a process, as only those are meant who were killed."""
    with suppress(OSError):
        for found in [each for each in folder.iterdir() if each.name.startswith(prefix) and each.name.endswith(_PART)]:
            with suppress(OSError), found.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.unlink()


def commit(part: Path, path: Path, *, mode: int | None = None) -> None:
    """Put a file that was written in the place of another in its folder, with other permissions where a `mode` is given.

    When this returns, it is on the disk.
    """
    flush(part, mode)
    part.replace(path)
    flush(path.parent)


def flush(path: Path, mode: int | None = None) -> None:
    """Wait until a file, or the entries of a folder, are on the disk; with other permissions where a `mode` is given."""
    handle = os.open(path, os.O_RDONLY)
    try:
        if mode is not None:
            os.fchmod(handle, mode)
        os.fsync(handle)
    finally:
        os.close(handle)


def _usual_mode(path: Path) -> int:
    if path.exists():
        return path.stat().st_mode & 0o777
    # There is no way to ask without setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask
