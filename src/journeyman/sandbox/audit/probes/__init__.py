"""What the attacks run within: standard library only. Each takes what its trap tells it, tries once, and says how it went:
a JSON object a line, so that what was said before a kill is known.

All are harmless when they succeed: they touch only what the suite made for them, stop at a small multiple of the limit, and
end by themselves.
"""

import contextlib
import ctypes
import json
import os
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

PR_SET_NAME = 15
MAX_SECONDS = 3.0
"""After which a process of a probe that nobody stopped ends by itself."""

libc = ctypes.CDLL(None, use_errno=True)
Bait = dict[str, Any]


def say(**word: Any) -> None:
    os.write(1, json.dumps(word).encode() + b"\n")


def checked(result: int) -> int:
    """What a call of the C library gave. Raises `OSError` where that is a refusal."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def syscall(number: int, *arguments: Any) -> int:
    """A system call without the C library between.

    Raises:
        OSError: It was refused.
    """
    return checked(libc.syscall(ctypes.c_long(number), *arguments))


def prctl(option: int, *arguments: int) -> int:
    return int(libc.prctl(option, *(ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4])))


def call_myself(name: str) -> None:
    """A name that the host can see; children have it too."""
    libc.prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def number_of(x86_64: int, others: int) -> int:
    """System calls older than 2019 have one number there, and another one elsewhere."""
    return x86_64 if os.uname().machine == "x86_64" else others


def moments(step: float = 0.05) -> Iterator[float]:
    """Seconds gone by, until they are too many."""
    start = time.monotonic()
    while (gone := time.monotonic() - start) < MAX_SECONDS:
        yield gone
        time.sleep(step)


@contextlib.contextmanager
def refusals(tries: str) -> Iterator[None]:
    """One of several tries: a refusal is said, and the next one follows."""
    try:
        yield
    except OSError as error:
        say(refused=f"{tries}: {error.strerror or error}")


def main() -> None:
    sys.dont_write_bytecode = True
    room, name, bait = sys.argv[1:4]
    probe = getattr(import_module(f".{room}", __name__), name)
    say(trying=name)
    try:
        probe(json.loads(bait))
    except (OSError, MemoryError) as error:
        say(refused=f"{type(error).__name__}: {error}")
