"""Where things wait while the store cannot take them: a file of this process, first in, first out.

Each record is its length and checksum, and a thing as compressed JSON. A record that was torn by a crash, and whatever stands
behind it, is left out. A process holds a lock on its file while it lives, so a file without one was left behind, and whoever
starts next goes on with it.
"""

import fcntl
import json
import logging
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

from journeyman.core.errors import JourneymanError
from journeyman.io.atomic import flush

T = TypeVar("T")

log = logging.getLogger(__name__)

ENDING = ".spill"
_HEAD = struct.Struct("<II")
_LARGEST = 1 << 30
"""Bytes of a record; a length beyond it is a torn or foreign file."""


@dataclass(frozen=True, slots=True)
class SpilledPart(Generic[T]):
    """What stands first in a queue."""

    found: tuple[T, ...]
    records: int
    """How many records they were; more than were found where some could not be read."""
    end: int
    """The position behind them."""


class Spill(Generic[T]):
    """A queue on the disk, bounded in bytes. Not for several threads at once.

    A record is with the operating system when `append` returns, and outlives the process; where it is durable, also a loss of
    power.
    """

    def __init__(
        self,
        folder: Path,
        limit: int,
        *,
        write: Callable[[T], str],
        read: Callable[[object], T],
        durable: bool = False,
    ) -> None:
        """Nothing is touched before the first `append`.

        Args:
            folder: Where the file stands; made when it is needed.
            limit: Bytes that may wait.
            write: Makes JSON of a thing; raises `Unkeepable` where there is none.
            read: Makes a thing of what that JSON holds; raises `ValueError` or `JourneymanError`.
            durable: Whether each record is on the disk before `append` returns.
        """
        self._write_one, self._read_one, self._durable = write, read, durable
        self._folder = folder
        self._limit = limit
        self._file: int | None = None
        self._path: Path | None = None
        self._head = 0
        self._tail = 0
        self.records = 0
        """How many wait."""

    def append(self, thing: T) -> bool:
        """Put it last; whether it found room. A disk that refuses has none.

        Raises:
            Unkeepable: It holds what cannot be written as JSON.
        """
        record = pack(self._write_one(thing))
        if self._tail - self._head + len(record) > self._limit:
            return False
        try:
            self._write(record)
        except OSError as error:
            log.warning("something could not be spilled into %s: %s", self._folder, error.strerror)
            return False
        self.records += 1
        return True

    def first(self, most: int) -> SpilledPart[T]:
        """What has waited longest, at most so many. It goes on waiting until `forget`."""
        if self._file is None or not self.records:
            return SpilledPart((), 0, self._head)
        parts = list(islice(self._read(self._file, self._head), most))
        if parts:
            found = tuple(thing for thing, _ in parts if thing is not None)
            return SpilledPart(found, len(parts), parts[-1][1])
        # Something else has written into the file: what cannot be read does not come back by waiting.
        log.warning("%d records in %s cannot be read any more", self.records, self._path)
        return SpilledPart((), self.records, self._tail)

    def forget(self, part: SpilledPart[T]) -> None:
        """Take away what `first` gave."""
        self._head = part.end
        self.records = max(0, self.records - part.records)
        if not self.records:
            self._cut(0)

    def recover(self) -> int:
        """Take over what processes that are gone have left; how many things. Call it before the first `append`."""
        count = 0
        for path in sorted(self._folder.glob(f"*{ENDING}")):
            if (file := _lock(path)) is not None:
                try:
                    count += self._take(file, path)
                finally:
                    os.close(file)
        return count

    def close(self) -> None:
        """Let go of the file. It stays when something waits in it."""
        if self._file is None or self._path is None:
            return
        if not self.records:
            self._path.unlink(missing_ok=True)
        os.close(self._file)
        self._file = None

    def _take(self, file: int, path: Path) -> int:
        tail, records = self._tail, self.records
        try:
            for thing, _ in self._read(file, 0):
                if thing is not None:
                    self._write(pack(self._write_one(thing)))
                    self.records += 1
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("what %s holds cannot be taken over: %s", path, error.strerror)
            self.records = records
            self._cut(tail)
        return self.records - records

    def _write(self, record: bytes) -> None:
        file = self._open()
        if (written := os.pwrite(file, record, self._tail)) < len(record):
            # A disk that is nearly full takes a part, and then refuses.
            os.pwrite(file, record[written:], self._tail + written)
        if self._durable:
            os.fdatasync(file)
        self._tail += len(record)

    def _open(self) -> int:
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            name = self._folder / f"{time.time_ns()}-{os.getpid()}"
            file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            # Only what is locked has the ending, so that nobody takes it for left behind.
            self._path = name.rename(name.with_suffix(ENDING))
            self._file = file
            if self._durable:
                flush(self._folder)
        return self._file

    def _read(self, file: int, start: int) -> Iterator[tuple[T | None, int]]:
        """The whole records; `None` for one that is whole, but of another version of the program."""
        for body, end in records(file, start):
            try:
                thing = self._read_one(json.loads(zlib.decompress(body)))
            except (ValueError, zlib.error, JourneymanError):
                log.warning("a spilled record cannot be read, and is left out")
                yield None, end
            else:
                yield thing, end

    def _cut(self, tail: int) -> None:
        self._head, self._tail = min(self._head, tail), tail
        if self._file is not None:
            with suppress(OSError):
                os.ftruncate(self._file, tail)


def pack(text: str) -> bytes:
    """A record of a thing's JSON."""
    body = zlib.compress(text.encode(), 1)
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def records(file: int, start: int) -> Iterator[tuple[bytes, int]]:
    """The whole records from a position on, each with the position behind it. Ends where one is torn."""
    at = start
    while len(head := os.pread(file, _HEAD.size, at)) == _HEAD.size:
        length, checksum = _HEAD.unpack(head)
        body = os.pread(file, length, at + _HEAD.size) if 0 < length <= _LARGEST else b""
        if len(body) < length or not body or zlib.crc32(body) != checksum:
            return
        at += _HEAD.size + length
        yield body, at


def _lock(path: Path) -> int | None:
    """The file, locked; `None` when its process lives, or when somebody else has just taken it over."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(file).st_ino:
            return file
    except OSError:
        pass
    os.close(file)
    return None
