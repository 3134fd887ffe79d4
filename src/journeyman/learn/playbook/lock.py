"""A lock between processes: whoever holds it is alone with a file, and a process that dies has let go of it.

The lock is of an empty file beside, `.NAME.lock`, which stays: to remove it would let two processes hold two locks of one name.
It holds between programs that ask for it (`flock`, advisory), on a local disk and on network disks that carry such locks.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from journeyman.errors import InputError, PlaybookError

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
    try:
        import fcntl
    except ModuleNotFoundError:
        raise PlaybookError(
            f"{path} cannot be locked: this system has no flock; on Windows, run it in the Windows Subsystem for Linux"
        ) from None
    beside = path.with_name(f".{path.name}.lock")
    try:
        beside.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise InputError(f"{beside} could not be made: {error.strerror}") from None
    try:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    said = f"{path} has been in use by another process for more than {patience:g} s; wait for it or stop it"
                    raise PlaybookError(busy or said) from None
                time.sleep(_PAUSE)
        yield
    finally:
        os.close(handle)
