"""Training a playbook from a data set, wired from names: what `journeyman train playbook` runs.

    trainer = create_offline_trainer(dataset_name="desk", domain="oslo", num_examples=100)
    result = trainer.train()
    print(result.playbook_size, result.evaluation["gain"])

The names and options of the ACE offline trainer, which many come from, are kept; the rest is beyond it.
"""

import asyncio
import hashlib
import json
import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from journeyman.agents.answer import Answer, MakeAgent
from journeyman.core.errors import InputError, JourneymanError, PlaybookError, SettingError, TaskError
from journeyman.core.playbook import Playbook
from journeyman.core.release import Stage
from journeyman.core.task import Split, Task, content
from journeyman.experiments import wiring
from journeyman.experiments.agents import candidate_of
from journeyman.experiments.compare import EvaluationReport
from journeyman.experiments.evaluator import untrained
from journeyman.experiments.loop import Iteration, improve
from journeyman.experiments.playbook import cost_estimate
from journeyman.experiments.playbook.config import TrainingConfig, TrainingMetrics, TrainingResult
from journeyman.experiments.playbook.optimizer import PlaybookOptimizer
from journeyman.experiments.release_policy import ReleasePolicy
from journeyman.io.atomic import write_json
from journeyman.io.files import check_writable
from journeyman.models import embedders
from journeyman.optimizers.playbook import files
from journeyman.optimizers.playbook.run import PlaybookRun, fresh, reopened, spoken
from journeyman.optimizers.playbook.text_optimizer import learner
from journeyman.optimizers.playbook.trainer import Learned, Unwatched, Watcher
from journeyman.stores import open_store
from journeyman.tasks.base import Dataset, digest

__all__ = ["OfflineTrainer", "TrainingConfig", "TrainingMetrics", "TrainingResult", "create_offline_trainer"]


def create_offline_trainer(**settings: Any) -> "OfflineTrainer":
    """A trainer from the fields of `TrainingConfig`."""
    unknown = set(settings) - {field.name for field in fields(TrainingConfig)}
    if unknown:
        raise InputError(f"there is no setting {sorted(unknown)[0]!r} of a training run; see journeyman.TrainingConfig")
    return OfflineTrainer(TrainingConfig(**settings))


