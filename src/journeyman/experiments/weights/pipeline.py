"""From what was recorded, or from tasks, to a model that is served: one call.

pipeline = TrainingPipeline("my_agent", base_model="Qwen/Qwen2.5-1.5B-Instruct", method="kto")
results = pipeline.run_full_pipeline(deploy_ollama=True)
print(results["ollama_model"])

What it was asked for is kept with the run, so that it is gone on with wherever it was stopped.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from journeyman.agents import answer
from journeyman.agents.answer import Answer
from journeyman.agents.attempt import Attempt, attempt_all
from journeyman.core.errors import InputError, JourneymanError
from journeyman.core.playbook import Bullet
from journeyman.core.task import Split, Task
from journeyman.core.trace import Trace
from journeyman.experiments import wiring
from journeyman.experiments.compare import EvaluationReport
from journeyman.experiments.playbook.config import TrainingConfig as PlaybookConfig
from journeyman.experiments.playbook.training import OfflineTrainer
from journeyman.experiments.weights import run as runs
from journeyman.experiments.weights import settings as tasks
from journeyman.experiments.weights import settings as texts
from journeyman.experiments.weights.config import PipelineConfig, RunSettings
from journeyman.experiments.weights.data import DatasetPipeline, TraceSource
from journeyman.experiments.weights.run import WeightsRun
from journeyman.experiments.weights.training import AdapterEvaluation, RLTrainer, WeightsResult, WeightsWatcher
from journeyman.io.atomic import write_json
from journeyman.io.files import read_object
from journeyman.models.base import Dialect, ModelRequest
from journeyman.optimizers.playbook import files
from journeyman.optimizers.playbook.run import spoken
from journeyman.optimizers.weights import model_shape
from journeyman.optimizers.weights.adapters import Artifact, Form, keep
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.data import DatasetConfig
from journeyman.optimizers.weights.gguf import TYPES, ExportedFile, GGUFExporter
from journeyman.optimizers.weights.job import Ended, TrainingJob
from journeyman.optimizers.weights.llamacpp import Served, serve
from journeyman.optimizers.weights.metrics import cpu_seconds
from journeyman.optimizers.weights.ollama import OllamaDeployer, check_name
from journeyman.stores import open_store
from journeyman.stores.artifacts import Artifacts
from journeyman.tasks import desk
from journeyman.tasks.desk.world import Desk
from journeyman.tracing.importers.jsonl import line

DEFAULTS = TrainingConfig()
FILE = "pipeline.json"
"""In the run's folder: what was asked for, and, once all is done, what came of it."""
_UNPROVEN = "without tasks (--tasks) nothing can be proven"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What the served model said over OpenAI's protocol."""

    question: str
    reply: str
    url: str
    model: str


@dataclass(frozen=True, kw_only=True)
class PipelineResult:
    """Everything that was made. Read it as attributes, or by the names of its JSON."""

    asked: PipelineConfig
    training: Mapping[str, Any]
    """The training's result, by the names of its JSON."""
    trained: WeightsResult | None = None
    """The same; `None` when the training was over before the pipeline was gone on with."""
    exported: ExportedFile | None = None
    """`None` when nothing was learned, or what was learned did not pass."""
    ollama_model: str | None = None
    answered: Answered | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def done(self) -> bool:
        """Whether all that was asked for is there."""
        wanting = [self.exported is None]
        wanting += [self.ollama_model is None] if self.asked.deploy_ollama else []
        wanting += [self.answered is None] if self.asked.deploy_llamacpp else []
        return not any(wanting)

    def json(self) -> dict[str, Any]:
        file = self.exported
        answered = self.answered
        return {
            **self.training,
            "dataset": self.asked.dataset or None,
            "gguf": str(file.path) if file else None,
            "gguf_bytes": file.path.stat().st_size if file else None,
            "gguf_kl": file.cost.divergence if file and file.cost else None,
            "ollama_model": self.ollama_model,
            "answered": {"question": answered.question, "reply": answered.reply} if answered else None,
            "notes": list(self.notes),
        }

    def __getitem__(self, key: str) -> Any:
        return self.json()[key]

    def keys(self) -> KeysView[str]:
        return self.json().keys()


