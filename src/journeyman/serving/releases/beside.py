"""What gateways keep in files of their own: whom they served without the store, who is on which candidate, their names."""

import fcntl
import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import BinaryIO, TextIO, cast
from uuid import uuid4

from journeyman.core.rollout import PRODUCTION
from journeyman.stores.base import DRAWN, Assignment


class DegradedSessions:
    """A file of whom gateways had to serve production, until the store is told: each writes there before it serves.

    Those that share it know of each other's at once; what one leaves behind that is killed, any other tells the store.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: BinaryIO | None = None
        self._inode = self._read = 0

    def add(self, served: Assignment) -> None:
        """It need not outlive the machine: then the session is over, too.

        Raises:
            OSError: It cannot be written.
        """
        with self._held("ab") as file:
            # What stands before it may be half a line, of whoever was killed as they wrote, or had no room.
            file.write(b"\n" + _line(served))

    def news(self) -> Sequence[Assignment]:
        """What was added since this was last asked. A look costs microseconds while there is nothing."""
        try:
            status = self._path.stat()
            if self._reader is None or status.st_ino != self._inode:
                self.close()
                # While it is open, its number is nobody else's.
                self._reader = self._path.open("rb", buffering=0)
                self._inode, self._read = os.fstat(self._reader.fileno()).st_ino, 0
            if status.st_size == self._read:
                return ()
            added = os.pread(self._reader.fileno(), max(status.st_size - self._read, 0), self._read)
        except OSError:
            self.close()
            return ()
        whole = added[: added.rfind(b"\n") + 1]
        self._read += len(whole)
        return _assignments(whole)

    def left(self, told: Collection[tuple[str, str]] = ()) -> list[Assignment]:
        """What the store has still to be told, whoever served it; where that is nothing the file goes.

        Args:
            told: Rollouts and units that it was told.
        """
        try:
            with self._held("rb+") as file:
                left = [each for each in _assignments(file.read()) if (each.rollout_id, each.unit) not in told]
                if not left:
                    self._path.unlink(missing_ok=True)
                return left
        except OSError:
            return []

    @contextmanager
    def _held(self, mode: str) -> Iterator[BinaryIO]:
        while True:
            with cast("BinaryIO", self._path.open(mode, buffering=0)) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                # Somebody may have taken it away before it was held.
                if _inode(self._path) == os.fstat(file.fileno()).st_ino:
                    yield file
                    return

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _line(each: Assignment) -> bytes:
    return json.dumps([*each[:5], each.at.isoformat()]).encode() + b"\n"


def _assignments(lines: bytes) -> list[Assignment]:
    found = []
    for line in lines.splitlines():
        with suppress(ValueError, TypeError):
            rollout_id, unit, arm, event, why, at = json.loads(line)
            found.append(Assignment(rollout_id, unit, arm, event, why, datetime.fromisoformat(at)))
    return found


class GatewayName:
    """What a process is called where gateways promise each other something: as the one before it in its folder that is gone."""

    def __init__(self, beside: Path) -> None:
        """
        Args:
            beside: How the path of the file begins that the name stands in. It is held as long as the process lives.
        """
        self.name = uuid4().hex
        self._file: TextIO | None = None
        # Without a file nobody takes it over, and whoever is killed is waited for until they are forgotten.
        with suppress(OSError):
            self._file = self._held(beside)
            self._file.seek(0)
            self.name = self._file.readline().strip() or self.name
            self._file.truncate(0)
            self._file.write(f"{self.name}\n")

    @staticmethod
    def _held(beside: Path) -> TextIO:
        for number in count():
            file = beside.with_name(f"{beside.name}-{number}").open("a+", buffering=1)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
            else:
                break
        return file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class CandidateSessions:
    """Files of which sessions are on a candidate, for a gateway that is started again while the store is away: others may be
    served production by whoever knows nothing of them, and these may not."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, rollout_id: str, found: Iterable[Assignment], *, anew: bool) -> None:
        """
        Args:
            anew: What stands there is known again, and goes.

        Raises:
            OSError: It cannot be written.
        """
        lines = b"".join(_line(each) for each in found if each.arm != PRODUCTION or each.why != DRAWN)
        if lines or anew:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / f"{rollout_id}.jsonl").open("wb" if anew else "ab", buffering=0) as file:
                file.write(lines)

    def of(self, rollout_id: str) -> Sequence[Assignment]:
        with suppress(OSError):
            return _assignments((self._folder / f"{rollout_id}.jsonl").read_bytes())
        return ()

    def forget_all_but(self, rollout_ids: Collection[str]) -> None:
        for path in self._folder.glob("*.jsonl"):
            if path.stem not in rollout_ids:
                with suppress(OSError):
                    path.unlink()
