"""Rights that the code was not given."""

import ctypes
import os
import subprocess
import sys
import time
from contextlib import suppress

from . import Bait, checked, libc, number_of, prctl, say, syscall

CLONE_NEWUSER = 0x10000000
PR_GET_NO_NEW_PRIVS = 39
SIGCHLD = 17


def _namespace(pid: int | str = "self") -> int:
    return os.stat(f"/proc/{pid}/ns/user").st_ino


def unshare_user(bait: Bait) -> None:
    before = _namespace()
    checked(libc.unshare(CLONE_NEWUSER))
    if _namespace() != before:
        say(through="a user namespace of its own, with every capability in it")


def clone_user(bait: Bait) -> None:
    flags = ctypes.c_ulong(CLONE_NEWUSER | SIGCHLD)
    none = ctypes.c_ulong(0)
    # The order of the last arguments differs between machines, and all are nothing.
    _born(syscall(number_of(56, 220), flags, none, none, none, none))


def clone3_user(bait: Bait) -> None:
    """The arguments lie in memory, where a filter of system calls cannot look."""
    wanted = (ctypes.c_uint64 * 8)(CLONE_NEWUSER, 0, 0, 0, SIGCHLD, 0, 0, 0)
    _born(syscall(435, ctypes.byref(wanted), ctypes.c_ulong(64)))


def _born(child: int) -> None:
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    say(through="a child in a user namespace of its own, with every capability in it")


def set_user_id(bait: Bait) -> None:
    """Starts programs that run as root whoever starts them, leaves them waiting for a password, and looks at who they are."""
    ours = os.geteuid()
    for path in bait["paths"]:
        with (
            suppress(OSError),
            subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child,
        ):
            time.sleep(0.05)
            with open(f"/proc/{child.pid}/status") as file:
                effective = next(int(line.split()[2]) for line in file if line.startswith("Uid:"))
            child.kill()
            if effective == 0 and (ours != 0 or _is_real_root()):
                say(through=f"{path} ran as root, started by {ours}")
                return


def _is_real_root() -> bool:
    with open("/proc/self/uid_map") as file:
        return file.read().split() == ["0", "0", "4294967295"]


def new_privileges(bait: Bait) -> None:
    if prctl(PR_GET_NO_NEW_PRIVS) == 0:
        say(through="programs that it starts may gain privileges")


def capabilities(bait: Bait) -> None:
    with open("/proc/self/status") as file:
        held = {name: int(value, 16) for name, value in (line.split(":") for line in file if line.startswith("Cap"))}
    if held["CapEff"] or held["CapPrm"]:
        say(through=f"capabilities {held['CapEff'] | held['CapPrm']:x}")


def mount(bait: Bait) -> None:
    os.mkdir("here")
    checked(libc.mount(b"probe", b"here", b"tmpfs", ctypes.c_ulong(0), b"size=64k"))
    libc.umount2(b"here", 2)
    say(through="a file system was mounted")


def mount_by_descriptor(bait: Bait) -> None:
    """The newer way, by calls that older filters do not know."""
    os.close(syscall(430, b"tmpfs", ctypes.c_uint(0)))
    say(through="a file system was opened to be mounted")


def change_root(bait: Bait) -> None:
    os.mkdir("root")
    os.chroot("root")
    say(through="the root folder was changed")


def pivot_root(bait: Bait) -> None:
    """In mounts of its own, so that none but this process is moved."""
    checked(libc.unshare(0x00020000))
    say(through="a namespace for mounts, in which the root can be swapped")


def become_root(bait: Bait) -> None:
    os.setresuid(0, 0, 0)
    if _is_real_root():
        say(through=f"root, by {sys.executable}")


def host_name(bait: Bait) -> None:
    """Sets the name that is there already."""
    name = os.uname().nodename.encode()
    checked(libc.sethostname(name, len(name)))
    say(through="the name of the machine may be set")


def programs_in_the_kernel(bait: Bait) -> None:
    syscall(number_of(321, 280), ctypes.c_int(0), (ctypes.c_uint32 * 18)(2, 4, 4, 1), ctypes.c_uint(72))
    say(through="a map of bpf was made")


def page_faults(bait: Bait) -> None:
    """The handle that makes races in the kernel easy to win."""
    os.close(syscall(number_of(323, 282), ctypes.c_int(1)))
    say(through="userfaultfd was opened")


def counters(bait: Bait) -> None:
    """perf: a large part of the kernel, and a clock for side channels."""
    attributes = (ctypes.c_uint64 * 16)()
    attributes[0] = 1 | (128 << 32)
    os.close(syscall(number_of(298, 241), attributes, ctypes.c_int(0), ctypes.c_int(-1), ctypes.c_int(-1), ctypes.c_ulong(0)))
    say(through="a counter of perf was opened")
