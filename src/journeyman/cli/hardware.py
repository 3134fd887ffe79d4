"""`journeyman hardware`: what a training would find here."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli import console
from journeyman.cli.console import Column
from journeyman.cli.shared import emit, json_option
from journeyman.core import format
from journeyman.core.errors import InputError

if TYPE_CHECKING:
    from journeyman.optimizers.weights.config import TrainingConfig
    from journeyman.optimizers.weights.model_shape import Shape
    from journeyman.optimizers.weights.sizing import HardwareConfig, Reason, TrainingEstimate

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

PROFILES = ("AUTO_DETECT", "RYZEN_OPTIMIZED", "GPU_ENABLED", "CPU_ONLY")
METHODS = ("grpo", "grpo-offline", "kto", "dpo", "rft")
"""As in `journeyman.optimizers.weights`, which loads too much for a help text; a test compares them."""


@click.command()
@json_option
@click.option(
    "--model", default="", metavar="MODEL", help="Estimate a training of it: a Hugging Face id, a folder, or embedded:SIZE."
)
@click.option("--method", type=click.Choice(METHODS), default="grpo", show_default=True, help="Of that training.")
@click.option(
    "--profile",
    type=click.Choice(PROFILES, case_sensitive=False),
    default="AUTO_DETECT",
    show_default=True,
    help="What the settings are based on.",
)
@click.pass_context
def command(ctx: click.Context, as_json: bool, model: str, method: str, profile: str) -> None:
    """Say what this machine can train, and which settings follow from it.

    Cores, memory and GPUs as this process may really use them: affinity and the limits of a container count. With --model also
    the settings of its training and an estimate of what it takes. Exit code 1 when that will not fit.

    \b
    Examples:
      journeyman hardware
      journeyman hardware --model Qwen/Qwen2.5-1.5B-Instruct
      journeyman hardware --profile RYZEN_OPTIMIZED --json
    """
    found = look(profile, model, method)
    if not as_json:
        show(found)
    emit(found.json(), as_json=as_json)
    ctx.exit(1 if found.refusal else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareFindings:
    hardware: "HardwareConfig"
    model: str = ""
    shape: "Shape | None" = None
    unknown: str = ""
    """Why the shape is not known."""
    config: "TrainingConfig | None" = None
    reasons: "Sequence[Reason]" = ()
    estimate: "TrainingEstimate | None" = None
    refusal: str = ""
    """Why the training will not fit, and what would."""

    def json(self) -> dict[str, Any]:
        """Sizes in bytes; null is unknown, and for limits none."""
        result = {**asdict(self.hardware), "derived": _derived(self.hardware.reasons())}
        if self.config is not None:
            result["training"] = {
                "model": self.model,
                "shape": asdict(self.shape) if self.shape else None,
                "unknown": self.unknown or None,
                "settings": self.config.json(),
                "derived": _derived(self.reasons),
                "estimate": {**asdict(self.estimate), "fits": self.estimate.fits} if self.estimate else None,
                "refusal": self.refusal or None,
            }
        return result


def look(profile: str, model: str, method: str) -> HardwareFindings:
    """Look at the machine, and at what training `model` would take, when one is named."""
    from journeyman.optimizers.weights import model_shape, sizing
    from journeyman.optimizers.weights.config import TrainingConfig
    from journeyman.optimizers.weights.sizing import reasons, resolve

    hardware = sizing.detect_hardware(profile)
    if not model:
        return HardwareFindings(hardware=hardware)
    shape, unknown = model_shape.find(model)
    open_config = TrainingConfig(base_model=model, method=method)
    config = resolve(open_config, shape, hardware)
    why = reasons(open_config, shape, hardware)
    estimate, refusal = None, ""
    if shape is not None:
        estimate = sizing.estimate(shape, config, hardware)
        try:
            sizing.must_fit(shape, config, hardware)
        except InputError as error:
            refusal = str(error)
    return HardwareFindings(
        hardware=hardware,
        model=model,
        shape=shape,
        unknown=unknown,
        config=config,
        reasons=why,
        estimate=estimate,
        refusal=refusal,
    )


def _derived(given: "Sequence[Reason]") -> dict[str, Any]:
    return {reason.name: {"value": reason.value, "why": reason.why} for reason in given}


def show(found: HardwareFindings) -> None:
    """Tables on stdout, each value with what it follows from."""
    _table(f"Hardware ({found.hardware.profile})", list(_machine(found.hardware)))
    _table("\nWhat follows from it", found.hardware.reasons())
    if not found.model:
        return
    _table(f"\nTraining {found.model} by {found.config.method if found.config else ''}", found.reasons)
    if found.estimate is None:
        click.echo(f"\n{_sentence(found.unknown)}")
        return
    _table("\nWhat it would take", list(_taken(found.estimate)))
    verdict = {True: "It fits.", False: _sentence(found.refusal), None: "How much there is is not known."}
    click.echo(f"\n{verdict[found.estimate.fits]}")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _table(title: str, rows: "Sequence[Reason]") -> None:
    columns = (
        Column(name="  name", words=True, least=24),
        Column(name="value", words=True, least=30),
        Column(name="why", words=True, wraps=True),
    )
    console.table(columns, [(f"  {name}", _shown(value), why) for name, value, why in rows], title=title, header=False)


def _shown(value: object) -> str:
    if value is None:
        return "unknown"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _machine(hardware: "HardwareConfig") -> "Iterator[Reason]":
    from journeyman.optimizers.weights.sizing import Reason, gib

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


def _taken(estimate: "TrainingEstimate") -> "Iterator[Reason]":
    from journeyman.optimizers.weights.sizing import Reason, gib

    for name, why in _PARTS.items():
        yield Reason(name, gib(getattr(estimate, name)), why)
    yield Reason("peak", gib(estimate.peak), f"at one time, within a quarter; {estimate.place} has {gib(estimate.limit)}")
    yield Reason("step", _duration(estimate.step_seconds), "one update, within a factor of about two")
    counted = "unknown" if estimate.steps is None else f"{estimate.steps:,}"
    tokens = "unknown" if estimate.tokens is None else f"{estimate.tokens:,}"
    yield Reason("in all", _duration(estimate.seconds), f"{counted} updates, {tokens} tokens at most")
    yield Reason("cost", f"${estimate.cost:.2f}", "on a machine of one's own")


def _duration(seconds: float | None) -> str:
    days = None if seconds is None else seconds / 86_400
    if days is not None and days >= 2:
        return f"{days:.1f} days"
    return "unknown" if seconds is None else format.seconds(seconds)