class OfflineTrainer:
    """Trains a playbook, proves it on held-out tasks, and writes it down."""

    def __init__(self, config: TrainingConfig, *, watcher: Watcher | None = None) -> None:
        self._limit = config.max_cost
        """As it was given: for a run that is resumed, infinity takes its limit off."""
        self.config = replace(config, max_cost=None) if config.max_cost == math.inf else config
        self.watcher = watcher or Unwatched()
        self._custom_examples: Sequence[Task] | None = None
        """Training tasks to use instead of the data set's, as older programs set them."""
        self._dataset: Dataset | None = None
        self._agent: MakeAgent = Answer
        self.examined = 0
        """Held-out tasks of the final evaluation, once a run was begun: those that its start was not trained on."""

    def train(self, initial_playbook_path: str | Path | None = None) -> TrainingResult:
        """Train from the beginning, or from an existing playbook.

        Raises:
            InputError: A file or setting cannot be used; nothing was spent.
        """
        return self.finish(self.begin(initial_playbook_path))

    def resume(self, run_id: str | None = None) -> TrainingResult:
        """Go on with a run under its own settings: the newest that is not over, when none is named."""
        return self.finish(self.reopen(run_id))

    @property
    def dataset(self) -> Dataset:
        """The tasks that training and the final evaluation use, in their splits."""
        if self._dataset is None:
            self._dataset = self._selected()
        return self._dataset

    @property
    def examples(self) -> int:
        """Training tasks, each counted as often as it is gone through."""
        return len(self.dataset.split(Split.TRAIN)) * self.config.epochs

    def work(self) -> cost_estimate.TrainingWork:
        """What the run will ask of its models, to price it."""
        if self.config.optimizer != "playbook":
            raise SettingError("optimizer", f"{{}}: what {self.config.optimizer} asks of models is not known before it does")
        generator, reflector = self.config.models
        return cost_estimate.TrainingWork(
            generator=generator,
            reflector=reflector,
            tasks=self.dataset.tasks,
            epochs=self.config.epochs,
            attempts=self.config.attempts,
            trials=self.config.trials if self.config.evaluate else 0,
            token_budget=self.config.token_budget,
            base_url=self.config.base_url,
        )

    def begin(self, initial_playbook_path: str | Path | None = None) -> PlaybookRun:
        """A new run on the disk, with nothing spent yet.

        Raises:
            InputError: A file or setting cannot be used; there is no new run then.
        """
        initial = files.load(initial_playbook_path) if initial_playbook_path else Playbook()
        self._check()
        self._check_examination(initial)
        config = {**self.config.json(), "tasks": self._digest(), "initial": files.digest(initial)}
        learning = {key: value for key, value in config.items() if key not in _PLACES}
        name = hashlib.sha256(json.dumps(learning, sort_keys=True).encode()).hexdigest()[:8]
        folder = fresh(self._runs, self.config.dataset_name, spoken(self.config.domain), name)
        return PlaybookRun.begin(folder, {**config, "name": name}, initial, checkpoint_interval=self._interval)

    def reopen(self, run_id: str | None = None) -> PlaybookRun:
        """A run that was interrupted. The trainer takes over its settings, but for `store`, and for `max_cost` and the outputs
        where it was given others. A `max_cost` of infinity takes the limit of the run off.

        When none is named, it is the newest that can be gone on with.
        """
        if run_id and (Path(run_id).name != run_id or run_id == ".."):
            raise InputError(f"{run_id!r} is no name of a run; name a folder in {self._runs}")
        if run_id:
            return self._reopened(self._runs / run_id)
        given = self.config

        def reopen(folder: Path) -> PlaybookRun:
            self.config = given
            return self._reopened(folder)

        found = reopened(self._runs, reopen)
        if found is None:
            raise InputError(f"there is no unfinished run in {self._runs}; begin one without --resume")
        return found

    def _reopened(self, folder: Path) -> PlaybookRun:
        if not (folder / "config.json").exists():
            names = ", ".join(sorted(path.parent.name for path in self._runs.glob("*/config.json"))) or "none"
            raise InputError(f"there is no run {folder.name!r} in {self._runs}; there are: {names}")
        saved = PlaybookRun(folder)
        if saved.finished:
            raise InputError(f"the run {folder.name} is over; its playbook is {saved.result['playbook_path']}")
        self.config = self._taken_over(saved)
        self._dataset = None
        if self._digest() != saved.config["tasks"]:
            raise InputError(f"the data set of run {folder.name} has changed since it began; restore it, or begin a new run")
        self._check()
        self._check_examination(saved.initial)
        return PlaybookRun(folder, checkpoint_interval=self._interval)

    def _check_examination(self, initial: Playbook) -> None:
        """Find out what can be examined, before anything is learned.

        Raises:
            InputError: The start was trained on all of the held-out tasks.
        """
        if self.config.evaluate:
            self.examined = len(untrained(self.dataset.split(Split.HELD_OUT), initial.trained_on)[0])

    def _taken_over(self, run: PlaybookRun) -> TrainingConfig:
        """The settings of a run that is gone on with."""
        path = run.folder / "config.json"
        saved = run.config if isinstance(run.config, Mapping) else {}
        if not all(isinstance(saved.get(key), str) for key in ("name", "tasks")):
            raise PlaybookError(f"{path} is not what was written; restore it, or begin a new run")
        known = {field.name for field in fields(self.config)}
        kept: dict[str, Any] = {"project": self.config.project, "store": self.config.store}
        if self._limit is not None:
            kept["max_cost"] = self.config.max_cost
        usual = {field.name: field.default for field in fields(self.config)}
        kept |= {name: getattr(self.config, name) for name in OUTPUTS if getattr(self.config, name) != usual[name]}
        try:
            return type(self.config)(**{**{key: value for key, value in saved.items() if key in known}, **kept})
        except InputError as error:
            raise InputError(f"{path}: {error}; restore the file, or begin a new run") from None

    def finish(self, run: PlaybookRun, *, begun: Callable[[], None] = lambda: None) -> TrainingResult:
        """Train from where the run is to its end, evaluate, decide, and write everything down.

        Args:
            begun: Told once the run is ours alone, before anything is done.

        Raises:
            PlaybookError: Another process goes on with the run.
        """
        with run.alone():
            begun()
            return asyncio.run(self._finish(run))

    async def _finish(self, run: PlaybookRun) -> TrainingResult:
        connected = tuple(
            wiring.connect(
                name, concurrency=self.config.concurrency, base_url=self.config.base_url, key_env=self.config.key_env
            )
            for name in self.config.models
        )
        try:
            with open_store(self.config.store) as store:
                optimizer = PlaybookOptimizer(
                    self.config, self.dataset, run, models=connected, store=store, watcher=self.watcher
                )
                optimizer.agent = self._agent
                return await self._improved(run, optimizer)
        finally:
            for model in connected:
                await model.close()

    async def _improved(self, run: PlaybookRun, optimizer: PlaybookOptimizer) -> TrainingResult:
        """Go round the loop once, and write down what came of it."""
        started, written = wiring.now(), list[TrainingResult]()

        def settle(iteration: Iteration) -> None:
            written.append(self._write(run, optimizer, iteration, started))

        with optimizer.run.tracked():
            await improve(
                optimizer,
                baseline=candidate_of(run.initial),
                run=optimizer.run,
                evaluate=optimizer.evaluate,
                releases=ReleasePolicy(target=Stage(self.config.target_stage), force=self.config.force),
                settle=settle,
            )
            (result,) = written
            optimizer.run.end(result.json(), finished=result.finished)
            if result.finished:
                # Last: a run that is killed before is gone on with, and records what is not recorded yet.
                run.finish(result.json())
        return result

    def _check(self) -> None:
        """Find what is wrong with the settings while nothing is spent."""
        for path in (
            self.config.output_playbook_path,
            self.config.output_metrics_path,
            str(self._runs / "run" / "config.json"),
        ):
            check_writable(Path(path))
        # Whoever has a mistake in their data and no key yet is told of the data.
        _ = self.dataset
        if self.config.dataset_name in wiring.PROGRAMMING:
            wiring.try_walls(self.dataset)
        embedders.load(self.config.embedder)
        learner(self.config.optimizer)
        if self.config.max_cost is not None and self.config.optimizer != "playbook":
            raise SettingError("max_cost", f"a limit on cost cannot be kept by {self.config.optimizer}; leave out {{}}")
        for name in self.config.models:
            wiring.check(name, base_url=self.config.base_url, key_env=self.config.key_env)
            if self.config.max_cost is not None and wiring.price(name, base_url=self.config.base_url) is None:
                raise SettingError("max_cost", f"a limit on cost cannot be kept: {name} has no known price; leave out {{}}")
        # Last, as a file of SQLite is made by opening it.
        open_store(self.config.store).close()

    def _write(self, run: PlaybookRun, optimizer: PlaybookOptimizer, iteration: Iteration, started: datetime) -> TrainingResult:
        """The playbook with its stages, and the metrics."""
        learned, report = optimizer.learned, optimizer.report
        examined = _examined(learned.playbook, run.initial, iteration) if learned.finished else frozenset()
        settled = run.settle(iteration.stage, examined, name=optimizer.run_name, at=optimizer.stamp)
        playbook = replace(settled, created_at=optimizer.stamp, training_config=self._trained_with(forced=iteration.forced))
        path = self._spared(playbook)
        files.save(playbook, path)
        metrics = TrainingMetrics(progress=learned.progress, playbook=playbook, started_at=started, ended_at=wiring.now())
        write_json(Path(self.config.output_metrics_path), metrics.json())
        return TrainingResult(
            run_id=run.folder.name,
            playbook=playbook,
            metrics=metrics,
            finished=learned.finished,
            stage=iteration.stage,
            reason=self._reason(learned, iteration) + _unmoved(playbook, iteration) + self._aside(path),
            forced=iteration.forced,
            evaluation=report,
            playbook_path=path,
            metrics_path=self.config.output_metrics_path,
        )

    def _spared(self, playbook: Playbook) -> str:
        """Where to write: beside the output, when an empty playbook would take the place of something."""
        wanted = Path(self.config.output_playbook_path)
        if playbook.active or not wanted.exists():
            return str(self.config.output_playbook_path)
        try:
            something = bool(files.load(wanted).active)
        except JourneymanError:
            something = wanted.stat().st_size > 0
        return str(wanted.with_name(f"{wanted.stem}.empty{wanted.suffix}") if something else self.config.output_playbook_path)

    def _aside(self, path: str) -> str:
        wanted = self.config.output_playbook_path
        return "" if path == wanted else f"; nothing was learned, so {wanted} was left as it was"

    def _reason(self, learned: Learned, iteration: Iteration) -> str:
        limit = self.config.max_cost
        if not learned.finished and limit is not None:
            cost = learned.progress.cost
            if calls := learned.progress.unknown_costs:
                return (
                    f"stopped after at least ${cost:.4f}: what {calls} of the calls cost is not known, so the limit of "
                    f"${limit:g} cannot be kept; it can be resumed without one (--max-cost inf)"
                )
            where = "at" if cost >= limit else "before the evaluation, which would probably go past"
            return f"stopped after ${cost:.4f}, {where} the limit of ${limit:g}; it can be resumed with a higher one"
        return iteration.reason

    def _trained_with(self, *, forced: bool) -> Mapping[str, object]:
        generator, reflector = self.config.models
        said: dict[str, object] = {
            "dataset": self.config.dataset_name,
            "num_examples": len(self.dataset.split(Split.TRAIN)),
            "generator_model": generator,
            "reflector_model": reflector,
        }
        if self.config.domain:
            said["domain"] = self.config.domain
        return {**said, "forced": True} if forced else said

    def _selected(self) -> Dataset:
        if self._custom_examples is not None:
            return self._of_examples(self._custom_examples)
        found = wiring.load_dataset(self.config)
        wanted = Split(self.config.dataset_split)
        train = [replace(task, split=Split.TRAIN) for task in self._in_order(found.split(wanted))][: self.config.num_examples]
        if not train:
            domain = f" of domain {self.config.domain!r}" if self.config.domain else ""
            raise InputError(f"the data set {self.config.dataset_name!r} has no {wanted.value} tasks{domain}")
        return replace(found, tasks=(*train, *found.split(Split.HELD_OUT)[: self.config.held_out]))

    def _in_order(self, tasks: tuple[Task, ...]) -> Sequence[Task]:
        """Another seed gives another order, but at the desk, where it gives other tasks."""
        if not self.config.seed or self.config.dataset_name == "desk":
            return tasks
        return random.Random(self.config.seed).sample(tasks, len(tasks))

    def _of_examples(self, examples: Sequence[Task]) -> Dataset:
        """The program's own examples, and the data set's held-out tasks where it has a file of them."""
        held_out = [task.id for task in examples if task.split is Split.HELD_OUT]
        if held_out or not examples:
            what = f"{held_out[0]} is held out" if held_out else "there are none"
            raise TaskError(f"these examples cannot be learned from: {what}")
        found = wiring.load_dataset(self.config, bare=True)
        known = {content(task.question) for task in examples}
        rest = [task for task in found.split(Split.HELD_OUT) if content(task.question) not in known]
        learned = (replace(task, split=Split.TRAIN) for task in examples)
        return replace(found, tasks=(*learned, *rest[: self.config.held_out]))

    def _digest(self) -> str:
        """Of what is asked and what is right: a run is not gone on with on other tasks."""
        return digest(self.dataset.tasks)

    @property
    def _runs(self) -> Path:
        return Path(self.config.project) / "runs"

    @property
    def _interval(self) -> int:
        return self.config.checkpoint_interval if self.config.save_checkpoints else 0


