"""The work behind `journeyman train weights`, apart from its options."""

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from journeyman.cli.actions.train_playbook import warn_of_few
from journeyman.core.errors import InputError
from journeyman.core.release import Stage
from journeyman.core.task import Split
from journeyman.experiments import settings as config
from journeyman.experiments.weights import run as checks
from journeyman.experiments.weights import run as runs
from journeyman.experiments.weights.config import PipelineConfig, RunSettings
from journeyman.experiments.weights.data import DatasetPipeline
from journeyman.experiments.weights.pipeline import PipelineResult, TrainingPipeline
from journeyman.experiments.weights.run import PreparedTraining, prepare
from journeyman.experiments.weights.training import RLTrainer, WeightsResult, WeightsWatcher
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.data import DatasetConfig
from journeyman.optimizers.weights.job import Ended
from journeyman.optimizers.weights.job import TrainingReport as Report
from journeyman.optimizers.weights.sizing import quick

# What a training of weights shows while it runs: a bar on a terminal, a few lines elsewhere. All of it on stderr.

_TIMES = 10
"""How often it is told where there is no terminal, beside each look at the validation tasks."""
_QUARTERS = 4


class WeightsScreen:
    """Watches a run. Its methods are those of a `weights.training.Watcher`."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet, markup=False, highlight=False, soft_wrap=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._bar.add_task("loading the model", total=None, state="")
        self._first: tuple[int, float] | None = None
        """The first update that was seen, and when: time left is told from what happens here."""
        self._validation: float | None = None
        self._told = -1
        self._quarter = 0

    def __enter__(self) -> "WeightsScreen":
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def metrics(self, update: Mapping[str, Any]) -> None:
        """After each update: a line of metrics.jsonl."""
        step, of = int(update["step"]), int(update["of"])
        looked = update.get("validation") is not None
        if looked:
            self._validation = float(update["validation"])
        first, since = self._first = self._first or (step, time.monotonic())
        left = (time.monotonic() - since) / (step - first) * (of - step) if step > first else None
        state = _state(update, self._validation, left)
        self._bar.update(self._task, description="training", total=of, completed=step, state=state)
        if not self._console.is_terminal and (looked or step * _TIMES // max(1, of) > self._told):
            self._told = step * _TIMES // max(1, of)
            self._console.print(f"{step}/{of} updates  {state}".rstrip())

    def trained(self, report: Report) -> None:
        self._bar.update(self._task, description="trained", total=report.steps or 1, completed=report.steps or 1, state="")
        self._console.print(f"training {_ENDED[report.ended.value]}: {report.reason}")

    def examined(self, done: int, total: int) -> None:
        """An attempt at a held-out task is done."""
        self._bar.update(self._task, description="evaluating", total=total, completed=done, state="")
        if not self._console.is_terminal and _QUARTERS * done // total > self._quarter:
            self._quarter = _QUARTERS * done // total
            self._console.print(f"{done}/{total} attempts at held-out tasks")

    def say(self, text: str) -> None:
        self._console.print(text)


_ENDED = {"finished": "finished", "early": "stopped early", "guarded": "was stopped by a guard"}


def _state(update: Mapping[str, Any], validation: float | None, left: float | None) -> str:
    shown = {
        "loss": update.get("loss"),
        "reward": update.get("reward"),
        "validation": validation,
        "entropy": update.get("entropy"),
    }
    if shown["reward"] is not None:
        # GRPO's loss is near 0 by construction and says nothing.
        shown.pop("loss")
    parts = [f"{name} {value:.3f}" for name, value in shown.items() if value is not None]
    if update.get("broken"):
        parts.append(f"no number: {', '.join(update['broken'])}")
    if left is not None and left >= 1:
        parts.append(_time(left))
    return "  ".join(parts)


def _time(seconds: float) -> str:
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s left"
    return f"{whole // 60} min left" if whole < 6000 else f"{whole / 3600:.1f} h left"


def run(options: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Train, resume or only estimate; the object that `--json` prints."""
    resume = options.get("resume")
    if resume is not None and set(options) - {"resume"}:
        raise InputError("--resume goes on under the settings of its run; leave the other options out")
    settings = settings_of(options)
    if resume is not None:
        return _trained(RLTrainer(TrainingConfig(), settings), quiet=quiet, resume=resume)
    dry = options.get("dry_run", False)
    training = runs.settled(training_of(options), settings)
    given = {"profile": options.get("profile", ""), "short": options.get("quick", False)}
    examples = checks.gather(training, settings).examples(training.method) if dry else None
    prepared = prepare(training, **given, fitting=not dry, examples=examples)
    if dry:
        return _estimated(prepared, quiet=quiet)
    return _trained(RLTrainer(prepared.config, settings), quiet=quiet)