class TrainingPipeline:
    """Rows from an agent's traces (or tasks), training, proof, GGUF, and a server that answers."""

    def __init__(
        self,
        agent_name: str = "",
        base_model: str = DEFAULTS.base_model,
        method: str = DEFAULTS.method,
        *,
        config: TrainingConfig = DEFAULTS,
        settings: RunSettings | None = None,
        watcher: WeightsWatcher | None = None,
    ) -> None:
        """
        Args:
            agent_name: Whose traces are learned from, where no file of rows is named. Tasks are then only to prove it by.
            config: Everything else of the training; `base_model` and `method` go before it.
        """
        self.agent = agent_name
        self.config = replace(config, base_model=base_model, method=method)
        self.settings = settings or RunSettings()
        source = TraceSource(store=settings.store) if settings else None
        self.rows = DatasetPipeline(agent_name or None, source=source, config=DatasetConfig())
        """What builds rows of the agent's traces. Another may take its place before the run."""
        self._watcher = watcher or WeightsWatcher()

    def run_full_pipeline(
        self, deploy_ollama: bool = False, *, deploy_llamacpp: bool = False, quantization: str = "Q4_K_M", name: str = ""
    ) -> PipelineResult:
        """All of it. What does not pass the gate is neither exported nor deployed, unless the settings say `force`. What no
        tasks were named to prove it by is exported, and not deployed.

        Args:
            deploy_llamacpp: Serve the file with llama.cpp and let it answer a task, to see that it works; then stop it.
            name: Of the model in Ollama; the agent's, or the run's.

        Raises:
            InputError: There is nothing to learn from, or what is learned could not be exported or deployed so.
        """
        # What is wrong with the end of it is told at the beginning.
        if quantization not in TYPES:
            raise InputError(f"{quantization!r} is no type that can be exported as; there are {', '.join(TYPES)}")
        if deploy_ollama:
            check_name(name or self.agent or "of-a-run")
        asked = PipelineConfig(
            agent=self.agent,
            deploy_ollama=deploy_ollama,
            deploy_llamacpp=deploy_llamacpp,
            quantization=quantization,
            name=name,
        )
        if asked.deploys and not self.config.dataset_name and not self.settings.force:
            self._watcher.said(f"{_UNPROVEN}: what is learned will be exported, and deployed only with --force")
        dataset, config = self._dataset()
        asked = replace(asked, dataset=str(dataset or ""))
        trainer = RLTrainer(config, self.settings, watcher=self._watcher)
        run = trainer.begin()
        write_json(run.folder / FILE, {"asked": asdict(asked)})
        self._watcher.said(f"run {run.id}: {run.config.method} on {run.config.base_model}")
        return self._carried_out(run, asked)

    def resume(self, run_id: str | None = None) -> PipelineResult:
        """Go on with a pipeline as it was asked for: the newest that is not done, when none is named.

        Raises:
            InputError: There is no such pipeline, or nothing of it is left to do.
        """
        folder = find(run_id, self.settings)
        run = runs.opened(folder, self.settings)
        self.config, self.settings = run.config, run.settings
        asked = PipelineConfig.of(read_object(folder / FILE)["asked"])
        self.agent = asked.agent
        self._watcher.said(f"run {run.id}: {run.config.method} on {run.config.base_model}, gone on with")
        return self._carried_out(run, asked)

    def _carried_out(self, run: WeightsRun, asked: PipelineConfig) -> PipelineResult:
        try:
            if run.result.is_file():
                result = PipelineResult(asked=asked, training=read_object(run.result))
            else:
                trained = RLTrainer(run.config, run.settings, watcher=self._watcher).finish(run)
                result = PipelineResult(asked=asked, training=trained.json(), trained=trained)
            result = self._deployed(result)
        except BaseException:
            if run.folder.exists():
                self._watcher.said(f"stopped; go on with: journeyman pipeline weights --resume {run.id}")
            raise
        write_json(run.folder / FILE, {"asked": asdict(asked), "result": result.json()})
        return result

    def _dataset(self) -> tuple[Path | None, TrainingConfig]:
        """The rows that were built, and the config that learns from them."""
        config = self.config
        if config.data or (config.dataset_name and not self.agent):
            return (Path(config.data) if config.data else None), config
        if not self.agent:
            raise InputError("there is nothing to learn from: name an agent (--agent), tasks (--tasks) or rows (--data)")
        grouped = config.method in ("grpo", "grpo-offline", "dpo")
        named = spoken(self.agent, 200) or "agent"
        path = Path(self.settings.project) / "datasets" / f"{named}-{'grpo' if grouped else 'kto'}.jsonl"
        made = self.rows.build_grpo_dataset(path) if grouped else self.rows.build_kto_dataset(path)
        self._watcher.said(f"{len(made)} rows of {self.agent} in {path}")
        # Completions that were recorded earlier are not fresh, and learning from them as though they were is wrong.
        method = "grpo-offline" if config.method == "grpo" else config.method
        return path, replace(config, data=str(path), method=method)

    def _deployed(self, result: PipelineResult) -> PipelineResult:
        trained, asked = result.training, result.asked
        if trained["adapter"] is None:
            return result
        allowed = bool(trained["passed"]) or self.settings.force
        if not allowed and trained["evaluation"] is not None:
            return replace(result, notes=(f"neither exported nor deployed, as it did not pass: {trained['reason']}",))
        job = TrainingJob(Path(trained["folder"]))
        artifact = Artifact(path=Path(trained["adapter"]), form=Form.ADAPTER, run=job.folder)
        exporter = GGUFExporter(artifact.path, name=artifact.name, texts=list(texts.of_run(job)))
        export = exporter.export([asked.quantization], out=artifact.gguf(asked.quantization))
        file = export.files[0]
        self._watcher.said(f"{file.path} ({file.path.stat().st_size / 1e6:.1f} MB)")
        result = replace(result, exported=file, notes=export.notes)
        if not allowed:
            why = f"not deployed: {trained['reason']}; journeyman deploy … {trained['run_id']} --force deploys it all the same"
            return replace(result, notes=(*export.notes, why)) if asked.deploys else result
        return self._served(result, artifact, file.path)

    def _served(self, result: PipelineResult, artifact: Artifact, file: Path) -> PipelineResult:
        asked = result.asked
        if asked.deploy_llamacpp:
            with serve(file) as served:
                result = replace(result, answered=self._answered(served))
        if asked.deploy_ollama:
            deployed = OllamaDeployer().create_model(asked.name or asked.agent or artifact.name, file)
            self._watcher.said(f"in Ollama: ollama run {deployed.deployment.name}")
            result = replace(result, ollama_model=deployed.deployment.name)
            told = {"to": "ollama", "name": deployed.deployment.name, "url": deployed.deployment.url, "gguf": str(file)}
            artifact.note(told, force=self.settings.force)
        return result

    def _answered(self, served: Served) -> Answered:
        """A validation task's question, the longest, and the served model's answer; without tasks, what it was greeted with."""
        task = self._task()
        if task is None:
            return Answered(question=served.prompt, reply=served.reply, url=served.url, model=served.model)
        reply = asyncio.run(_ask(served, task, _dialect(self.config.base_model)))
        self._watcher.said(f"asked over {served.url}: {task.question}\nanswered: {reply}")
        return Answered(question=task.question, reply=reply, url=served.url, model=served.model)

    def _task(self) -> Task | None:
        if not self.config.dataset_name:
            return None
        found = tasks.load(self.config, held_out=1)
        # The longest has the most to get right.
        return max(found.split(Split.VALIDATION) or found.split(Split.TRAIN), key=lambda task: len(task.question), default=None)


