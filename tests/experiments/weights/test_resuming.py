"""A training that is killed and gone on with is the training that was never killed."""

import json
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.task import Split
from journeyman.optimizers.weights import metrics
from journeyman.optimizers.weights.adapters import digest
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.data import write
from journeyman.optimizers.weights.job import INTERRUPTED, MODULE, Ended, launch, task_lines
from journeyman.optimizers.weights.job import TrainingJob as Job
from journeyman.optimizers.weights.rows import CompletionGroup as Group
from journeyman.optimizers.weights.rows import LabelledCompletion as Labelled
from journeyman.optimizers.weights.rows import Row
from journeyman.tasks import desk
from tests.support import warm

pytestmark = pytest.mark.training
CONFIG = TrainingConfig(
    base_model="embedded:small",
    dataset_name="desk",
    domain="oslo",
    num_examples=10,
    validation=3,
    learning_rate=3e-3,
    beta=0.0,
    max_steps=8,
    per_device_batch_size=4,
    gradient_accumulation_steps=2,
    num_generations=4,
    max_prompt_tokens=128,
    max_completion_tokens=64,
    use_bf16=False,
    gradient_checkpointing=False,
    threads=1,
    checkpoint_interval=2,
    evaluation_interval=4,
    patience=0,
    guards=False,
    tracker="none",
)
TASKS = desk.load("oslo", sizes={Split.TRAIN: 10, Split.VALIDATION: 3}, seed=0).tasks
METHODS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "grpo-in-order": {"curriculum": False},
    "grpo-dropout": {"lora_dropout": 0.1},
    "grpo-offline": {},
    "kto": {"beta": 0.1},
    "dpo": {"beta": 0.1},
    "rft": {},
}
_ALIKE = ("grpo-in-order", "grpo-dropout", "rft")
"""Of GRPO with one setting changed; and of what a pipeline is killed in and told to stop in, elsewhere."""


def rows(method: str) -> Iterator[Row]:
    """Right answers, and the same with a wrong number in them."""
    for task in TASKS:
        if task.split is Split.TRAIN:
            right = json.loads(task.answer)
            said = json.dumps(right, separators=(",", ":"))
            wrong = json.dumps({**right, "arguments": {**right["arguments"], "quantity": 99}}, separators=(",", ":"))
            prompt = ({"role": "system", "content": "reply"}, {"role": "user", "content": task.question})
            completions = tuple(({"role": "assistant", "content": text},) for text in (said, wrong))
            if method in ("kto", "rft"):
                labels = (True, False) if method == "kto" else (True,)
                yield from (
                    Labelled(prompt=prompt, completion=completion, label=label)
                    for completion, label in zip(completions, labels, strict=False)
                )
            else:
                yield Group(prompt=prompt, completions=completions * 2, rewards=(1.0, -1.0) * 2, scores=(1.0, 0.0) * 2)


def job(folder: Path, method: str) -> Job:
    folder.mkdir()
    name = "grpo" if method.startswith("grpo-") and method != "grpo-offline" else method
    config = replace(CONFIG, method=name, **METHODS[method])
    (folder / "config.json").write_text(json.dumps(config.json()))
    made = Job(folder)
    made.tasks.write_text("".join(task_lines(TASKS)))
    if name != "grpo":
        write(made.rows, list(rows(name)))
    return made


def end_after(made: Job, updates: int, pause: float, number: int) -> int:
    """Run the program until it has made so many updates, and a moment longer, and send it a signal; its exit code."""
    with made.log.open("ab") as log:
        process = warm.start("-m", MODULE, str(made.folder), stdout=log.fileno(), stderr=log.fileno())
    until = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < until:
        if made.metrics.is_file() and made.metrics.read_bytes().count(b"\n") > updates:
            break
        time.sleep(0.01)
    time.sleep(pause)
    process.send_signal(number)
    return process.wait(timeout=300)


@pytest.mark.parametrize("moments", [(3,), pytest.param((1, 3, 6), marks=pytest.mark.nightly)], ids=["once", "thrice"])
@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=pytest.mark.nightly if name in _ALIKE else ()) for name in METHODS]
)
def test_a_training_killed_at_any_moment_ends_in_the_same_adapter(
    tmp_path: Path, method: str, moments: tuple[int, ...]
) -> None:
    whole, killed = job(tmp_path / "whole", method), job(tmp_path / "killed", method)
    assert warm.run("-m", MODULE, str(whole.folder)).returncode == 0
    report = whole.report
    assert report is not None
    chance = random.Random(method)
    reached = 0
    for updates in moments:
        # The last five updates take less than a second where nothing else runs.
        assert end_after(killed, max(reached, updates), chance.random() / 5, signal.SIGKILL) == -signal.SIGKILL
        reached = metrics.read(killed.metrics)[-1].step
    if method == "grpo":
        again = launch(killed)
    else:
        assert warm.run("-m", MODULE, str(killed.folder), server="other").returncode == 0
        assert killed.report is not None
        again = killed.report
    assert (again.ended, again.reason, again.kept_step) == (report.ended, report.reason, report.kept_step)
    assert report.ended is Ended.FINISHED
    assert report.steps == 8
    assert again.tokens == report.tokens
    assert [told(each) for each in metrics.read(killed.metrics)] == [told(each) for each in metrics.read(whole.metrics)]
    for step in (0, 8):
        one, other = (each.checkpoints / f"step-{step:05}" / "adapter_model.safetensors" for each in (whole, killed))
        assert one.read_bytes() == other.read_bytes()
    if report.kept_step:
        assert digest(killed.adapter) == digest(whole.adapter)


def test_a_training_that_is_told_to_stop_makes_a_checkpoint_first_and_goes_on_from_there(tmp_path: Path) -> None:
    made = job(tmp_path / "run", "rft")
    assert end_after(made, 3, 0.0, signal.SIGTERM) == INTERRUPTED
    reached = metrics.read(made.metrics)[-1].step
    assert 0 < reached < 8
    assert checkpoints_of(made)[-1] == f"step-{reached:05}"
    assert made.report is None
    assert launch(made).steps == 8


def checkpoints_of(made: Job) -> list[str]:
    return sorted(path.name for path in made.checkpoints.glob("step-*"))


def told(update: metrics.UpdateMetrics) -> metrics.UpdateMetrics:
    """Without what the machine has to do with."""
    more = {name: value for name, value in update.more.items() if "time" not in name}
    return replace(update, seconds=None, cpu_seconds=None, peak_memory=None, more=more)
