"""`journeyman train weights` and `pipeline weights`: learn in the weights, and serve what was learned."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import WeightsScreen, pipeline_lines, weights_lines, write
from journeyman.cli.options import options, provided
from journeyman.cli.shared import emit, json_option, options_named, resume_option, warn_of_few
from journeyman.core.errors import InputError
from journeyman.core.release import Stage
from journeyman.core.task import Split
from journeyman.experiments import settings
from journeyman.experiments.weights.config import PipelineConfig, RunSettings
from journeyman.optimizers.weights.config import WeightsTrainingConfig
from journeyman.optimizers.weights.data.config import DatasetConfig

if TYPE_CHECKING:
    from journeyman.experiments.weights.pipeline import PipelineResult
    from journeyman.experiments.weights.run import PreparedTraining
    from journeyman.experiments.weights.training import RLTrainer, WeightsResult, WeightsWatcher


@click.command("weights")
@options(WeightsTrainingConfig)
@options(RunSettings)
@click.option("--profile", help="Hardware to plan for: auto_detect, cpu_only, gpu_enabled, ryzen_optimized.")
@click.option("--quick", is_flag=True, default=None, help="A short run, to see that everything works.")
@resume_option
@click.option("--dry-run", is_flag=True, default=None, help="Estimate memory, time and cost; train nothing.")
@json_option
def command(as_json: bool, **given: Any) -> None:
    """Learn in the weights: train a LoRA adapter, and prove it on held-out tasks.

    From tasks, completions are sampled from the model in training and judged; from --data, recorded ones are learned from. The
    training is a process of its own; a run that was killed goes on with --resume. An adapter that does not pass the gate stays
    in shadow.

    \b
    Examples:
      journeyman train weights --method grpo --tasks desk --domain oslo
      journeyman train weights --method kto --data kto.jsonl --base-model Qwen/Qwen2.5-1.5B-Instruct --dry-run
      journeyman train weights --method rft --tasks gsm8k --input train.jsonl --base-model models/mine
      journeyman train weights --resume
    """
    with options_named():
        result = _train(provided(given), quiet=as_json)
    emit(result, as_json=as_json)


def _train(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Train, resume or only estimate; the object that `--json` prints."""
    from journeyman.experiments.weights import run as runs
    from journeyman.experiments.weights.training import RLTrainer

    if "resume" in given:
        _nothing_but_resume(given, "goes on under the settings of its run")
        return _trained(RLTrainer(WeightsTrainingConfig(), _run_settings({})), quiet=quiet, resume=given["resume"])
    config = _run_settings(given)
    training = runs.settled(_training(given), config)
    dry = given.get("dry_run", False)
    prepared = runs.prepare(
        training,
        profile=given.get("profile", ""),
        short=given.get("quick", False),
        fitting=not dry,
        examples=runs.gather(training, config).examples(training.method) if dry else None,
    )
    if dry:
        return _estimated(prepared, quiet=quiet)
    return _trained(RLTrainer(prepared.config, config), quiet=quiet)


def _nothing_but_resume(given: Mapping[str, Any], why: str) -> None:
    if set(given) - {"resume"}:
        raise InputError(f"--resume {why}; leave the other options out")


def _training(given: Mapping[str, Any]) -> WeightsTrainingConfig:
    """The options as a training's settings. The desk is for the embedded model, and the other way round."""
    known = WeightsTrainingConfig.known(given)
    if known.get("dataset_name") == "desk":
        known.setdefault("base_model", "embedded:base")
    return WeightsTrainingConfig(**known)


def _run_settings(given: Mapping[str, Any]) -> RunSettings:
    """The options as a run's settings; those not given are the project's, or their defaults."""
    project = settings.load()
    return settings.configured(RunSettings, {"artifacts": str(project.artifacts), **RunSettings.known(given)}, project)


def _trained(trainer: "RLTrainer", *, quiet: bool, resume: str | None = None) -> dict[str, Any]:
    from journeyman.experiments.weights import run as runs

    opened = trainer.begin() if resume is None else runs.reopen(resume or None, trainer.settings)
    if opened.settings.evaluate and opened.dataset is not None:
        warn_of_few(len(opened.dataset.split(Split.HELD_OUT)), opened.settings.min_tasks)
    with WeightsScreen(quiet=quiet) as screen:
        trainer.watcher = screen.watcher()
        screen.say(f"run {opened.id}: {opened.config.method} on {opened.config.base_model}")
        try:
            result = trainer.finish(opened)
        except KeyboardInterrupt:
            screen.say(f"interrupted; go on with: journeyman train weights --resume {opened.id}")
            raise
    if not quiet:
        write(*weights_lines(result), *_next_lines(result))
    return result.json()


