"""The few system calls that Python's standard library has no words for."""

import ctypes
import fcntl
import itertools
import os
import socket
import stat
import struct
from collections.abc import Iterable
from functools import cache

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
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
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, PR_CAP_AMBIENT_CLEAR_ALL = 47, 2, 4
CAPABILITY_VERSION_3 = 0x20080522
MAX_CAPABILITY = 63

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1

OPEN_TREE, OPEN_TREE_CLONE, AT_RECURSIVE, AT_FDCWD = 428, 1, 0x8000, -100
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""Newer calls have the same number on every kind of machine."""
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


def mounts_apart() -> int:
    """All mounts as they are below the root, once more, and in no namespace: whoever has his root there finds a list of none.

    Raises:
        OSError: It is refused; kernels before 5.2 do not know it.
    """
    flags = ctypes.c_uint(OPEN_TREE_CLONE | AT_RECURSIVE | os.O_CLOEXEC)
    return _checked(int(libc().syscall(ctypes.c_long(OPEN_TREE), ctypes.c_int(AT_FDCWD), b"/", flags)), "open_tree /")


def become_only_user(uid: int, gid: int) -> None:
    """A user namespace that knows this one user, as which it goes on."""
    unshare(CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def bound_capabilities(keep: int | None = None) -> None:
    """None but this can ever be had again. For root, before it becomes another user."""
    for capability in range(MAX_CAPABILITY + 1):
        try:
            if capability != keep:
                prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break


def drop_capabilities(keep: int | None = None) -> None:
    """All of them but perhaps one of the first 32, which programs it starts have, too; also those that could be had again."""
    bound_capabilities(keep)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    kept = 0 if keep is None else 1 << keep
    header = ctypes.create_string_buffer(struct.pack("=Ii", CAPABILITY_VERSION_3, 0))
    _checked(libc().capset(header, ctypes.create_string_buffer(struct.pack("=6I", kept, kept, kept, 0, 0, 0))), "capset")
    if keep is not None:
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, keep)


def door(path: str) -> str | None:
    """The first folder on the way there that others may not enter."""
    places = itertools.accumulate(path.strip("/").split("/"), os.path.join)
    return next((f"/{place}" for place in places if not os.stat(f"/{place}").st_mode & 0o001), None)


def open_up(paths: Iterable[str]) -> None:
    """Show each at its place to everybody, in mounts that nobody else sees. Nothing else is left of folders that were shut.

    Raises:
        OSError: This process may make no mounts.
    """
    unshare(CLONE_NEWNS)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    behind: dict[str, dict[str, int]] = {}
    for path in sorted({os.path.realpath(path) for path in paths if os.path.exists(path)}):
        if (shut := door(path)) is not None and shut != path:
            behind.setdefault(shut, {})[path] = os.open(path, os.O_PATH | os.O_CLOEXEC)
    mask = os.umask(0o022)
    for shut, opened in behind.items():
        mount("door", shut, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=0755")
        for path, fd in opened.items():
            if not os.path.exists(path):
                _make_place(path, folder=stat.S_ISDIR(os.fstat(fd).st_mode))
                mount(f"/proc/self/fd/{fd}", path, flags=MS_BIND | MS_REC)
            os.close(fd)
    os.umask(mask)


def _make_place(path: str, *, folder: bool) -> None:
    os.makedirs(path if folder else os.path.dirname(path), exist_ok=True)
    if not folder:
        open(path, "x").close()


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
