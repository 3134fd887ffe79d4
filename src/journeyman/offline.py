"""Training a playbook from a data set, wired from names: what `journeyman train playbook` runs.

    trainer = create_offline_trainer(dataset_name="desk", domain="oslo", num_examples=100)
    result = trainer.train()
    print(result.playbook_size, result["evaluation"]["gain"])

The names and options of the ACE offline trainer, which many come from, are kept; the rest is beyond it.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from journeyman import embed
from journeyman.agents.answer import Answer
from journeyman.candidate import BASE, Candidate, Kind
from journeyman.errors import InputError
from journeyman.evaluate import Report, evaluate_agents
from journeyman.gate import BetterOnHeldOut
from journeyman.improve import Turn, turn
from journeyman.learn.playbook import files
from journeyman.learn.playbook.choose import chooser
from journeyman.learn.playbook.curate import Curator
from journeyman.learn.playbook.progress import Progress
from journeyman.learn.playbook.runs import Run, newest_unfinished, write_json
from journeyman.learn.playbook.trainer import LearnConfig, Learned, Tools, Unwatched, Watcher, learn
from journeyman.models import load as load_model
from journeyman.models.base import Model
from journeyman.models.limit import connect
from journeyman.playbook import Batch, MoveTo, Playbook
from journeyman.release import Stage
from journeyman.task import Split, Task
from journeyman.tasks.base import Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """Everything that a training run can be told."""

    dataset_name: str = "gsm8k"
    """`gsm8k`, `custom` or `desk`."""
    dataset_split: str = "train"
    input_path: str = ""
    """The data set's file; `gsm8k` is downloaded when there is none."""
    held_out_path: str = ""
    """A file of held-out tasks; without one they are set apart from the data set by a hash of the question."""
    domain: str = ""
    """Only tasks of this domain. The desk's domains are its shops."""
    num_examples: int = 100
    generator_model: str = ""
    reflector_model: str = ""
    """The generator's when it is not named."""
    base_url: str = ""
    """Another server for models named without one."""
    batch_merge_size: int = 10
    similarity_threshold: float = 0.8
    embedder: str = "hashing"
    target_stage: Stage = Stage.SHADOW
    """Where the playbook should go when it passes the gate."""
    force: bool = False
    """Go there even when it does not pass; that is written down."""
    output_playbook_path: str = "playbooks/offline_trained.json"
    output_metrics_path: str = "metrics/offline_training_metrics.json"
    save_checkpoints: bool = True
    checkpoint_interval: int = 50
    """Examples between two checkpoints."""
    epochs: int = 1
    attempts: int = 1
    concurrency: int = 10
    reflect_on: str = "all"
    """`all` attempts or `failures`."""
    token_budget: int = 2000
    max_cost: float | None = None
    evaluate: bool = True
    held_out: int = 200
    """Held-out tasks of the final evaluation, at most."""
    trials: int = 1
    """Attempts at each of them."""
    seed: int = 0
    project: str = ".journeyman"
    """The folder of the store and of the runs."""

    def __post_init__(self) -> None:
        for name in ("num_examples", "batch_merge_size", "epochs", "attempts", "concurrency", "held_out", "trials"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}, and must be at least 1")
        if self.reflect_on not in ("all", "failures"):
            raise InputError(f"reflect_on is {self.reflect_on!r}, and must be 'all' or 'failures'")
        if Stage(self.target_stage) not in (Stage.SHADOW, Stage.PRODUCTION):
            raise InputError(f"target_stage is {self.target_stage!r}, and must be 'shadow' or 'production'")

    @property
    def models(self) -> tuple[str, str]:
        """Generator and reflector, with the defaults filled in."""
        generator = self.generator_model or ("embedded" if self.dataset_name == "desk" else "openai:gpt-5-mini")
        default = "openai:gpt-5-nano" if generator == "openai:gpt-5-mini" and not self.generator_model else generator
        return generator, self.reflector_model or default

    @property
    def learning(self) -> LearnConfig:
        return LearnConfig(
            batch_size=self.batch_merge_size,
            epochs=self.epochs,
            attempts=self.attempts,
            successes=self.reflect_on == "all",
            token_budget=self.token_budget,
            max_cost=self.max_cost,
            seed=self.seed,
        )


