"""What a training takes, what this machine has, and which settings follow from the two, each by a stated formula.

`estimate` tells memory and time before anything is started, `must_fit` refuses what cannot fit, `detect_hardware` looks at the
machine, and `resolve` fills what a training's settings leave open: by the method, the model's size and the hardware.
"""

import contextlib
import math
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from journeyman.core.errors import InputError
from journeyman.optimizers.weights import hardware
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.hardware import Gpu
from journeyman.optimizers.weights.model_shape import LADDER, Shape

# What a training will take before it is started: peak memory by parts, time and tokens; and a refusal where it cannot fit.
#
# The formulas count what PyTorch keeps for the backward pass of a Llama-like decoder with LoRA on all linear layers, in the way
# of Korthikanti et al. 2022 ("Reducing Activation Recomputation in Large Transformer Models"), less what frozen weights save: a
# frozen matrix needs its input only for the adapter beside it. `benchmarks/bench_weights_memory.py` holds them against real
# runs.

LIBRARIES = 560 * 2**20
"""Bytes of Python with torch, transformers, TRL, PEFT and datasets at work, before any model: measured on Linux x86-64."""
DRIVER = 1024 * 2**20
"""Bytes of a GPU that CUDA or ROCm take for themselves, and what its allocator does not give back. Not measured here."""
SPARE = 0.9
"""Of the memory that there is, what a training may take: the rest is for what the formulas do not see."""
PLAIN_ATTENTION = 50_000_000
"""Parameters up to which a training on a processor uses plain attention, which is quicker there and keeps more."""
_FP32 = 4
_TILE_TOKENS, _TILE_WORDS = 4096, 32_768
"""TRL works the vocabulary off in tiles of this size, and never holds all logits (`trl.kernels.chunked_logprob`)."""
_TILE_COPIES = 9
"""fp32 tensors of a tile's size that live together in its backward pass."""
_WORKING_LAYERS = 2.3
"""Layers' worth of memory that a pass takes beside what it keeps: values that live for a moment, gradients, and what the
allocator does not give back. Fitted to measured runs, where it was 1.7 to 2.6 (LOG.md)."""
_RETAINED_LAYERS, _RETAINED = 8, 2**30
"""With fused attention the allocator keeps more, up to about this many layers' worth or bytes. Fitted to two runs of 100M."""
_SAMPLING_COPIES = 5
"""fp32 tensors of a step's logits that live together while the next token is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What memory and time depend on beside the model."""

    sequences: int
    """In one forward and backward pass: the batch, twice that for pairs."""
    prompt: int
    """Tokens; with `completion`, the length of a sequence at most."""
    completion: int
    generated: int
    """Sequences that are sampled together; 0 where nothing is sampled."""
    passes: int
    """Forward and backward passes of an update."""
    rank: int
    bf16: bool
    checkpointing: bool
    eager: bool = False
    """Attention keeps its whole matrix of weights, length × length for each head."""

    @property
    def length(self) -> int:
        return self.prompt + self.completion

    @property
    def tokens(self) -> int:
        """In one pass, padding included."""
        return self.sequences * self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingEstimate:
    """Bytes, seconds and tokens; lengths are taken as long as they may be, so a run with shorter texts takes less."""

    weights: int
    """Of the base model, which is frozen: no gradients and no optimizer belong to it."""
    adapter: int
    gradients: int
    optimizer: int
    """Adam's two moments, in fp32."""
    activations: int
    """Kept from the forward for the backward pass, and the widest layer's own gradients."""
    logits: int
    """The tile of the vocabulary that is worked on, in the training or the sampling, whichever is in the peak."""
    cache: int
    """Keys and values of the completions that are sampled together."""
    libraries: int
    """The interpreter and its libraries, or what the driver of a GPU takes."""
    peak: int
    """The most at one time: sampling and training take turns, so it is less than the sum."""
    limit: int | None
    """What there is. `None` is not known."""
    place: str
    """Where that is: "memory", or the name of a GPU."""
    step_seconds: float | None
    """One update, within a factor of about two. `None` where the speed of the device is not known."""
    steps: int | None
    seconds: float | None
    tokens: int | None
    """Written and learned from, at most."""
    cost: float = 0.0
    """US dollars to others: a training on one's own machine asks nobody for money."""

    @property
    def fits(self) -> bool | None:
        return None if self.limit is None else self.peak <= SPARE * self.limit


