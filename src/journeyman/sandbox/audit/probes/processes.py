"""Processes of the host and of other runs: what they hold, and whether they can be disturbed."""

import ctypes
import os
import signal
from contextlib import suppress

from . import Bait, call_myself, checked, libc, moments, number_of, refusals, say, syscall

PTRACE_ATTACH, PTRACE_PEEKDATA, PTRACE_DETACH = 16, 2, 17


class _Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def memory_by_call(bait: Bait) -> None:
    found = ctypes.create_string_buffer(bait["size"])
    here = _Span(ctypes.addressof(found), bait["size"])
    there = _Span(bait["address"], bait["size"])
    number = number_of(310, 270)
    syscall(
        number, bait["pid"], ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(there), ctypes.c_ulong(1), ctypes.c_ulong(0)
    )
    say(read=found.raw.decode("latin-1"))


def memory_by_file(bait: Bait) -> None:
    with open(f"/proc/{bait['pid']}/mem", "rb", buffering=0) as file:
        file.seek(bait["address"])
        say(read=file.read(bait["size"]).decode("latin-1"))


def trace(bait: Bait) -> None:
    libc.ptrace.restype = ctypes.c_long
    pid, nothing = ctypes.c_int(bait["pid"]), ctypes.c_void_p(0)
    checked(libc.ptrace(PTRACE_ATTACH, pid, nothing, nothing))
    os.waitpid(bait["pid"], 0x40000000)
    try:
        words = range(bait["address"], bait["address"] + bait["size"], 8)
        raw = b"".join(
            libc.ptrace(PTRACE_PEEKDATA, pid, ctypes.c_void_p(at), nothing).to_bytes(8, "little", signed=True) for at in words
        )
        say(read=raw.decode("latin-1"))
    finally:
        libc.ptrace(PTRACE_DETACH, pid, nothing, nothing)


def signals(bait: Bait) -> None:
    os.kill(bait["pid"], signal.SIGTERM)


def signal_by_descriptor(bait: Bait) -> None:
    fd = os.pidfd_open(bait["pid"])
    signal.pidfd_send_signal(fd, signal.SIGTERM)


def disturb(bait: Bait) -> None:
    """Makes the kernel prefer another process when memory is short."""
    with open(f"/proc/{bait['pid']}/oom_score_adj", "w") as file:
        file.write(bait["value"])


def daemon(bait: Bait) -> None:
    """Leaves the session and its parents, and closes every file."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    call_myself(bait["name"])
    os.closerange(0, 256)
    for _ in moments():
        pass
    os._exit(0)


def hide(bait: Bait) -> None:
    """The victim of those below: another run, with a secret in each of its folders, that ends unharmed or not at all."""
    call_myself(bait["name"])
    folders = (".", os.environ.get("TMPDIR", "/tmp"), os.path.expanduser("~"))
    for folder in folders:
        with refusals(folder), open(os.path.join(folder, bait["name"]), "w") as file:
            file.write(bait["token"])
    for gone in moments():
        if gone > bait["seconds"]:
            break
    for folder in folders:
        with suppress(OSError):
            os.unlink(os.path.join(folder, bait["name"]))
    say(unharmed=True)


def seek(bait: Bait) -> None:
    """Looks for another run's secret in the folders beside its own, and through the processes it can see."""
    for gone in moments(0.1):
        if gone > bait["seconds"] or _find(bait["name"]):
            return


def _find(name: str) -> bool:
    for place in _places():
        with suppress(OSError), open(f"{place}/{name}") as file:
            say(read=file.read(256))
            return True
    return False


def _places() -> list[str]:
    beside: list[str] = []
    for folder in ("..", "../..", "/tmp", "/var/tmp", "/dev/shm"):
        with suppress(OSError):
            beside += [folder, *(f"{folder}/{name}" for name in os.listdir(folder)[:500])]
    with suppress(OSError):
        beside += [f"/proc/{name}/cwd" for name in os.listdir("/proc") if name.isdecimal() and int(name) != os.getpid()]
    return beside + [f"{place}/work" for place in beside]


def stab(bait: Bait) -> None:
    """Ends every process of another run that it can find by name."""
    for gone in moments(0.1):
        for pid in [int(name) for name in os.listdir("/proc") if name.isdecimal()]:
            with suppress(OSError), open(f"/proc/{pid}/comm") as file:
                if file.read().strip() == bait["name"]:
                    os.kill(pid, signal.SIGKILL)
                    say(killed=pid)
                    return
        if gone > bait["seconds"]:
            return


def keys(bait: Bait) -> None:
    """A key of the kernel's keyring, by its number: no namespace has numbers of its own."""
    found = ctypes.create_string_buffer(256)
    syscall(number_of(250, 219), ctypes.c_int(11), ctypes.c_int(bait["key"]), found, ctypes.c_ulong(256))
    say(read=found.value.decode("latin-1"))
