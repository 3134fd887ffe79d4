"""How busy this machine is, and the processes that serve: asked of the system, and unknown where it does not say."""

import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from journeyman.optimizers.weights import hardware
from journeyman.stores.alerts import ResourceSample

_ROOT = Path("/")
_MOMENT = 1.0
"""Seconds in which the processors of a machine show nothing but who looks."""


class Sampler:
    """Looks at the machine. How busy processors are is what they did since the look before, and unknown at the first."""

    def __init__(self, folder: Path, processes: Mapping[str, int] | None = None) -> None:
        """
        Args:
            folder: Whose disk is looked at.
            processes: Those to be looked at with all their children, by what they are there for.
        """
        self._folder = folder
        self._processes = {"monitor": os.getpid()} if processes is None else dict(processes)
        self._host = socket.gethostname()
        self._seen: dict[str, Any] = {}
        self._gpu = _Gpu()
        self._asked_at = 0.0
        self._busy(None)

    def look(self, at: datetime) -> Sequence[ResourceSample]:
        """The machine first, then its processes."""
        return [self._machine(at), *self._of_processes(at)]

    def _machine(self, at: datetime) -> ResourceSample:
        used, total = _memory()
        share = None if used is None or not total else used / total
        gpu, gpu_memory = self._gpu.look()
        return ResourceSample(
            at=at,
            host=self._host,
            cpu=self._busy(at),
            memory=share,
            memory_bytes=used,
            gpu=gpu,
            gpu_memory=gpu_memory,
            disk=_disk(self._folder),
        )

    def _busy(self, at: datetime | None) -> float | None:
        try:
            import psutil
        except ImportError:
            return None
        # Of the first look, and of a moment, nothing is known.
        if at is not None and time.monotonic() - self._asked_at < _MOMENT:
            return None
        self._asked_at = time.monotonic()
        percent = float(psutil.cpu_percent(interval=None))
        return None if at is None else percent / 100

    def _of_processes(self, at: datetime) -> Iterator[ResourceSample]:
        try:
            import psutil
        except ImportError:
            return
        cores = psutil.cpu_count() or 1
        for name, pid in self._processes.items():
            with suppress(psutil.Error, OSError):
                family = _family(psutil.Process(pid), {each for each in self._processes.values() if each != pid})
                spent = memory = 0.0
                for each in family:
                    with suppress(psutil.Error, OSError):
                        times = each.cpu_times()
                        spent, memory = spent + times.user + times.system, memory + each.memory_info().rss
                before = self._seen.get(name)
                self._seen[name] = (at, spent)
                seconds = (at - before[0]).total_seconds() if before else 0.0
                cpu = max(0.0, spent - before[1]) / seconds / cores if before and seconds > 0 else None
                yield ResourceSample(at=at, host=self._host, process=name, cpu=cpu, memory_bytes=int(memory))


def _family(first: Any, others: set[int]) -> list[Any]:
    """A process and its children, but for those that are looked at by themselves."""
    return [first, *(each for each in first.children(recursive=True) if each.pid not in others)]


def _memory() -> tuple[int | None, int | None]:
    """Bytes that are used, and that may be; those of the group that this process is in, where it has a limit."""
    total, left = hardware.memory(_ROOT)
    if total is None:
        total, left, _ = hardware.from_psutil(None)
    group = hardware.limits(_ROOT)
    if group.memory is not None and group.memory_left is not None and (total is None or group.memory < total):
        total, left = group.memory, group.memory_left
    return (None if total is None or left is None else total - left), total


def _disk(folder: Path) -> float | None:
    try:
        found = os.statvfs(next(each for each in (folder, *folder.parents) if each.exists()))
    except (OSError, StopIteration, AttributeError):
        return None
    # As `df` tells it: what only root may use counts as used by nobody.
    used, free = found.f_blocks - found.f_bfree, found.f_bavail
    return used / (used + free) if used + free else None


class _Gpu:
    """The busiest GPU of the machine; nothing where there is none, or nobody can ask."""

    def __init__(self) -> None:
        self._nvml: Any = None
        try:
            import pynvml

            pynvml.nvmlInit()
        except ImportError:
            return
        except pynvml.NVMLError:
            return
        self._nvml = pynvml

    def look(self) -> tuple[float | None, float | None]:
        nvml = self._nvml
        if nvml is None:
            return None, None
        busy, memory = list[float](), list[float]()
        with suppress(nvml.NVMLError):
            for number in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(number)
                found = nvml.nvmlDeviceGetMemoryInfo(handle)
                memory.append(found.used / found.total)
                busy.append(nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
        return max(busy, default=None), max(memory, default=None)