def estimate(shape: Shape, config: TrainingConfig, hardware: "HardwareConfig") -> TrainingEstimate:
    """What a training with these resolved settings takes on that hardware: bytes by part and at the peak, seconds, tokens.

    Raises:
        InputError: A setting that it depends on was not resolved.
    """
    on_gpu = hardware.gpu is not None
    run = _run(config, eager=not on_gpu and shape.parameters <= PLAIN_ATTENTION)
    width = 2 if run.bf16 else _FP32
    weights, adapter = shape.parameters * width, shape.adapter(run.rank) * _FP32
    activations, tile = _activations(shape, run, width), _tile(shape, run)
    cache, sampling = _cache(shape, run, width), _SAMPLING_COPIES * run.generated * shape.vocabulary * _FP32
    training, generating = activations + tile, cache + sampling
    # While it is loaded, the file lies in memory beside what is made of it.
    loading = shape.file_bytes or 0
    libraries = DRIVER if on_gpu else LIBRARIES
    step, steps = _step_seconds(shape, run, hardware), _steps(config)
    return TrainingEstimate(
        weights=weights,
        adapter=adapter,
        gradients=adapter,
        optimizer=2 * adapter,
        activations=activations,
        logits=tile if training >= generating else sampling,
        cache=cache,
        libraries=libraries,
        peak=libraries + weights + max(loading, 4 * adapter + max(training, generating)),
        limit=hardware.device_memory,
        place=hardware.gpu.name if hardware.gpu else "memory",
        step_seconds=step,
        steps=steps,
        seconds=step * steps if step is not None and steps is not None else None,
        tokens=steps * run.passes * run.tokens if steps is not None else None,
    )


def must_fit(shape: Shape, config: TrainingConfig, hardware: "HardwareConfig") -> TrainingEstimate:
    """The estimate of a training that fits, as far as is known.

    Raises:
        InputError: It will not fit; the sentence says what would.
    """
    needs = estimate(shape, config, hardware)
    if needs.fits is False:
        peak, limit = gib(needs.peak), gib(needs.limit)
        advice = _advice(shape, config, hardware)
        raise InputError(
            f"training {shape.name} would take about {peak} at its peak, and {needs.place} has {limit}, "
            f"of which {SPARE:.0%} may be used: {advice}"
        )
    return needs


def _activations(shape: Shape, run: Workload, width: int) -> int:
    """Per token and layer: 2 residuals and 2 normalised inputs of the hidden size; queries, keys and values repeated for each
    head, attention's result and its copy; gate, its activation, up and their product; 7 inner values of rank size. With
    checkpointing only a layer's input is kept, and one layer at a time is computed again (Chen et al. 2016)."""
    inner = 4 * shape.hidden + 5 * shape.attention + 4 * shape.intermediate + 7 * run.rank
    if run.eager:
        inner += 3 * shape.heads * run.length
    widths = shape.layers * shape.hidden + inner if run.checkpointing else shape.layers * inner
    layer = run.tokens * width * inner
    retained = 0 if run.eager else min(_RETAINED_LAYERS * layer, _RETAINED)
    return int(run.tokens * width * widths + _WORKING_LAYERS * layer + retained)


def _tile(shape: Shape, run: Workload) -> int:
    return _TILE_COPIES * min(run.tokens, _TILE_TOKENS) * min(shape.vocabulary, _TILE_WORDS) * _FP32


