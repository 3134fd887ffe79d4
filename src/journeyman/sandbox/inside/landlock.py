"""The walls of a run where no namespaces can be had: Landlock, a filter, a user of its own, and a watch over what is left.

    python -I inside landlock JSON      one run, its socket on file descriptor 0

What namespaces would hide is refused instead. What a file system of its own would limit is looked at, and so a little late.
"""

import contextlib
import ctypes
import errno
import itertools
import json
import os
import platform
import resource
import signal
import socket
import stat
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import files, linux, seccomp
from .isolation import Isolation, Limits, ProcessUsage, descendants, processes, rlimits, shared_out, usage
from .seccomp import ALLOW, AUDIT, FIRST_ARGUMENT, JUMP_EQUAL, LOAD, NUMBER, RETURN, Instruction, refuse
from .supervisor import Supervisor, serve

# Landlock: what a process takes from itself, and from all that it will start. No namespace is needed, nor root. The words are
# those of the kernel's `include/uapi/linux/landlock.h`.

PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_SOCK, MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
TRUNCATE = 1 << 14
FILES_SINCE = {1: (1 << 13) - 1, 2: 1 << 13, 3: TRUNCATE, 5: 1 << 15}
"""What of files is held from which version on: all of the first, links between folders, truncating, device controls."""
PORTS_SINCE = {4: 0b11}
"""Binding and connecting by TCP."""
SCOPES_SINCE = {6: 0b11}
"""Abstract unix sockets and signals: to nobody outside."""

READ = EXECUTE | READ_FILE | READ_DIR
USE = READ_FILE | WRITE_FILE
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
"""What may be granted for something that is no folder."""

Grant = tuple[str, int]


