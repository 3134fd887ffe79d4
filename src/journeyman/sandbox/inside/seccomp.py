"""A filter on system calls, assembled here: no library is needed for a list of refusals.

What stays open is what a program needs; what is refused reaches around the other walls (namespaces, mounts, other processes,
sockets that no namespace holds), tells one run of another by a file of the host that both may read (locks, watches, what of it
is in memory), or has a history of holes in the kernel that nothing run here needs to be near.
"""

import ctypes
import errno
import platform
import struct
from collections.abc import Iterable, Mapping
from functools import cache

from .linux import PR_SET_SECCOMP, prctl

SECCOMP_MODE_FILTER = 2
ALLOW = 0x7FFF0000
ERRNO = 0x00050000
KILL_PROCESS = 0x80000000

LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT, THIRD_ARGUMENT, SIXTH_ARGUMENT = 0, 4, 16, 24, 32, 56
"""Where the words of `struct seccomp_data` lie, on a little-endian machine."""

NEW_NAMESPACES = 0x7E020000
"""The CLONE_NEW* flags that `clone` takes."""
X32 = 0x40000000
FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6: those that a network namespace holds. AF_VSOCK, for one, reaches the host of a machine."""
CONTROLS = (0x5412, 0x541C, 0x40086602, 0x401C5820)
"""TIOCSTI and TIOCLINUX, typing on somebody else's terminal; FS_IOC_SETFLAGS and FS_IOC_FSSETXATTR, attributes of a file that
was only opened to be read."""
ADVICE = (0, 1, 2, 4, 8, 10, 11, 14, 15, 16, 17, 18, 19, 102, 103)
"""What `madvise` may be told: all about memory of one's own. None that loads pages of a file or drops them for everybody
(WILLNEED, COLD, PAGEOUT, POPULATE, COLLAPSE), or has the kernel look for equal pages of others (MERGEABLE)."""
LOCKING = (6, 7)
"""F_SETLK and F_SETLKW, granted and not made: SQLite opens no file without them; made on a file of the host, for which it is
enough to read it, they would keep the host out and be seen by other runs. Between processes of one run they keep nobody out;
within one process they never do."""
NOTICES = (37, 38, 1024, 1026)
"""F_OFD_SETLK and F_OFD_SETLKW, F_SETLEASE, F_NOTIFY: newer locks, and word of what others do to a file."""
PR_SET_MEMORY_MERGE = 67

# The number on x86_64, and on aarch64.
REFUSED = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "mount_setattr": (442, 442),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "syslog": (103, 116),
    "sysinfo": (99, 179),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "vhangup": (153, 58),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
}
UNKNOWN = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "flock": (73, 32),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    "mincore": (27, 232),
    "cachestat": (451, 451),
    "fadvise64": (221, 223),
    "readahead": (187, 213),
    "io_setup": (206, 0),
    "openat2": (437, 437),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "listns": (470, 470),
    "file_setattr": (469, 469),
}
"""Answered as by a kernel that does not have them, so that callers fall back. Flags of clone3, openat2 (RESOLVE_CACHED) and
io_submit lie where no filter can look. The next hold memory that no limit on files or processes counts, or reach that of others
by its number. The last tell of the host, or of a file that another run reads, too."""
CLONE, SOCKET, IOCTL, PERSONALITY = (56, 220), (41, 198), (16, 29), (135, 92)
FCNTL, MADVISE, PREADV2, PRCTL = (72, 25), (28, 233), (327, 286), (157, 167)

AUDIT = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""The architecture as the kernel names it, and its column above."""

Instruction = tuple[int, int, int, int]


def program(machine: str) -> list[Instruction]:
    """The filter for one kind of machine.

    Raises:
        NotImplementedError: There is no table for it.
    """
    if machine not in AUDIT:
        raise NotImplementedError(f"there is no table of system calls for {machine}")
    audit, column = AUDIT[machine]
    lines: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, audit),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, NUMBER),
    ]
    if machine == "x86_64":
        lines += [(JUMP_AT_LEAST, 0, 1, X32), refuse(errno.ENOSYS)]
    lines += refused(REFUSED, column, errno.EPERM)
    lines += refused(UNKNOWN, column, errno.ENOSYS)
    lines += _on(CLONE[column], FIRST_ARGUMENT, [(JUMP_ANY_BIT, 0, 1, NEW_NAMESPACES), refuse(errno.EPERM)])
    lines += _on(SOCKET[column], FIRST_ARGUMENT, _only(FAMILIES, errno.EAFNOSUPPORT))
    lines += _on(PERSONALITY[column], FIRST_ARGUMENT, _only((0, 0xFFFFFFFF), errno.EPERM))
    lines += _on(IOCTL[column], SECOND_ARGUMENT, _none_of(CONTROLS, errno.EPERM))
    lines += _on(FCNTL[column], SECOND_ARGUMENT, [*_none_of(NOTICES, errno.EINVAL), *_none_of(LOCKING, 0)])
    lines += _on(MADVISE[column], THIRD_ARGUMENT, _only(ADVICE, errno.EINVAL))
    # Any flag: RWF_NOWAIT tells whether a page is in memory, RWF_DONTCACHE drops it.
    lines += _on(PREADV2[column], SIXTH_ARGUMENT, _only((0,), errno.EOPNOTSUPP))
    lines += _on(PRCTL[column], FIRST_ARGUMENT, _none_of((PR_SET_MEMORY_MERGE,), errno.EINVAL))
    return [*lines, (RETURN, 0, 0, ALLOW)]


def refuse(error: int) -> Instruction:
    """The last instruction of a call that is answered with an error; without being made and without one where it is 0."""
    return RETURN, 0, 0, ERRNO | error


def refused(calls: Mapping[str, tuple[int | None, int | None]], column: int, error: int) -> list[Instruction]:
    """Refuse each call of a table, whatever its arguments."""
    return _none_of((number for numbers in calls.values() if (number := numbers[column]) is not None), error)


def _none_of(values: Iterable[int], error: int) -> list[Instruction]:
    """Refuse these and look on with all others."""
    return [line for value in values for line in ((JUMP_EQUAL, 0, 1, value), refuse(error))]


def _only(values: Iterable[int], error: int) -> list[Instruction]:
    """Allow these and refuse all others."""
    allowed = [line for value in values for line in ((JUMP_EQUAL, 0, 1, value), (RETURN, 0, 0, ALLOW))]
    return [*allowed, refuse(error)]


def _on(number: int, argument: int, then: list[Instruction]) -> list[Instruction]:
    """Look at an argument of one system call; the number is loaded again for what comes after."""
    body = [(LOAD, 0, 0, argument), *then, (LOAD, 0, 0, NUMBER)]
    return [(JUMP_EQUAL, 0, len(body), number), *body]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def apply() -> None:
    """Filter this process and all that it will start. Needs no_new_privs.

    Raises:
        OSError: The kernel has no such filters.
        NotImplementedError: There is no table for this kind of machine.
    """
    _load(assembled(platform.machine()))


@cache
def assembled(machine: str) -> bytes:
    """The filter as the kernel takes it. Raises `NotImplementedError` where there is no table."""
    return _assemble(program(machine))


def install(lines: list[Instruction]) -> None:
    """One more filter: of several answers the strictest counts. Raises `OSError`."""
    _load(_assemble(lines))


def _assemble(lines: list[Instruction]) -> bytes:
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _load(code: bytes) -> None:
    buffer = ctypes.create_string_buffer(code, len(code))
    filters = _Program(len(code) // 8, ctypes.addressof(buffer))
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(filters))
