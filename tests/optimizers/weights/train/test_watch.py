"""Trainings under watch: the embedded model, a few updates, everything real."""

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from safetensors.torch import load_file  # noqa: E402 - after the check that it is there
from transformers import TrainerCallback  # noqa: E402

from journeyman.core.score import Reward, Score  # noqa: E402
from journeyman.core.task import Split, Task  # noqa: E402
from journeyman.core.trace import Trace  # noqa: E402
from journeyman.optimizers.weights import metrics  # noqa: E402
from journeyman.optimizers.weights.config import TrainingConfig  # noqa: E402
from journeyman.optimizers.weights.job import Ended, TrainingJob, task_lines  # noqa: E402
from journeyman.optimizers.weights.rows import LabelledCompletion  # noqa: E402
from journeyman.optimizers.weights.train import CompletionJudge, TrainingSetup, preference, run  # noqa: E402
from journeyman.tasks import desk  # noqa: E402

pytestmark = pytest.mark.training
CONFIG = TrainingConfig(
    base_model="embedded:small",
    method="rft",
    learning_rate=3e-3,
    max_steps=6,
    per_device_batch_size=4,
    gradient_accumulation_steps=1,
    max_completion_tokens=64,
    use_bf16=False,
    gradient_checkpointing=False,
    threads=1,
    checkpoint_interval=2,
    evaluation_interval=1,
    patience=0,
    tracker="none",
)
TASKS = desk.load("oslo", sizes={Split.TRAIN: 16, Split.VALIDATION: 3}, seed=0).tasks


class Told:
    """A judge that gives each look the next of these; and that draws random numbers, as verifiers may."""

    def __init__(self, *rewards: float | None) -> None:
        self.rewards = itertools.chain(rewards, itertools.repeat(rewards[-1]))
        self.replies: list[str] = []

    def judge(self, attempts: Sequence[tuple[Task, Trace]]) -> list[Score]:
        random.random()
        torch.rand(3)
        self.replies += [trace.reply for _, trace in attempts]
        value = next(self.rewards)
        return [Score(trace_id=trace.id, rewards=(Reward(name="told", value=value),)) for _, trace in attempts]


def put(task: Task) -> Any:
    return ({"role": "system", "content": "reply"}, {"role": "user", "content": task.question})


def trained(
    folder: Path, judge: CompletionJudge | None, *also: Any, **changes: Any
) -> tuple[run.TrainingOutcome | None, TrainingJob, dict[str, Any]]:
    """The outcome, the job, and the adapter that the model has in the end."""
    folder.mkdir(exist_ok=True)
    job = TrainingJob(folder)
    job.tasks.write_text("".join(task_lines(TASKS)))
    config = replace(CONFIG, **changes)
    loaded = run.load(config)
    rows = tuple(
        LabelledCompletion(prompt=put(task), completion=({"role": "assistant", "content": task.answer},), label=True)
        for task in TASKS
        if task.split is Split.TRAIN
    )
    work = TrainingSetup(
        config=config,
        job=job,
        model=loaded.model,
        tokenizer=loaded.tokenizer,
        tasks=(),
        rows=rows,
        put=put,
        judge=judge,
        callbacks=also,
    )
    trainer = preference.rft(work)
    outcome = run.train(trainer, work)
    return outcome, job, {name: value.clone() for name, value in loaded.model.state_dict().items() if "lora" in name}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_looking_at_validation_tasks_changes_nothing(tmp_path: Path) -> None:
    judge = Told(0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    looked, job, one = trained(tmp_path / "looked", judge, lora_dropout=0.1)
    _, _, other = trained(tmp_path / "blind", None, lora_dropout=0.1)
    assert same(one, other)
    assert looked is not None
    assert (looked.ended, looked.kept_step) == (Ended.FINISHED, 6)
    assert [each.validation for each in metrics.read(job.metrics)] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert all(json.loads(reply)["name"] for reply in judge.replies[:3])
    report = looked.report(parameters=10, trained=1)
    assert report.validation_before == 0.0
    assert report.validation_after == pytest.approx(0.6)
    assert report.tokens > 0
    assert report.peak_memory


def test_the_best_checkpoint_is_kept_and_a_run_without_a_better_one_stops_early(tmp_path: Path) -> None:
    outcome, job, adapter = trained(tmp_path / "run", Told(0.1, 0.2, 0.6, 0.5), max_steps=20, patience=3)
    assert outcome is not None
    assert (outcome.ended, outcome.kept_step) == (Ended.EARLY, 2)
    assert outcome.reason == "3 looks without a better validation reward than 0.600; the adapter is the one after update 2"
    assert outcome.updates[-1].step == 5
    # The best, the newest, and where it started.
    assert run.Checkpoints(job.checkpoints).steps == [0, 2, 4]
    kept = load_file(job.checkpoints / "step-00002" / "adapter_model.safetensors")
    assert all(torch.equal(kept[name.replace(".default", "")], value) for name, value in adapter.items())


def test_a_reward_that_nobody_can_tell_is_unknown_and_stops_nothing(tmp_path: Path) -> None:
    outcome, job, _ = trained(tmp_path / "run", Told(None), max_steps=3, patience=1)
    assert outcome is not None
    assert (outcome.ended, outcome.kept_step) == (Ended.FINISHED, 3)
    assert [each.validation for each in metrics.read(job.metrics)] == [None] * 4


class Poison(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    """Makes one weight no number before the fifth update, as an overflow would."""

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if state.global_step == 4:
            next(value for name, value in model.named_parameters() if "lora_B" in name).data[0, 0] = torch.nan


def test_a_loss_that_is_no_number_stops_the_run_with_the_last_good_checkpoint(tmp_path: Path) -> None:
    outcome, job, adapter = trained(tmp_path / "run", None, Poison())
    assert outcome is not None
    assert (outcome.ended, outcome.kept_step) == (Ended.GUARDED, 4)
    assert outcome.reason == "the loss was no number at update 5: the learning rate 0.003 is too high"
    assert {"grad_norm", "loss"} <= set(metrics.read(job.metrics)[-1].broken)
    assert all(bool(torch.isfinite(value).all()) for value in adapter.values())


def test_a_run_whose_validation_falls_is_stopped_and_keeps_its_best(tmp_path: Path) -> None:
    outcome, _, _ = trained(tmp_path / "run", Told(0.2, 0.5, 0.9, *[0.1] * 30), max_steps=30, learning_rate=1e-4)
    assert outcome is not None
    assert (outcome.ended, outcome.kept_step) == (Ended.GUARDED, 2)
    assert outcome.reason == "the validation reward fell from 0.900 after update 2 to 0.100 and 0.100"


def test_a_run_that_is_over_is_not_trained_on(tmp_path: Path) -> None:
    first, job, one = trained(tmp_path / "run", None)
    written = job.metrics.read_bytes()
    again, _, other = trained(tmp_path / "run", None)
    assert first is not None
    assert again is not None
    assert (again.ended, again.kept_step) == (first.ended, first.kept_step)
    assert job.metrics.read_bytes() == written
    assert same(one, other)


def test_what_a_killed_process_left_half_written_is_no_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "checkpoints" / ".unfinished" / "checkpoint-4").mkdir(parents=True)
    assert run.Checkpoints(TrainingJob(folder).checkpoints).newest_step is None
    outcome, job, _ = trained(folder, None, max_steps=2)
    assert outcome is not None
    assert not (job.checkpoints / ".unfinished").exists()
    assert run.Checkpoints(job.checkpoints).newest_step == 2
    assert not list(job.checkpoints.rglob("training_args.bin"))
