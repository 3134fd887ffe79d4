"""What all methods of training weights promise, kept by real trainings of the smallest embedded model."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra: pip install 'journeyman[weights]'")

import torch
from transformers import TrainerCallback

from journeyman.agents import answer
from journeyman.core.task import Split, Task
from journeyman.experiments.weights.__main__ import TaskJudge
from journeyman.optimizers.weights.adapters import save_adapter
from journeyman.optimizers.weights.config import METHODS, TrainingConfig
from journeyman.optimizers.weights.job import TrainingJob as Job
from journeyman.optimizers.weights.rows import CompletionGroup as Group
from journeyman.optimizers.weights.rows import LabelledCompletion as Labelled
from journeyman.optimizers.weights.rows import Row
from journeyman.optimizers.weights.rows import TextOrMessages as Said
from journeyman.optimizers.weights.train import TrainingSetup as Work
from journeyman.optimizers.weights.train import run
from journeyman.optimizers.weights.train.run import _METHODS
from journeyman.tasks import desk

pytestmark = pytest.mark.training

STEPS = 3


class Watched(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    def __init__(self) -> None:
        self.logs: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if logs and "loss" in logs:
            self.logs.append(dict(logs))


class Trained:
    """One training, and what it changed."""

    def __init__(self, method: str, folder: Path, start: str = "", seed: int = 0) -> None:
        config = TrainingConfig(
            base_model="embedded:small",
            method=method,
            per_device_batch_size=2,
            gradient_accumulation_steps=2,
            num_generations=4,
            learning_rate=1e-3,
            beta=0.1 if method in ("kto", "dpo") else 0.0,
            max_steps=STEPS,
            max_prompt_tokens=256,
            max_completion_tokens=64,
            use_bf16=False,
            gradient_checkpointing=False,
            threads=1,
            start_adapter=start,
            seed=seed,
        )
        loaded = run.load(config)
        dataset = desk.load("oslo", sizes={Split.TRAIN: 8})
        judge = TaskJudge(dataset.verifier)
        self.watched = Watched()
        work = Work(
            config=config,
            job=Job(folder),
            model=loaded.model,
            tokenizer=loaded.tokenizer,
            tasks=dataset.tasks,
            rows=() if method == "grpo" else rows(method, dataset.tasks),
            put=put,
            judge=judge,
            callbacks=[self.watched],
        )
        module, builder = _METHODS[method]
        trainer = getattr(import_module(f"journeyman.optimizers.weights.train.{module}"), builder)(work)
        self.before = weights(work.model)
        trainer.train()
        judge.close()
        self.after = weights(work.model)
        self.steps = trainer.state.global_step
        self.work = work


def put(task: Task) -> Said:
    return tuple({"role": m.role, "content": m.content} for m in answer.answer(task, (), "terse"))


def rows(method: str, tasks: Any) -> list[Row]:
    """What is right, and the same with a wrong value."""
    found: list[Row] = []
    for task in tasks:
        right = ({"role": "assistant", "content": task.answer},)
        wrong = ({"role": "assistant", "content": json.dumps({**json.loads(task.answer), "name": "nothing"})},)
        if method in ("kto", "rft"):
            found += [Labelled(prompt=put(task), completion=said, label=said is right) for said in (right, wrong)]
        else:
            found.append(Group(prompt=put(task), completions=(right, wrong), rewards=(1.0, -1.0), scores=(1.0, 0.0)))
    return found


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name in ("kto", "rft") else pytest.mark.training) for name in METHODS],
)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(request.param, tmp_path_factory.mktemp("job"))


def test_a_training_changes_the_adapter_and_nothing_else(trained: Trained) -> None:
    assert trained.before.keys() == trained.after.keys()
    changed = {name for name, weight in trained.after.items() if not torch.equal(weight, trained.before[name])}
    assert changed
    assert all("lora_" in name for name in changed)
    assert list(trained.work.model.peft_config) == ["default"]


def test_every_update_is_made_and_told(trained: Trained) -> None:
    assert trained.steps == STEPS
    assert len(trained.watched.logs) == STEPS
    assert all(torch.isfinite(torch.tensor(logs["loss"])) for logs in trained.watched.logs)
    assert all("entropy" in logs for logs in trained.watched.logs)


def test_the_same_seed_gives_the_same_adapter_to_the_last_bit(trained: Trained, tmp_path: Path) -> None:
    again = Trained(trained.work.config.method, tmp_path)
    assert all(torch.equal(weight, trained.after[name]) for name, weight in again.after.items())


def test_a_training_goes_on_from_an_adapter(trained: Trained, tmp_path: Path) -> None:
    noted = {"base_model": "embedded:small", "method": trained.work.config.method}
    save_adapter(trained.work.model, trained.work.tokenizer, tmp_path / "adapter", noted)
    further = Trained(trained.work.config.method, tmp_path, start=str(tmp_path / "adapter"))
    assert all(torch.equal(weight, trained.after[name]) for name, weight in further.before.items())
    assert any(not torch.equal(weight, further.before[name]) for name, weight in further.after.items())
    first = further.watched.logs[0]
    if "rewards/margins" in first:
        # The reference is what it goes on from: nothing is preferred before the first update.
        assert first["rewards/margins"] == pytest.approx(0, abs=1e-4)
