"""The work behind `journeyman train weights`, apart from its options."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from rich.console import Console

from journeyman import config
from journeyman.cli._training import warn_of_few
from journeyman.cli._weights_screen import Screen
from journeyman.errors import InputError
from journeyman.learn.weights.config import TrainingConfig
from journeyman.learn.weights.job import Ended
from journeyman.release import Stage
from journeyman.task import Split
from journeyman.weights import checks, runs
from journeyman.weights.prepared import Prepared, prepare
from journeyman.weights.results import WeightsResult
from journeyman.weights.settings import RunSettings
from journeyman.weights.training import RLTrainer, Watcher


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
    known = {field.name for field in fields(TrainingConfig)}
    given = {name: value for name, value in options.items() if name in known}
    if given.get("dataset_name") == "desk":
        given.setdefault("base_model", "embedded:base")
    return TrainingConfig(**given)


def settings_of(options: Mapping[str, Any]) -> RunSettings:
    """The options as a run's settings; those not given are the project's, or their defaults."""
    project = config.load()
    gate = project.settings.gate
    inherited = {
        "alpha": gate.alpha,
        "least_gain": gate.least_gain,
        "least_tasks": gate.least_tasks,
        "project": str(project.folder),
        "store": project.store_url,
        "artifacts": str(project.artifacts),
    }
    known = {field.name for field in fields(RunSettings)}
    given = {name: value for name, value in options.items() if name in known}
    return RunSettings(**{**inherited, **given, "target_stage": Stage(given.get("target_stage", Stage.SHADOW))})


def _trained(trainer: RLTrainer, *, quiet: bool, resume: str | None = None) -> dict[str, Any]:
    opened = trainer.begin() if resume is None else runs.reopen(resume or None, trainer.settings)
    if opened.settings.evaluate and opened.dataset is not None:
        warn_of_few(len(opened.dataset.split(Split.HELD_OUT)), opened.settings.least_tasks)
    with Screen(quiet=quiet) as screen:
        trainer.watcher = Watcher(metrics=screen.metrics, trained=screen.trained, examined=screen.examined)
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


def _estimated(prepared: Prepared, *, quiet: bool) -> dict[str, Any]:
    if not quiet:
        out = Console(highlight=False, soft_wrap=True, markup=False)
        for line in prepared.lines():
            out.print(line)
        out.print("Nothing was trained.")
    return prepared.json()
