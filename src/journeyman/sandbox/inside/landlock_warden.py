"""The walls of a run where no namespaces can be had: Landlock, a filter, a user of its own, and a watch over what is left.

    python -I inside landlock_warden JSON      one run, its socket on file descriptor 0

What namespaces would hide is refused instead. What a file system of its own would limit is looked at, and so a little late.
"""

import json
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import landlock_filter, landlock_rules, linux, seccomp
from .landlock_rules import READ, READ_FILE, USE
from .walls import Limits, ProcessUsage, Walls, descendants, processes, rlimits, shared_out, usage
from .warden import Warden, serve

DEVICES = (("/dev/null", USE), ("/dev/zero", USE), ("/dev/full", USE), ("/dev/random", READ_FILE), ("/dev/urandom", READ_FILE))
PUBLIC = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/filesystems", "/proc/version")
PR_SET_KEEPCAPS = 8
CAP_DAC_READ_SEARCH = 2
MEASURE_SECONDS = 0.03
"""Between two looks at the folder of the run."""


class Landlocked(Walls):
    """Of one run."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given["folder"])
        self.readable: list[str] = given["readable"]
        self.uid: int | None = given["uid"]
        self.reads_all: bool = given["reads_all"]

    def furnish(self, limits: Limits) -> None:
        super().furnish(limits)
        if self.uid is not None:
            for folder in (self.work, self.home, self.temporary):
                os.chown(folder, self.uid, self.uid)

    def confine(self, limits: Limits) -> None:
        self._own(self.work)
        rlimits(limits)
        others = 0 if self.uid is not None else _processes_of(os.getuid()) - 1
        # The kernel counts all that a user runs, this process too; the user is this run's own only if root gave it one.
        resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"] + others,) * 2)
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        landlock_rules.restrict(self._grants())
        if self.uid is not None:
            _become(self.uid, CAP_DAC_READ_SEARCH if self.reads_all else None)
        landlock_filter.apply(shared_user=self.uid is None)
        seccomp.apply()

    def usage(self, init: int) -> ProcessUsage:
        pids = [pid for pid in descendants(os.getpid()) if pid != init]
        used = usage("/proc", pids)
        if used.memory:
            used.memory = shared_out("/proc", pids)
        return used

    def _grants(self) -> Iterator[landlock_rules.Grant]:
        own = landlock_rules.everything(landlock_rules.version())
        yield from ((path, READ) for path in self.readable)
        yield from ((folder, own) for folder in (self.work, self.home, self.temporary))
        yield from DEVICES
        yield from ((path, READ_FILE) for path in PUBLIC)
        yield f"/proc/{os.getpid()}", READ

    def _own(self, folder: str) -> None:
        """What was laid out belongs to whoever runs."""
        if self.uid is not None:
            for place, folders, files in os.walk(folder):
                for name in (*folders, *files):
                    os.chown(os.path.join(place, name), self.uid, self.uid, follow_symlinks=False)


def _become(uid: int, keep: int | None) -> None:
    """Another user for good, with no capability but perhaps one."""
    linux.prctl(PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    linux.drop_capabilities(keep)
    # The kernel shuts /proc/self to whoever changed its user.
    linux.prctl(linux.PR_SET_DUMPABLE, 1)


class Patrol(Warden):
    """Also looks at how much was written: the disk is the host's."""

    measured = 0.0

    def _look(self) -> None:
        super()._look()
        if time.monotonic() - self.measured < MEASURE_SECONDS or "ready" not in self.status:
            return
        self._measure()
        self.measured = time.monotonic()

    def _measure(self) -> None:
        size = count = 0
        for place in (self.walls.work, self.walls.home, self.walls.temporary):
            for found in _everything_in(place):
                size += found
                count += 1
                if size > self.limits["disk"] or count > self.limits["inodes"]:
                    self._stop("disk" if size > self.limits["disk"] else "inodes")
                    return


def _everything_in(folder: str) -> Iterator[int]:
    """The size on the disk of all that is in a folder; what goes away meanwhile is left out."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            try:
                yield os.lstat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                continue


def _processes_of(uid: int) -> int:
    """How many threads a user runs already."""
    count = 0
    for pid in processes("/proc"):
        try:
            if os.stat(f"/proc/{pid}").st_uid == uid:
                count += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            continue
    return count


def main(arguments: Sequence[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=os.dup(0)), Landlocked(json.loads(arguments[0])), Patrol)
