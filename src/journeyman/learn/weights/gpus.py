"""Graphics processors, asked of the tools that come with their drivers: importing torch to ask it would take seconds.

`nvidia-smi` for CUDA, `amd-smi` or the older `rocm-smi` for ROCm; on Apple's processors the GPU is part of the platform. A
tool that is missing, hangs or says something strange means that there is no such GPU.
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
from typing import Any, Literal

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
