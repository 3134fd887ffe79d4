"""Training a playbook from a data set, wired from names: what `journeyman train playbook` runs.

    trainer = create_offline_trainer(dataset_name="desk", domain="oslo", num_examples=100)
    result = trainer.train()
    print(result.playbook_size, result.evaluation["gain"])

The names and options of the ACE offline trainer, which many come from, are kept; the rest is beyond it.
"""

import hashlib
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Collection, KeysView, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from journeyman.agents.answer import Answer, MakeAgent
from journeyman.agents.attempt import Attempt
from journeyman.core.candidate import Candidate
from journeyman.core.errors import InputError, JourneymanError, MissingExtra, ModelError, PlaybookError, SettingError, TaskError
from journeyman.core.format import counted, html_table, money
from journeyman.core.playbook import Playbook
from journeyman.core.release import Stage
from journeyman.core.task import Split, Task, content
from journeyman.experiments import wiring
from journeyman.experiments.agents import AgentEvaluation, candidate_of
from journeyman.experiments.compare import EvaluationReport
from journeyman.experiments.evaluator import HeldOutEvaluator, untrained
from journeyman.experiments.learning_curve import of_attempts, picture
from journeyman.experiments.loop import Finding, Iteration, Unproven, improve
from journeyman.experiments.playbook import cost_estimate
from journeyman.experiments.playbook.config import TrainingConfig
from journeyman.experiments.release_policy import ReleasePolicy
from journeyman.experiments.run import Run
from journeyman.io.atomic import write_json
from journeyman.io.event_loop import waited
from journeyman.io.files import check_writable
from journeyman.models import embedders
from journeyman.models.base import Model
from journeyman.models.embedders import Cached
from journeyman.optimizers.playbook import files
from journeyman.optimizers.playbook.curator import Curator
from journeyman.optimizers.playbook.run import PlaybookRun, Progress, fresh, reopened, spoken
from journeyman.optimizers.playbook.text_optimizer import learner
from journeyman.optimizers.playbook.trainer import Learned, TrainerTools, Unwatched, Watcher
from journeyman.stores import Store, open_store
from journeyman.stores.urls import note
from journeyman.tasks.base import Dataset, digest
from journeyman.tasks.questions import Values

__all__ = ["OfflineTrainer", "TrainingConfig", "TrainingMetrics", "TrainingResult", "create_offline_trainer"]


# How it goes round the loop: learned in batches, examined by an agent with and without the playbook.


class PlaybookOptimizer:
    """Learns a playbook, with the models, data set and store of a run. Implements `experiments.loop.Optimizer`."""

    name = "playbook"

    def __init__(
        self,
        config: TrainingConfig,
        dataset: Dataset,
        folder: PlaybookRun,
        *,
        models: tuple[Model, ...],
        store: Store,
        watcher: Watcher,
    ) -> None:
        self.config, self.dataset, self.folder = config, dataset, folder
        self.agent: MakeAgent = Answer
        """Who attempts the tasks. Another may take its place before the run."""
        self.learner = learner(config.optimizer)
        self.generator, self.reflector = models
        self.embedder = Cached(embedders.load(self.config.embedder))
        self.stamp = wiring.stamp(*models)
        self.run_name = str(folder.config["name"])
        """Made of the settings: the same in every run that would learn the same."""
        self.run = Run(id=folder.folder.name, kind="train playbook", config=self.config.json(), store=store)
        self.watcher = _Keeping(self.run, watcher)
        self.learned = Learned(folder.playbook, folder.progress, finished=False)
        self.report: EvaluationReport | None = None
        """Of the examination, once it was held."""

    async def optimize(self, baseline: Candidate | None, run: Run) -> Candidate | None:
        """Learn to the end, or as far as the limit on cost lets it."""
        tools = TrainerTools(
            generator=self.generator,
            reflector=self.reflector,
            verifier=self.dataset.verifier,
            curator=Curator(self.embedder, self.config.similarity_threshold),
            embedder=self.embedder,
            clock=wiring.now,
            stamp=lambda: self.stamp,
            name=self.run_name,
            agent=self.agent,
        )
        tasks = self.dataset.split(Split.TRAIN)
        learned = await self.learner(tasks, self.folder, tools, self.config, self.watcher)
        self.learned = replace(learned, finished=learned.finished and self._affordable(learned))
        return candidate_of(learned.playbook) if self.learned.finished else None

    async def evaluate(self, candidate: Candidate, baseline: Candidate | None) -> Finding:
        """Let the gate look at what was learned, if it was asked for."""
        if not self.config.evaluate:
            return Unproven("not evaluated, so not proven")
        evaluation = AgentEvaluation(
            evaluator=HeldOutEvaluator(store=self.run.store),
            model=self.generator,
            dataset=self.dataset,
            embedder=self.embedder,
            gate=self.config.gate,
            attempts_per_task=self.config.attempts_per_task,
            token_budget=self.config.token_budget,
            agent=self.agent,
            run=self.run,
        )
        self.report = await evaluation.evaluate(
            self.learned.playbook, self.folder.initial, id=self.run.id, done=self.watcher.evaluated, resumed=True
        )
        return self.report

    def _affordable(self, learned: Learned) -> bool:
        """Whether the evaluation keeps within the limit too: its calls are like those of the training."""
        calls = 2 * self.config.attempts_per_task * len(self.dataset.split(Split.HELD_OUT)) if self.config.evaluate else 0
        spent = learned.progress.generator
        return (
            self.config.max_cost is None
            or not calls
            or learned.progress.cost + calls * spent.cost / max(1, spent.calls) <= self.config.max_cost
        )


