"""What `journeyman hardware` finds, and how it shows it."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from journeyman.cli._table import console
from journeyman.errors import InputError
from journeyman.learn.weights import memory, shapes
from journeyman.learn.weights.config import TrainingConfig
from journeyman.learn.weights.hardware import HardwareConfig, Reason, detect_hardware
from journeyman.learn.weights.memory import TrainingEstimate as Estimate
from journeyman.learn.weights.memory import gib
from journeyman.learn.weights.resolve import reasons, resolve
from journeyman.learn.weights.shapes import Shape

_PARTS = {
    "weights": "the frozen model",
    "adapter": "what is trained",
    "gradients": "of the adapter alone",
    "optimizer": "Adam's two moments of the adapter",
    "activations": "kept for the backward pass",
    "logits": "the part of the vocabulary that is worked on",
    "cache": "keys and values while completions are sampled",
    "libraries": "the interpreter and its libraries, or a GPU's driver",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    hardware: HardwareConfig
    model: str = ""
    shape: Shape | None = None
    unknown: str = ""
    """Why the shape is not known."""
    config: TrainingConfig | None = None
    reasons: Sequence[Reason] = ()
    estimate: Estimate | None = None
    refusal: str = ""
    """Why the training will not fit, and what would."""


def look(profile: str, model: str, method: str) -> Found:
    """Look at the machine, and at what training `model` would take, when one is named."""
    hardware = detect_hardware(profile)
    if not model:
        return Found(hardware=hardware)
    shape, unknown = shapes.find(model)
    open_config = TrainingConfig(base_model=model, method=method)
    config = resolve(open_config, shape, hardware)
    why = reasons(open_config, shape, hardware)
    estimate, refusal = None, ""
    if shape is not None:
        estimate = memory.estimate(shape, config, hardware)
        try:
            memory.must_fit(shape, config, hardware)
        except InputError as error:
            refusal = str(error)
    return Found(
        hardware=hardware,
        model=model,
        shape=shape,
        unknown=unknown,
        config=config,
        reasons=why,
        estimate=estimate,
        refusal=refusal,
    )


def told(found: Found) -> dict[str, Any]:
    """The fields of `--json`. Sizes in bytes; null is unknown, and for limits none."""
    hardware = found.hardware
    result = {**asdict(hardware), "derived": _derived(hardware.reasons())}
    if found.config is not None:
        result["training"] = {
            "model": found.model,
            "shape": asdict(found.shape) if found.shape else None,
            "unknown": found.unknown or None,
            "settings": found.config.json(),
            "derived": _derived(found.reasons),
            "estimate": {**asdict(found.estimate), "fits": found.estimate.fits} if found.estimate else None,
            "refusal": found.refusal or None,
        }
    return result


def _derived(given: Sequence[Reason]) -> dict[str, Any]:
    return {reason.name: {"value": reason.value, "why": reason.why} for reason in given}


def show(found: Found) -> None:
    screen = console()
    screen.print(_table(f"Hardware ({found.hardware.profile})", list(_machine(found.hardware))))
    screen.print(_table("\nWhat follows from it", found.hardware.reasons()))
    if not found.model:
        return
    screen.print(_table(f"\nTraining {found.model} by {found.config.method if found.config else ''}", found.reasons))
    if found.estimate is None:
        screen.print(f"\n{found.unknown[:1].upper()}{found.unknown[1:]}.", soft_wrap=True)
        return
    screen.print(_table("\nWhat it would take", list(_taken(found.estimate))))
    verdict = {
        True: "It fits.",
        False: f"{found.refusal[:1].upper()}{found.refusal[1:]}.",
        None: "How much there is is not known.",
    }
    screen.print(f"\n{verdict[found.estimate.fits]}")


def _table(title: str, rows: Sequence[Reason]) -> Table:
    table = Table(
        title=Text(title, style="bold"), title_justify="left", box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 2)
    )
    table.add_column(no_wrap=True)
    table.add_column(min_width=8)
    table.add_column(style="dim")
    for name, value, why in rows:
        table.add_row(name, _said(value), why)
    return table


def _said(value: object) -> str:
    if value is None:
        return "unknown"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _machine(hardware: HardwareConfig) -> Iterator[Reason]:
    yield Reason("processor", hardware.cpu_name, ", ".join(hardware.instruction_sets))
    quota = "" if hardware.cpu_quota is None else f", a quota of {hardware.cpu_quota:g} included"
    cores = f"{hardware.usable_cores:g} of {hardware.logical_cores} logical ones{quota}"
    yield Reason("cores", hardware.physical_cores, f"physical; this process may use {cores}")
    limit = "no limit of a container" if hardware.memory_limit is None else f"a container's limit: {gib(hardware.memory_limit)}"
    yield Reason("memory", gib(hardware.ram), f"{gib(hardware.memory_available)} available now; {limit}")
    for gpu in hardware.gpus:
        bf16 = "bf16" if gpu.bf16 else "no bf16"
        yield Reason("GPU", gpu.name, f"{gib(gpu.memory_total)}, {gib(gpu.memory_free)} free, {gpu.kind}, {bf16}")
    if hardware.gpus_unused:
        yield Reason("", "not used", hardware.gpus_unused)
    elif not hardware.gpus:
        yield Reason("GPU", "none", "")


def _taken(estimate: Estimate) -> Iterator[Reason]:
    for name, why in _PARTS.items():
        yield Reason(name, gib(getattr(estimate, name)), why)
    yield Reason("peak", gib(estimate.peak), f"at one time, within a quarter; {estimate.place} has {gib(estimate.limit)}")
    yield Reason("step", _time(estimate.step_seconds), "one update, within a factor of about two")
    counted = "unknown" if estimate.steps is None else f"{estimate.steps:,}"
    tokens = "unknown" if estimate.tokens is None else f"{estimate.tokens:,}"
    yield Reason("in all", _time(estimate.seconds), f"{counted} updates, {tokens} tokens at most")
    yield Reason("cost", f"${estimate.cost:.2f}", "on a machine of one's own")


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"
