"""What a training will take before it is started: peak memory by parts, time and tokens; and a refusal where it cannot fit.

The formulas count what PyTorch keeps for the backward pass of a Llama-like decoder with LoRA on all linear layers, in the way
of Korthikanti et al. 2022 ("Reducing Activation Recomputation in Large Transformer Models"), less what frozen weights save: a
frozen matrix needs its input only for the adapter beside it. `benchmarks/bench_weights_memory.py` holds them against real runs.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from journeyman.errors import InputError
from journeyman.learn.weights.config import TrainingConfig
from journeyman.learn.weights.shapes import LADDER, Shape

if TYPE_CHECKING:
    from journeyman.learn.weights.hardware import HardwareConfig

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
