"""Whether a process is still there, told so that a number used again by another one is not taken for it."""

import ctypes
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_GIVEN_BACK = 128 << 10
"""Bytes from which on what is free goes back to the system."""


def start_time(pid: int) -> str | None:
    """When a process began; `None` when there is none of that number, or only what its parent has yet to bury; `unknown` where
    it is there and more cannot be seen."""
    with suppress(OSError):
        # The name stands in brackets and may hold anything: what follows it is counted from the last one.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        # It is there, and somebody else's.
        pass
    return "unknown"


def this_process() -> dict[str, object]:
    """What this process can be known by later: host, start of the system, namespace, number and start time; for JSON."""
    pid = os.getpid()
    return {**_here(), "pid": pid, "began": start_time(pid)}


def is_gone(process: Mapping[str, object]) -> bool:
    """Whether a process is surely over, by what `this_process` said in it. What cannot be seen from here is not surely over."""
    here, pid = _here(), process.get("pid")
    if process.get("host") != here["host"] or not isinstance(pid, int) or pid < 2:
        return False
    if process.get("boot") != here["boot"]:
        return True
    return process.get("namespace") == here["namespace"] and start_time(pid) not in (process.get("began"), "unknown")


def _here() -> dict[str, object]:
    boot = namespace = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return {"host": socket.gethostname(), "boot": boot, "namespace": namespace}


def die_with_parent() -> None:
    """To be called in a new process before it becomes its program: it is killed when whoever started it ends, however that
    be. Does nothing where the system knows no such thing."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def running() -> list[int]:
    """The numbers of all processes of this system that can be seen; any of them may be gone when it is looked at."""
    with suppress(OSError):
        return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return []


def session_cpu_seconds(session: int) -> float | None:
    """What the processes of a session have used, with those of their children that they have seen end; `None` where the system
    does not say."""
    ticks, found = 0, False
    for pid in running():
        with suppress(OSError, IndexError, ValueError):
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session:
                found = True
                ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK") if found else None


def spare_memory() -> None:
    """Keep no memory that is not used, at the cost of asking for it again (mallopt(3)). Call it before other threads begin.

    Else glibc lets each thread keep what others cannot use, and never gives back what a large batch took. With another C
    library nothing happens.
    """
    with suppress(AttributeError):
        set_option = ctypes.CDLL(None).mallopt
        for option, value in ((_M_ARENA_MAX, 1), (_M_TRIM_THRESHOLD, _GIVEN_BACK), (_M_MMAP_THRESHOLD, _GIVEN_BACK)):
            set_option(option, value)


def when_told(end: Callable[[], object]) -> None:
    """Have `end` called when this process is told to end: SIGTERM, SIGINT. Only in the main thread."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end())


def when_parent_ends(end: Callable[[], object]) -> None:
    """Have `end` called when standard input ends, as it does with the parent that holds its other side, however that ends."""

    def wait() -> None:
        sys.stdin.buffer.read()
        end()

    threading.Thread(target=wait, daemon=True).start()
