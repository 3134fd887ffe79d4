"""What this machine has, and which settings of a training follow from it, each by a stated formula."""

import contextlib
import math
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from journeyman.errors import InputError
from journeyman.learn.weights import gpus, machine, memory
from journeyman.learn.weights.config import TrainingConfig
from journeyman.learn.weights.gpus import Gpu
from journeyman.learn.weights.shapes import LADDER, Shape

CONTEXT = 2048
"""Tokens of prompt and completion together."""
COMPLETION = 512
"""Of them, those that the model writes."""
EFFECTIVE_BATCH = 8
"""Completions of one update, made by accumulation where a batch is smaller."""
STEP_SECONDS = 600.0
"""An update on a processor should take no longer, or nobody waits for a hundred of them."""
_CORE_OPERATIONS = {"avx512f": 60e9, "avx2": 35e9, "asimd": 15e9}
"""Multiplications and additions of a core in a second, as a training in fp32 reaches them; a third of what the units could."""
_BF16_GAIN = {"amx_bf16": 6.0, "avx512_bf16": 1.6, "bf16": 1.6}
_BANDWIDTH = 20e9
"""Bytes a second from memory: about one channel of DDR4 or half of two."""


class HardwareProfile(StrEnum):
    """On what the settings are based."""

    RYZEN_OPTIMIZED = "RYZEN_OPTIMIZED"
    """A Ryzen 9 5950X with 40 GB of memory, whatever is here."""
    AUTO_DETECT = "AUTO_DETECT"
    """What is here: a GPU where there is one that torch can use, else the processor."""
    GPU_ENABLED = "GPU_ENABLED"
    """The GPU; an error where there is none."""
    CPU_ONLY = "CPU_ONLY"
    """The processor, even beside a GPU."""


