"""The few system calls that Python's standard library has no words for."""

import ctypes
import fcntl
import os
import socket
import struct
from functools import cache

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_DUMPABLE = 4
PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
CAPABILITY_VERSION_3 = 0x20080522
MAX_CAPABILITY = 63

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""Landlock's calls: the same number on every kind of machine."""
RULESET_VERSION = 1


@cache
def libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    return library


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def prctl(option: int, *arguments: int) -> int:
    """Raises `OSError` when it is refused."""
    return _checked(libc().prctl(option, *(*arguments, 0, 0, 0, 0)[:4]), f"prctl {option}")


def unshare(flags: int) -> None:
    _checked(libc().unshare(flags), f"unshare {flags:#x}")


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    words = (
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )
    _checked(libc().mount(*words), f"mount {target}")


def unmount(target: str) -> None:
    _checked(libc().umount2(target.encode(), MNT_DETACH), f"unmount {target}")


def become_only_user(uid: int, gid: int) -> None:
    """A user namespace that knows this one user, as which it goes on."""
    unshare(CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def drop_capabilities(keep: int | None = None) -> None:
    """All of them but perhaps one of the first 32, also those that could be had again."""
    for capability in range(MAX_CAPABILITY + 1):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    kept = 0 if keep is None else 1 << keep
    header = ctypes.create_string_buffer(struct.pack("=Ii", CAPABILITY_VERSION_3, 0))
    _checked(libc().capset(header, ctypes.create_string_buffer(struct.pack("=6I", kept, kept, 0, 0, 0, 0))), "capset")


def loopback_up() -> None:
    """A network of its own to itself."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        (flags,) = struct.unpack_from("16xH", fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack("16sH14x", b"lo", 0)))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def landlock_version() -> int:
    """Of the kernel's Landlock; 0 where there is none."""
    try:
        return landlock(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(RULESET_VERSION))
    except OSError:
        return 0


def landlock(number: int, *arguments: object) -> int:
    """One of Landlock's calls. Raises `OSError` when it is refused."""
    return _checked(int(libc().syscall(ctypes.c_long(number), *arguments)), "landlock")
