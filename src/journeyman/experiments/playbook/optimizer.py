"""The playbook's way round the loop: learned in batches, examined by an agent with and without it."""

from dataclasses import replace

from journeyman.agents.answer import Answer, MakeAgent
from journeyman.agents.attempt import Attempt
from journeyman.core.candidate import Candidate
from journeyman.core.playbook import Playbook
from journeyman.core.task import Split
from journeyman.experiments import wiring
from journeyman.experiments.agents import AgentEvaluation, candidate_of
from journeyman.experiments.compare import EvaluationReport
from journeyman.experiments.evaluator import HeldOutEvaluator
from journeyman.experiments.loop import Finding, Unproven
from journeyman.experiments.playbook.config import TrainingConfig
from journeyman.experiments.run import Run
from journeyman.models import embedders
from journeyman.models.base import Model
from journeyman.models.embedders import Cached
from journeyman.optimizers.playbook.curator import Curator
from journeyman.optimizers.playbook.run import PlaybookRun as RunFolder
from journeyman.optimizers.playbook.run import Progress
from journeyman.optimizers.playbook.text_optimizer import learner
from journeyman.optimizers.playbook.trainer import Learned, TrainerTools, Watcher
from journeyman.stores import Store
from journeyman.tasks.base import Dataset


class PlaybookOptimizer:
    """Learns a playbook, with the models, data set and store of a run. Implements `experiments.loop.Optimizer`."""

    name = "playbook"

    def __init__(
        self,
        config: TrainingConfig,
        dataset: Dataset,
        folder: RunFolder,
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
        learned = await self.learner(tasks, self.folder, tools, self.config.learning, self.watcher)
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
            trials=self.config.trials,
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
        calls = 2 * self.config.trials * len(self.dataset.split(Split.HELD_OUT)) if self.config.evaluate else 0
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
