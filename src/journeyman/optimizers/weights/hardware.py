"""What the processor, the memory and a container's limits are, read from files where the system has such.

Every reader takes the folder that stands for `/`. A file that is missing or says something strange is unknown, never an error.
"""

import csv
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

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


def from_psutil(physical: int | None) -> tuple[int | None, int | None, int | None]:
    """Bytes in all and available, and physical cores, where there is no /proc; unknown without psutil."""
    try:
        import psutil
    except ImportError:
        return None, None, physical
    memory = psutil.virtual_memory()
    return int(memory.total), int(memory.available), physical or psutil.cpu_count(logical=False)


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


# Graphics processors, asked of the tools that come with their drivers: importing torch to ask it would take seconds.
#
# `nvidia-smi` for CUDA, `amd-smi` or the older `rocm-smi` for ROCm; on Apple's processors the GPU is part of the platform. A
# tool that is missing, hangs or says something strange means that there is no such GPU.

TIMEOUT = 10.0
"""Seconds for one call. A driver that sleeps wakes up in about 2."""
_MIB = 2**20
_NVIDIA = ("index", "uuid", "name", "memory.total", "memory.free", "compute_cap")
_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
_AMD_BF16 = re.compile(r"gfx(908|90a|94\d|95\d|11\d\d|12\d\d)")
"""MI100 and later (matrix cores) and RDNA 3 and later (WMMA) multiply in bf16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    kind: Literal["cuda", "rocm", "mps"]
    name: str
    memory_total: int | None
    """Bytes; of the whole machine where processor and GPU share it (`mps`)."""
    memory_free: int | None
    bf16: bool
    """It multiplies in bf16 by itself: NVIDIA from compute capability 8.0 (Ampere), AMD from MI100 and RDNA 3."""
    capability: str | None = None
    """NVIDIA's compute capability ("8.6"), AMD's target ("gfx90a")."""


def find(environment: Mapping[str, str] = os.environ) -> tuple[Gpu, ...]:
    """The GPUs that a program started from here would see, the tools searched on the `PATH` of `environment`."""
    return tuple(_nvidia(environment)) or tuple(_amd(environment)) or tuple(_apple())


def _nvidia(environment: Mapping[str, str]) -> Iterator[Gpu]:
    allowed = environment.get("CUDA_VISIBLE_DEVICES")
    fields: tuple[str, ...] = _NVIDIA
    output = _output_of(environment, "nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    if output is None:
        # Drivers before 510 do not know compute_cap, and then answer nothing at all.
        fields = _NVIDIA[:-1]
        output = _output_of(environment, "nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    for row in csv.reader((output or "").splitlines(), skipinitialspace=True):
        columns = dict(zip(fields, row, strict=False))
        if len(row) < len(fields) or not _visible(columns, allowed):
            continue
        capability = columns.get("compute_cap", "")
        known = re.fullmatch(r"\d+\.\d+", capability)
        yield Gpu(
            kind="cuda",
            name=columns["name"],
            memory_total=_number(columns["memory.total"], _MIB),
            memory_free=_number(columns["memory.free"], _MIB),
            bf16=bool(known) and float(capability) >= 8.0,
            capability=capability if known else None,
        )


def _visible(columns: Mapping[str, str], allowed: str | None) -> bool:
    """CUDA_VISIBLE_DEVICES names GPUs by number or by the beginning of their id; none when it is empty or -1."""
    if allowed is None:
        return True
    names = [name.strip() for name in allowed.split(",")]
    return any(
        name and (name == columns["index"] or (name.startswith("GPU-") and columns["uuid"].startswith(name))) for name in names
    )


def _amd(environment: Mapping[str, str]) -> Iterator[Gpu]:
    static = _json(_output_of(environment, "amd-smi", "static", "--asic", "--vram", "--json"))
    if static:
        used = {
            gpu.get("gpu"): gpu for gpu in _rows(_json(_output_of(environment, "amd-smi", "metric", "--mem-usage", "--json")))
        }
        for gpu in _rows(static):
            asic, usage = gpu.get("asic", {}), used.get(gpu.get("gpu"), {}).get("mem_usage", {})
            target = str(asic.get("target_graphics_version", ""))
            total = _size(gpu.get("vram", {}).get("size"))
            yield _radeon(str(asic.get("market_name", "AMD GPU")), target, total, _size(usage.get("free_vram")))
        return
    cards = _json(_output_of(environment, "rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json"))
    for name, card in sorted(cards.items()) if isinstance(cards, dict) else ():
        if name.startswith("card"):
            total, taken = (_number(str(card.get(f"VRAM Total {which}Memory (B)", "")), 1) for which in ("", "Used "))
            free = total - taken if total is not None and taken is not None else None
            called = card.get("Card Series") or card.get("Card series") or card.get("Card Model") or "AMD GPU"
            yield _radeon(str(called), str(card.get("GFX Version", "")), total, free)


def _radeon(name: str, target: str, total: int | None, free: int | None) -> Gpu:
    known = target if target.startswith("gfx") else None
    bf16 = bool(known and _AMD_BF16.match(known))
    return Gpu(kind="rocm", name=name, memory_total=total, memory_free=free, bf16=bf16, capability=known)


def _apple() -> Iterator[Gpu]:
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        # bf16 on Metal needs a recent macOS as well, which torch alone can tell: what is not sure is not used.
        yield Gpu(kind="mps", name="Apple GPU (Metal)", memory_total=None, memory_free=None, bf16=False)


def _output_of(environment: Mapping[str, str], tool: str, *arguments: str) -> str | None:
    """What the tool prints; `None` when it is not there, fails or takes too long."""
    path = shutil.which(tool, path=environment.get("PATH"))
    if path is None:
        return None
    try:
        run = subprocess.run([path, *arguments], capture_output=True, timeout=TIMEOUT, check=False, env=dict(environment))
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.decode("utf-8", "replace") if run.returncode == 0 else None


def _json(output: str | None) -> Any:
    """What can be read from the first bracket on: these tools print warnings before it."""
    start = re.search(r"[\[{]", output or "")
    try:
        return json.loads((output or "")[start.start() :]) if start else {}
    except ValueError:
        return {}


def _rows(value: Any) -> list[Mapping[str, Any]]:
    """A list of GPUs, which newer versions of amd-smi wrap in an object."""
    rows = value.get("gpu_data", []) if isinstance(value, dict) else value
    return [row for row in rows if isinstance(row, dict)]


def _size(size: Any) -> int | None:
    """`{"value": 196592, "unit": "MB"}` in bytes."""
    if not isinstance(size, dict) or not isinstance(size.get("value"), int | float):
        return None
    unit = _UNITS.get(str(size.get("unit")))
    return int(size["value"] * unit) if unit else None


def _number(text: str, unit: int) -> int | None:
    """`None` for "[N/A]", "[Not Supported]" and the like."""
    return int(text) * unit if text.strip().isdigit() else None
