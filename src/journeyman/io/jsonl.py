"""JSON Lines: a value a line, gzipped or not, each with the place where it stands."""

import errno
import gzip
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Generic, TypeVar

from journeyman.core.errors import InputError
from journeyman.io.files import not_utf8

LONGEST = 256 * 2**20
"""Bytes of a line; a file with a longer one is no JSON Lines."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""Two in a row are one character."""
T = TypeVar("T")


class Unusable(ValueError):
    """Why a line cannot be used, as all that is said of it."""


@dataclass(frozen=True, slots=True)
class Line(Generic[T]):
    where: str
    """`file:line`."""
    number: int
    """From 1."""
    value: T


def iter_jsonl(
    path: Path | str,
    loads: Callable[[str], T],
    *,
    what: str = "no JSON",
    missing: str = "check the path",
    bad: Callable[[str, str], None] | None = None,
    unfinished: bool = True,
) -> Iterator[Line[T]]:
    """The values in a file, in order. Empty lines are left out.

    Args:
        loads: Makes a value of a line: `json.loads`, `json_object` or stricter. What it raises says what is wrong: `Unusable`
            alone; a `ValueError`, `TypeError`, `KeyError` or `RecursionError` behind `what`.
        what: What a line is that `loads` does not take: "no JSON".
        missing: What to do where there is no such file.
        bad: Told where and what of each line that cannot be used, which is then left out. Without it the first one is raised.
        unfinished: Whether a last line without its end counts; where it does not, its writer was killed.

    Raises:
        InputError: The file is not there or cannot be read, has a line of more than `LONGEST`, or one that cannot be used.
    """
    with open_maybe_compressed(path, missing=missing) as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST + 1), b""), start=1):
            where = f"{path}:{number}"
            if len(line) > LONGEST:
                raise InputError(f"{where}: a line of more than {LONGEST >> 20} MB")
            if not line.strip() or not (unfinished or line.endswith(b"\n")):
                continue
            try:
                value = loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                said = str(error) if isinstance(error, Unusable) else f"{what} ({error})"
                if bad is None:
                    raise InputError(f"{where}: {said}") from None
                bad(where, said)
                continue
            yield Line(where, number, value)


def json_object(text: str) -> dict[str, Any]:
    """The object that a text holds.

    Raises:
        Unusable: It holds another value, or text that is not valid Unicode.
        ValueError: It is no JSON.
    """
    return as_object(json.loads(text), text)


def as_object(value: object, text: str) -> dict[str, Any]:
    """A value that was parsed from a text (or from a part of it), if it is an object.

    Raises:
        Unusable: It is none, or text in it is not valid Unicode.
    """
    if not isinstance(value, dict):
        raise Unusable("not a JSON object")
    check_unicode(value, text)
    return value


def check_unicode(value: object, text: str) -> None:
    """JSON has an escape for half of a surrogate pair; UTF-8 and tokenizers have nothing for it.

    Raises:
        Unusable: `value`, which was parsed from `text`, holds one.
    """
    if _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except (UnicodeEncodeError, RecursionError):
            raise Unusable(
                "text in it is not valid Unicode: half of a surrogate pair (\\ud800 to \\udfff) stands alone"
            ) from None


def append_line(path: Path, line: str) -> None:
    """Add a line in one write, so that lines of several processes never stand in one another. A new file is its owner's alone.

    Behind what a killed process left half-written, a line of its own begins.

    Raises:
        OSError: It cannot be written. Of a disk that is nearly full it may have the beginning, which readers leave out.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(handle).st_size
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        data = (b"\n" if torn else b"") + line.encode() + b"\n"
        if os.write(handle, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(handle)


_GZIP = b"\x1f\x8b"


@contextmanager
def open_maybe_compressed(path: Path | str, *, missing: str = "check the path") -> Iterator[BufferedIOBase]:
    """A file's bytes, unpacked where it is gzipped. Failures to read in the block are told as those to open are.

    Args:
        missing: What to do where there is no such file.

    Raises:
        InputError: It is not there, cannot be read, is a broken archive, or what the block decoded is not UTF-8.
    """
    try:
        with Path(path).open("rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            if packed:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield unpacked
            else:
                yield file
    except FileNotFoundError:
        raise InputError(f"{path} is not there; {missing}") from None
    except UnicodeDecodeError:
        raise not_utf8(path) from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} could not be read: {getattr(error, 'strerror', None) or error}") from None