def _cache(shape: Shape, run: Workload, width: int) -> int:
    """Keys and values of all layers, and the layer that is copied when it grows by a token."""
    return 2 * (shape.layers + 1) * shape.kv * run.generated * run.length * width


def _run(config: TrainingConfig, *, eager: bool) -> Workload:
    batch, passes = _known(config, "per_device_batch_size"), _known(config, "gradient_accumulation_steps")
    prompt, completion = _known(config, "max_prompt_tokens"), _known(config, "max_completion_tokens")
    generations = _known(config, "num_generations")
    samples = config.method == "grpo" or not config.data
    generated = math.lcm(batch * passes, generations) if config.method == "grpo" else batch * generations
    return Workload(
        sequences=2 * batch if config.method == "dpo" else batch,
        prompt=prompt,
        completion=completion,
        generated=generated if samples else 0,
        passes=passes,
        rank=config.lora_r,
        bf16=bool(_known(config, "use_bf16")),
        checkpointing=bool(_known(config, "gradient_checkpointing")),
        eager=eager,
    )


def _known(config: TrainingConfig, name: str) -> int:
    value: int | None = getattr(config, name)
    if value is None:
        raise InputError(f"{name} is not resolved: what a training takes depends on it")
    return value


def _steps(config: TrainingConfig) -> int | None:
    """Updates: as told, or so many that each example is seen `num_epochs` times. Rows of a file are not counted here. Of what
    is sampled, DPO learns from a pair of each group, and the others from each completion, or fewer."""
    if config.max_steps is not None:
        return config.max_steps
    if config.data:
        return None
    each = 1 if config.method == "dpo" else _known(config, "num_generations")
    batch = _known(config, "per_device_batch_size") * _known(config, "gradient_accumulation_steps")
    return math.ceil(config.num_examples * config.num_epochs * each / batch)


def _step_seconds(shape: Shape, run: Workload, hardware: "HardwareConfig") -> float | None:
    """Seconds of an update; `None` where the device's rate is not known.

    Operations divided by the device's rate: 2 a parameter and token for a forward pass, 2 for the backward (frozen weights
    have no gradient of their own), 2 to compute again with checkpointing (Kaplan et al. 2020, section 2.1); a sampled token
    is one forward pass, but never faster than the weights can be read from memory."""
    if hardware.operations is None or hardware.bandwidth is None:
        return None
    a_token = 2 * shape.parameters + 4 * shape.layers * shape.attention * run.length
    training = run.passes * run.tokens * a_token * (3 if run.checkpointing else 2)
    # Sampling of a group may serve several updates.
    share = min(1.0, run.passes * run.sequences / run.generated) if run.generated else 0.0
    reading = shape.parameters * (2 if run.bf16 else _FP32) / hardware.bandwidth
    drawing = run.generated * (run.prompt + run.completion) * a_token / hardware.operations
    dispatching = shape.layers * LAYER_SECONDS * (3 * run.passes + run.completion * share)
    return training / hardware.operations + share * max(drawing, run.completion * reading) + dispatching


LAYER_SECONDS = 0.0015
"""Python and PyTorch take this for one layer with adapters, however small it is, roughly. A guess, not a measurement."""


def _advice(shape: Shape, config: TrainingConfig, hardware: "HardwareConfig") -> str:
    """What makes it fit, the gentlest first; only what was computed to be enough is said."""

    def fits(changed: TrainingConfig, other: Shape = shape) -> bool:
        return estimate(other, changed, hardware).fits is not False

    lighter = replace(config, gradient_checkpointing=True)
    if not config.gradient_checkpointing and fits(lighter):
        return "turn gradient checkpointing on"
    batch = config.per_device_batch_size or 1
    while batch > 1:
        batch //= 2
        smaller = replace(lighter, per_device_batch_size=batch)
        if fits(smaller):
            return f"take a batch of {batch}" + ("" if config.gradient_checkpointing else " and gradient checkpointing")
    least = replace(lighter, per_device_batch_size=1)
    short = replace(least, max_prompt_tokens=512, max_completion_tokens=128)
    if (config.max_prompt_tokens or 0) + (config.max_completion_tokens or 0) > 640 and fits(short):
        return "take a batch of 1 and shorter texts, as 512 tokens of prompt and 128 of completion"
    smaller_models = [rung for rung in LADDER.values() if rung.parameters < shape.parameters and fits(least, rung)]
    if smaller_models:
        return f"take a smaller model, as {smaller_models[-1].name}"
    return "take the embedded model (`embedded:base`), or a machine with more memory"


