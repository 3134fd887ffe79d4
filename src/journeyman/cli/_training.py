"""The work behind `journeyman train playbook`, apart from its options."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from journeyman import config, estimate
from journeyman.cli._screen import Screen, unused
from journeyman.cli._shared import console
from journeyman.errors import InputError
from journeyman.examination import Report
from journeyman.models import KEY
from journeyman.offline import OUTPUTS, OfflineTrainer, TrainingConfig, TrainingResult
from journeyman.release import Stage
from journeyman.task import Split


def run(
    options: Mapping[str, Any], initial_playbook: Path | None, *, resume: str | None, dry_run: bool, quiet: bool
) -> dict[str, Any]:
    """Train, resume or only price; the object that `--json` prints."""
    walled = {name: value for name, value in options.items() if name not in ("ptc_url", "unsafe_local")}
    settings = configured({**walled, **walls(options)})
    if resume is not None and (initial_playbook or set(options) - {"max_cost", *OUTPUTS}):
        raise InputError(
            "--resume goes on under the settings of its run; of the other options only --max-cost and the outputs may be given"
        )
    if resume is not None and dry_run:
        raise InputError("--dry-run prices a new run and --resume goes on with an old one; leave one of them out")
    trainer = OfflineTrainer(settings)
    run = None if dry_run else trainer.begin(initial_playbook) if resume is None else trainer.reopen(resume or None)
    if trainer.config.evaluate:
        held_out = trainer.examined if run else len(trainer.dataset.split(Split.HELD_OUT))
        warn_of_few(held_out, trainer.config.least_tasks)
    if run is None:
        return priced(trainer, quiet=quiet)
    with Screen(trainer.examples, quiet=quiet) as screen:
        trainer.watcher = screen
        head = f"run {run.folder.name}: {trainer.examples} examples, {' and '.join(dict.fromkeys(trainer.config.models))}"
        try:
            result = trainer.finish(run, begun=lambda: screen.say(head))
        except KeyboardInterrupt:
            screen.say(f"interrupted; go on with: journeyman train playbook --resume {run.folder.name}")
            raise
    if not quiet:
        _tell(result, run.journal)
    return result.json()


def walls(options: Mapping[str, Any]) -> dict[str, str]:
    """Where code is run, as a setting, if an option says so."""
    if "ptc_url" in options and "unsafe_local" in options:
        raise InputError("--ptc-url runs code at a service, --unsafe-local here without walls; leave one of them out")
    if "unsafe_local" in options:
        return {"sandbox": "unsafe-local"}
    return {"sandbox": options["ptc_url"]} if "ptc_url" in options else {}


def configured(options: Mapping[str, Any]) -> TrainingConfig:
    """The options as settings; those not given are the project's, from `journeyman.toml`, or their defaults."""
    return TrainingConfig(**settings_of(options))


def settings_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same by name."""
    project = config.load()
    settings = project.settings
    inherited = {
        "generator_model": settings.models.generator,
        "reflector_model": settings.models.reflector,
        "base_url": settings.models.base_url,
        # A server that the user types is sent the usual key, one that a file names only what the file names.
        "key_env": KEY if "base_url" in options else settings.models.key_env,
        "embedder": settings.models.embedder,
        "token_budget": settings.playbook.token_budget,
        "similarity_threshold": settings.playbook.similarity_threshold,
        "batch_merge_size": settings.playbook.batch_size,
        "concurrency": settings.playbook.concurrency,
        "checkpoint_interval": settings.playbook.checkpoint_interval,
        "alpha": settings.gate.alpha,
        "least_gain": settings.gate.least_gain,
        "least_tasks": settings.gate.least_tasks,
        "project": str(project.folder),
        "store": project.store_url,
    }
    given = {**options, "target_stage": Stage(options.get("target_stage", Stage.SHADOW))}
    return {**inherited, **given}


def warn_of_few(held_out: int, least: int) -> None:
    """Say before anything is spent that the gate will not be able to decide."""
    if held_out < least:
        console().print(
            f"{held_out} held-out tasks, and the gate needs {least}: nothing can pass. "
            "Give a file with --held-out-input, or more questions.",
            markup=False,
            soft_wrap=True,
        )


def priced(trainer: OfflineTrainer, *, quiet: bool) -> dict[str, Any]:
    """About what the run will take, shown and as an object."""
    found = estimate.report(trainer.work())
    if quiet:
        return found
    heads = ("role", Column("model", overflow="fold"), "calls", "input tokens", "output tokens", "cost")
    table = Table(*heads, title="About what this run will take")
    for part in found["parts"]:
        cost = "unknown" if part["cost"] is None else f"${part['cost']:.4f}"
        numbers = (f"{part[key]:,}" for key in ("calls", "input_tokens", "output_tokens"))
        table.add_row(part["role"], part["model"], *numbers, cost)
    out = Console(highlight=False, soft_wrap=True)
    out.print(table)
    total = "unknown: a model has no known price" if found["cost"] is None else f"about ${found['cost']:.4f}"
    out.print(f"In all {total}. Nothing was sent.")
    return found


def shares(report: Report) -> str:
    """How many held-out tasks went well on both sides, in words."""
    if report.baseline is None or report.candidate is None:
        return "none could be compared"
    return f"{report.baseline:.1%} without the playbook, {report.candidate:.1%} with it"


def _tell(result: TrainingResult, journal: Path) -> None:
    """The end of a run, in words."""
    out = Console(highlight=False, soft_wrap=True, markup=False)
    out.print(
        f"{result.playbook_size} bullets in {result.playbook_path} ({result.stage.value}); metrics in {result.metrics_path}"
    )
    for line in unused(result.metrics.progress.unusable):
        out.print(line)
    if result.evaluation is not None:
        out.print(f"held-out tasks: {shares(result.evaluation)}")
    if result.evaluation is not None:
        out.print(f"{'passed' if result.evaluation.passed else 'not passed'}: {result.reason}")
        if result.evaluation.passed and result.stage is Stage.SHADOW:
            out.print("It stays in shadow; --target-stage production lets what passes go there.")
    else:
        out.print(result.reason)
    out.print(f"Every change is in its journal: journeyman playbook log {shlex.quote(str(journal))}")
    if not result.finished:
        out.print(f"Go on with: journeyman train playbook --resume {result.run_id} --max-cost <more, or inf>")
