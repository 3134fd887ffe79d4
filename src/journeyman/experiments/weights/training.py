"""Training weights from beginning to end: train in a process of its own, prove on held-out tasks, write down.

trainer = RLTrainer(TrainingConfig(base_model="embedded:base", dataset_name="desk", domain="oslo"))
trainer.setup()
result = trainer.train()
trainer.save_model(merge_lora=True)
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from journeyman.core.candidate import Candidate
from journeyman.core.errors import InputError
from journeyman.core.playbook import Playbook
from journeyman.core.release import Stage
from journeyman.core.task import Split
from journeyman.experiments import wiring
from journeyman.experiments.agents import AgentEvaluation
from journeyman.experiments.compare import EvaluationReport
from journeyman.experiments.evaluator import HeldOutEvaluator
from journeyman.experiments.loop import Finding, Iteration, Unproven, improve
from journeyman.experiments.release_policy import ReleasePolicy
from journeyman.experiments.run import Run as TrackedRun
from journeyman.experiments.run import blocking
from journeyman.experiments.weights import run as launching
from journeyman.experiments.weights import run as runs
from journeyman.experiments.weights import settings as tasks
from journeyman.experiments.weights.config import RunSettings
from journeyman.experiments.weights.run import WeightsRun, prepare
from journeyman.models import embedders
from journeyman.models.base import Model
from journeyman.models.embedders import Cached
from journeyman.optimizers.playbook import files
from journeyman.optimizers.weights.adapters import keep, read_trained_on
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.data import read
from journeyman.optimizers.weights.job import Ended, TrainingReport, launch
from journeyman.optimizers.weights.rows import Row, row_of
from journeyman.stores import Store, open_store
from journeyman.stores.artifacts import Artifacts
from journeyman.tasks.base import Dataset

# Is a model better with what was learned in its weights? Both attempt the same held-out tasks, and the gate decides.


def model_name(base_model: str, adapter: str = "") -> str:
    """What a base model of a training is called after `--model`, with an adapter on it where one is named."""
    plain = base_model if base_model.partition(":")[0] in ("embedded", "local") else f"local:{base_model}"
    if plain == "embedded":
        plain = "embedded:base"
    return f"{plain}+{adapter}" if adapter else plain


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterEvaluation:
    """Base model against base model with adapter, under the same playbook on both sides."""

    base_model: str
    adapter: str
    """Its folder."""
    start_adapter: str = ""
    """The folder of the adapter that it went on from: what it must be better than."""
    candidate: Candidate
    context: str = ""
    """The file of the playbook, where there is one."""
    bare_baseline: bool = False
    """Leave the playbook out on the other side: it is examined together with the weights."""
    settings: RunSettings

    async def examine(
        self, dataset: Dataset, store: Store, *, id: str, done: Callable[[int, int], None] = lambda _, __: None
    ) -> EvaluationReport:
        """Let both attempt the held-out tasks, ask the gate, and keep what was found. The look is counted.

        Args:
            id: Of the run; part of the evaluation's.
            done: Is told after each attempt how many are done, and of how many.
        """
        before = wiring.connect(model_name(self.base_model, self.start_adapter))
        after = wiring.connect(model_name(self.base_model, self.adapter))
        playbook = files.load(self.context) if self.context else Playbook()
        evaluation = AgentEvaluation(
            evaluator=HeldOutEvaluator(store=store),
            model=after,
            rival=before,
            weights=self.candidate,
            dataset=dataset,
            embedder=Cached(embedders.load("hashing")),
            gate=self.settings.gate,
            attempts_per_task=self.settings.attempts_per_task,
            # As its folder says, so that whoever examines it cannot forget to.
            trained_on=read_trained_on(Path(self.adapter)),
        )
        try:
            against = Playbook() if self.bare_baseline else playbook
            return await evaluation.evaluate(playbook, against, id=id, done=done, resumed=True)
        finally:
            await _closed((before, after))


async def _closed(models: Sequence[Model]) -> None:
    for model in models:
        await model.close()


def provable(dataset: Dataset) -> bool:
    """Whether there are held-out tasks to examine on."""
    return bool(dataset.split(Split.HELD_OUT))


# How a training of weights ended.


@dataclass(frozen=True, kw_only=True)
class WeightsResult:
    """What was learned, and what the gate made of it. Read it as attributes, or by the names of its JSON."""

    run_id: str
    folder: Path
    adapter: Path | None
    """The folder of the adapter; `None` when nothing was learned."""
    candidate_id: str | None
    trained: TrainingReport
    evaluation: EvaluationReport | None
    """`None` when there were no held-out tasks, or nobody asked."""
    earlier: dict[str, EvaluationReport] = field(default_factory=dict)
    """By domain, what the adapter does to tasks that were learned before."""
    stage: Stage
    forced: bool
    reason: str
    """The gate's sentence, or why it was not asked."""

    @property
    def passed(self) -> bool:
        return self.evaluation is not None and self.evaluation.passed

    @property
    def healthy(self) -> bool:
        """Whether no guard had to stop the training."""
        return self.trained.ended is not Ended.GUARDED

    def json(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "folder": str(self.folder),
            "adapter": str(self.adapter) if self.adapter else None,
            "candidate_id": self.candidate_id,
            "ended": self.trained.ended.value,
            "trained": self.trained.json(),
            "evaluation": self.evaluation.json() if self.evaluation else None,
            "earlier": {domain: report.json() for domain, report in self.earlier.items()},
            "passed": self.passed,
            "stage": self.stage.value,
            "forced": self.forced,
            "reason": self.reason,
        }

    def __getitem__(self, key: str) -> Any:
        return self.json()[key]

    def keys(self) -> KeysView[str]:
        """With `[]`, this makes `dict(result)` the JSON."""
        return self.json().keys()


