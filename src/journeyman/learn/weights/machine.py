"""What the processor, the memory and a container's limits are, read from files where the system has such.

Every reader takes the folder that stands for `/`. A file that is missing or says something strange is unknown, never an error.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

INSTRUCTION_SETS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16")
"""What is worth naming of a processor: what decides how fast and in which type it multiplies matrices."""
_NO_LIMIT = 2**60
"""cgroup v1 says "no limit" by a number near the largest there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupLimits:
    """What the control groups of this process allow; each is that of the tightest group above it. `None` is no limit."""

    cores: float | None = None
    """Processor time a second: a quota of 150 ms in each 100 is 1.5."""
    memory: int | None = None
    """Bytes."""
    memory_left: int | None = None
    """Bytes until the limit, files that can be dropped not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    name: str | None
    instruction_sets: tuple[str, ...]
    """Of those in `INSTRUCTION_SETS`, by the names of Linux."""
    physical_cores: int | None
    """Of the logical ones that were asked about: two threads of one core count once."""


def limits(root: Path) -> CgroupLimits:
    """The limits of control groups, version 1 and 2 and both at once."""
    cores: list[float] = []
    memory: list[int] = []
    left: list[int] = []
    for folder in _groups(root, "cpu"):
        cores.extend(_quota(folder))
    for folder in _groups(root, "memory"):
        for limit in _first(folder, "memory.max", "memory.limit_in_bytes"):
            memory.append(limit)
            left.extend(max(0, limit - used) for used in _used(folder))
    return CgroupLimits(cores=min(cores, default=None), memory=min(memory, default=None), memory_left=min(left, default=None))


def memory(root: Path) -> tuple[int | None, int | None]:
    """Bytes in all, and bytes that could be had without swapping."""
    kilobytes: dict[str, str] = dict(re.findall(r"^(\w+):\s+(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE))
    total, available = (kilobytes.get(name) for name in ("MemTotal", "MemAvailable"))
    return (int(total) * 1024 if total else None), (int(available) * 1024 if available else None)


def processor(root: Path, logical: frozenset[int]) -> Processor:
    """The processor, and how many cores the logical ones in `logical` are; all of them where it is empty."""
    blocks = [
        dict(re.findall(r"^([^:\t]+?)\s*:[ \t]*(.*)$", block, re.MULTILINE))
        for block in _text(root / "proc/cpuinfo").strip().split("\n\n")
    ]
    flags = {flag for block in blocks for flag in (block.get("flags") or block.get("Features") or "").split()}
    names = [block["model name"] for block in blocks if block.get("model name")]
    by_number = {int(block["processor"]): block for block in blocks if block.get("processor", "").isdigit()}
    cores = {_core(root, number, by_number.get(number, {})) for number in logical or by_number}
    return Processor(
        name=names[0] if names else None,
        instruction_sets=tuple(name for name in INSTRUCTION_SETS if name in flags),
        physical_cores=len(cores) if cores and None not in cores else None,
    )


def affinity() -> frozenset[int]:
    """The logical cores that this process may run on; empty where the system does not say."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def _core(root: Path, number: int, cpuinfo: Mapping[str, str]) -> tuple[str, str] | None:
    folder = root / f"sys/devices/system/cpu/cpu{number}/topology"
    package, core = (_text(folder / name).strip() for name in ("physical_package_id", "core_id"))
    if not core:
        # Processors of x86 say it here as well; those of ARM do not.
        package, core = cpuinfo.get("physical id", ""), cpuinfo.get("core id", "")
    return (package, core) if core else None


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the groups that this process is in, from its own up to the highest that can be seen."""
    within = _memberships(root)
    for line in _text(root / "proc/self/mountinfo").splitlines():
        # 35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
        before, _, after = line.partition(" - ")
        kind, _, options = [*after.split(), "", "", ""][:3]
        named = "" if kind == "cgroup2" else controller
        if kind not in ("cgroup", "cgroup2") or named not in within or (named and named not in options.split(",")):
            continue
        mounted, point = (_unescaped(field) for field in before.split()[3:5])
        inside = PurePosixPath(within[named])
        # In a container the path may be the host's, of which only the part below what is mounted can be seen here.
        below = inside.relative_to(mounted) if inside.is_relative_to(mounted) else PurePosixPath()
        top = root / point.lstrip("/")
        for step in (below, *below.parents):
            yield top / step


def _memberships(root: Path) -> dict[str, str]:
    """The path of this process's group by controller; that of version 2 under the empty name."""
    paths = {}
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        paths.update({name: path for name in controllers.split(",")})
    return paths


def _quota(folder: Path) -> Iterator[float]:
    quota, period = [*_text(folder / "cpu.max").split(), "", ""][:2]
    if not quota:
        quota, period = (_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    if quota.isdigit() and period.isdigit() and int(period):
        yield int(quota) / int(period)


def _used(folder: Path) -> Iterator[int]:
    for used in _first(folder, "memory.current", "memory.usage_in_bytes"):
        counters: dict[str, str] = dict(re.findall(r"^(\w+) (\d+)$", _text(folder / "memory.stat"), re.MULTILINE))
        yield used - int(counters.get("total_inactive_file", counters.get("inactive_file", 0)))


def _first(folder: Path, *names: str) -> Iterator[int]:
    """The number in the first file of these names that there is, unless it means that there is no limit."""
    text = next((found for name in names if (found := _text(folder / name).strip())), "")
    if text.isdigit() and int(text) < _NO_LIMIT:
        yield int(text)


def _unescaped(field: str) -> str:
    """mountinfo writes a blank as \\040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
