"""A file that is there whole, or as it was before; and what is in it, in a word."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from journeyman.errors import InputError


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write what will stand at `path` when all went well. It is its owner's alone: rows may hold what is private.

    Raises:
        InputError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    part = Path(name)
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """Of a file's content, in hexadecimal, as artifacts are named.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