OUTPUTS = ("output_playbook_path", "output_metrics_path")
_PLACES = frozenset({*OUTPUTS, "project", "sandbox", "max_cost", "save_checkpoints", "checkpoint_interval"})
"""Settings that do not change what is learned: two runs that differ in these alone give the same bullets."""


def _examined(playbook: Playbook, initial: Playbook, iteration: Iteration) -> Collection[str]:
    """The bullets that are decided on: those that stood in a prompt of the examination, or all where a person forced it.

    That what was added does not pass, or is to wait, says nothing against what stood in production before it.
    """
    if iteration.forced:
        return frozenset(bullet.id for bullet in playbook.active)
    shown = iteration.finding.shown if isinstance(iteration.finding, EvaluationReport) else frozenset()
    if iteration.stage is Stage.SHADOW:
        return shown - {bullet.id for bullet in initial.bullets if bullet.stage is Stage.PRODUCTION}
    return shown


def _unmoved(playbook: Playbook, iteration: Iteration) -> str:
    """What the examination says nothing of, although it was passed."""
    waits = iteration.stage is Stage.SHADOW
    stay = 0 if waits or not iteration.passed else sum(bullet.stage is not iteration.stage for bullet in playbook.active)
    if not stay:
        return ""
    which = "1 bullet that stood in no prompt of the examination stays where it was"
    return f"; {which}" if stay == 1 else f"; {stay} bullets that stood in no prompt of the examination stay where they were"