class _Readable:
    """Results are read as attributes, and as the documented JSON."""

    def json(self) -> dict[str, Any]:
        raise KeyError

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key) if hasattr(self, key) else self.json()[key]


@dataclass(frozen=True, kw_only=True)
class TrainingMetrics(_Readable):
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
class TrainingResult(_Readable):
    """How a training run ended."""

    run_id: str
    playbook: Playbook
    metrics: TrainingMetrics
    finished: bool
    """False when it stopped at `max_cost`; it can be resumed."""
    stage: Stage
    reason: str
    """The gate's sentence, or why the gate was not asked."""
    forced: bool
    evaluation: Report | None
    playbook_path: str
    metrics_path: str

    @property
    def playbook_size(self) -> int:
        return len(self.playbook.active)

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

    def __init__(self, config: TrainingConfig, *, watcher: Watcher | None = None) -> None:
        self.config = config
        self.watcher = watcher or Unwatched()
        self._custom_examples: Sequence[Task] | None = None
        """Training tasks to use instead of the data set's, as older programs set them."""

    @property
    def runs(self) -> Path:
        return Path(self.config.project) / "runs"

    def train(self, initial_playbook_path: str | Path | None = None) -> TrainingResult:
        """Train from the beginning, or from an existing playbook.

        Raises:
            InputError: A file or setting cannot be used; nothing was spent.
        """
        initial = files.load(initial_playbook_path) if initial_playbook_path else Playbook()
        dataset = self.dataset()
        config = {**settings(self.config), "tasks": _digest(dataset.tasks), "initial": files.digest(initial)}
        name = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:8]
        folder = self._fresh(f"{self.config.dataset_name}{'-' if self.config.domain else ''}{self.config.domain}-{name}")
        run = Run.begin(folder, {**config, "name": name}, initial, **self._checkpoints)
        return asyncio.run(self._finish(run, dataset))

    def resume(self, run_id: str | None = None) -> TrainingResult:
        """Go on with a run under its own settings: the newest that is not over, when none is named."""
        folder = self.runs / run_id if run_id else newest_unfinished(self.runs)
        if folder is None:
            raise InputError(f"there is no unfinished run in {self.runs}; begin one without --resume")
        if not (folder / "config.json").exists():
            names = ", ".join(sorted(path.parent.name for path in self.runs.glob("*/config.json"))) or "none"
            raise InputError(f"there is no run {folder.name!r} in {self.runs}; there are: {names}")
        saved = Run(folder)
        if saved.finished:
            raise InputError(f"the run {folder.name} is over; its playbook is {saved.config['output_playbook_path']}")
        known = {f.name for f in fields(TrainingConfig)}
        dials = {"max_cost": self.config.max_cost, "project": self.config.project}
        self.config = TrainingConfig(**{**{k: v for k, v in saved.config.items() if k in known}, **dials})
        dataset = self.dataset()
        if _digest(dataset.tasks) != saved.config["tasks"]:
            raise InputError(
                f"the data set of the run {folder.name} has changed since it began; restore it, or begin a new run"
            )
        return asyncio.run(self._finish(Run(folder, **self._checkpoints), dataset))

    def dataset(self) -> Dataset:
        """The tasks that training and the final evaluation use, in their splits."""
        found = load_dataset(self.config)
        if self._custom_examples is not None:
            learned = {task.question for task in self._custom_examples}
            rest = [task for task in found.tasks if task.split is Split.HELD_OUT and task.question not in learned]
            return replace(found, tasks=(*self._custom_examples, *rest))
        train = [task for task in found.tasks if task.split is Split.TRAIN][: self.config.num_examples]
        held_out = [task for task in found.tasks if task.split is Split.HELD_OUT][: self.config.held_out]
        if not train:
            raise InputError(f"the data set {self.config.dataset_name!r} has no training tasks{self._of_domain}")
        return replace(found, tasks=(*train, *held_out))

    @property
    def _of_domain(self) -> str:
        return f" of domain {self.config.domain!r}" if self.config.domain else ""

    @property
    def _checkpoints(self) -> dict[str, Any]:
        return {"checkpoint_interval": self.config.checkpoint_interval if self.config.save_checkpoints else 0}

    def _fresh(self, name: str) -> Path:
        """A folder for a new run; one of the same settings gets a number behind its name."""
        number, folder = 1, self.runs / name
        while folder.exists():
            number, folder = number + 1, self.runs / f"{name}-{number + 1}"
        return folder

    async def _finish(self, run: Run, dataset: Dataset) -> TrainingResult:
        """Train from where the run is to its end, evaluate, decide, and write everything down."""
        started = app.now()
        generator, reflector = (
            app.connect(name, concurrency=self.config.concurrency, base_url=self.config.base_url) for name in self.config.models
        )
        try:
            bench = _Bench(self.config, run, dataset, generator, reflector, self.watcher)
            learned, went = await bench.go_round()
        finally:
            await generator.close()
            await reflector.close()
        return self._write(run, learned, went, bench, started)

    def _write(self, run: Run, learned: Learned, went: Turn | None, bench: "_Bench", started: datetime) -> TrainingResult:
        """The playbook with its stage, the metrics, and, when the run is over, its result."""
        passed = bool(went and went.decision and went.decision.passed)
        forced = self.config.force and not passed
        wanted = Stage(self.config.target_stage)
        stage = wanted if passed or forced else Stage.SHADOW
        moves = tuple(MoveTo(bullet_id=bullet.id, stage=stage) for bullet in learned.playbook.active)
        playbook = replace(
            learned.playbook.apply(Batch(id=f"{bench.name}/stage-{stage.value}", deltas=moves, at=bench.stamp)),
            created_at=bench.stamp,
            training_config=bench.trained_with(forced=forced),
        )
        files.save(playbook, self.config.output_playbook_path)
        metrics = TrainingMetrics(progress=learned.progress, playbook=playbook, started_at=started, ended_at=app.now())
        write_json(Path(self.config.output_metrics_path), metrics.json())
        result = TrainingResult(
            run_id=run.folder.name,
            playbook=playbook,
            metrics=metrics,
            finished=learned.finished,
            stage=stage,
            reason=_why(self.config, learned, went),
            forced=forced,
            evaluation=went.evaluation if went else None,
            playbook_path=self.config.output_playbook_path,
            metrics_path=self.config.output_metrics_path,
        )
        if learned.finished:
            run.finish(result.json())
        return result


