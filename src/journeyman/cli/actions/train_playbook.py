"""The work behind `journeyman train playbook`, apart from its options."""

import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from journeyman.agents.attempt import Attempt
from journeyman.cli.shared import console
from journeyman.core.errors import InputError
from journeyman.core.playbook import Playbook
from journeyman.core.release import Stage
from journeyman.core.task import Split
from journeyman.experiments import settings as config
from journeyman.experiments.compare import EvaluationReport
from journeyman.experiments.playbook import cost_estimate
from journeyman.experiments.playbook.config import TrainingConfig
from journeyman.experiments.playbook.training import OUTPUTS, OfflineTrainer, TrainingResult
from journeyman.models import KEY
from journeyman.optimizers.playbook import run as words

_Settings = TypeVar("_Settings", bound=TrainingConfig)

# What a training run shows while it runs: a bar on a terminal, plain lines elsewhere. All of it on stderr.


class Screen:
    """Watches a run. Implements `trainer.Watcher`."""

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet, markup=False, highlight=False, soft_wrap=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
        )
        self._total = total
        self._started = time.monotonic()
        self._attempted = 0
        self._quarter = 0
        self._task = self._bar.add_task("training", total=total, state="")

    def __enter__(self) -> "Screen":
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def attempted(self, attempt: Attempt) -> None:
        self._attempted += 1
        self._bar.advance(self._task)

    def merged(self, playbook: Playbook, progress: words.Progress, tasks: int) -> None:
        state = _state(playbook, progress)
        self._bar.update(self._task, completed=tasks, state=state)
        if not self._console.is_terminal:
            left = (time.monotonic() - self._started) / max(1, self._attempted) * (self._total - tasks)
            self._console.print(f"{tasks}/{self._total} examples  {state}{f'  {left:.0f} s left' if left >= 1 else ''}")

    def evaluated(self, done: int, total: int) -> None:
        """An attempt at a held-out task is done."""
        self._bar.update(self._task, description="evaluating", total=total, completed=done, state="")
        if not self._console.is_terminal and 4 * done // total > self._quarter:
            self._quarter = 4 * done // total
            self._console.print(f"{done}/{total} attempts at held-out tasks")

    def say(self, text: str) -> None:
        self._console.print(text)


def unused(reflections: int) -> list[str]:
    """Why there is less learned than was attempted, where replies of the reflector were of no use."""
    if not reflections:
        return []
    counted = "1 reflection" if reflections == 1 else f"{reflections} reflections"
    return [f"{counted} could not be used: no reply of the reflector came, or none that could be read"]


def _state(playbook: Playbook, progress: words.Progress) -> str:
    accuracy = progress.attempts.accuracy
    right = "accuracy unknown" if accuracy is None else f"{accuracy:.0%} right so far"
    unpriced = progress.generator.unpriced or progress.reflector.unpriced
    cost = (
        f"at least ${progress.cost:.4f}"
        if unpriced and progress.cost
        else "cost unknown"
        if unpriced
        else f"${progress.cost:.4f}"
    )
    unusable = f"  {progress.unusable} unusable reflections" if progress.unusable else ""
    broken = f"  {progress.attempts.unknown} attempts broke off" if progress.attempts.unknown else ""
    return f"{right}  {len(playbook.active)} bullets  {cost}{unusable}{broken}"


def run(
    options: Mapping[str, Any], initial_playbook: Path | None, *, resume: str | None, dry_run: bool, quiet: bool
) -> dict[str, Any]:
    """Train, resume or only price; the object that `--json` prints."""
    walled = {name: value for name, value in options.items() if name not in ("ptc_url", "unsafe_local")}
    limit = {} if resume is None else limit_of_its_own(options, initial_playbook)
    settings = settled(TrainingConfig, {**limit, **walled, **walls(options)})
    if resume is not None and dry_run:
        raise InputError("--dry-run prices a new run and --resume goes on with an old one; leave one of them out")
    trainer = OfflineTrainer(settings)
    run = None if dry_run else trainer.begin(initial_playbook) if resume is None else trainer.reopen(resume or None)
    if trainer.config.evaluate:
        held_out = trainer.examined if run else len(trainer.dataset.split(Split.HELD_OUT))
        warn_of_few(held_out, trainer.config.min_tasks)
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


def limit_of_its_own(options: Mapping[str, Any], *more: object) -> dict[str, Any]:
    """A run that is gone on with has its own limit on cost, whatever the project's is; options may give another.

    Raises:
        InputError: More than the limit and the outputs was given with --resume.
    """
    if any(more) or set(options) - {"max_cost", *OUTPUTS}:
        raise InputError(
            "--resume goes on under the settings of its run; of the other options only --max-cost and the outputs may be given"
        )
    return {"max_cost": None}


def settled(kind: type[_Settings], options: Mapping[str, Any]) -> _Settings:
    """The options as settings; those not given are the project's, or their defaults."""
    project = config.load()
    # A server that the user types is sent the usual key, one that a file names only what the file names.
    key = KEY if "base_url" in options else project.settings.models.key_env
    return config.configured(kind, {"key_env": key, **options}, project)


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
    found = cost_estimate.report(trainer.work())
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


def shares(report: EvaluationReport) -> str:
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
