"""From what was recorded, or from tasks, to a model that is served: one call.

pipeline = TrainingPipeline("my_agent", base_model="Qwen/Qwen2.5-1.5B-Instruct", method="kto")
results = pipeline.run_full_pipeline(deploy_ollama=True)
print(results["ollama_model"])
"""

import asyncio
import re
from collections.abc import KeysView
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from journeyman import app
from journeyman.agents import prompts
from journeyman.errors import InputError
from journeyman.learn.weights.artifacts import Artifact, Form
from journeyman.learn.weights.config import TrainingConfig
from journeyman.learn.weights.data import DatasetConfig
from journeyman.learn.weights.gguf import TYPES, Exported, GGUFExporter
from journeyman.learn.weights.llamacpp import Served, serve
from journeyman.learn.weights.modelfile import check_name
from journeyman.learn.weights.ollama import OllamaDeployer
from journeyman.models.base import Dialect, Request
from journeyman.task import Split, Task
from journeyman.weights.datasets import DatasetPipeline
from journeyman.weights.results import WeightsResult
from journeyman.weights.settings import RunSettings
from journeyman.weights.training import RLTrainer, Watcher

DEFAULTS = TrainingConfig()


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

    trained: WeightsResult
    dataset: Path | None = None
    """The file of rows; `None` when it learned from tasks."""
    exported: Exported | None = None
    """`None` when nothing was learned, or what was learned did not pass."""
    ollama_model: str | None = None
    answered: Answered | None = None
    notes: tuple[str, ...] = field(default=())

    def json(self) -> dict[str, Any]:
        file = self.exported
        answered = self.answered
        return {
            **self.trained.json(),
            "dataset": str(self.dataset) if self.dataset else None,
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
        watcher: Watcher | None = None,
    ) -> None:
        """
        Args:
            agent_name: Whose traces are learned from, where no tasks and no file of rows are named.
            config: Everything else of the training; `base_model` and `method` go before it.
        """
        self.agent = agent_name
        self.config = replace(config, base_model=base_model, method=method)
        self.settings = settings or RunSettings()
        self.rows = DatasetPipeline(agent_name or None, config=DatasetConfig())
        """What builds rows of the agent's traces. Another may take its place before the run."""
        self._watcher = watcher or Watcher()

    def run_full_pipeline(
        self, deploy_ollama: bool = False, *, deploy_llamacpp: bool = False, quantization: str = "Q4_K_M", name: str = ""
    ) -> PipelineResult:
        """All of it. What does not pass the gate is neither exported nor deployed, unless the settings say `force`.

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
        dataset, config = self._dataset()
        trainer = RLTrainer(config, self.settings, watcher=self._watcher)
        run = trainer.begin()
        self._watcher.said(f"run {run.id}: {run.config.method} on {run.config.base_model}")
        return self._deployed(
            PipelineResult(trained=trainer.finish(run), dataset=dataset), deploy_ollama, deploy_llamacpp, quantization, name
        )

    def _dataset(self) -> tuple[Path | None, TrainingConfig]:
        """The rows that were built, and the config that learns from them."""
        config = self.config
        if config.data or config.dataset_name:
            return (Path(config.data) if config.data else None), config
        if not self.agent:
            raise InputError("there is nothing to learn from: name an agent (--agent), tasks (--tasks) or rows (--data)")
        grouped = config.method in ("grpo", "grpo-offline", "dpo")
        named = re.sub(r"[^\w.-]+", "-", self.agent).strip("-.") or "agent"
        path = Path(self.settings.project) / "datasets" / f"{named}-{'grpo' if grouped else 'kto'}.jsonl"
        made = self.rows.build_grpo_dataset(path) if grouped else self.rows.build_kto_dataset(path)
        self._watcher.said(f"{len(made)} rows of {self.agent} in {path}")
        # Completions that were recorded earlier are not fresh, and learning from them as though they were is wrong.
        method = "grpo-offline" if config.method == "grpo" else config.method
        return path, replace(config, data=str(path), method=method)

    def _deployed(self, result: PipelineResult, ollama: bool, llamacpp: bool, quantization: str, name: str) -> PipelineResult:
        trained = result.trained
        if trained.adapter is None:
            return result
        if not trained.passed and not self.settings.force:
            return replace(result, notes=(f"neither exported nor deployed, as it did not pass: {trained.reason}",))
        artifact = Artifact(path=trained.adapter, form=Form.ADAPTER, run=trained.folder)
        export = GGUFExporter(artifact.path, name=artifact.name).export([quantization], out=artifact.gguf(quantization))
        file = export.files[0]
        self._watcher.said(f"{file.path} ({file.path.stat().st_size / 1e6:.1f} MB)")
        result = replace(result, exported=file, notes=export.notes)
        if llamacpp:
            with serve(file.path) as served:
                result = replace(result, answered=self._asked(served))
        if ollama:
            deployed = OllamaDeployer().create_model(name or self.agent or trained.run_id, file.path)
            self._watcher.said(f"in Ollama: ollama run {deployed.plan.name}")
            result = replace(result, ollama_model=deployed.plan.name)
            told = {"to": "ollama", "name": deployed.plan.name, "url": deployed.plan.url, "gguf": str(file.path)}
            artifact.note(told, force=self.settings.force)
        return result

    def _asked(self, served: Served) -> Answered:
        """A validation task's question and the served model's answer; without tasks, what it was greeted with."""
        task = self._task()
        if task is None:
            return Answered(question=served.prompt, reply=served.reply, url=served.url, model=served.model)
        reply = asyncio.run(_ask(served, task, "terse" if self.config.base_model.startswith("embedded") else "full"))
        self._watcher.said(f"asked over {served.url}: {task.question}\nanswered: {reply}")
        return Answered(question=task.question, reply=reply, url=served.url, model=served.model)

    def _task(self) -> Task | None:
        from journeyman.weights import tasks

        if not self.config.dataset_name:
            return None
        found = tasks.load(self.config, held_out=1)
        return next(iter(found.split(Split.VALIDATION) or found.split(Split.TRAIN)), None)


async def _ask(served: Served, task: Task, dialect: Dialect) -> str:
    client = app.connect(f"openai:{served.model}", base_url=served.url, key_env="")
    try:
        messages = prompts.answer(task, (), dialect)
        return (await client.complete(Request(messages=messages, temperature=0.0, max_tokens=256))).text
    finally:
        await client.close()
