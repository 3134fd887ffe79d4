"""The work behind `journeyman pipeline weights`, apart from its options."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console

from journeyman.cli._weights import describe, settings_of, training_of
from journeyman.cli._weights_screen import Screen
from journeyman.learn.weights.data import DatasetConfig
from journeyman.learn.weights.resolve import quick
from journeyman.weights.datasets import DatasetPipeline
from journeyman.weights.pipeline import PipelineResult, TrainingPipeline
from journeyman.weights.training import Watcher


def run(options: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Do all steps; the object that `--json` prints."""
    config = training_of({name: value for name, value in options.items() if name != "context"})
    if options.get("quick"):
        config = quick(config)
    with Screen(quiet=quiet) as screen:
        watcher = Watcher(metrics=screen.metrics, trained=screen.trained, examined=screen.examined, said=screen.say)
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
        result = pipeline.run_full_pipeline(
            options["deploy_ollama"],
            deploy_llamacpp=options["deploy_llamacpp"],
            quantization=options["quantization"],
            name=options.get("name", ""),
        )
    if not quiet:
        out = Console(highlight=False, soft_wrap=True, markup=False)
        for line in describe_pipeline(result):
            out.print(line)
    return result.json()


def describe_pipeline(result: PipelineResult) -> Iterator[str]:
    """What was made, in words."""
    yield from describe(result.trained)
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
