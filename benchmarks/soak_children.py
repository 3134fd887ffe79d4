"""Child processes of the campaign: forked from a warm process, killed with all below them, and what they leave behind."""

import ctypes
import json
import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from tests.support.processes import below, is_alive

_SUBREAPER = 36
"""Of prctl: what loses its parent becomes a child of this process, so that nobody below it gets out of sight."""
Acknowledge = Callable[[object], None]


@dataclass(slots=True, kw_only=True)
class Counts:
    """What came of one kind of piece."""

    tried: int = 0
    survived: int = 0
    refused: int = 0
    lost: int = 0
    tracebacks: int = 0
    left: int = 0
    notes: list[str] = field(default_factory=list)
    """A sentence for each loss, traceback and thing left."""

    def add(self, other: "Counts") -> None:
        for name in ("tried", "survived", "refused", "lost", "tracebacks", "left"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.notes += other.notes

    @property
    def sound(self) -> bool:
        return not (self.lost or self.tracebacks or self.left)


class Skipped(Exception):
    """Why a piece cannot be tried on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One go of a piece: all that it may depend on."""

    folder: Path
    """Its own, empty, and gone afterwards."""
    chance: random.Random
    """Made of the campaign's seed, the piece's name and the number of the turn."""
    seconds: float
    """How long it may take, where that can be chosen."""


class Child:
    """A fork of this process that runs a function, tells what it acknowledges by a pipe, and writes what it says to a file."""

    def __init__(self, folder: Path, does: Callable[[Acknowledge], None]) -> None:
        self.said = folder / f"said-{time.monotonic_ns()}"
        self._pipe, told = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._pipe)
            _run(self.said, told, does)
        os.close(told)
        self._rest = b""
        self.acknowledged: list[Any] = []
        self.ended = False

    def hear(self, timeout: float) -> bool:
        """Take what was acknowledged meanwhile; whether there was anything new. `ended` says that nothing more will come."""
        if self.ended or not select.select([self._pipe], [], [], timeout)[0]:
            return False
        found = os.read(self._pipe, 1 << 16)
        self.ended = not found
        *lines, self._rest = (self._rest + found).split(b"\n")
        self.acknowledged += map(json.loads, lines)
        return bool(lines)

    def until(self, count: int, timeout: float) -> bool:
        """Wait until so much was acknowledged."""
        deadline = time.monotonic() + timeout
        while len(self.acknowledged) < count and not self.ended and time.monotonic() < deadline:
            self.hear(min(1.0, max(0.0, deadline - time.monotonic())))
        return len(self.acknowledged) >= count

    def kill(self) -> None:
        """End it and all that is below it by SIGKILL; then hear the last of it."""
        for pid in (self.pid, *below(self.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._finish()

    def wait(self, timeout: float) -> int:
        """Its exit code once it has ended by itself; 137 where it had to be killed as it did not."""
        deadline = time.monotonic() + timeout
        while not self.ended and time.monotonic() < deadline:
            self.hear(0.5)
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._close()
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        self.kill()
        return 137

    @property
    def traceback(self) -> str:
        """The end of what it said, where that is a traceback; else nothing."""
        text = self.said.read_text(errors="replace") if self.said.exists() else ""
        return text[-1500:] if "Traceback (most recent call last)" in text else ""

    def _finish(self) -> None:
        deadline = time.monotonic() + 10
        while not self.ended and time.monotonic() < deadline:
            self.hear(1.0)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self._close()

    def _close(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe, self.ended = -1, True


def _run(said: Path, told: int, does: Callable[[Acknowledge], None]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        does(lambda what: _tell(told, what))
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever ends it is told as Python tells it
        traceback.print_exc()
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _tell(pipe: int, what: object) -> None:
    line = json.dumps(what).encode() + b"\n"
    while line:
        line = line[os.write(pipe, line) :]


def asked(folder: Path, does: Callable[[], Any], timeout: float = 60) -> tuple[Any, str]:
    """What a function gives in a process of its own, as JSON tells it, and what went wrong there."""
    child = Child(folder, lambda tell: tell(does()))
    code = child.wait(timeout)
    if child.acknowledged and not code:
        return child.acknowledged[0], ""
    return None, child.traceback or f"it ended with {code} and said nothing of it"


# What is left behind.


def adopt_orphans() -> None:
    """See the prctl above; nothing on systems that have none."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


class Ground:
    """The folders that the campaign may write to, and what is found there that nobody cleared away."""

    def __init__(self, folder: Path) -> None:
        self.temporary = folder / "tmp"
        """Where programs put their temporary files."""
        self.temporary.mkdir()
        self.work = folder / "work"
        self.work.mkdir()
        self.known: set[int] = set()
        """Processes that serve the whole campaign."""
        self._shared = _shared_memory()

    @contextmanager
    def piece(self) -> Iterator[tuple[Path, list[str]]]:
        """A folder for a piece; after the block, a word for each thing that it left."""
        folder, left = self.work / str(time.monotonic_ns()), list[str]()
        folder.mkdir()
        try:
            yield folder, left
        finally:
            left += self._processes()
            left += [f"the file {path.name} in the temporary folder" for path in _emptied(self.temporary)]
            left += [f"the unfinished file {path.relative_to(folder)}" for path in sorted(folder.rglob("*.part"))]
            _emptied(folder)
            folder.rmdir()

    def shared_memory(self) -> list[str]:
        """What has come into the shared memory since the beginning, and that no process uses."""
        found = _shared_memory() - self._shared
        return [f"the shared memory {name}" for name in sorted(found) if not _is_mapped(f"/dev/shm/{name}")]

    def _processes(self) -> list[str]:
        """What still runs half a second later; it is killed."""
        deadline, found = time.monotonic() + 0.5, list[int]()
        while True:
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            kept = {pid for known in self.known for pid in (known, *below(known))}
            found = [pid for pid in below(os.getpid()) if pid not in kept and is_alive(pid)]
            if not found or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        named = [f"the process {pid} ({_command(pid)})" for pid in found]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return named


def _shared_memory() -> set[str]:
    folder = Path("/dev/shm")
    with suppress(OSError):
        return {path.name for path in folder.iterdir() if path.stat().st_uid == os.getuid()}
    return set()


def _is_mapped(path: str) -> bool:
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            if path in maps.read_text(errors="replace"):
                return True
    return False


def _emptied(folder: Path) -> list[Path]:
    found = sorted(folder.iterdir())
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    return found


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80].strip()
    return "gone"