def find(named: str | None, settings: RunSettings) -> Path:
    """The folder of a pipeline that is not done: the newest, when none is named.

    Raises:
        InputError: There is none.
    """
    there = Path(settings.project) / "runs"
    if named is not None:
        folder = runs.find(named, settings)
        if not (folder / FILE).is_file():
            raise InputError(f"{folder.name} is a training alone: go on with `journeyman train weights --resume {folder.name}`")
        if "result" in read_object(folder / FILE):
            raise InputError(f"the pipeline {folder.name} is done; begin another without --resume")
        return folder
    unfinished = [path for path in there.glob(f"*/{FILE}") if "result" not in read_object(path)]
    if not unfinished:
        raise InputError(f"there is no unfinished pipeline of weights in {there}; begin one without --resume")
    return max(unfinished, key=lambda path: path.stat().st_mtime_ns).parent


def _dialect(base_model: str) -> Dialect:
    """Which prompts the model reads; its own folder says."""
    folder = model_shape.folder_of(base_model)
    return "terse" if folder and read_object(folder / "config.json").get("dialect") == "terse" else "full"


async def _ask(served: Served, task: Task, dialect: Dialect) -> str:
    client = wiring.connect(f"openai:{served.model}", base_url=served.url, key_env="")
    try:
        messages = answer.answer(task, (), dialect)
        return (await client.complete(ModelRequest(messages=messages, temperature=0.0, max_tokens=256))).text
    finally:
        await client.close()


# The ways of learning side by side: one shop of the order desk, one model, the same held-out tasks.
#
# All but GRPO learn from the same recordings: attempts of an agent whose playbook is half learned, labelled by the desk. The
# bullets are taken out of the prompts before the weights learn from them. GRPO learns from attempts that the model makes while
# it learns.

TRACES = 500
"""Recorded attempts to learn from."""
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
        yield self._trained("offline GRPO", "grpo-offline", data=str(groups))
        grpo = grpo or self.grpo()
        yield grpo
        yield _timed("playbook + GRPO", partial(self._both, grpo.adapter))

    def collapses(self) -> Iterator[MethodResult]:
        """Trainings that must go wrong, and are to be stopped with the last good adapter kept."""
        labelled, groups = self._rows()
        yield self._trained("KTO, rate too high", "kto", data=str(labelled), learning_rate=2e-2)
        yield self._trained("GRPO, rate too high", "grpo", learning_rate=5e-2)
        yield self._trained("offline GRPO without ratios", "grpo-offline", data=str(groups), importance=False)

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