def gib(size: int | None) -> str:
    """Bytes for people."""
    return "unknown" if size is None else f"{size / 2**30:.2f} GiB"


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


_THREADS = "one for each physical core that this process may keep busy"
_GENERATIONS = "completions of a prompt that GRPO compares: 6, and 8 where a GPU writes them"


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
        return self.bf16[0]

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
        return self._recommended.per_device_batch_size or 1

    @property
    def gradient_accumulation_steps(self) -> int:
        return self._recommended.gradient_accumulation_steps or 1

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
        return bool(self._recommended.gradient_checkpointing)

    @property
    def _recommended(self) -> TrainingConfig:
        """GRPO on the recommended model; where none fits, one completion at a time."""
        shape = LADDER.get(self.recommended_model_size or "")
        return resolve(TrainingConfig(per_device_batch_size=None if shape else 1), shape, self)

    def reasons(self) -> list[Reason]:
        """Each derived setting, with what it follows from."""
        where, most = (self.gpu.name, EFFECTIVE_BATCH) if self.gpu else ("memory", 2)
        checkpointing = self.gradient_checkpointing
        whys = {
            "recommended_model_size": self._size[1],
            "use_bf16": self.bf16[1],
            "threads": _THREADS,
            "recommended_batch_size": f"the most that fits {where}, up to {most}",
            "gradient_accumulation_steps": f"{EFFECTIVE_BATCH} completions to an update",
            "num_generations": _GENERATIONS,
            "context_length": f"{CONTEXT - COMPLETION} tokens of prompt and {COMPLETION} of completion",
            "gradient_checkpointing": f"without it a run takes {'more' if checkpointing else 'less'} than half of the memory",
            "lora_r": "as usual for tasks of this kind",
            "lora_alpha": "twice the rank",
        }
        return [Reason(name, getattr(self, name), why) for name, why in whys.items()]

    @property
    def bf16(self) -> tuple[bool, str]:
        """Whether the device multiplies in bf16 by itself, and why."""
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
        fitting = [size for size, shape in LADDER.items() if self._fits(shape)]
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
        return self._least(shape).step_seconds or 0.0

    def _fits(self, shape: Shape) -> bool:
        return self._least(shape).fits is not False

    def _least(self, shape: Shape) -> TrainingEstimate:
        """What GRPO with the recommended settings takes at least for a model of this shape."""
        config = TrainingConfig(per_device_batch_size=1, gradient_checkpointing=True)
        return estimate(shape, resolve(config, shape, self), self)


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
    allowed = hardware.affinity()
    processor, limits = hardware.processor(root, allowed), hardware.limits(root)
    total, available = hardware.memory(root)
    physical = processor.physical_cores
    if total is None:
        total, available, physical = hardware.from_psutil(physical)
    left = [size for size in (available, limits.memory_left) if size is not None]
    detected = () if chosen is HardwareProfile.CPU_ONLY else hardware.find(environment)
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


# What a training's settings leave open, by the method, the model's size and the hardware, each with its reason.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Defaults:
    """What is usual for models of a size."""

    learning_rate: Mapping[str, float]
    rates_from: str
    batch: int
    """Completions of an update, at least, for all methods but GRPO."""
    groups: int
    """GRPO: completions of an update."""
    steps: Mapping[str, int]
    """Updates; none where they follow from `num_epochs`."""
    generations: int
    prompt: int
    completion: int


