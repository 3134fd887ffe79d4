"""The fork server: a warm Python that forks a supervisor for each run.

    python -I inside fork_server FD      the host's sockets on file descriptors 0 and FD, the second for runs of pytest

Each message on that socket brings another one, on which the run itself is talked about. Only the supervisor reads from it, so
that nothing of a run ever is in the fork server, from which the next one is forked.

A fork shares its parent's hash seed: within one fork server, sets of strings have the same order in every run.
"""

import collections
import contextlib
import gc
import importlib
import io
import os
import platform
import resource
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NoReturn

from . import linux, seccomp, wire
from .init import InitProcess
from .isolation import PAGE, FreeSpace, Isolation, Limits, ProcessUsage, end, processes, rlimits, shared_out, usage
from .supervisor import serve

# The walls of a run within bubblewrap's: namespaces, a filesystem and a user of its own, no capability, a filter; and, where
# the host lent one, a control group, by which the kernel counts the whole tree of processes and refuses memory and processes.

USER = 1000
"""As which the code sees itself."""
BOX = "/sandbox"
"""Of the run, and of its limits: what else lies there is hidden by it."""
LENT = f"{BOX}/cgroup"
"""Where the host put the control groups that it lends."""
NAMESPACES = linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS
HIDDEN = linux.MS_NOSUID | linux.MS_NODEV
READ_ONLY = linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
WORK, HOME, TEMPORARY, SHARED = (f"{BOX}/{name}" for name in ("work", "home", "tmp", "shm"))
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

# What /proc says of the machine: as it was when the fork server started where that never changes, and else nothing. What
# changes tells of others, and of the run before.

SHOWN = f"{BOX}/shown"
"""Where the host left a folder for it."""
OWN = frozenset({"self", "thread-self", "mounts", "net", "sysvipc", "filesystems", "version"})
"""Of the run itself, or of the kernel for ever."""
NOTHING, NO_FILES = "nothing", "no-files"


