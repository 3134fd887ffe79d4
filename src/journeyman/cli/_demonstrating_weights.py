"""The work behind `journeyman demo --weights`: a model that learns in its weights, and is served."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console

from journeyman.cli._pipeline import describe_pipeline
from journeyman.cli._weights_screen import Screen
from journeyman.learn.weights.config import TrainingConfig
from journeyman.weights.comparing import Comparison, Line, of_result
from journeyman.weights.pipeline import TrainingPipeline
from journeyman.weights.results import WeightsResult
from journeyman.weights.training import Watcher

FOLDER = Path(".journeyman/demo-weights")
INTRODUCTION = """\
The order desk of {domain} again: {model} reads customers' sentences, and nobody has told it the house's conventions. This time
nothing is written into its prompts. It attempts orders, the desk says how much of each is right, and GRPO moves its weights
towards what was better (a LoRA adapter). Then it is examined on {held_out} new orders, turned into a GGUF file, and served.
"""
COMPARED = """
The same shop by every method, each against the model as it came. KTO, DPO and rejection sampling learn from {traces} recorded
attempts of an agent with a half-learned playbook; GRPO from attempts of its own (the training above, without its examination).
"""


def run(domain: str, model: str, held_out: int, *, compare: bool, quiet: bool) -> dict[str, Any]:
    """Train, prove, export, serve, ask, and compare; the object that `--json` prints."""
    started = time.monotonic()
    base = "embedded:base" if model == "embedded" else model
    out = Console(highlight=False, soft_wrap=True, markup=False, quiet=quiet)
    out.print(INTRODUCTION.format(domain=domain, model=model, held_out=held_out))
    with Screen(quiet=quiet) as screen:
        watcher = Watcher(metrics=screen.metrics, trained=screen.trained, examined=screen.examined)
        comparison = Comparison(folder=FOLDER, domain=domain, base_model=base, held_out=held_out, watcher=watcher)
        config = TrainingConfig(base_model=base, dataset_name="desk", domain=domain)
        pipeline = TrainingPipeline("", base, "grpo", config=config, settings=comparison.settings, watcher=watcher)
        result = pipeline.run_full_pipeline(deploy_llamacpp=True)
    for line in describe_pipeline(result):
        out.print(line)
    found = {**result.json(), "seconds": round(time.monotonic() - started, 1)}
    if compare:
        found |= _compared(comparison, result.trained, out)
    out.print(f"\n{time.monotonic() - started:.0f} seconds. All of it was measured just now; nothing is scripted.")
    return found


def _compared(comparison: Comparison, grpo: WeightsResult | None, out: Console) -> dict[str, Any]:
    from journeyman.weights.comparing import TRACES

    out.print(COMPARED.format(traces=TRACES))
    methods = _shown(comparison.lines(of_result("GRPO", grpo) if grpo else None), out)
    out.print("\nTrainings that must go wrong, and what the guards say:\n")
    collapses = _shown(comparison.collapses(), out)
    return {"methods": methods, "collapses": collapses}


def _shown(lines: Iterable[Line], out: Console) -> list[dict[str, Any]]:
    """Each line of the table as soon as it is known."""
    out.print(f"{'':28}{'right':>8}{'gain':>9}  {'95 % interval':18}{'gate':10}{'CPU':>7}{'wall':>7}")
    found = []
    for line in lines:
        right = "unknown" if line.right is None else f"{line.right:.1%}"
        gain = "" if line.gain is None else f"{line.gain:+.3f}"
        interval = "" if line.low is None else f"{line.low:+.3f} to {line.high:+.3f}"
        gate = "passes" if line.passed else "refused"
        out.print(f"{line.name:28}{right:>8}{gain:>9}  {interval:18}{gate:10}{line.cpu_seconds:>6.0f}s{line.seconds:>6.0f}s")
        if line.note:
            out.print(f"    {line.note}")
        found.append(line.json())
    return found