_REAL = _Defaults(
    learning_rate={"grpo": 5e-5, "grpo-offline": 5e-5, "kto": 2e-5, "dpo": 2e-5, "rft": 2e-4},
    rates_from="usual for LoRA on models of this size; not measured here",
    batch=EFFECTIVE_BATCH,
    groups=EFFECTIVE_BATCH,
    steps={},
    generations=6,
    prompt=CONTEXT - COMPLETION,
    completion=COMPLETION,
)
_TINY = _Defaults(
    learning_rate={"grpo": 6e-3, "grpo-offline": 3e-3, "kto": 3e-3, "dpo": 3e-3, "rft": 3e-3},
    rates_from="measured on the embedded model",
    batch=16,
    groups=64,
    steps={"grpo": 40, "grpo-offline": 60, "kto": 60, "dpo": 40, "rft": 40},
    generations=8,
    prompt=256,
    completion=64,
)
_MILLION = 1_000_000
_SMALLEST = {"grpo": (3e-3, 80)}
"""Rate and updates of models below a million parameters, where they differ: they learn more slowly and fall apart earlier."""
_LOPSIDED = {"desirable_weight": 1.5, "undesirable_weight": 0.3}
_WITH_PLAYBOOK = 512
"""More tokens of prompt for a tiny model whose prompts carry a playbook."""
_BETA = {"grpo": (0.0, "verified rewards need no anchor at the start (Yu et al. 2025, DAPO)"),
         "grpo-offline": (0.0, "what is bad counts less, the less likely it is: that is the anchor"),
         "kto": (0.1, "as in Ethayarajh et al. 2024"), "dpo": (0.1, "as in Rafailov et al. 2023"),
         "rft": (0.0, "supervised: there is no such term")}  # fmt: skip


def resolve(config: TrainingConfig, shape: Shape | None, hardware: HardwareConfig) -> TrainingConfig:
    """The settings with nothing left open that a training needs; what was set stays. `max_steps`, where it stays `None`,
    follows from `num_epochs`, and KTO's weights from the rows.

    `shape` is that of the base model, `None` where it is not known: then what is usual for real models is taken.
    """
    return _resolved(config, shape, hardware).config


def reasons(config: TrainingConfig, shape: Shape | None, hardware: HardwareConfig) -> list[Reason]:
    """What `resolve` fills in, and why, in the order in which it was decided."""
    return _resolved(config, shape, hardware).reasons


def quick(config: TrainingConfig) -> TrainingConfig:
    """A short run, to see whether all of it works: few updates on few tasks. It proves nothing about what is learned."""
    return replace(
        config,
        max_steps=min(config.max_steps or 10, 10),
        num_examples=min(config.num_examples, 64),
        validation=min(config.validation, 16),
        checkpoint_interval=min(config.checkpoint_interval, 5),
    )


class _OpenSettings:
    """Settings of which some are still open."""

    def __init__(self, config: TrainingConfig) -> None:
        self.config = config
        self.reasons: list[Reason] = []

    def fill(self, name: str, value: Any, why: str) -> None:
        if getattr(self.config, name) is None:
            self.config = replace(self.config, **{name: value})
            self.reasons.append(Reason(name, value, why))