class _Keeping:
    """Keeps the attempts of every batch that is merged, and lets another watcher see everything."""

    def __init__(self, run: Run, watcher: Watcher) -> None:
        self._run = run
        self._watcher = watcher
        self._attempts: list[Attempt] = []
        self.evaluated = watcher.evaluated

    def attempted(self, attempt: Attempt) -> None:
        self._attempts.append(attempt)
        self._watcher.attempted(attempt)

    def merged(self, playbook: Playbook, progress: Progress, tasks: int) -> None:
        self._run.keep(self._attempts)
        self._attempts = []
        self._watcher.merged(playbook, progress, tasks)


# From names to a run, and from a run to the files that it leaves.


def create_offline_trainer(*, data: Values | None = None, **settings: Any) -> "OfflineTrainer":
    """A trainer from the fields of `TrainingConfig`, and perhaps from rows in memory: a list of mappings, or a DataFrame."""
    return OfflineTrainer(TrainingConfig(**settings), data=data)


@dataclass(frozen=True, kw_only=True)
class TrainingMetrics:
    """What the metrics file says."""

    progress: Progress
    playbook: Playbook
    started_at: datetime
    ended_at: datetime

    @property
    def total_examples(self) -> int:
        return self.progress.attempts.attempts

    @property
    def correct_answers(self) -> int:
        return self.progress.attempts.correct

    @property
    def accuracy(self) -> float | None:
        return self.progress.attempts.accuracy

    def __getitem__(self, key: str) -> Any:
        return self.json()[key]

    def json(self) -> dict[str, Any]:
        """The documented file: `training_summary`, `insights`, `playbook`, `timing`; and beyond it roles, epochs, domains.

        `accuracy` is of the attempts that could be verified, and null when none could.
        """
        p = self.progress
        return {
            "training_summary": {
                "total_examples": p.attempts.attempts,
                "successful_generations": p.attempts.correct + p.attempts.wrong,
                "failed_generations": p.attempts.unknown,
                "correct_answers": p.attempts.correct,
                "accuracy": p.attempts.accuracy,
            },
            "insights": {
                "total_extracted": p.extracted,
                "helpful": p.helpful,
                "harmful": p.harmful,
                "neutral": p.neutral,
                "refused": dict(p.refused),
                "unusable_reflections": p.unusable,
            },
            "playbook": {
                "bullets_added": p.added,
                "bullets_incremented": p.incremented,
                "bullets_retired": p.retired,
                "final_size": len(self.playbook.active),
            },
            "timing": {
                "start_time": self.started_at.isoformat(timespec="seconds"),
                "end_time": self.ended_at.isoformat(timespec="seconds"),
                "duration_seconds": round(p.seconds, 3),
            },
            "roles": {"generator": p.generator.json(), "reflector": p.reflector.json()},
            "accuracy_by_epoch": {epoch: tally.accuracy for epoch, tally in p.by_epoch.items()},
            "accuracy_by_domain": {domain: tally.accuracy for domain, tally in p.by_domain.items()},
        }


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """How a training run ended."""

    run_id: str
    playbook: Playbook
    metrics: TrainingMetrics
    finished: bool
    """False when it stopped because of `max_cost`; it can be resumed with a higher one, or without."""
    stage: Stage
    reason: str
    """The gate's sentence, or why the gate was not asked."""
    forced: bool
    evaluation: EvaluationReport | None
    playbook_path: str
    metrics_path: str
    curve: tuple[bool | None, ...] = ()
    """Whether each attempt went well from which it learned, in the order in which they began; `None` where nobody knows."""

    def __repr__(self) -> str:
        found = "not examined" if self.evaluation is None else repr(self.evaluation).partition("(")[2].removesuffix(")")
        learned = counted(self.playbook_size, "bullet")
        return f"TrainingResult({learned} in {self.playbook_path}, {self.stage.value}; {found})"

    def _repr_html_(self) -> str:
        """What a notebook shows: how it went, the examination, the curve of its attempts and the playbook."""
        attempts, roles = self.metrics.progress.attempts, (self.metrics.progress.generator, self.metrics.progress.reflector)
        cost = None if any(role.unpriced for role in roles) else self.metrics.progress.cost
        right = "unknown" if attempts.accuracy is None else f"{attempts.accuracy:.1%}"
        rows = [
            ("Run", self.run_id if self.finished else f"{self.run_id}, which is not over"),
            ("Playbook", f"{self.playbook_path} ({self.stage.value})"),
            ("Right while it learned", f"{right} of {attempts.attempts}"),
            ("Cost of learning", money(cost)),
        ]
        if self.evaluation is None:
            rows.append(("Examination", self.reason))
        examined = self.evaluation._repr_html_() if self.evaluation else ""
        return html_table((), rows, title=repr(self)) + examined + picture(self.curve) + self.playbook._repr_html_()

    @property
    def playbook_size(self) -> int:
        return len(self.playbook.active)

    def __getitem__(self, key: str) -> Any:
        """The attribute of that name: `result["metrics"].accuracy` is what older programs write."""
        if key in self.keys() or key == "playbook":
            return getattr(self, key)
        raise KeyError(key)

    def keys(self) -> KeysView[str]:
        """Those of the documented JSON, so that `dict(result)` works."""
        return self.json().keys()

    def json(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "finished": self.finished,
            "playbook_size": self.playbook_size,
            "stage": self.stage.value,
            "forced": self.forced,
            "reason": self.reason,
            "playbook_path": self.playbook_path,
            "metrics_path": self.metrics_path,
            "metrics": self.metrics.json(),
            "evaluation": self.evaluation.json() if self.evaluation else None,
        }


