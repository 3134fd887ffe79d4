"""The work behind `journeyman pipeline weights`, apart from its options."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console

from journeyman.cli._weights import describe, settings_of, training_of
from journeyman.cli._weights_screen import Screen
from journeyman.errors import InputError
from journeyman.learn.weights.data import DatasetConfig
from journeyman.learn.weights.resolve import quick
from journeyman.weights.datasets import DatasetPipeline
from journeyman.weights.pipeline import PipelineResult, TrainingPipeline
from journeyman.weights.training import Watcher


def run(options: Mapping[str, Any], *, quiet: bool) -> PipelineResult:
    """Do all steps, or those that are left.

    Raises:
        InputError: Something cannot be used.
    """
    with Screen(quiet=quiet) as screen:
        watcher = Watcher(metrics=screen.metrics, trained=screen.trained, examined=screen.examined, said=screen.say)
        result = _resumed(options, watcher) if "resume" in options else _begun(options, watcher)
    if not quiet:
        out = Console(highlight=False, soft_wrap=True, markup=False)
        for line in describe_pipeline(result):
            out.print(line)
    return result


def _begun(options: Mapping[str, Any], watcher: Watcher) -> PipelineResult:
    config = training_of({name: value for name, value in options.items() if name != "context"})
    if options.get("quick"):
        config = quick(config)
    pipeline = TrainingPipeline(
        options.get("agent_name", ""),
        config.base_model,
        config.method,
        config=config,
        settings=settings_of(options),
        watcher=watcher,
    )
    rows = DatasetConfig(context=options.get("context", "keep"))
    pipeline.rows = DatasetPipeline(pipeline.agent or None, config=rows)
    return pipeline.run_full_pipeline(
        options.get("deploy_ollama", False),
        deploy_llamacpp=options.get("deploy_llamacpp", False),
        quantization=options.get("quantization", "Q4_K_M"),
        name=options.get("name", ""),
    )


def _resumed(options: Mapping[str, Any], watcher: Watcher) -> PipelineResult:
    if set(options) - {"resume"}:
        raise InputError("--resume goes on with what was asked for; leave the other options out")
    return TrainingPipeline(settings=settings_of({}), watcher=watcher).resume(options["resume"] or None)


def describe_pipeline(result: PipelineResult) -> Iterator[str]:
    """What was made, in words."""
    if result.trained is not None:
        yield from describe(result.trained)
    else:
        yield f"{result['run_id']} was trained before: {result['reason']}"
    yield from result.notes
    if result.exported is not None:
        file = result.exported
        cost = f", {file.cost.divergence:.4f} nats from the original" if file.cost else ""
        yield f"GGUF: {file.path} ({file.path.stat().st_size / 1e6:.1f} MB{cost})"
    if result.answered is not None:
        yield f"served by llama.cpp, asked over OpenAI's API: {result.answered.question}"
        yield f"answered: {result.answered.reply}"
    if result.ollama_model:
        yield f"in Ollama: ollama run {result.ollama_model}"
