"""A second filter, for what Landlock does not hold: sockets, and what is done to files without opening them."""

import errno
import platform

from . import seccomp
from .seccomp import ALLOW, AUDIT, FIRST_ARGUMENT, JUMP_EQUAL, LOAD, NUMBER, RETURN, Instruction

# The number on x86_64, and on aarch64.
SOCKET = (41, 198)
PATHS = {
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
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
}
"""Done to what is named and not opened, a file or a process: refused where the code has the same user as you."""
PROCESSES = {
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
}
"""Done to the process whose number comes first: to none but oneself, which is 0."""


def apply(*, shared_user: bool) -> None:
    """Needs no_new_privs.

    Raises:
        OSError: The kernel has no such filters.
        NotImplementedError: There is no table for this kind of machine.
    """
    machine = platform.machine()
    if machine not in AUDIT:
        raise NotImplementedError(f"there is no table of system calls for {machine}")
    seccomp.install(program(AUDIT[machine][1], shared_user=shared_user))


def program(column: int, *, shared_user: bool) -> list[Instruction]:
    """The filter, by the column of the tables."""
    lines: list[Instruction] = [(LOAD, 0, 0, NUMBER), (JUMP_EQUAL, 0, 1, SOCKET[column]), _refuse(errno.EAFNOSUPPORT)]
    if shared_user:
        for numbers in PATHS.values():
            if (number := numbers[column]) is not None:
                lines += [(JUMP_EQUAL, 0, 1, number), _refuse(errno.EPERM)]
        for number in (numbers[column] for numbers in PROCESSES.values()):
            body = [(LOAD, 0, 0, FIRST_ARGUMENT), (JUMP_EQUAL, 1, 0, 0), _refuse(errno.EPERM), (LOAD, 0, 0, NUMBER)]
            lines += [(JUMP_EQUAL, 0, len(body), number), *body]
    return [*lines, (RETURN, 0, 0, ALLOW)]


def _refuse(error: int) -> Instruction:
    return RETURN, 0, 0, seccomp.ERRNO | error
