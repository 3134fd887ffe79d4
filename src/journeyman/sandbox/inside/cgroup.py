"""A control group for one run, made by its warden below one that the host lent to the nursery.

The kernel then counts the whole tree of processes, and refuses memory and processes by itself.
"""

import os
import time
from collections.abc import Iterator
from functools import cache

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@cache
def where(place: str) -> dict[str, list[int]]:
    """The hierarchies that have a file of each name, by their number. Every group asks, so the nursery has the answer ready."""
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
        self._where = where(place)
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