def _resolved(config: TrainingConfig, shape: Shape | None, hardware: HardwareConfig) -> _OpenSettings:
    settings = _OpenSettings(config)
    usual = _TINY if shape is not None and shape.tiny else _REAL
    settings.fill("use_bf16", *hardware.bf16)
    if usual is _TINY:
        settings.fill("threads", 1, "matrices this small are not worth sharing: threads would wait for each other")
    settings.fill("threads", hardware.threads, _THREADS)
    _lengths(settings, shape, usual)
    on_gpu = hardware.gpu is not None and usual is _REAL
    generations = hardware.num_generations if usual is _REAL else usual.generations
    settings.fill("num_generations", generations, _GENERATIONS if on_gpu else "completions of a prompt to compare")
    _batch(settings, shape, hardware, usual)
    rate, steps = usual.learning_rate[config.method], usual.steps.get(config.method)
    if shape is not None and shape.parameters < _MILLION:
        rate, steps = _SMALLEST.get(config.method, (rate, steps))
    settings.fill("learning_rate", rate, usual.rates_from)
    if steps is not None:
        settings.fill("max_steps", steps, usual.rates_from)
    settings.fill("beta", *_BETA[config.method])
    if config.method == "kto" and usual is _TINY:
        for name, weight in _LOPSIDED.items():
            settings.fill(name, weight, "measured on the embedded model: with equal weights, unlearning drowns learning")
    settings.fill("evaluation_interval", config.checkpoint_interval, "a look at the validation tasks with each checkpoint")
    return settings


def _lengths(settings: _OpenSettings, shape: Shape | None, usual: _Defaults) -> None:
    room = usual.prompt + usual.completion
    if usual is _TINY and settings.config.context:
        room += _WITH_PLAYBOOK
    why = f"{room} tokens of context"
    if shape is not None and shape.context is not None and shape.context < room:
        room, why = shape.context, f"the model was made for {shape.context} tokens"
    given = settings.config.max_prompt_tokens
    left = room - given if given is not None and given < room else room // 4 if given is None else usual.completion
    settings.fill("max_completion_tokens", max(1, min(usual.completion, left)), why)
    completion = settings.config.max_completion_tokens or usual.completion
    settings.fill("max_prompt_tokens", max(1, room - completion), f"{why}, less those of the completion")


def _batch(settings: _OpenSettings, shape: Shape | None, hardware: HardwareConfig, usual: _Defaults) -> None:
    """The largest batch that fits with checkpointing, the accumulation that makes it the usual number, and whether that batch
    fits without checkpointing too."""
    together = usual.groups if settings.config.method == "grpo" else usual.batch
    largest = together if usual is _TINY or hardware.gpu is not None else 2
    fits = _fitting(settings.config, shape, hardware)
    batch = largest
    while batch > 1 and not fits(batch, True, SPARE):
        batch //= 2
    where = hardware.gpu.name if hardware.gpu else "memory"
    why = f"the most that fits {where}" if batch < largest else f"usual, and it fits {where}"
    settings.fill("per_device_batch_size", batch, "usual; the model's size is not known" if shape is None else why)
    batch = settings.config.per_device_batch_size or batch
    settings.fill("gradient_accumulation_steps", max(1, together // batch), f"{max(together, batch)} completions to an update")
    fits = _fitting(settings.config, shape, hardware)
    unknown = "the model's size" if shape is None else "how much memory there is" if hardware.device_memory is None else ""
    free = fits(batch, False, SPARE if usual is _TINY else 0.5) and (not unknown or usual is _TINY)
    why = "without it a run takes little enough memory" if free else "without it a run would take more than half of the memory"
    settings.fill("gradient_checkpointing", not free, f"usual; {unknown} is not known" if unknown and not free else why)


def _fitting(config: TrainingConfig, shape: Shape | None, hardware: HardwareConfig) -> Callable[[int, bool, float], bool]:
    """Whether a batch, with or without checkpointing, takes at most that share of the memory; yes where it is not known."""

    def fits(batch: int, checkpointing: bool, share: float) -> bool:
        if shape is None or hardware.device_memory is None:
            return True
        passes = config.gradient_accumulation_steps or max(1, EFFECTIVE_BATCH // batch)
        tried = replace(
            config,
            per_device_batch_size=batch,
            gradient_accumulation_steps=passes,
            gradient_checkpointing=checkpointing if config.gradient_checkpointing is None else config.gradient_checkpointing,
        )
        return estimate(shape, tried, hardware).peak <= share * hardware.device_memory

    return fits
