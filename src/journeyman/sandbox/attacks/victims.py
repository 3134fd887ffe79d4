"""Traps that need a process: one to be attacked, one that must not be there any more, or how far one came."""

import ctypes
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from journeyman.sandbox.attacks.base import Seen, Trap, Untried
from journeyman.sandbox.attacks.traps import HARMLESS, Trapping, shows, token


def further_than(most: float, unit: str, **bait: Any) -> Callable[[], Trapping]:
    """A limit: how far the code came, with some room for what a watcher sees late."""

    def sprung(seen: Seen) -> str | None:
        return f"came to {seen.reached:g} {unit}, and {most:g} is the most that may be" if seen.reached > most else None

    @contextmanager
    def trap() -> Iterator[Trap]:
        yield Trap(bait, sprung)

    return trap


@contextmanager
def endless_output() -> Iterator[Trap]:
    most = 2 * 16 * 1024

    def sprung(seen: Seen) -> str | None:
        kept = len(seen.outcome.stdout)
        return f"{kept} bytes of output were kept" if kept > most else None

    yield Trap({"goal": 1024 * 1024}, sprung)


@contextmanager
def shared_memory_folder() -> Iterator[Trap]:
    """The folder in which a file is memory that is on nobody's account."""
    shared, name = Path("/dev/shm"), token()  # noqa: S108 - the very folder that is guarded
    most = 2 * 8 * 1024 * 1024

    def sprung(seen: Seen) -> str | None:
        on_host = any(shared.glob(f"{name}*"))
        if seen.reached > most or on_host:
            return f"wrote {seen.reached:g} bytes to /dev/shm{', of the host' if on_host else ''}"
        return None

    if not shared.is_dir():
        raise Untried("there is no /dev/shm here")
    try:
        yield Trap({"goal": 3 * 8 * 1024 * 1024, "name": name}, sprung)
    finally:
        for left in shared.glob(f"{name}*"):
            left.unlink(missing_ok=True)


_VICTIM = """
import ctypes, os, sys, time
secret = ctypes.create_string_buffer(sys.stdin.readline().strip().encode(), 32)
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1 & (2**64 - 1)), 0, 0, 0)
print(ctypes.addressof(secret), flush=True)
time.sleep(20)
"""
"""Lets every process trace it (where Yama asks for that): it is the walls that are to forbid it."""


@contextmanager
def victim() -> Iterator[Trap]:
    """A process of the host, with a secret in its environment and another in its memory."""
    secret, adjust = token(), "321"
    environment = {"PATH": os.defpath, "JOURNEYMAN_SECRET": secret}
    command = [sys.executable, "-I", "-S", "-c", _VICTIM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{secret}\n")
        process.stdin.flush()
        bait = {"pid": process.pid, "address": int(process.stdout.readline()), "size": 32, "value": adjust}

        def sprung(seen: Seen) -> str | None:
            if process.poll() is not None:
                return "a process of the host was ended"
            if Path(f"/proc/{process.pid}/oom_score_adj").read_text().strip() == adjust:
                return "a setting of a process of the host was changed"
            digest = sha256(f"JOURNEYMAN_SECRET={secret}".encode()).hexdigest()
            return "read its environment" if digest in seen.said("digest") else shows(secret)(seen)

        try:
            yield Trap(bait, sprung)
        finally:
            process.kill()


@contextmanager
def host_environment() -> Iterator[Trap]:
    """The variables of this very process: none that says anything may be seen."""

    def sprung(seen: Seen) -> str | None:
        digests = set(seen.said("digest"))
        telling = {name: f"{name}={value}" for name, value in os.environ.items() if name not in HARMLESS and value}
        found = [name for name, entry in telling.items() if sha256(entry.encode()).hexdigest() in digests]
        return f"read {', '.join(sorted(found)[:5])} of the host's environment" if found else None

    yield Trap({}, sprung)


@contextmanager
def survivors(**bait: Any) -> Iterator[Trap]:
    """Processes that still run on the host when the run is over."""
    name = token()

    def sprung(_: Seen) -> str | None:
        left = named(name)
        return f"{len(left)} of its processes run on" if left else None

    try:
        yield Trap(bait | {"name": name}, sprung)
    finally:
        for pid in named(name):
            with suppress(OSError):
                os.kill(pid, 9)


def named(name: str) -> list[int]:
    """Every process of that name that still runs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            head, _, rest = path.read_text().rpartition(")")
            if head.partition("(")[2] == name and rest.split()[0] not in "ZX":
                found.append(int(path.parent.name))
    return found


def fork_bomb(most: int, goal: int) -> Callable[[], Trapping]:
    @contextmanager
    def trap() -> Iterator[Trap]:
        with survivors(goal=goal) as left, further_than(most, "processes")() as bound:
            yield Trap(left.bait, lambda seen: bound.sprung(seen) or left.sprung(seen))

    return trap


@contextmanager
def neighbour() -> Iterator[Trap]:
    """Another run, with a secret in its folders."""
    secret, name = token(), token()

    def sprung(seen: Seen) -> str | None:
        beside = Seen(outcome=seen.beside) if seen.beside else None
        if beside and not beside.said("unharmed"):
            return "the run beside it was ended"
        return shows(secret)(seen)

    yield Trap({"name": name, "token": secret, "seconds": 1.5}, sprung)


@contextmanager
def segment() -> Iterator[Trap]:
    """Shared memory of the kind that stays when its maker is gone."""
    key = secrets.randbelow(2**30) + 1
    table = Path("/proc/sysvipc/shm")
    if not table.exists():
        raise Untried("this kernel has no System V shared memory")

    def found() -> list[int]:
        return [int(row.split()[1]) for row in table.read_text().splitlines()[1:] if int(row.split()[0]) == key]

    try:
        yield Trap({"key": key}, lambda _: "memory of its stayed when it was gone" if found() else None)
    finally:
        for left in found():
            ctypes.CDLL(None).shmctl(left, 0, None)


@contextmanager
def kernel_key() -> Iterator[Trap]:
    """A key in the kernel's keyring, which everybody may read who knows its number."""
    secret = token()
    libc = ctypes.CDLL(None, use_errno=True)
    add, control = (248, 250) if os.uname().machine == "x86_64" else (217, 219)
    key = libc.syscall(add, b"user", secret.encode(), secret.encode(), ctypes.c_ulong(len(secret)), ctypes.c_int(-2))
    if key < 0:
        raise Untried(f"no key can be added here: {os.strerror(ctypes.get_errno())}")
    libc.syscall(control, ctypes.c_int(5), ctypes.c_int(key), ctypes.c_uint(0x3F3F3F3F))
    try:
        yield Trap({"key": key}, shows(secret))
    finally:
        libc.syscall(control, ctypes.c_int(3), ctypes.c_int(key))