log = logging.getLogger(__name__)

Metrics = Mapping[str, Any]
Rows = str | Path | Iterable[Row | Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsWatcher:
    """Who is told how it goes."""

    metrics: Callable[[Metrics], None] = lambda _: None
    """After each update."""
    trained: Callable[[TrainingReport], None] = lambda _: None
    examined: Callable[[int, int], None] = lambda _, __: None
    """After each attempt of the examination: how many are done, of how many."""
    said: Callable[[str], None] = lambda _: None
    """Each step of a pipeline, in a line."""


class RLTrainer:
    """Trains an adapter, proves it on held-out tasks, and writes it down."""

    def __init__(
        self, config: TrainingConfig, settings: RunSettings | None = None, *, watcher: WeightsWatcher | None = None
    ) -> None:
        self.config = config
        self.settings = settings or RunSettings()
        self.watcher = watcher or WeightsWatcher()
        self.run: WeightsRun | None = None
        self._rows: Sequence[Row] | None = None

    def setup(self) -> None:
        """Check everything and make the folder of the run. Nothing is trained yet.

        Where the config names neither tasks nor rows, `train` is given the rows, and only the rest is checked here.

        Raises:
            InputError: A file or setting cannot be used, or the training will not fit into memory.
        """
        if self.config.data or self.config.dataset_name or self._rows is not None:
            self.begin()
        else:
            prepare(self.config)

    def begin(self) -> WeightsRun:
        """Check everything, and make the folder of the run.

        Raises:
            InputError: A file or setting cannot be used, or there is nothing to learn from.
        """
        self.run = runs.begin(self.config, self.settings, rows=self._rows)
        return self.run

    def train(self, dataset: Rows | None = None) -> WeightsResult:
        """Train to the end, and let the gate look at it.

        Args:
            dataset: Rows to learn from, or their file, instead of those that the config names. They were recorded earlier, so
                `grpo` becomes `grpo-offline`: to train on them as though they were fresh is wrong.
        """
        if dataset is not None:
            self._rows, self.run = _rows(dataset), None
            if self.config.method == "grpo":
                log.warning("these completions were recorded earlier: the method is grpo-offline")
                self.config = replace(self.config, method="grpo-offline")
        return self.finish(self.run or self.begin())

    def resume(self, run_id: str | None = None) -> WeightsResult:
        """Go on with a run under its own settings: the newest that is not over, when none is named."""
        self.run = runs.reopen(run_id, self.settings)
        return self.finish(self.run)

    def save_model(self, merge_lora: bool = True, path: str | Path | None = None) -> Path:
        """The trained model as a folder: merged into the base model, or the adapter as it is.

        Raises:
            InputError: Nothing was trained yet.
        """
        if self.run is None or not (self.run.job.adapter / "adapter_config.json").is_file():
            raise InputError("there is nothing to save: train first")
        if not merge_lora:
            return self.run.job.adapter
        from journeyman.optimizers.weights.merge import merge

        target = Path(path) if path else self.run.folder / "merged"
        if path is not None or not target.exists():
            merge(self.run.job.adapter, target, base=self.run.config.base_model)
        return target

    def finish(self, run: WeightsRun) -> WeightsResult:
        """Train from where the run is to its end, evaluate, decide, and write everything down."""
        self.run, self.config = run, run.config
        with open_store(self.settings.store) as store:
            tracked = TrackedRun(id=run.id, kind="train weights", config=run.config.json(), store=store)
            optimizer = WeightsOptimizer(run, self.watcher)
            with tracked.tracked():
                iteration = blocking(
                    improve(
                        optimizer,
                        baseline=None,
                        run=tracked,
                        evaluate=partial(optimizer.evaluate, store=store),
                        releases=ReleasePolicy(target=run.settings.target_stage, force=run.settings.force),
                    )
                )
                result = optimizer.result(iteration)
                tracked.end(result.json())
        # Last: a run that is killed before is gone on with, and records what is not recorded yet.
        run.finish(result.json())
        return result


class WeightsOptimizer:
    """Trains an adapter in a process of its own. Implements `experiments.loop.Optimizer`; none of its steps waits."""

    name = "weights"

    def __init__(self, run: WeightsRun, watcher: WeightsWatcher) -> None:
        self._run, self._watcher = run, watcher
        self._trained: TrainingReport
        self._examined: dict[str, EvaluationReport] = {}
        """By domain."""

    async def optimize(self, baseline: Candidate | None, run: TrackedRun) -> Candidate | None:
        """Train from where the run is to its end."""
        self._trained = self._run.job.report or self._launched()
        self._watcher.trained(self._trained)
        if not self._trained.kept_step:
            return None
        self._run.note_trained_on()
        return keep(self._run.job.adapter, Artifacts(Path(self._run.settings.artifacts)))

    async def evaluate(self, candidate: Candidate, baseline: Candidate | None, *, store: Store) -> Finding:
        """The examination, and by domain those on what was learned before."""
        run = self._run
        if run.config.environment:
            return Unproven(
                f"not proven: the gate's agent does not act in {run.config.environment}; examine it with an agent that does"
            )
        if run.dataset is None:
            return Unproven("not proven: no tasks were named (--tasks)")
        if not run.settings.evaluate or not provable(run.dataset):
            return Unproven("not evaluated, so not proven")
        self._examined = asyncio.run(self._prove(candidate, store))
        return self._examined[run.config.domain]

    def result(self, iteration: Iteration) -> WeightsResult:
        """All of what came of it."""
        run, trained, learned = self._run, self._trained, iteration.candidate
        earlier = {domain: report for domain, report in self._examined.items() if domain != run.config.domain}
        return WeightsResult(
            run_id=run.id,
            folder=run.folder,
            adapter=run.job.adapter if learned else None,
            candidate_id=learned.id if learned else None,
            trained=trained,
            evaluation=self._examined.get(run.config.domain),
            earlier=earlier,
            stage=iteration.stage,
            forced=iteration.forced,
            reason=iteration.reason if learned else f"{iteration.reason}: {_why_nothing(trained)}",
        )

    def _launched(self) -> TrainingReport:
        command = launching.command(self._run.settings, self._run.folder)
        try:
            return launch(self._run.job, command=command, on_metrics=self._watcher.metrics)
        except InputError:
            self._run.forget()
            raise

    async def _prove(self, candidate: Candidate, store: Store) -> dict[str, EvaluationReport]:
        run = self._run
        proof = AdapterEvaluation(
            base_model=run.config.base_model,
            adapter=str(run.job.adapter),
            start_adapter=run.config.start_adapter,
            candidate=candidate,
            context=run.config.context,
            settings=run.settings,
        )
        found = {}
        for domain in (run.config.domain, *runs.earlier_domains(run.config, run.settings)):
            dataset = tasks.load(replace(run.config, domain=domain), run.settings.held_out)
            found[domain] = await proof.examine(dataset, store, id=run.id, done=self._watcher.examined)
        return found


def _why_nothing(report: TrainingReport) -> str:
    if report.ended is Ended.GUARDED or report.validation_before is None:
        return report.reason
    return (
        f"in {report.steps} updates no checkpoint did better on the validation tasks than the model as it was "
        f"({report.validation_before:.3f}); more updates, or another learning rate, may"
    )


def _rows(dataset: Rows) -> list[Row]:
    """Rows of any of the forms that a program may have them in.

    Raises:
        InputError: One is no row.
    """
    if isinstance(dataset, str | Path):
        return list(read(dataset))
    found: list[Row] = []
    for number, row in enumerate(dataset, start=1):
        try:
            found.append(row_of(row) if isinstance(row, Mapping) else row)
        except ValueError as error:
            raise InputError(f"row {number} {error}") from None
    return found
