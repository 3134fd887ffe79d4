"""The walls of a run within bubblewrap's: namespaces, a filesystem and a user of its own, no capability, a filter; and, where
the host lent one, a control group, by which the kernel counts the whole tree of processes and refuses memory and processes.
"""

import os
import resource
import time
from collections.abc import Iterator
from functools import cache

from . import linux, seccomp
from .isolation import FreeSpace, Isolation, Limits, ProcessUsage, end, processes, rlimits, shared_out, usage

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

    def surround(self) -> None:
        linux.unshare(NAMESPACES)
        if os.path.isdir(LENT):
            self.cgroup = Cgroup(LENT, f"run-{os.getpid()}")

    def hold(self, init: int) -> None:
        if self.cgroup:
            self.cgroup.take(init)

    def build(self) -> None:
        linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
        linux.mount("proc", "/proc", "proc", HIDDEN | linux.MS_NOEXEC)
        for place in filter(os.path.exists, ("/proc/sys", "/proc/sysrq-trigger")):
            linux.mount(place, place, flags=linux.MS_BIND)
            linux.mount("none", place, flags=READ_ONLY)
        linux.loopback_up()

    def allow(self, limits: Limits) -> None:
        if self.cgroup:
            # One more: the first process within is ours.
            self.cgroup.limit(memory=limits["memory"], processes=limits["processes"] + 1)

    def furnish(self, limits: Limits) -> None:
        folders = (WORK, HOME, TEMPORARY, SHARED)
        room = f"size={limits['disk']},nr_inodes={limits['inodes'] + len(folders) + 1},mode=0755"
        linux.mount("box", BOX, "tmpfs", HIDDEN, room)
        for folder in folders:
            os.mkdir(folder)
        linux.mount(TEMPORARY, "/tmp", flags=linux.MS_BIND)
        linux.mount(SHARED, "/dev/shm", flags=linux.MS_BIND)

    def confine(self, limits: Limits) -> None:
        linux.become_only_user(USER, USER)
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