class _Bench:
    """One run with its models and its data set: where the loop goes round."""

    def __init__(
        self, config: TrainingConfig, run: Run, dataset: Dataset, models: tuple[Model, Model], watcher: Watcher
    ) -> None:
        self.config = config
        self.run = run
        self.dataset = dataset
        self.generator, self.reflector = models
        self.watcher = watcher
        self.name = str(run.config["name"])
        self.stamp = app.stamp(*models)
        self.embedder = embed.load(config.embedder)

    async def go_round(self) -> tuple[Learned, Turn | None]:
        """Learn to the end, then let the gate look at what was learned; without a gate if none was asked for."""
        if not self.config.evaluate:
            return await self._learn(), None
        learned: list[Learned] = []

        async def learning(_: Candidate | None) -> Candidate | None:
            learned.append(await self._learn())
            return _candidate(learned[0].playbook) if learned[0].finished else None

        went = await turn(
            _candidate(self.run.initial),
            learn=learning,
            evaluate=lambda new, old: self._evaluate(new, old, learned[0].playbook),
            gate=self.gate,
            clock=app.now,
        )
        return learned[0], went

    async def _learn(self) -> Learned:
        tools = Tools(
            generator=self.generator,
            reflector=self.reflector,
            verifier=self.dataset.verifier,
            curator=Curator(self.embedder, self.config.similarity_threshold),
            embedder=self.embedder,
            clock=app.now,
            stamp=lambda: self.stamp,
            name=self.name,
        )
        return await learn(self.dataset.split(Split.TRAIN), self.run, tools, self.config.learning, self.watcher)