def _next_lines(result: "WeightsResult") -> Iterator[str]:
    """What can be done with an adapter."""
    if result.adapter is None:
        return
    if result.passed and result.stage is Stage.SHADOW:
        yield "It stays in shadow; --target-stage production lets what passes go there."
    force = "" if result.passed else " --force"
    yield f"Serve it: journeyman deploy llamacpp {result.run_id}{force}   (or deploy ollama, or export gguf)"


def _estimated(prepared: "PreparedTraining", *, quiet: bool) -> dict[str, Any]:
    if not quiet:
        write(*prepared.lines(), "Nothing was trained.")
    return prepared.json()


# From what was recorded to a model that is served.


@click.command("weights")
@options(PipelineConfig, leave_out=("dataset",))
@options(DatasetConfig, only=("context",), helps={"context": "What becomes of a playbook's bullets in recorded prompts."})
@options(
    WeightsTrainingConfig,
    leave_out=("context",),
    helps={
        "dataset_name": (
            "Tasks to be examined on, and to learn from where there is nothing else: desk, gsm8k, custom, humaneval, mbpp."
        ),
        "data": "Or from rows that are there.",
    },
)
@options(RunSettings, helps={"force": "Export and deploy even what does not pass; this is recorded."})
@click.option("--quick", is_flag=True, default=None, help="A short training, to see that everything works.")
@click.option(
    "--resume", is_flag=False, flag_value="", metavar="[RUN]", help="Go on with a pipeline: the newest unfinished, or RUN."
)
@json_option
def weights(as_json: bool, **given: Any) -> int:
    """Learn in the weights, prove it, and serve it.

    Rows are made of an agent's traces (or tasks are attempted), an adapter is trained and examined on held-out tasks, and what
    passes the gate becomes a GGUF file and a served model. With --agent, --tasks are what it is proven by; without any, nothing
    is deployed but with --force. Exit code 1 when not all of it could be done.

    \b
    Examples:
      journeyman pipeline weights --tasks desk --domain oslo --deploy-llamacpp
      journeyman pipeline weights --agent my_agent --method kto --base-model Qwen/Qwen2.5-1.5B-Instruct --deploy-ollama
      journeyman pipeline weights --resume
    """
    with options_named():
        result = _run_pipeline(provided(given), quiet=as_json)
    emit(result.json(), as_json=as_json)
    return 0 if result.done else 1


def _run_pipeline(given: Mapping[str, Any], *, quiet: bool) -> "PipelineResult":
    """Do all steps, or those that are left.

    Raises:
        InputError: Something cannot be used.
    """
    from journeyman.experiments.weights.pipeline import TrainingPipeline

    with WeightsScreen(quiet=quiet) as screen:
        if "resume" in given:
            _nothing_but_resume(given, "goes on with what was asked for")
            pipeline = TrainingPipeline(settings=_run_settings({}), watcher=screen.watcher())
            result = pipeline.resume(given["resume"] or None)
        else:
            result = _begun(given, screen.watcher())
    if not quiet:
        write(*pipeline_lines(result))
    return result


def _begun(given: Mapping[str, Any], watcher: "WeightsWatcher") -> "PipelineResult":
    from journeyman.experiments.weights.data import DatasetPipeline
    from journeyman.experiments.weights.pipeline import TrainingPipeline
    from journeyman.optimizers.weights.sizing import quick

    config = _training({name: value for name, value in given.items() if name != "context"})
    if given.get("quick"):
        config = quick(config)
    wanted = PipelineConfig.known(given)
    pipeline = TrainingPipeline(
        wanted.pop("agent", ""),
        config.base_model,
        config.method,
        config=config,
        settings=_run_settings(given),
        watcher=watcher,
    )
    pipeline.rows = DatasetPipeline(pipeline.agent or None, config=DatasetConfig(context=given.get("context", "keep")))
    return pipeline.run_full_pipeline(**wanted)
