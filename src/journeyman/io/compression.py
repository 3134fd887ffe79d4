"""Files that may be gzipped: what their first bytes say counts, not their name."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

from journeyman.core.errors import InputError

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
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start})") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} could not be read: {getattr(error, 'strerror', None) or error}") from None
