"""Runs of a training of weights: begun, found again, and refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.core.errors import InputError, SettingError
from journeyman.core.playbook import Playbook
from journeyman.core.release import Stage
from journeyman.core.task import Split
from journeyman.experiments.weights import run as runs
from journeyman.experiments.weights import settings as tasks
from journeyman.experiments.weights.config import RunSettings
from journeyman.optimizers.playbook.run import PlaybookRun as Playbooks
from journeyman.optimizers.playbook.run import newest_unfinished
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.rows import CompletionGroup as Group
from journeyman.optimizers.weights.rows import LabelledCompletion as Labelled

DESK = TrainingConfig(
    base_model="embedded:small", method="rft", dataset_name="desk", domain="oslo", num_examples=8, validation=4
)
ROW = Labelled(prompt="User: hi", completion="hello", label=True)
SCORES = (1.0, *[0.5, 0.0, 0.0] * 13)
FEW = Group(prompt="User: hi", completions=tuple(map(str, range(40))), rewards=(0.0,) * 40, scores=SCORES)
"""Forty attempts, one of them right."""


@pytest.fixture
def settings(tmp_path: Path) -> RunSettings:
    return RunSettings(project=str(tmp_path / "p"), store=str(tmp_path / "p" / "j.db"), held_out=5)


def test_a_run_has_all_it_needs_in_its_folder_and_no_held_out_task(settings: RunSettings) -> None:
    run = runs.begin(DESK, settings)
    told = [json.loads(line)["split"] for line in run.job.tasks.read_text().splitlines()]
    assert sorted(set(told)) == ["train", "validation"]
    assert len(run.job.read_tasks(Split.TRAIN)) == 8
    assert run.job.config == run.config
    assert run.config.learning_rate is not None


def test_a_second_run_of_the_same_settings_has_a_folder_of_its_own(settings: RunSettings) -> None:
    one, two = runs.begin(DESK, settings), runs.begin(DESK, settings)
    assert two.id == f"{one.id}-2"


def test_rows_that_are_learned_from_are_kept_with_the_run(settings: RunSettings) -> None:
    run = runs.begin(TrainingConfig(base_model="embedded:small", method="kto"), settings, rows=[ROW])
    assert json.loads(run.job.rows.read_text())["label"] is True
    assert run.dataset is None


def test_the_newest_unfinished_run_is_gone_on_with_and_a_finished_one_is_not(settings: RunSettings) -> None:
    run = runs.begin(DESK, settings)
    assert runs.reopen(None, settings).folder == run.folder
    run.finish({"passed": False})
    with pytest.raises(InputError, match=r"is over; what it learned is in"):
        runs.reopen(run.id, settings)
    with pytest.raises(InputError, match="there is no unfinished training of weights"):
        runs.reopen(None, settings)


def test_runs_of_playbooks_and_of_weights_lie_side_by_side_and_are_not_taken_for_each_other(settings: RunSettings) -> None:
    there = Path(settings.project) / "runs"
    Playbooks.begin(there / "playbook", {}, Playbook())
    assert newest_unfinished(there) == there / "playbook"
    run = runs.begin(DESK, settings)
    assert newest_unfinished(there) == there / "playbook"
    assert runs.reopen(None, settings).folder == run.folder


def test_a_run_keeps_its_own_settings_but_for_the_store(settings: RunSettings, tmp_path: Path) -> None:
    asked = RunSettings(project=settings.project, store=settings.store, held_out=7, target_stage=Stage.PRODUCTION)
    run = runs.begin(DESK, asked)
    found = runs.reopen(run.id, RunSettings(project=settings.project, store=str(tmp_path / "other.db")))
    assert (found.settings.held_out, found.settings.target_stage) == (7, Stage.PRODUCTION)
    assert found.settings.store == str(tmp_path / "other.db")
    assert "store" not in json.loads((run.folder / "run.json").read_text())["settings"]


def test_a_run_whose_tasks_have_changed_is_not_gone_on_with(settings: RunSettings) -> None:
    run = runs.begin(DESK, settings)
    path = run.folder / "run.json"
    path.write_text(path.read_text().replace('"held_out": 5', '"held_out": 6'))
    with pytest.raises(InputError, match="has changed since it began"):
        runs.reopen(run.id, settings)


@pytest.mark.parametrize(
    ("config", "rows", "message"),
    [
        (TrainingConfig(method="grpo"), [ROW], "grpo judges fresh completions"),
        (TrainingConfig(method="kto"), None, "kto needs something to learn from"),
        (TrainingConfig(method="kto"), [], "there are no rows"),
        (
            TrainingConfig(method="grpo-offline"),
            [ROW],
            "grpo-offline cannot learn from such rows; build them with --method grpo",
        ),
    ],
)
def test_what_cannot_be_learned_from_is_refused_before_there_is_a_run(
    config: TrainingConfig, rows: list[Labelled] | None, message: str, settings: RunSettings
) -> None:
    with pytest.raises(InputError, match=message):
        runs.begin(config, settings, rows=rows)
    assert not list(Path(settings.project).glob("runs/*"))


def test_kto_is_told_of_too_few_right_attempts_before_it_begins(
    settings: RunSettings, caplog: pytest.LogCaptureFixture
) -> None:
    for method, said in (("kto", 1), ("dpo", 0), ("rft", 0), ("grpo-offline", 0)):
        caplog.clear()
        runs.begin(TrainingConfig(base_model="embedded:small", method=method), settings, rows=[FEW])
        assert caplog.text.count("1 of 40 completions are right (2.5%), and from 5 % and fewer kto learned nothing") == said
    caplog.clear()
    enough = replace(FEW, scores=(1.0, 1.0, 1.0, *SCORES[3:]))
    runs.begin(TrainingConfig(base_model="embedded:small", method="kto"), settings, rows=[enough])
    assert not caplog.text


def test_a_run_that_is_not_there_is_told_with_those_that_are(settings: RunSettings) -> None:
    run = runs.begin(DESK, settings)
    with pytest.raises(InputError, match=f"no training of weights 'nothing' in .*; there are: {run.id}"):
        runs.find("nothing", settings)
    with pytest.raises(InputError, match="has no adapter: it learned nothing yet"):
        runs.adapter_of(run.id, settings)


def test_what_an_adapter_was_trained_for_before_is_examined_again(settings: RunSettings) -> None:
    first = runs.begin(DESK, settings)
    first.job.adapter.mkdir()
    config = TrainingConfig(**{**DESK.json(), "domain": "cairo", "start_adapter": str(first.job.adapter)})
    assert runs.earlier_domains(config, settings) == ("oslo",)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("held_out", 0), ("alpha", 1.5), ("min_gain", 2.0), ("target_stage", Stage.CANARY), ("attempts_per_task", 0)],
)
def test_a_setting_that_cannot_be_is_named(setting: str, value: object) -> None:
    with pytest.raises(SettingError, match=setting):
        RunSettings(**{setting: value})  # type: ignore[arg-type]


def test_training_validation_and_held_out_tasks_have_nothing_in_common(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} and {n}?", "answer": str(2 * n)} for n in range(100)]
    (tmp_path / "mine.json").write_text(json.dumps(rows))
    config = TrainingConfig(method="rft", dataset_name="custom", input_path=str(tmp_path / "mine.json"), validation=10)
    found = tasks.load(config, held_out=50)
    parts = [{task.question for task in found.split(split)} for split in Split]
    assert 0 < len(found.split(Split.VALIDATION)) <= 10
    assert not parts[0] & parts[1]
    assert not (parts[0] | parts[1]) & parts[2]
    assert tasks.load(config, held_out=50).tasks == found.tasks


def test_rows_of_held_out_tasks_are_refused_and_those_of_validation_tasks_left_out(
    settings: RunSettings, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = tasks.load(DESK, held_out=5)
    by_split = {task.split: task for task in dataset.tasks}

    def row(split: Split) -> Labelled:
        return replace(ROW, source={"task": by_split[split].id, "domain": by_split[split].domain})

    run = runs.begin(DESK, settings, rows=[row(Split.TRAIN), ROW, row(Split.VALIDATION)])
    assert len(run.job.rows.read_text().splitlines()) == 2
    assert "1 of 3 rows are left out" in caplog.text
    with pytest.raises(InputError, match=r"row 2 is of the task oslo-held_out-0004, which is held out"):
        runs.begin(DESK, settings, rows=[ROW, row(Split.HELD_OUT)])
    with pytest.raises(InputError, match="all rows are of tasks by which"):
        runs.begin(DESK, settings, rows=[row(Split.VALIDATION)])


@pytest.mark.parametrize(
    ("setting", "value", "method"),
    [
        ("clip", 0.3, "kto"),
        ("clip", 0.3, "grpo-offline"),
        ("curriculum", False, "dpo"),
        ("importance", False, "grpo"),
        ("desirable_weight", 2.0, "dpo"),
        ("beta", 0.1, "rft"),
        ("rewards", ("length",), "kto"),
        ("temperature", 0.5, "kto"),
        ("lora_dropout", 0.1, "dpo"),
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(setting: str, value: object, method: str) -> None:
    with pytest.raises(SettingError, match="be left out"):
        TrainingConfig(**{"method": method, "data": "rows.jsonl", setting: value})  # type: ignore[arg-type]
