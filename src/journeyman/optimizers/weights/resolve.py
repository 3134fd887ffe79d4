"""Fills what a training's settings leave open: by the method, the model's size and the hardware, each with its reason."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from journeyman.optimizers.weights import sizing
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.model_shape import Shape
from journeyman.optimizers.weights.sizing import COMPLETION, CONTEXT, EFFECTIVE_BATCH, HardwareConfig, Reason


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
    steps={"grpo": 40, "grpo-offline": 30, "kto": 60, "dpo": 40, "rft": 40},
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
         "grpo-offline": (0.0, "the clipped ratio to the recorded policy is the anchor"),
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
    by_hardware = {reason.name: reason for reason in hardware.reasons()}
    settings.fill(*by_hardware["use_bf16"])
    if usual is _TINY:
        settings.fill("threads", 1, "matrices this small are not worth sharing: threads would wait for each other")
    settings.fill(*by_hardware["threads"])
    _lengths(settings, shape, usual)
    on_gpu = hardware.gpu is not None and usual is _REAL
    generations = hardware.num_generations if usual is _REAL else usual.generations
    settings.fill(
        "num_generations", generations, by_hardware["num_generations"].why if on_gpu else "completions of a prompt to compare"
    )
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
    while batch > 1 and not fits(batch, True, sizing.SPARE):
        batch //= 2
    where = hardware.gpu.name if hardware.gpu else "memory"
    why = f"the most that fits {where}" if batch < largest else f"usual, and it fits {where}"
    settings.fill("per_device_batch_size", batch, "usual; the model's size is not known" if shape is None else why)
    batch = settings.config.per_device_batch_size or batch
    settings.fill("gradient_accumulation_steps", max(1, together // batch), f"{max(together, batch)} completions to an update")
    fits = _fitting(settings.config, shape, hardware)
    free = shape is not None and fits(batch, False, sizing.SPARE if usual is _TINY else 0.5)
    why = "without it a run takes little enough memory" if free else "without it a run would take more than half of the memory"
    settings.fill("gradient_checkpointing", not free, "usual; the model's size is not known" if shape is None else why)


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
        return sizing.estimate(shape, tried, hardware).peak <= share * hardware.device_memory

    return fits
