"""Files of the user's: read as text, checked before they are written, and named by their content."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError, PlaybookError


def read_text(path: Path | str) -> str:
    """A whole file as text, its line ends as they are."""
    try:
        return Path(path).read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise InputError(f"{path} is not there; check the name") from None
    except UnicodeDecodeError:
        raise not_utf8(path) from None
    except OSError as error:
        raise InputError(f"{path} could not be read: {error.strerror}") from None


def not_utf8(path: Path | str) -> InputError:
    """What is said of a file that was to be text. No place is named: who decodes by pieces knows it within one of them."""
    return InputError(
        f"{path} is not text in UTF-8; is it the right file? If so, save it as UTF-8: in a spreadsheet as 'CSV UTF-8', "
        "in a terminal by iconv -f WINDOWS-1252 -t UTF-8 (or -f UTF-16)"
    )


def read_json(path: Path | str) -> Any:
    """The value in a file of JSON.

    Raises:
        InputError: It cannot be read, or is no JSON.
    """
    try:
        return json.loads(read_text(path).removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None


def read_object(path: Path) -> Mapping[str, Any]:
    """The object in a file of JSON.

    Raises:
        InputError: It cannot be read, or holds something else.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(f"{path} is not a JSON object")
    return value


def check_writable(path: Path) -> None:
    """Find out whether a file could be written there, before work is spent on what it will hold. Nothing is made.

    Raises:
        InputError: It could not.
    """
    if path.is_dir():
        raise InputError(f"{path} could not be written: it is a folder; name a file in it")
    folder = next(folder for folder in path.absolute().parents if folder.exists())
    if not folder.is_dir():
        raise InputError(f"{path} could not be written: {folder} is a file and not a folder; name another place")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{path} could not be written: {folder} is not yours to write to; name another place")


def sha256(path: Path) -> str:
    """Of a file's content, in hexadecimal, as artifacts are named.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# A lock between processes.


PATIENCE = 60.0
"""Seconds that another process is waited for. It holds the lock while it merges, not while it asks a model."""
_PAUSE = 0.01


@contextmanager
def locked(path: Path, *, patience: float = PATIENCE, busy: str = "") -> Iterator[None]:
    """Be alone with a file, which need not be there yet. Not to be asked for twice by one holder: it would wait for itself.

    Args:
        patience: Seconds to wait for whoever holds it now; 0 asks once.
        busy: The sentence for one who waited in vain.

    Raises:
        PlaybookError: Somebody else still holds it, or this system has no such locks.
        InputError: The lock's file cannot be made.
    """
    from filelock import FileLock, Timeout  # Takes 0.06 s to load.

    beside = path.with_name(f".{path.name}.lock")
    # Where there are no locks of the system's, filelock would make a file, which outlives a process that is killed.
    lock = FileLock(beside, timeout=patience, poll_interval=_PAUSE, fallback_to_soft=False, preserve_lock_file=True)
    try:
        beside.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        said = f"{path} has been in use by another process for more than {patience:g} s; wait for it or stop it"
        raise PlaybookError(busy or said) from None
    except NotImplementedError:
        raise PlaybookError(f"{path} cannot be locked: its disk has no locks; keep it on a local one") from None
    except OSError as error:
        raise InputError(f"{beside} could not be made: {error.strerror or error}") from None
    try:
        yield
    finally:
        lock.release()
