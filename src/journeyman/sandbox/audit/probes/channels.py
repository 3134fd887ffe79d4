"""From one run to the next, and to the host: by a file that both may read, by what the kernel tells of the whole machine."""

import ctypes
import fcntl
import mmap
import os
import struct
import time

from . import Bait, checked, libc, moments, number_of, refusals, say, syscall

PAGE = mmap.PAGESIZE
MADV_COLD, MADV_PAGEOUT, MADV_POPULATE_READ = 20, 21, 22
RESOLVE_CACHED = 0x20
F_GETLK = 5
LOCK = "hhqqixxxx"
"""struct flock, as a machine of 64 bits has it."""


def _opened(bait: Bait) -> int:
    return os.open(bait["path"], os.O_RDONLY)


def without_waiting(bait: Bait) -> None:
    """Reads a page only if it is in memory already. Either answer tells."""
    try:
        os.preadv(_opened(bait), [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        say(through="the first page is not in memory")
    else:
        say(through="the first page is in memory")


def residency(bait: Bait) -> None:
    pages = mmap.mmap(_opened(bait), PAGE, flags=mmap.MAP_PRIVATE)
    found = ctypes.create_string_buffer(1)
    at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(pages)))
    checked(libc.mincore(at, ctypes.c_size_t(PAGE), found))
    say(through=f"the first page is {'' if found.raw[0] & 1 else 'not '}in memory")


def cache_statistics(bait: Bait) -> None:
    span, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    syscall(451, ctypes.c_int(_opened(bait)), span, found, ctypes.c_uint(0))
    say(through=f"{found[0]} pages are in memory")


def drop_pages(bait: Bait) -> None:
    os.posix_fadvise(_opened(bait), 0, 0, os.POSIX_FADV_DONTNEED)
    say(through="pages of a file of the host may be dropped from memory")


def advise_pages(bait: Bait) -> None:
    """By what is said of a mapping."""
    pages = mmap.mmap(_opened(bait), PAGE, prot=mmap.PROT_READ)
    for name, advice in (("cold", MADV_COLD), ("paged out", MADV_PAGEOUT), ("needed", mmap.MADV_WILLNEED)):
        with refusals(name):
            pages.madvise(advice)
            say(through=f"a page of a file of the host may be called {name}")


def cached_names(bait: Bait) -> None:
    """Opens only what somebody looked up before."""
    how = struct.pack("=QQQ", os.O_PATH, 0, RESOLVE_CACHED)
    try:
        syscall(437, ctypes.c_int(-100), bait["path"].encode(), how, ctypes.c_size_t(len(how)))
    except BlockingIOError:
        say(through="nobody looked for this name before")
    else:
        say(through="somebody looked for this name before")


def queue(bait: Bait) -> None:
    """Its requests may ask not to wait, and lie where no filter can look."""
    context = ctypes.c_ulong(0)
    syscall(number_of(206, 0), ctypes.c_uint(1), ctypes.byref(context))
    say(through="a queue of requests was set up")


def watch(bait: Bait) -> None:
    watcher = checked(libc.inotify_init1(os.O_NONBLOCK))
    checked(libc.inotify_add_watch(watcher, bait["path"].encode(), ctypes.c_uint32(0x20)))
    say(through="it is told when others open a file of the host")


def hold_lock(bait: Bait) -> None:
    """The other run, for those below: locks of both kinds on files of the host, opened to be read."""
    for path, lock in ((bait["flocked"], fcntl.flock), (bait["locked"], fcntl.lockf)):
        with refusals(path):
            lock(os.open(path, os.O_RDONLY), fcntl.LOCK_SH)
    for gone in moments():
        if gone > bait["seconds"]:
            break
    say(unharmed=True)


def see_flock(bait: Bait) -> None:
    file = os.open(bait["flocked"], os.O_RDONLY)
    for gone in moments():
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(through="it sees that another run has locked a file of the host")
            return
        fcntl.flock(file, fcntl.LOCK_UN)
        if gone > bait["seconds"]:
            return


def see_lock(bait: Bait) -> None:
    file = os.open(bait["locked"], os.O_RDONLY)
    for gone in moments():
        asked = struct.pack(LOCK, fcntl.F_WRLCK, 0, 0, 0, 0)
        if struct.unpack(LOCK, fcntl.fcntl(file, F_GETLK, asked))[0] != fcntl.F_UNLCK:
            say(through="it sees that another run has locked a file of the host")
            return
        if gone > bait["seconds"]:
            return


def open_terminal(bait: Bait) -> None:
    """The other run, for the one below: a terminal of its own, known by its size."""
    import termios

    with refusals("a terminal"):
        ours, _theirs = os.openpty()
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", *bait["size"], 0, 0))
    for gone in moments():
        if gone > bait["seconds"]:
            break
    say(unharmed=True)


def seek_terminal(bait: Bait) -> None:
    import termios

    for gone in moments(0.1):
        for name in os.listdir("/dev/pts"):
            with refusals(name):
                file = os.open(f"/dev/pts/{name}", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
                size = struct.unpack("HHHH", fcntl.ioctl(file, termios.TIOCGWINSZ, bytes(8)))[:2]
                os.close(file)
                if list(size) == bait["size"]:
                    say(through="it opened the terminal of another run")
                    return
        if gone > bait["seconds"]:
            return


def leave_dates(bait: Bait) -> None:
    for path in bait["paths"]:
        with refusals(path):
            os.utime(path)


def leave_rights(bait: Bait) -> None:
    """Of a file that was opened to be read; they stay as they are."""
    file = _opened(bait)
    os.fchmod(file, os.fstat(file).st_mode & 0o7777)
    say(through="the rights of a file of yours may be set")


def tell(bait: Bait) -> None:
    """What stands there."""
    for path in bait["paths"]:
        with refusals(path), open(path, "rb") as file:
            say(told=file.read(1 << 16).decode("latin-1"))


def list_mounts(bait: Bait) -> None:
    """By a call, which needs no /proc."""
    found = (ctypes.c_uint64 * 64)()
    asked = (ctypes.c_uint64 * 3)(24, 2**64 - 1, 0)
    if count := syscall(458, asked, found, ctypes.c_size_t(64), ctypes.c_uint(0)):
        say(through=f"{count} mounts")


def count_on(bait: Bait) -> None:
    """Files whose words change by themselves."""
    before = {}
    for path in bait["paths"]:
        with refusals(path), open(path, "rb") as file:
            before[path] = file.read()
    time.sleep(0.3)
    for path, text in before.items():
        with refusals(path), open(path, "rb") as file:
            if file.read() != text:
                say(through=f"{path} goes on counting")


def system_information(bait: Bait) -> None:
    checked(libc.sysinfo(ctypes.create_string_buffer(512)))
    say(through="memory, load and number of processes of the host")
