"""A lock between processes: whoever holds it is alone with a file, and a process that dies has let go of it.

The lock is of an empty file beside, `.NAME.lock`, which stays: to remove it would let two processes hold two locks of one name.
It holds between programs that ask for it (it is advisory), on a local disk and on network disks that carry such locks.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from journeyman.core.errors import InputError, PlaybookError

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
