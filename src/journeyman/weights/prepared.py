"""What a training of weights will be: its settings with nothing left open, and what it will take."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from journeyman.learn.weights import memory, shapes
from journeyman.learn.weights.config import TrainingConfig
from journeyman.learn.weights.hardware import HardwareConfig, Reason, detect_hardware
from journeyman.learn.weights.memory import TrainingEstimate as Estimate
from journeyman.learn.weights.memory import gib
from journeyman.learn.weights.resolve import quick, reasons, resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Before anything is spent."""

    config: TrainingConfig
    """Nothing in it is `None` any more."""
    hardware: HardwareConfig
    derived: tuple[Reason, ...]
    """What was left open, what it became, and why."""
    estimate: Estimate | None
    """`None` where the shape of the model is not known."""
    unknown: str = ""
    """Why it is not."""

    def json(self) -> dict[str, Any]:
        return {
            "config": self.config.json(),
            "derived": [reason._asdict() for reason in self.derived],
            "estimate": asdict(self.estimate) if self.estimate else None,
            "unknown": self.unknown,
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        for name, value, why in self.derived:
            yield f"{name:28} {value!s:>10}  {why}"
        found = self.estimate
        if found is None:
            yield f"memory and time are not known: {self.unknown}"
            return
        there = "what there is, is not known" if found.limit is None else f"{found.place} has {gib(found.limit)}"
        yield f"memory  about {gib(found.peak)} at the peak; {there}"
        took = "not known" if found.seconds is None else f"about {found.seconds / 60:.0f} min for {found.steps} updates"
        yield f"time    {took}"
        yield f"tokens  at most {found.tokens:,}" if found.tokens is not None else "tokens  not known"
        yield f"cost    ${found.cost:.2f} to others"


def prepare(
    config: TrainingConfig, *, profile: str = "", short: bool = False, fitting: bool = True, examples: int | None = None
) -> Prepared:
    """Fill in what a config leaves open, and estimate.

    Args:
        profile: Of the hardware; that which is found, when none is named.
        short: A run that only shows that everything works.
        fitting: Refuse a training that will not fit.
        examples: How many a file of rows holds, for the estimate.

    Raises:
        InputError: The profile is none, or the training will not fit into memory.
    """
    hardware = detect_hardware(profile) if profile else detect_hardware()
    shape, unknown = shapes.find(config.base_model)
    if short:
        config = quick(config)
    derived = tuple(reasons(config, shape, hardware))
    config = resolve(config, shape, hardware)
    found = None
    if shape is not None:
        found = (memory.must_fit if fitting else memory.estimate)(shape, _counted(config, examples), hardware)
    return Prepared(config=config, hardware=hardware, derived=derived, estimate=found, unknown=unknown)


def _counted(config: TrainingConfig, examples: int | None) -> TrainingConfig:
    """With as many updates as that many rows make, where it is they that decide."""
    if examples is None or config.max_steps is not None or not config.data:
        return config
    batch = (config.per_device_batch_size or 1) * (config.gradient_accumulation_steps or 1)
    return replace(config, max_steps=max(1, math.ceil(examples * config.num_epochs / batch)))
