"""The work behind `journeyman train playbook`, apart from its options."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from journeyman import config, estimate
from journeyman.cli._screen import Screen
from journeyman.errors import InputError
from journeyman.examination import Report
from journeyman.models import KEY
from journeyman.offline import OfflineTrainer, TrainingConfig, TrainingResult
from journeyman.release import Stage


def run(
    options: Mapping[str, Any], initial_playbook: Path | None, *, resume: str | None, dry_run: bool, quiet: bool
) -> dict[str, Any]:
    """Train, resume or only price; the object that `--json` prints."""
    settings = configured(options)
    if resume is not None and (initial_playbook or set(options) - {"dataset_name", "max_cost"}):
        raise InputError("--resume goes on under the settings of its run; of the other options only --max-cost may be given")
    if resume is not None and dry_run:
        raise InputError("--dry-run prices a new run and --resume goes on with an old one; leave one of them out")
    trainer = OfflineTrainer(settings)
    if dry_run:
        return _priced(trainer, quiet=quiet)
    run = trainer.begin(initial_playbook) if resume is None else trainer.reopen(resume or None)
    with Screen(trainer.examples, quiet=quiet) as screen:
        trainer.watcher = screen
        screen.say(f"run {run.folder.name}: {trainer.examples} examples, {' and '.join(dict.fromkeys(trainer.config.models))}")
        try:
            result = trainer.finish(run)
        except KeyboardInterrupt:
            screen.say(f"interrupted; go on with: journeyman train playbook --resume {run.folder.name}")
            raise
    if not quiet:
        _tell(result, run.journal)
    return result.json()


def configured(options: Mapping[str, Any]) -> TrainingConfig:
    """The options as settings; those not given are the project's, from `journeyman.toml`, or their defaults."""
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
    return TrainingConfig(**{**inherited, **given})


def _priced(trainer: OfflineTrainer, *, quiet: bool) -> dict[str, Any]:
    found = estimate.report(trainer.plan())
    if quiet:
        return found
    table = Table("role", "model", "calls", "input tokens", "output tokens", "cost", title="About what this run will take")
    for part in found["parts"]:
        cost = "unknown" if part["cost"] is None else f"${part['cost']:.4f}"
        numbers = (f"{part[key]:,}" for key in ("calls", "input_tokens", "output_tokens"))
        table.add_row(part["role"], part["model"], *numbers, cost)
    console = Console()
    console.print(table)
    total = "unknown: a model has no known price" if found["cost"] is None else f"about ${found['cost']:.4f}"
    console.print(f"In all {total}. Nothing was sent.", highlight=False)
    return found


def shares(report: Report) -> str:
    """How many held-out tasks went well on both sides, in words."""
    if report.baseline is None or report.candidate is None:
        return "none could be compared"
    return f"{report.baseline:.1%} without the playbook, {report.candidate:.1%} with it"


def _tell(result: TrainingResult, journal: Path) -> None:
    """The end of a run, in words."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{result.playbook_size} bullets in {result.playbook_path} ({result.stage.value}); metrics in {result.metrics_path}"
    )
    if result.evaluation is not None:
        console.print(f"held-out tasks: {shares(result.evaluation)}")
    console.print(result.reason)
    console.print(f"Every change is in its journal: journeyman playbook log {journal}")
    if not result.finished:
        console.print(f"Go on with: journeyman train playbook --resume {result.run_id} --max-cost <more, or inf>")