def prepare_shown() -> None:
    """Write what covers the machine's own words; and nobody may leave a date on a device."""
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("shown", SHOWN, "tmpfs", HIDDEN | linux.MS_NOEXEC, "size=1m,mode=0755")
    with open("/proc/stat", encoding="ascii") as file:
        cores = [word for word in (line.split()[0] for line in file) if word.startswith("cpu")]
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        processors = file.read()
    counted = "".join(f"{core} 0 0 0 0 0 0 0 0 0 0\n" for core in cores)
    words = {
        NOTHING: "",
        "cpuinfo": processors,
        "stat": f"{counted}intr 0\nctxt 0\nbtime {int(time.time())}\nprocesses 0\nprocs_running 1\nprocs_blocked 0\n",
        "loadavg": "0.00 0.00 0.00 1/1 1\n",
        "uptime": "0.00 0.00\n",
    }
    for name, text in words.items():
        with open(f"{SHOWN}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    os.mkdir(f"{SHOWN}/{NO_FILES}")
    linux.mount("none", SHOWN, flags=READ_ONLY)
    for device in (entry.path for entry in os.scandir("/dev") if not (entry.is_dir() or entry.is_symlink())):
        linux.mount("none", device, flags=READ_ONLY & ~linux.MS_NODEV)
    covers()


@cache
def covers() -> list[tuple[str, str]]:
    """By what each word of /proc is covered. Every run covers the same, so the fork server looks first."""
    prepared = os.listdir(SHOWN)
    return [
        (f"{SHOWN}/{entry.name if entry.name in prepared else NO_FILES if entry.is_dir() else NOTHING}", entry.path)
        for entry in os.scandir("/proc")
        if not (entry.name.isdecimal() or entry.name in OWN or entry.is_symlink())
    ]


@cache
def hierarchies(place: str) -> dict[str, list[int]]:
    """By the name of a file, the numbers of the hierarchies that have it. Every group asks, so the fork server asks first."""
    found: dict[str, list[int]] = {}
    for number, hierarchy in enumerate(sorted(os.listdir(place))):
        for name in os.listdir(f"{place}/{hierarchy}"):
            found.setdefault(name, []).append(number)
    return found


class Cgroup:
    """One folder in each hierarchy that was lent: several of version 1, or the one of version 2. Files that a version or
    kernel does not have are passed over."""

    def __init__(self, place: str, name: str) -> None:
        self._name = name
        self._where = hierarchies(place)
        self._parents = [os.open(f"{place}/{hierarchy}", FOLDER) for hierarchy in sorted(os.listdir(place))]
        self._folders: list[int] = []
        for parent in self._parents:
            os.mkdir(name, 0o700, dir_fd=parent)
            self._folders.append(os.open(name, FOLDER, dir_fd=parent))

    def limit(self, *, memory: int, processes: int) -> None:
        for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max"):
            self._write(name, memory)
        self._write("memory.swap.max", 0)
        self._write("pids.max", processes)

    def take(self, pid: int) -> None:
        """Hold a process, and all that it will start."""
        self._write("cgroup.procs", pid)

    @property
    def peak_memory(self) -> int | None:
        return self._number("memory.max_usage_in_bytes") or self._number("memory.peak")

    @property
    def cpu_seconds(self) -> float:
        """Also of those that nobody waited for; 0 where the kernel does not count it."""
        nanoseconds = self._number("cpuacct.usage") or 0
        return max(nanoseconds / 1e9, (self._field("cpu.stat", "usage_usec") or 0) / 1e6)

    @property
    def refused_memory(self) -> bool:
        """Whether the kernel had to kill for want of memory."""
        return any(self._field(name, "oom_kill") for name in ("memory.oom_control", "memory.events"))

    @property
    def refused_processes(self) -> bool:
        return bool(self._field("pids.events", "max"))

    def remove(self) -> None:
        """After the last process went. The kernel may need a moment to see that it did."""
        for parent, folder in zip(self._parents, self._folders, strict=True):
            os.close(folder)
            for _ in range(200):
                try:
                    os.rmdir(self._name, dir_fd=parent)
                    break
                except OSError:
                    time.sleep(0.005)
            os.close(parent)

    def _write(self, name: str, value: int) -> None:
        for opened in self._opened(name, os.O_WRONLY):
            os.write(opened, str(value).encode())

    def _read(self, name: str) -> bytes | None:
        """Of the first that has it."""
        return next((os.read(opened, 4096) for opened in self._opened(name, os.O_RDONLY)), None)

    def _opened(self, name: str, how: int) -> Iterator[int]:
        for number in self._where.get(name, ()):
            try:
                opened = os.open(name, how | os.O_CLOEXEC, dir_fd=self._folders[number])
            except FileNotFoundError:
                # In version 2 a group need not have all that the one above it has.
                continue
            try:
                yield opened
            finally:
                os.close(opened)

    def _number(self, name: str) -> int | None:
        text = self._read(name)
        return None if text is None else int(text)

    def _field(self, name: str, field: str) -> int | None:
        for line in (self._read(name) or b"").decode().splitlines():
            key, _, value = line.partition(" ")
            if key == field:
                return int(value)
        return None


class NamespaceIsolation(Isolation):
    """Every run's own."""

    def __init__(self) -> None:
        super().__init__("/")
        self.work, self.home, self.temporary = WORK, HOME, "/tmp"
        self.cgroup: Cgroup | None = None
        self.mounts: int | None = None

    def surround(self) -> None:
        linux.unshare(NAMESPACES)
        if os.path.isdir(LENT):
            self.cgroup = Cgroup(LENT, f"run-{os.getpid()}")

    def hold(self, init: int) -> None:
        if self.cgroup:
            self.cgroup.take(init)

    def build(self) -> None:
        linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
        # Of the processes within only those of the code: the first of them has the host's mounts.
        linux.mount("proc", "/proc", "proc", HIDDEN | linux.MS_NOEXEC, "hidepid=2")
        for source, place in covers():
            linux.mount(source, place, flags=linux.MS_BIND)
        linux.mount("devpts", "/dev/pts", "devpts", linux.MS_NOSUID | linux.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
        linux.loopback_up()

    def allow(self, limits: Limits) -> None:
        if self.cgroup:
            # One more: the first process within is ours.
            self.cgroup.limit(memory=limits["memory"], processes=limits["processes"] + 1)

    def furnish(self, limits: Limits) -> None:
        folders = (WORK, HOME, TEMPORARY, SHARED)
        # And what is shown as the memory of the machine.
        room = f"size={limits['disk'] + PAGE},nr_inodes={limits['inodes'] + len(folders) + 2},mode=0755"
        linux.mount("box", BOX, "tmpfs", HIDDEN, room)
        for folder in folders:
            os.mkdir(folder)
        linux.mount(TEMPORARY, "/tmp", flags=linux.MS_BIND)
        linux.mount(SHARED, "/dev/shm", flags=linux.MS_BIND)
        _show_memory(limits["memory"])
        # Kernels before 5.2 have no such thing, and there the mounts are seen.
        with contextlib.suppress(OSError):
            self.mounts = linux.mounts_apart()

    def confine(self, limits: Limits) -> None:
        # Its group is the root of all groups that it sees.
        with contextlib.suppress(OSError):
            linux.unshare(linux.CLONE_NEWCGROUP)
        linux.become_only_user(USER, USER)
        if self.mounts is not None:
            os.fchdir(self.mounts)
            os.chroot(".")
            os.chdir(self.work)
        rlimits(limits)
        # Counted for each user namespace by itself, and so for each run.
        resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"],) * 2)
        linux.drop_capabilities()
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        try:
            seccomp.apply()
        except (OSError, NotImplementedError):
            # The self-test says that it is missing.
            return

    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": self.home, "TMPDIR": self.temporary, "LANG": "C.UTF-8", "USER": "code"}

    def usage(self, init: int) -> ProcessUsage:
        # The supervisor shares the mounts of the run, so this /proc shows nobody else.
        pids = [pid for pid in processes("/proc") if pid != 1]
        used = usage("/proc", pids)
        if self.cgroup:
            used.cpu_seconds = max(used.cpu_seconds, self.cgroup.cpu_seconds)
            used.memory = 0
        elif used.memory:
            used.memory = shared_out("/proc", pids)
        return used

    def refused(self) -> str | None:
        if self.cgroup and self.cgroup.refused_memory:
            return "memory"
        return "processes" if self.cgroup and self.cgroup.refused_processes else None

    def peak_memory(self) -> int | None:
        return self.cgroup.peak_memory if self.cgroup else None

    def free_space(self) -> FreeSpace | None:
        # Not a folder in it, which the code may have moved away.
        return FreeSpace(BOX)

    def kill(self, init: int) -> None:
        # The kernel ends all the others of its process namespace before it is gone itself.
        end(init)

    def clean(self) -> None:
        if self.cgroup:
            self.cgroup.remove()
            self.cgroup = None


def _show_memory(size: int) -> None:
    """What was granted, as the memory of the machine. The file has no name afterwards, by which it could be written to."""
    path = f"{BOX}/meminfo"
    with open(path, "w", encoding="ascii") as file:
        rows = {"MemTotal": size, "MemFree": size, "MemAvailable": size} | dict.fromkeys(
            ("Buffers", "Cached", "SReclaimable", "Shmem", "SwapTotal", "SwapFree"), 0
        )
        file.writelines(f"{f'{name}:':<16}{value // 1024:>8} kB\n" for name, value in rows.items())
    linux.mount(path, "/proc/meminfo", flags=linux.MS_BIND)
    linux.mount("none", "/proc/meminfo", flags=READ_ONLY)
    os.unlink(path)


# The fork server itself.

SPARES = 2
"""Supervisors that wait."""
MODULES = [
    "abc", "argparse", "array", "ast", "asyncio", "base64", "bisect", "builtins", "calendar", "collections",
    "collections.abc", "concurrent.futures", "contextlib", "copy", "csv", "ctypes", "dataclasses", "datetime",
    "decimal", "difflib", "enum", "fractions", "functools", "glob", "hashlib", "heapq", "html", "inspect",
    "io", "itertools", "json", "linecache", "logging", "math", "operator", "os", "os.path", "pathlib",
    "pickle", "pprint", "queue", "random", "re", "secrets", "shutil", "signal", "socket", "sqlite3",
    "statistics", "string", "struct", "subprocess", "sys", "tempfile", "textwrap", "threading", "time",
    "timeit", "tokenize", "traceback", "types", "typing", "unicodedata", "unittest", "unittest.mock",
    "urllib.parse", "urllib.request", "uuid", "warnings", "weakref", "xml.etree.ElementTree", "zlib",
    "multiprocessing",
]  # fmt: skip
"""What code of this kind imports most."""


TESTS = """
def test_that_passes(tmp_path, capsys):
    assert {1: [2]} == {1: [2]}

def test_that_fails():
    assert [1] == [2]
"""


def main(arguments: Sequence[str]) -> None:
    """Two fork servers: what pytest needs would make the forks of all others slower."""
    host, for_pytest = socket.socket(fileno=os.dup(0)), socket.socket(fileno=int(arguments[0]))
    # Supervisors are nobody's to wait for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warm()
    prepare_shown()
    with contextlib.suppress(NotImplementedError):
        seccomp.assembled(platform.machine())
    if os.path.isdir(LENT):
        hierarchies(LENT)
    if os.fork() == 0:
        host.close()
        with _as_it_was(), contextlib.suppress(ImportError):
            warm_pytest()
        _freeze()
        ForkServer(for_pytest).serve()
        os._exit(0)
    for_pytest.close()
    _freeze()
    with open(os.devnull, "r+b", buffering=0) as nowhere:
        for fd in (0, 1, 2):
            os.dup2(nowhere.fileno(), fd)
    host.send(b"ready")
    ForkServer(host).serve()


class ForkServer:
    """Hands the socket of each run to a supervisor whose walls stand already, and has the next one built meanwhile."""

    def __init__(self, host: socket.socket) -> None:
        self.host = host
        self.spares: collections.deque[socket.socket] = collections.deque()

    def serve(self) -> None:
        """Until the host goes."""
        while True:
            while len(self.spares) < SPARES:
                self._fork()
            message, fds, _, _ = socket.recv_fds(self.host, 16, 1)
            if not message:
                return
            with socket.socket(fileno=fds[0]) as channel:
                self._hand_over(channel)

    def _hand_over(self, channel: socket.socket) -> None:
        """To the first that is still there."""
        while True:
            if not self.spares:
                self._fork()
            with self.spares.popleft() as spare, contextlib.suppress(OSError):
                socket.send_fds(spare, [b"!"], [channel.fileno()])
                return

    def _fork(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            for each in (self.host, ours, *self.spares):
                each.close()
            _supervisor(theirs)
        theirs.close()
        self.spares.append(ours)


def _supervisor(server: socket.socket) -> NoReturn:
    """Build the walls, wait for a run, watch it, and go."""
    isolation, fault, init = NamespaceIsolation(), None, None
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            init = InitProcess(isolation)
        except OSError as error:
            fault = f"the walls could not be built: {error}"
        message, fds, _, _ = socket.recv_fds(server, 16, 1)
        if message:
            with socket.socket(fileno=fds[0]) as channel:
                _serve(channel, isolation, init, fault)
    finally:
        isolation.clean()
        os._exit(0)


def _serve(channel: socket.socket, isolation: NamespaceIsolation, init: InitProcess | None, fault: str | None) -> None:
    try:
        if fault:
            wire.send(channel, {"fault": fault})
        else:
            serve(channel, isolation, init=init)
    except (EOFError, BrokenPipeError):
        # The host gave up before the request was whole.
        return
    except Exception as error:  # noqa: BLE001 - the process's own boundary: the host is told
        with contextlib.suppress(OSError):
            wire.send(channel, {"fault": f"{error!r} {traceback.format_exc()[-2000:]}"})


def _freeze() -> None:
    gc.collect()
    gc.freeze()


def warm() -> None:
    """Import what code of this kind imports most."""
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def warm_pytest() -> None:
    """A session of its own loads what pytest loads late."""
    # What else is installed may be broken, and is no business of the programs.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest

    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.chdir(folder)
        with open("test_warm.py", "w", encoding="utf-8") as file:
            file.write(TESTS)
        pytest.main(["-p", "no:cacheprovider", "test_warm.py"])
        os.chdir(here)


@contextlib.contextmanager
def _as_it_was() -> Iterator[None]:
    """Whatever a warm-up does to the interpreter's own state is undone."""
    path, hooks, environment, handlers = sys.path[:], sys.meta_path[:], dict(os.environ), signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        sys.path[:], sys.meta_path[:] = path, hooks
        sys.modules.pop("test_warm", None)
        # Looked up once and remembered: that of a run is its own.
        tempfile.tempdir = None
        os.environ.clear()
        os.environ.update(environment)
        signal.signal(signal.SIGINT, handlers)