class OfflineTrainer:
    """Trains a playbook, proves it on held-out tasks, and writes it down."""

    def __init__(self, config: TrainingConfig, *, watcher: Watcher | None = None, data: Values | None = None) -> None:
        """
        Args:
            data: Rows in memory instead of a file, as mappings or a DataFrame, each with a question and an answer.
        """
        if data is not None:
            config = replace(config, dataset_name="custom")
        self._limit = config.max_cost
        """As it was given: for a run that is resumed, infinity takes its limit off."""
        self.config = replace(config, max_cost=None) if config.max_cost == math.inf else config
        self.watcher = watcher or Unwatched()
        self._data = data
        self.there_are: Mapping[Split, int] = {}
        """How many tasks of each split the data set has, of which as many are taken as the settings ask for."""
        self._custom_examples: Sequence[Task] | None = None
        """Training tasks to use instead of the data set's, as older programs set them."""
        self._dataset: Dataset | None = None
        self._agent: MakeAgent | None = None
        """Another one than the data set asks for."""
        self.examined = 0
        """Held-out tasks of the final evaluation, once a run was begun: those that its start was not trained on."""

    def train(self, initial_playbook_path: str | Path | Playbook | None = None) -> TrainingResult:
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
        learner(self.config.optimizer)
        generator, reflector = self.config.models
        return cost_estimate.TrainingWork(
            generator=generator,
            reflector=reflector,
            tasks=self.dataset.tasks,
            epochs=self.config.epochs,
            attempts=self.config.attempts,
            trials=self.config.attempts_per_task if self.config.evaluate else 0,
            token_budget=self.config.token_budget,
            base_url=self.config.base_url,
            optimizer=self.config.optimizer,
        )

    def hindrances(self) -> tuple[str, ...]:
        """What would keep the models from answering now, though they are named well: a run can be priced without a key.

        Raises:
            ModelError: A model or its server is named wrongly.
        """
        found = list[str]()
        for name in dict.fromkeys(self.config.models):
            wiring.check_name(name, base_url=self.config.base_url)
            try:
                wiring.check(name, base_url=self.config.base_url, key_env=self.config.key_env)
            except (ModelError, MissingExtra) as error:
                found.append(str(error))
        return tuple(found)

    def begin(self, initial_playbook_path: str | Path | Playbook | None = None) -> PlaybookRun:
        """A new run on the disk, with nothing spent yet.

        Raises:
            InputError: A file or setting cannot be used; there is no new run then.
        """
        start = initial_playbook_path or Playbook()
        initial = start if isinstance(start, Playbook) else files.load(start)
        self._check()
        self._check_examination(initial)
        config = {**self.config.json(), "tasks": self._digest(), "initial": files.digest(initial)}
        learning = {key: value for key, value in config.items() if key not in _PLACES}
        name = hashlib.sha256(json.dumps(learning, sort_keys=True).encode()).hexdigest()[:8]
        folder = fresh(self._runs, self.config.dataset_name, spoken(self.config.domain), name)
        begun = PlaybookRun.begin(folder, {**config, "name": name}, initial, checkpoint_interval=self._interval)
        note(folder, self.config.store)
        return begun

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
        kept: dict[str, Any] = {"project": self.config.project, "store": self.config.store}
        if self._limit is not None:
            kept["max_cost"] = self.config.max_cost
        usual = {field.name: field.default for field in fields(self.config)}
        kept |= {name: getattr(self.config, name) for name in OUTPUTS if getattr(self.config, name) != usual[name]}
        try:
            return type(self.config)(**{**self.config.known(saved), **kept})
        except InputError as error:
            raise InputError(f"{path}: {error}; restore the file, or begin a new run") from None

    def finish(self, run: PlaybookRun, *, begun: Callable[[], None] = lambda: None) -> TrainingResult:
        """Train from where the run is to its end, evaluate, decide, and write everything down.

        Args:
            begun: Told once the run is ours alone, before anything is done.

        Raises:
            PlaybookError: Another process goes on with the run.
        """
        return waited(self.finish_async(run, begun=begun))

    async def finish_async(self, run: PlaybookRun, *, begun: Callable[[], None] = lambda: None) -> TrainingResult:
        """`finish`, awaited."""
        with run.alone():
            begun()
            return await self._finish(run)

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
                optimizer.agent = self._agent or wiring.agent_for(self.dataset)
                return await self._improved(run, optimizer)
        finally:
            await wiring.closed(self.dataset)
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
                releases=ReleasePolicy(target=self.config.target_stage, force=self.config.force),
                settle=settle,
            )
            (result,) = written
            optimizer.run.end(result.json(), finished=result.finished)
            if result.finished:
                # Last: a run that is killed before is gone on with, and records what is not recorded yet.
                run.finish(result.json())
        attempts = of_attempts(optimizer.run.store.attempts(run_id=optimizer.run.id))
        return replace(result, curve=tuple(attempt.success for attempt in attempts))

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
        if self.config.dataset_name in (*wiring.PROGRAMMING, wiring.REPOSITORY):
            wiring.try_walls(self.dataset)
        embedders.load(self.config.embedder)
        learner(self.config.optimizer)
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
        found = wiring.load_dataset(self.config, data=self._data)
        self.there_are = Counter(task.split for task in found.tasks)
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