def restrict(grants: Iterable[Grant]) -> None:
    """From here on nothing of the file system but this, no TCP, and no signal to others. Needs no_new_privs.

    Paths that are not there are left out.

    Raises:
        OSError: The kernel has no Landlock.
    """
    known = linux.landlock_version()
    held = _known(FILES_SINCE, known)
    attributes = struct.pack("=QQQ", held, _known(PORTS_SINCE, known), _known(SCOPES_SINCE, known))
    # An older kernel refuses what it does not know, unless it is not there at all.
    attributes = attributes[: 8 if known < 4 else 16 if known < 6 else 24]
    rules = linux.landlock(linux.CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    try:
        for path, rights in grants:
            _grant(rules, path, rights & held)
        linux.landlock(linux.RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint32(0))
    finally:
        os.close(rules)


def everything(known: int) -> int:
    """All that may be done in a folder of one's own: files, folders and links, but no devices and no sockets."""
    return _known(FILES_SINCE, known) & ~(MAKE_CHAR | MAKE_BLOCK | MAKE_SOCK | FILES_SINCE[5])


def _known(since: dict[int, int], known: int) -> int:
    return sum(rights for version, rights in since.items() if version <= known)


def _grant(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= OF_FILES
        rule = struct.pack("=Qi", rights, place)
        linux.landlock(linux.ADD_RULE, ctypes.c_int(rules), ctypes.c_int(PATH_BENEATH), rule, ctypes.c_uint32(0))
    finally:
        os.close(place)


# A second filter, for what Landlock does not hold: sockets, and what is done to files without opening them.

# The number on x86_64, and on aarch64.
SOCKET_CALL = (41, 198)
PATH_CALLS = {
    "chmod": (90, None),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "fchmod": (91, 52),
    "fchown": (93, 55),
    "fsetxattr": (190, 7),
    "fremovexattr": (199, 16),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
}
"""Done to what is named or was only opened to be read, a file or a process: refused where the code has the same user as you."""
DATE_CALLS = {"utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88)}
"""Granted and not made, as by a file system that keeps no dates: of a file of yours, or one that everybody may write to such as
/dev/null, the date would tell the next run what this one wants it to know."""
PROCESS_CALLS = {
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
}
"""Done to the process whose number comes first: to none but oneself, which is 0."""


def apply_filter(*, shared_user: bool) -> None:
    """Needs no_new_privs.

    Raises:
        OSError: The kernel has no such filters.
        NotImplementedError: There is no table for this kind of machine.
    """
    machine = platform.machine()
    if machine not in AUDIT:
        raise NotImplementedError(f"there is no table of system calls for {machine}")
    seccomp.install(filter_program(AUDIT[machine][1], shared_user=shared_user))


def filter_program(column: int, *, shared_user: bool) -> list[Instruction]:
    """The filter, by the column of the tables."""
    lines: list[Instruction] = [(LOAD, 0, 0, NUMBER), (JUMP_EQUAL, 0, 1, SOCKET_CALL[column]), refuse(errno.EAFNOSUPPORT)]
    lines += seccomp.refused(DATE_CALLS, column, 0)
    if shared_user:
        lines += seccomp.refused(PATH_CALLS, column, errno.EPERM)
        for number in (numbers[column] for numbers in PROCESS_CALLS.values()):
            body = [(LOAD, 0, 0, FIRST_ARGUMENT), (JUMP_EQUAL, 1, 0, 0), refuse(errno.EPERM), (LOAD, 0, 0, NUMBER)]
            lines += [(JUMP_EQUAL, 0, len(body), number), *body]
    return [*lines, (RETURN, 0, 0, ALLOW)]


# The run.

DEVICES = (("/dev/null", USE), ("/dev/zero", USE), ("/dev/full", USE), ("/dev/random", READ_FILE), ("/dev/urandom", READ_FILE))
PUBLIC = ("/proc/cpuinfo", "/proc/filesystems", "/proc/version", "/sys/devices/system/cpu/online")
OF_ITSELF = (
    "auxv", "cmdline", "comm", "environ", "exe", "io", "limits", "maps", "oom_score", "oom_score_adj", "smaps", "smaps_rollup",
    "stat", "statm", "status",
)  # fmt: skip
"""Of what /proc says of a process: nothing of the mounts, groups and connections of the host, which stand there, too."""
PR_SET_KEEPCAPS = 8
CAP_DAC_READ_SEARCH = 2
MEASURE_SECONDS = 0.03
"""Between two looks at the folder of the run."""


class LandlockIsolation(Isolation):
    """Of one run."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given["folder"])
        self.readable: list[str] = given["readable"]
        self.uid: int | None = given["uid"]
        self.folder: str = given["folder"]
        self.reads_all: bool = given["reads_all"]

    def surround(self) -> None:
        super().surround()
        if self.reads_all:
            # Where no mounts may be made, the right to read past permissions is kept; Landlock still says what is read.
            with contextlib.suppress(OSError):
                linux.open_up((*self.readable, self.folder))
                self.reads_all = False

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
        restrict(self._grants())
        if self.uid is not None:
            _become(self.uid, CAP_DAC_READ_SEARCH if self.reads_all else None)
        apply_filter(shared_user=self.uid is None)
        seccomp.apply()

    def usage(self, init: int) -> ProcessUsage:
        pids = [pid for pid in descendants(os.getpid()) if pid != init]
        used = usage("/proc", pids)
        if used.memory:
            used.memory = shared_out("/proc", pids)
        return used

    def _grants(self) -> Iterator[Grant]:
        own = everything(linux.landlock_version())
        yield from ((path, READ) for path in self.readable)
        yield from ((folder, own) for folder in (self.work, self.home, self.temporary))
        yield from DEVICES
        yield from ((path, READ_FILE) for path in PUBLIC)
        yield f"/proc/{os.getpid()}", READ_DIR
        yield from ((f"/proc/{os.getpid()}/{name}", READ_FILE) for name in OF_ITSELF)

    def _own(self, folder: str) -> None:
        """What was laid out belongs to whoever runs."""
        if self.uid is not None:
            for place, entry in files.everything_in(folder):
                os.chown(entry.name, self.uid, self.uid, dir_fd=place, follow_symlinks=False)


def _become(uid: int, keep: int | None) -> None:
    """Another user for good, with no capability but perhaps one."""
    linux.bound_capabilities(keep)
    linux.prctl(PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    linux.drop_capabilities(keep)
    # The kernel shuts /proc/self to whoever changed its user.
    linux.prctl(linux.PR_SET_DUMPABLE, 1)


class DiskWatchingSupervisor(Supervisor):
    """Also looks at how much was written: the disk is the host's."""

    measured = 0.0

    def _check_limits(self) -> None:
        super()._check_limits()
        if time.monotonic() - self.measured < MEASURE_SECONDS or "ready" not in self.status:
            return
        self._measure()
        self.measured = time.monotonic()

    def _measure(self) -> None:
        size = count = 0
        for place in (self.isolation.work, self.isolation.home, self.isolation.temporary):
            for found in _sizes_in(place):
                size += found
                count += 1
                if size > self.limits["disk"] or count > self.limits["inodes"]:
                    self._stop("disk" if size > self.limits["disk"] else "inodes")
                    return


def _sizes_in(folder: str) -> Iterator[int]:
    """The size on the disk of all that is in a folder; without end where it is nested too deep to be looked at."""
    try:
        for _, entry in files.everything_in(folder):
            try:
                yield entry.stat(follow_symlinks=False).st_blocks * 512
            except OSError:
                continue
    except OSError:
        yield from itertools.repeat(0)


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
    # One for each level of the folders it looks through.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    serve(socket.socket(fileno=os.dup(0)), LandlockIsolation(json.loads(arguments[0])), DiskWatchingSupervisor)
