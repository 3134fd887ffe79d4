"""More than was granted. Each says how far it came, in the unit of its limit."""

import mmap
import os
import signal
import threading
import time
from contextlib import suppress

from . import MAX_SECONDS, Bait, call_myself, checked, libc, moments, say

CHUNK = 4 * 1024 * 1024


def fork_bomb(bait: Bait) -> None:
    call_myself(bait["name"])
    for count in range(1, bait["goal"] + 1):
        if os.fork() == 0:
            signal.alarm(int(MAX_SECONDS))
            signal.pause()
            os._exit(0)
        say(reached=count + 1)


def thread_bomb(bait: Bait) -> None:
    over = threading.Event()
    try:
        for count in range(1, bait["goal"] + 1):
            threading.Thread(target=over.wait, args=(MAX_SECONDS,), daemon=True).start()
            say(reached=count + 1)
    except RuntimeError as error:
        say(refused=str(error))
    over.set()


def _hold(goal: int, kept: list[object]) -> None:
    for size in range(CHUNK, goal + 1, CHUNK):
        kept.append(b"\1" * CHUNK)
        say(reached=size)
        # A watcher looks now and then, and what matters is what it lets stand.
        time.sleep(0.01)


def memory(bait: Bait) -> None:
    kept: list[object] = []
    _hold(bait["goal"], kept)


def memory_of_many(bait: Bait) -> None:
    """A share each, so that none is over the limit."""
    reader, writer = os.pipe()
    children = []
    for _ in range(bait["children"]):
        if not (child := os.fork()):
            kept = b"\1" * bait["share"]
            say(more=len(kept))
            os.write(writer, b"x")
            for _gone in moments():
                pass
            os._exit(0)
        children.append(child)
    os.close(writer)
    for _ in children:
        os.read(reader, 1)
    for child in children:
        os.kill(child, signal.SIGKILL)


def memory_shared(bait: Bait) -> None:
    """Pages that belong to no process alone."""
    for size in range(CHUNK, bait["goal"] + 1, CHUNK):
        pages = mmap.mmap(-1, CHUNK)
        pages.write(b"\1" * CHUNK)
        _KEPT.append(pages)
        say(reached=size)
        time.sleep(0.01)


def memory_file(bait: Bait) -> None:
    """A file without a folder, which no quota of a file system covers."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = 0
    while size < bait["goal"]:
        file = os.memfd_create("probe")
        with suppress(OSError):
            for _ in range(4):
                size += os.write(file, b"\1" * (CHUNK // 4))
        _KEPT.append(file)
        say(reached=size)
        time.sleep(0.01)


_KEPT: list[object] = []


def big_file(bait: Bait) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open("big", "wb", buffering=0) as file:
        for _ in range(bait["goal"] // 65536):
            file.write(b"\1" * 65536)
            say(reached=file.tell())


def many_files(bait: Bait) -> None:
    _fill(".", bait["goal"])


def shared_memory_folder(bait: Bait) -> None:
    _fill("/dev/shm", bait["goal"], bait["name"])


def _fill(folder: str, goal: int, name: str = "file") -> None:
    written = 0
    while written < goal:
        with open(f"{folder}/{name}{written}", "wb", buffering=0) as file:
            for _ in range(8):
                written += file.write(b"\1" * 65536)
        say(reached=written)
        time.sleep(0.005)


def many_inodes(bait: Bait) -> None:
    for count in range(1, bait["goal"] + 1):
        (os.mkdir if count % 2 else os.mknod)(f"inode{count}")
        if not count % 50:
            say(reached=count)
            time.sleep(0.01)


def deep_folders(bait: Bait) -> None:
    """Deeper than calls within calls can go, and than any path is long. The first tells whose they are."""
    os.mkdir(bait["name"])
    os.chdir(bait["name"])
    for count in range(2, bait["goal"] + 1):
        os.mkdir("d")
        os.chdir("d")
        if not count % 100:
            say(reached=count)


def open_files(bait: Bait) -> None:
    for count in range(1, bait["goal"] + 1):
        os.open("/dev/null", os.O_RDONLY)
        say(reached=count)


def output(bait: Bait) -> None:
    line = b"x" * 1023 + b"\n"
    for _ in range(bait["goal"] // 1024):
        os.write(1, line)


def endless(bait: Bait) -> None:
    for gone in moments():
        say(reached=gone)


def cpu_of_many(bait: Bait) -> None:
    for _ in range(bait["children"] - 1):
        if not os.fork():
            break
    said = 0.0
    while (used := time.process_time()) < bait["share"]:
        if used - said >= 0.1:
            say(more=used - said)
            said = used
    # Whoever is done first must not end the run of the others: on a busy machine they are far behind.
    with suppress(ChildProcessError):
        while True:
            os.wait()


def leftover_segment(bait: Bait) -> None:
    """System V shared memory outlives the process that made it."""
    checked(libc.shmget(bait["key"], 4096, 0o1600))
    say(made=True)
