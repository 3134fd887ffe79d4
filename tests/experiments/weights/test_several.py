"""Two processes on this machine train together, joined by gloo."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("accelerate", reason="needs the extra: pip install 'journeyman[weights]'")

from journeyman.core.task import Split
from journeyman.experiments.weights import run
from journeyman.experiments.weights.config import RunSettings
from journeyman.optimizers.weights import metrics
from journeyman.optimizers.weights.adapters import digest
from journeyman.optimizers.weights.data import read
from journeyman.optimizers.weights.job import Ended, launch, task_lines
from journeyman.optimizers.weights.job import TrainingJob as Job
from journeyman.optimizers.weights.job import TrainingReport as Report
from journeyman.optimizers.weights.rows import LabelledCompletion as Labelled
from tests.experiments.weights.test_resuming import CONFIG, METHODS, TASKS
from tests.support import warm

pytestmark = pytest.mark.training
TOGETHER = RunSettings(launch="cpu")
SMALL = {"max_steps": 3, "checkpoint_interval": 1, "validation": 0, "temperature": 0.3}
LEARNABLE = [task for task in TASKS if task.split is Split.TRAIN]


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three programs a training, each of which would import what takes longer than the training."""
    monkeypatch.setenv(warm.CHILDREN, warm.program())
    monkeypatch.setattr(sys, "executable", warm.program())


def job(folder: Path, method: str) -> Job:
    """Tasks alone, so that the processes attempt them before they learn."""
    folder.mkdir()
    config = replace(CONFIG, **{"method": method, **METHODS[method], **SMALL})
    (folder / "config.json").write_text(json.dumps(config.json()))
    (folder / "tasks.jsonl").write_text("".join(task_lines(LEARNABLE)))
    run.keep(TOGETHER, folder)
    return Job(folder)


def train(made: Job) -> Report:
    return launch(made, command=run.command(TOGETHER, made.folder))


def test_each_process_attempts_its_share_of_the_tasks_and_what_is_judged_is_right(tmp_path: Path) -> None:
    made = job(tmp_path / "run", "kto")
    train(made)
    rows = [row for row in read(made.rows) if isinstance(row, Labelled)]
    tasks = {task.id: task for task in LEARNABLE}
    assert [row.source["task"] for row in rows] == [task.id for task in LEARNABLE for _ in range(4)]
    for row in rows:
        assert not isinstance(row.completion, str)
        said = str(row.completion[0]["content"])
        assert row.label == (said_as_json(said) == json.loads(tasks[row.source["task"]].answer)), said


def said_as_json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


@pytest.mark.parametrize("method", [pytest.param("rft", marks=pytest.mark.nightly), "grpo"])
def test_two_processes_write_one_account_and_one_adapter_and_end_in_the_same_one_when_killed(
    tmp_path: Path, method: str
) -> None:
    made = job(tmp_path / "run", method)
    report = train(made)
    assert (report.ended, report.steps, report.kept_step) == (Ended.FINISHED, 3, 3)
    updates = metrics.read(made.metrics)
    assert [each.step for each in updates] == [0, 1, 2, 3]
    assert sorted(path.name[-5] for path in (made.checkpoints / "step-00003").glob("rng_state_*")) == ["0", "1"]
    if method == "grpo":
        assert all(each.reward is not None and 0 < each.reward < 1 for each in updates[1:])
        assert all(each.more["unknown"] == 0 for each in updates[1:])
    whole = digest(made.adapter)
    # As it is when both are killed in the last update.
    for lost in (made.adapter, made.checkpoints / "step-00003"):
        shutil.rmtree(lost)
    (made.folder / "report.json").unlink()
    train(made)
    assert digest(made.adapter) == whole
    assert [each.step for each in metrics.read(made.metrics)] == [0, 1, 2, 3]
