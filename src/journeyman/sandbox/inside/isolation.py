"""The walls of one run, told in the order in which they go up. Those here are none: limits alone. Others build on them."""

import os
import resource
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

from . import linux

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
THREAD_STACK = 8 * 1024 * 1024

Limits = Mapping[str, Any]
"""The fields of `journeyman.sandbox.base.Limits` by name."""


class ProcessUsage:
    """What a tree of processes uses at one moment."""

    def __init__(self) -> None:
        self.cpu_seconds = 0.0
        self.processes = 0
        self.memory = 0


class FreeSpace:
    """What is left where the code may write."""

    def __init__(self, path: str) -> None:
        found = os.statvfs(path)
        self.used = (found.f_blocks - found.f_bfree) * found.f_frsize
        self.full = found.f_bfree == 0
        self.out_of_inodes = found.f_files > 0 and found.f_ffree == 0


class Isolation:
    """None but limits: a folder of its own, an environment of its own, and rlimits."""

    def __init__(self, folder: str) -> None:
        self.work = os.path.join(folder, "work")
        self.home = os.path.join(folder, "home")
        self.temporary = os.path.join(folder, "tmp")

    def surround(self) -> None:
        """In the supervisor, before anything of the run is there, and before it is known what will run."""
        if sys.platform == "linux":
            # What outlives its parent becomes a child of the supervisor, which can then find it.
            linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)

    def hold(self, init: int) -> None:
        """In the supervisor, when the first process within is there."""

    def build(self) -> None:
        """In the first process within, before it is known what will run."""

    def allow(self, limits: Limits) -> None:
        """In the supervisor, once the limits are known."""

    def furnish(self, limits: Limits) -> None:
        """In the first process within, then: what the code will find."""
        for folder in (self.work, self.home, self.temporary):
            os.makedirs(folder, exist_ok=True)

    def confine(self, limits: Limits) -> None:
        """In the process that will run the code, last of all."""
        rlimits(limits)

    def environment(self) -> dict[str, str]:
        """All that the code sees of the world."""
        return {"PATH": os.environ.get("PATH", os.defpath), "HOME": self.home, "TMPDIR": self.temporary, "LANG": "C.UTF-8"}

    def usage(self, init: int) -> ProcessUsage:
        """Of the processes within. `init` is the first of them, as the supervisor knows it."""
        return usage("/proc", descendants(os.getpid()))

    def refused(self) -> str | None:
        """The limit at which the kernel refused more, as far as it tells."""
        return None

    def peak_memory(self) -> int | None:
        """Bytes of the whole tree, as counted by the kernel; `None` where it does not."""
        return None

    def free_space(self) -> FreeSpace | None:
        """`None` where the code writes to a disk that is not its own."""
        return None

    def kill(self, init: int) -> None:
        """End every process within."""
        end(init)
        dead: set[int] = set()
        for _ in range(1000):
            found = descendants(os.getpid())
            # One that forked and ended meanwhile left a child that was not listed yet, and itself as a zombie not seen before.
            if not (alive := [pid for pid in found if not _is_zombie(pid)]) and dead.issuperset(found):
                return
            dead.update(found)
            for pid in alive:
                end(pid)
            time.sleep(0.001)

    def clean(self) -> None:
        """After the last process went."""


def end(pid: int) -> None:
    """Kill one process, if it is still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def rlimits(limits: Limits) -> None:
    """Of each single process. Those that the system does not know or refuses to lower are left as they are."""
    cpu = int(limits["cpu_seconds"]) + 1
    wanted = {
        "RLIMIT_CPU": (cpu, cpu + 1),
        "RLIMIT_FSIZE": (limits["file_size"],) * 2,
        "RLIMIT_NOFILE": (limits["open_files"],) * 2,
        "RLIMIT_CORE": (0, 0),
        "RLIMIT_MEMLOCK": (64 * 1024,) * 2,
        # Stacks of threads are reserved before they are used.
        "RLIMIT_DATA": (limits["memory"] + limits["processes"] * THREAD_STACK,) * 2,
        "RLIMIT_MSGQUEUE": (0, 0),
        "RLIMIT_SIGPENDING": (1024, 1024),
    }
    for name, value in wanted.items():
        if (which := getattr(resource, name, None)) is not None:
            _, hard = resource.getrlimit(which)
            soft, ceiling = value
            if hard != resource.RLIM_INFINITY:
                soft, ceiling = min(soft, hard), min(ceiling, hard)
            resource.setrlimit(which, (soft, ceiling))


def descendants(ancestor: int) -> list[int]:
    """All processes below one, this moment. Empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    for pid in processes("/proc"):
        if (fields := _stat("/proc", pid)) is not None:
            children.setdefault(int(fields[1]), []).append(pid)
    below: list[int] = []
    waiting = [ancestor]
    while waiting:
        found = children.get(waiting.pop(), [])
        below += found
        waiting += found
    return below


def _is_zombie(pid: int) -> bool:
    fields = _stat("/proc", pid)
    return fields is None or fields[0] == b"Z"


def usage(proc: str, pids: list[int]) -> ProcessUsage:
    """What these processes use: CPU with that of children they have waited for, memory as it is shared out among them."""
    total = ProcessUsage()
    resident = 0
    for pid in pids:
        fields = _stat(proc, pid)
        if fields is not None:
            total.cpu_seconds += sum(int(field) for field in fields[11:15]) / TICKS
            total.processes += int(fields[17])
            resident += int(fields[21]) * PAGE
    total.memory = resident
    return total


def shared_out(proc: str, pids: list[int]) -> int:
    """Bytes of memory of these processes, a page that several share counted once among all that share it."""
    return sum(_proportional(f"{proc}/{pid}/smaps_rollup") for pid in pids)


def _proportional(path: str) -> int:
    try:
        with open(path, "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0


def processes(proc: str) -> list[int]:
    """All that a /proc shows."""
    try:
        return [int(name) for name in os.listdir(proc) if name.isdecimal()]
    except FileNotFoundError:
        return []


def _stat(proc: str, pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the third (state) on: a name may hold anything, also brackets."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None