def training_of(options: Mapping[str, Any]) -> TrainingConfig:
    """The options as a training's settings. The desk is for the embedded model, and the other way round."""
    given = TrainingConfig.known(options)
    if given.get("dataset_name") == "desk":
        given.setdefault("base_model", "embedded:base")
    return TrainingConfig(**given)


def settings_of(options: Mapping[str, Any]) -> RunSettings:
    """The options as a run's settings; those not given are the project's, or their defaults."""
    project = config.load()
    return config.configured(RunSettings, {"artifacts": str(project.artifacts), **RunSettings.known(options)}, project)


def _trained(trainer: RLTrainer, *, quiet: bool, resume: str | None = None) -> dict[str, Any]:
    opened = trainer.begin() if resume is None else runs.reopen(resume or None, trainer.settings)
    if opened.settings.evaluate and opened.dataset is not None:
        warn_of_few(len(opened.dataset.split(Split.HELD_OUT)), opened.settings.min_tasks)
    with WeightsScreen(quiet=quiet) as screen:
        trainer.watcher = WeightsWatcher(metrics=screen.metrics, trained=screen.trained, examined=screen.examined)
        screen.say(f"run {opened.id}: {opened.config.method} on {opened.config.base_model}")
        try:
            result = trainer.finish(opened)
        except KeyboardInterrupt:
            screen.say(f"interrupted; go on with: journeyman train weights --resume {opened.id}")
            raise
    if not quiet:
        _tell(result)
    return result.json()


def _tell(result: WeightsResult) -> None:
    """The end of a run, in words."""
    out = Console(highlight=False, soft_wrap=True, markup=False)
    for line in describe(result):
        out.print(line)
    if result.adapter is None:
        return
    if result.passed and result.stage is Stage.SHADOW:
        out.print("It stays in shadow; --target-stage production lets what passes go there.")
    force = "" if result.passed else " --force"
    out.print(f"Serve it: journeyman deploy llamacpp {result.run_id}{force}   (or deploy ollama, or export gguf)")


def describe(result: WeightsResult) -> Iterator[str]:
    """What was trained, and what the gate says."""
    trained = result.trained
    yield f"{trained.steps} updates in {trained.seconds:.0f} s ({trained.cpu_seconds:.0f} s CPU): {trained.reason}"
    if trained.ended is Ended.GUARDED:
        yield "A guard stopped it: try a lower --learning-rate, or a higher --beta."
    if result.adapter is None:
        yield f"{result.reason[:1].upper()}{result.reason[1:]}."
        return
    yield f"adapter: {result.adapter} ({result.stage.value}), {trained.trained:,} beside {trained.parameters:,} parameters"
    found = result.evaluation
    if found is None or found.baseline is None or found.candidate is None:
        yield result.reason
    else:
        yield f"held-out tasks: {found.baseline:.1%} before, {found.candidate:.1%} with the adapter"
        yield f"{'passed' if found.passed else 'not passed'}: {found.reason}"
    for domain, report in result.earlier.items():
        if report.gain is not None and report.low is not None:
            yield f"learned before, {domain}: {report.gain:+.1%} ({report.low:+.1%} to {report.high:+.1%})"


def _estimated(prepared: PreparedTraining, *, quiet: bool) -> dict[str, Any]:
    if not quiet:
        out = Console(highlight=False, soft_wrap=True, markup=False)
        for line in prepared.lines():
            out.print(line)
        out.print("Nothing was trained.")
    return prepared.json()


# The work behind `journeyman pipeline weights`, apart from its options.


def run_pipeline(options: Mapping[str, Any], *, quiet: bool) -> PipelineResult:
    """Do all steps, or those that are left.

    Raises:
        InputError: Something cannot be used.
    """
    with WeightsScreen(quiet=quiet) as screen:
        watcher = WeightsWatcher(metrics=screen.metrics, trained=screen.trained, examined=screen.examined, said=screen.say)
        result = _resumed(options, watcher) if "resume" in options else _begun(options, watcher)
    if not quiet:
        out = Console(highlight=False, soft_wrap=True, markup=False)
        for line in describe_pipeline(result):
            out.print(line)
    return result


def _begun(options: Mapping[str, Any], watcher: WeightsWatcher) -> PipelineResult:
    config = training_of({name: value for name, value in options.items() if name != "context"})
    if options.get("quick"):
        config = quick(config)
    wanted = PipelineConfig.known(options)
    pipeline = TrainingPipeline(
        wanted.pop("agent", ""),
        config.base_model,
        config.method,
        config=config,
        settings=settings_of(options),
        watcher=watcher,
    )
    rows = DatasetConfig(context=options.get("context", "keep"))
    pipeline.rows = DatasetPipeline(pipeline.agent or None, config=rows)
    return pipeline.run_full_pipeline(**wanted)


def _resumed(options: Mapping[str, Any], watcher: WeightsWatcher) -> PipelineResult:
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
