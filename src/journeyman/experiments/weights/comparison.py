"""The ways of learning side by side: one shop of the order desk, one model, the same held-out tasks.

KTO, DPO and rejection sampling learn from the same recordings: attempts of an agent whose playbook is half learned,
labelled by the desk. The bullets are taken out of the prompts before the weights learn from them. Offline GRPO learns from
attempts that the model made before it began to learn, GRPO from those it makes while it learns.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from journeyman.agents.answer import Answer
from journeyman.agents.attempt import Attempt, attempt_all
from journeyman.core.errors import JourneymanError
from journeyman.core.playbook import Bullet
from journeyman.core.task import Split, Task
from journeyman.core.trace import Trace
from journeyman.experiments import wiring
from journeyman.experiments.compare import EvaluationReport
from journeyman.experiments.playbook.config import TrainingConfig as PlaybookConfig
from journeyman.experiments.playbook.training import OfflineTrainer
from journeyman.experiments.weights.config import RunSettings
from journeyman.experiments.weights.data import DatasetPipeline, TraceSource
from journeyman.experiments.weights.training import AdapterEvaluation, RLTrainer, WeightsResult, WeightsWatcher
from journeyman.optimizers.playbook import files
from journeyman.optimizers.weights.adapters import keep
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.data import DatasetConfig
from journeyman.optimizers.weights.job import Ended
from journeyman.optimizers.weights.metrics import cpu_seconds
from journeyman.stores import open_store
from journeyman.stores.artifacts import Artifacts
from journeyman.tasks import desk
from journeyman.tasks.desk.world import Desk
from journeyman.tracing.importers.jsonl import line

TRACES = 500
"""Recorded attempts that KTO, DPO and rejection sampling learn from."""
KEPT = 0.8
"""Of the playbook's bullets, each stands in a recorded prompt that often."""
AT_EACH = 4
"""Attempts at one task, for groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodResult:
    """One way of learning."""

    name: str
    right: float | None
    """Share of the held-out tasks."""
    gain: float | None
    low: float | None
    high: float | None
    """95 % interval of the gain over the model as it came."""
    passed: bool
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of everything that it took, the examination too."""
    note: str = ""
    adapter: str = ""
    """The folder of what was learned in the weights."""

    def json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A shop, a model, and where it happens."""

    folder: Path
    """Of the project that it makes."""
    domain: str = "oslo"
    base_model: str = "embedded:base"
    held_out: int = 200
    seed: int = 0
    watcher: WeightsWatcher = field(default_factory=WeightsWatcher)

    def lines(self, grpo: MethodResult | None = None) -> Iterator[MethodResult]:
        """Each as soon as it is done, the cheap ones first.

        Args:
            grpo: GRPO's, where it was trained here already.
        """
        yield self.learn_playbook()
        labelled, groups = self._rows()
        yield self._trained("rejection sampling", "rft", data=str(labelled))
        yield self.kto()
        yield self._trained("DPO", "dpo", data=str(groups))
        yield self._trained("offline GRPO", "grpo-offline")
        grpo = grpo or self.grpo()
        yield grpo
        yield _timed("playbook + GRPO", partial(self._both, grpo.adapter))

    def collapses(self) -> Iterator[MethodResult]:
        """Trainings that must go wrong, and are to be stopped with the last good adapter kept."""
        labelled, _ = self._rows()
        yield self._trained("KTO, rate too high", "kto", data=str(labelled), learning_rate=2e-2)
        yield self._trained("GRPO, rate too high", "grpo", learning_rate=5e-2)
        yield self._trained("offline GRPO without ratios", "grpo-offline", importance=False)

    def learn_playbook(self) -> MethodResult:
        """What the context alone can do; recordings are of an agent that has learned a part of it."""
        return _timed("playbook", self._playbook)

    def kto(self) -> MethodResult:
        return self._trained("KTO", "kto", data=str(self._rows()[0]))

    def grpo(self) -> MethodResult:
        return self._trained("GRPO", "grpo")

    @property
    def settings(self) -> RunSettings:
        return RunSettings(
            held_out=self.held_out,
            project=str(self.folder),
            store=str(self.folder / "journeyman.db"),
            artifacts=str(self.folder / "artifacts"),
        )

    def train(self, method: str, **more: Any) -> WeightsResult:
        """Train by a method, with the defaults that anybody gets."""
        config = TrainingConfig(
            base_model=self.base_model, method=method, dataset_name="desk", domain=self.domain, seed=self.seed, **more
        )
        return RLTrainer(config, self.settings, watcher=self.watcher).train()

    def _trained(self, name: str, method: str, **more: Any) -> MethodResult:
        return _timed(name, lambda: of_result(name, self.train(method, **more)))

    @property
    def _learned(self) -> Path:
        return self.folder / f"{self.domain}.json"

    def _playbook(self) -> MethodResult:
        config = PlaybookConfig(
            dataset_name="desk",
            domain=self.domain,
            held_out=self.held_out,
            generator_model=self.base_model,
            output_playbook_path=str(self._learned),
            output_metrics_path=str(self.folder / f"{self.domain}.metrics.json"),
            project=str(self.folder),
            store=str(self.folder / "journeyman.db"),
            seed=self.seed,
        )
        return _line("playbook", OfflineTrainer(config).train().evaluation)

    def _both(self, adapter: str) -> MethodResult:
        """The playbook and the weights of GRPO together, against the model as it came with neither."""
        if not adapter:
            raise JourneymanError("GRPO learned nothing that a playbook could stand beside")
        with open_store(self.settings.store) as store:
            proof = AdapterEvaluation(
                base_model=self.base_model,
                adapter=adapter,
                candidate=keep(Path(adapter), Artifacts(self.folder / "artifacts")),
                context=str(self._learned),
                bare_baseline=True,
                settings=self.settings,
            )
            sizes = {Split.HELD_OUT: self.held_out}
            dataset = desk.load(self.domain, sizes=sizes, seed=self.seed)
            return _line("playbook + GRPO", asyncio.run(proof.examine(dataset, store, id="both")))

    def _rows(self) -> tuple[Path, Path]:
        """Recorded attempts as rows for KTO, and as groups of attempts at one task."""
        labelled, groups = self.folder / "kto.jsonl", self.folder / "groups.jsonl"
        if not labelled.exists():
            traces = self.folder / "traces.jsonl"
            traces.write_text("".join(f"{line(trace)}\n" for trace in self._recorded()), encoding="utf-8")
            pipeline = DatasetPipeline(source=TraceSource(files=(traces,)), config=DatasetConfig(context="drop"))
            pipeline.build_kto_dataset(labelled)
            pipeline.build_grpo_dataset(groups)
        return labelled, groups

    def _recorded(self) -> Iterator[Trace]:
        """What an agent did whose playbook is half learned."""
        bullets = files.load(self._learned).active if self._learned.exists() else ()
        chance = random.Random(self.seed)
        sizes = {Split.TRAIN: TRACES // AT_EACH}
        found = desk.load(self.domain, sizes=sizes, seed=self.seed).tasks
        model = wiring.connect(self.base_model)

        def some(_: Task) -> Sequence[Bullet]:
            return tuple(bullet for bullet in bullets if chance.random() < KEPT)

        async def attempts() -> list[Attempt]:
            done: list[Attempt] = []
            for number in range(AT_EACH):
                agent = Answer(model=model, choose=some, temperature=1.0, seed=self.seed * AT_EACH + number)
                done += await attempt_all(agent, found, Desk(), prefix=f"recorded/{number}", clock=wiring.now)
            await model.close()
            return done

        for attempt in asyncio.run(attempts()):
            yield replace(attempt.trace, rewards=attempt.score.rewards, agent="clerk", input=attempt.task.question)


def of_result(name: str, result: WeightsResult) -> MethodResult:
    """What a training came to. The time is that of its updates alone."""
    trained = result.trained
    line = _line(name, result.evaluation, trained.reason if trained.ended is Ended.GUARDED else "")
    adapter = str(result.adapter) if result.adapter else ""
    return replace(line, adapter=adapter, seconds=trained.seconds, cpu_seconds=trained.cpu_seconds)


def _line(name: str, report: EvaluationReport | None, note: str = "") -> MethodResult:
    return MethodResult(
        name=name,
        right=report.candidate if report else None,
        gain=report.gain if report else None,
        low=report.low if report else None,
        high=report.high if report else None,
        passed=bool(report and report.passed),
        note=note,
    )


def _timed(name: str, work: Callable[[], MethodResult]) -> MethodResult:
    """What a way of learning came to, and what all of it took."""
    started, cpu = time.monotonic(), cpu_seconds()
    try:
        line = work()
    except JourneymanError as error:
        line = _line(name, None, str(error))
    return replace(line, seconds=round(time.monotonic() - started, 1), cpu_seconds=round(cpu_seconds() - cpu, 1))