class Reason(NamedTuple):
    """A setting, and what it follows from."""

    name: str
    value: object
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareConfig:
    """A machine as a training sees it. Sizes in bytes; `None` is unknown. What is recommended follows from the rest."""

    profile: HardwareProfile = HardwareProfile.AUTO_DETECT
    cpu_name: str | None = None
    logical_cores: int | None = None
    """Of the machine."""
    usable_cores: float = 1.0
    """That this process may keep busy: affinity and quotas of control groups count."""
    physical_cores: int | None = None
    """Of those it may run on; two threads of one core count once."""
    cpu_quota: float | None = None
    """Cores that control groups allow; `None` is no limit."""
    instruction_sets: tuple[str, ...] = ()
    memory_total: int | None = None
    memory_available: int | None = None
    """What could be had now without swapping, within the limit."""
    memory_limit: int | None = None
    """Of control groups; `None` is no limit."""
    gpus: tuple[Gpu, ...] = ()
    gpus_unused: str = ""
    """Why the GPUs that are here are not used; empty when they are, or when there are none."""

    @property
    def gpu(self) -> Gpu | None:
        """The one that a training uses: that with the most memory."""
        if self.gpus_unused or not self.gpus:
            return None
        return max(self.gpus, key=lambda gpu: gpu.memory_total or 0)

    @property
    def ram(self) -> int | None:
        """Bytes that this process may ever have: the machine's, or the limit of its control groups."""
        return min((size for size in (self.memory_total, self.memory_limit) if size is not None), default=None)

    @property
    def device_memory(self) -> int | None:
        """Bytes where the training's tensors lie: the GPU's, or `ram`."""
        if self.gpu is None or self.gpu.kind == "mps":
            return self.ram
        return self.gpu.memory_total

    @property
    def threads(self) -> int:
        """One for each physical core that may be kept busy: a second thread of a core finds its units taken."""
        cores = self.usable_cores if self.physical_cores is None else min(self.usable_cores, self.physical_cores)
        return max(1, math.floor(cores))

    @property
    def use_bf16(self) -> bool:
        return self._bf16[0]

    @property
    def operations(self) -> float | None:
        """Multiplications and additions a second that a training reaches, roughly; `None` on a GPU."""
        if self.gpu is not None:
            return None
        rate = next((rate for name, rate in _CORE_OPERATIONS.items() if name in self.instruction_sets), 8e9)
        gain = next((gain for name, gain in _BF16_GAIN.items() if name in self.instruction_sets), 1.0)
        return rate * gain * self.threads

    @property
    def bandwidth(self) -> float | None:
        """Bytes a second that can be read from memory, roughly; `None` on a GPU."""
        return None if self.gpu is not None else _BANDWIDTH

    @property
    def recommended_model_size(self) -> str | None:
        """`1.5B` and so on; `None` where not even the smallest fits."""
        return self._size[0]

    @property
    def recommended_batch_size(self) -> int:
        """The largest power of two, up to 2 on a processor and 8 on a GPU, that fits with the recommended model; at least 1."""
        shape = LADDER.get(self.recommended_model_size or "")
        batch = (2 if self.gpu is None else EFFECTIVE_BATCH) if shape else 1
        while shape and batch > 1 and not self._fits(shape, batch):
            batch //= 2
        return batch

    @property
    def gradient_accumulation_steps(self) -> int:
        return max(1, EFFECTIVE_BATCH // self.recommended_batch_size)

    @property
    def lora_r(self) -> int:
        return 16

    @property
    def lora_alpha(self) -> int:
        return 2 * self.lora_r

    @property
    def num_generations(self) -> int:
        return 6 if self.gpu is None else 8

    @property
    def context_length(self) -> int:
        return CONTEXT

    @property
    def gradient_checkpointing(self) -> bool:
        """On, unless the training takes at most half of the memory without it: it costs a third forward pass."""
        shape, memory_size = LADDER.get(self.recommended_model_size or ""), self.device_memory
        if shape is None or memory_size is None:
            return True
        return self._estimate(shape, self.recommended_batch_size, checkpointing=False).peak > memory_size / 2

    def reasons(self) -> list[Reason]:
        """Each derived setting, with what it follows from."""
        where, most = (self.gpu.name, EFFECTIVE_BATCH) if self.gpu else ("memory", 2)
        checkpointing = self.gradient_checkpointing
        whys = {
            "recommended_model_size": self._size[1],
            "use_bf16": self._bf16[1],
            "threads": "one for each physical core that this process may keep busy",
            "recommended_batch_size": f"the most that fits {where}, up to {most}",
            "gradient_accumulation_steps": f"{EFFECTIVE_BATCH} completions to an update",
            "num_generations": "completions of a prompt that GRPO compares: 6, and 8 where a GPU writes them",
            "context_length": f"{CONTEXT - COMPLETION} tokens of prompt and {COMPLETION} of completion",
            "gradient_checkpointing": f"without it a run takes {'more' if checkpointing else 'less'} than half of the memory",
            "lora_r": "as usual for tasks of this kind",
            "lora_alpha": "twice the rank",
        }
        return [Reason(name, getattr(self, name), why) for name, why in whys.items()]

    @property
    def _bf16(self) -> tuple[bool, str]:
        if self.gpu is not None:
            does = "multiplies" if self.gpu.bf16 else "does not multiply"
            return self.gpu.bf16, f"{self.gpu.name} {does} in bf16 by itself"
        native = [name for name in ("amx_bf16", "avx512_bf16", "bf16") if name in self.instruction_sets]
        if native:
            return True, f"the processor multiplies in bf16 by itself ({native[0]})"
        lacks = "fp32: the processor has no instructions for bf16, as avx512_bf16 and amx_bf16"
        emulated = "; AVX2 alone would emulate it, slower than fp32" if "avx2" in self.instruction_sets else ""
        return False, lacks + emulated

    @property
    def _size(self) -> tuple[str | None, str]:
        """The largest of `LADDER` that fits with a batch of 1 and, on a processor, makes an update within `STEP_SECONDS`."""
        if self.device_memory is None:
            return "0.5B", "how much memory there is is not known; a small one is a safe start"
        fitting = [size for size, shape in LADDER.items() if self._fits(shape, 1)]
        if not fitting:
            return None, "not even the smallest fits: take the embedded model"
        quick = [size for size in fitting if self._seconds(LADDER[size]) <= STEP_SECONDS]
        gib = f"{self.device_memory / 2**30:.0f} GiB"
        if quick and quick[-1] == fitting[-1]:
            return fitting[-1], f"the largest that fits {gib}"
        chosen = quick[-1] if quick else fitting[0]
        why = f"{fitting[-1]} would fit {gib}, but {self.threads} cores make an update of a larger one in more than "
        return chosen, why + f"{STEP_SECONDS / 60:.0f} minutes"

    def _seconds(self, shape: Shape) -> float:
        return self._estimate(shape, 1, checkpointing=True).step_seconds or 0.0

    def _fits(self, shape: Shape, batch: int) -> bool:
        return self._estimate(shape, batch, checkpointing=True).fits is not False

    def _estimate(self, shape: Shape, batch: int, *, checkpointing: bool) -> memory.TrainingEstimate:
        """What GRPO with the recommended settings takes for a model of this shape."""
        config = TrainingConfig(
            per_device_batch_size=batch,
            gradient_accumulation_steps=max(1, EFFECTIVE_BATCH // batch),
            num_generations=self.num_generations,
            max_prompt_tokens=CONTEXT - COMPLETION,
            max_completion_tokens=COMPLETION,
            lora_r=self.lora_r,
            use_bf16=self.use_bf16,
            gradient_checkpointing=checkpointing,
        )
        return memory.estimate(shape, config, self)


def detect_hardware(
    profile: HardwareProfile | str = HardwareProfile.AUTO_DETECT,
    *,
    root: Path = Path("/"),
    environment: Mapping[str, str] = os.environ,
) -> HardwareConfig:
    """Look at this machine. Nothing heavy is imported; drivers' tools are asked for GPUs unless the profile does without.

    `root` stands for `/`, and `environment` for the environment, in which `PATH` says where tools are searched.

    Raises:
        InputError: There is no such profile, or it is `GPU_ENABLED` and there is no GPU that could be used.
    """
    chosen = _profile(profile)
    if chosen is HardwareProfile.RYZEN_OPTIMIZED:
        return get_ryzen_optimized_config()
    allowed = machine.affinity()
    processor, limits = machine.processor(root, allowed), machine.limits(root)
    total, available = machine.memory(root)
    physical = processor.physical_cores
    if total is None:
        total, available, physical = _from_psutil(physical)
    left = [size for size in (available, limits.memory_left) if size is not None]
    detected = () if chosen is HardwareProfile.CPU_ONLY else gpus.find(environment)
    unused = _unusable() if detected else ""
    if chosen is HardwareProfile.GPU_ENABLED and (not detected or unused):
        raise InputError(
            f"the profile GPU_ENABLED needs a GPU, and {unused or 'none was found: ask nvidia-smi, amd-smi or rocm-smi'}"
        )
    return HardwareConfig(
        profile=chosen,
        cpu_name=processor.name or platform.processor() or None,
        logical_cores=os.cpu_count(),
        usable_cores=min(float(len(allowed) or os.cpu_count() or 1), limits.cores or math.inf),
        physical_cores=physical,
        cpu_quota=limits.cores,
        instruction_sets=processor.instruction_sets,
        memory_total=total,
        memory_available=min(left, default=None),
        memory_limit=limits.memory,
        gpus=detected,
        gpus_unused=unused,
    )


def get_ryzen_optimized_config() -> HardwareConfig:
    """The documented profile: a Ryzen 9 5950X, 16 cores of Zen 3, with 40 GB of memory.

    The settings that go with it (a batch of 2, 4 accumulated, 6 generations, 1.5B) follow from it by the same formulas as for
    any machine. But bf16 is off: Zen 3 has AVX2 and no instructions for bf16, which would be emulated, and slower than fp32.
    """
    return HardwareConfig(
        profile=HardwareProfile.RYZEN_OPTIMIZED,
        cpu_name="AMD Ryzen 9 5950X 16-Core Processor",
        logical_cores=32,
        usable_cores=32.0,
        physical_cores=16,
        instruction_sets=("avx2", "fma"),
        memory_total=40 * 10**9,
        memory_available=40 * 10**9,
    )


def _profile(named: HardwareProfile | str) -> HardwareProfile:
    try:
        return HardwareProfile(named.upper().replace("-", "_"))
    except ValueError:
        raise InputError(f"there is no profile {named!r}; there are {', '.join(HardwareProfile)}") from None


def _unusable() -> str:
    """Why torch could not use a GPU, from the label of its version, which says for what it was built."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        version = metadata.version("torch")
        if version.endswith("+cpu"):
            return f"the torch that is installed ({version}) was built for the processor alone"
    return ""


def _from_psutil(physical: int | None) -> tuple[int | None, int | None, int | None]:
    """Memory in all and available, and physical cores, where there is no /proc; unknown without psutil."""
    try:
        import psutil
    except ImportError:
        return None, None, physical
    memory = psutil.virtual_memory()
    return int(memory.total), int(memory.available), physical or psutil.cpu_count(logical=False)
