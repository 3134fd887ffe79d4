"""What is wrong with a training is said before there is a run."""

import logging
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.errors import InputError, JourneymanError, MissingExtra
from journeyman.core.installation import installing
from journeyman.experiments.weights import run as checks
from journeyman.experiments.weights import run as runs
from journeyman.experiments.weights.config import RunSettings
from journeyman.experiments.weights.run import Material, prepare
from journeyman.experiments.weights.training import RLTrainer
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.rows import CompletionGroup as Group
from journeyman.optimizers.weights.rows import LabelledCompletion as Labelled
from journeyman.optimizers.weights.sizing import get_ryzen_optimized_config

DESK = TrainingConfig(
    base_model="embedded:small", method="rft", dataset_name="desk", domain="oslo", num_examples=8, validation=4
)
GROUP = Group(prompt="User: hi", completions=("hello", "no", "yes"), rewards=(1.0, -1.0, 0.0))


@pytest.fixture
def settings(tmp_path: Path) -> RunSettings:
    return RunSettings(project=str(tmp_path / "p"), store=str(tmp_path / "p" / "j.db"), held_out=5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rewards": ("nosuch",)}, "no reward 'nosuch'; there are code_execution"),
        ({"tracker": "trackio"}, "trackio is missing: pip install trackio, or leave the tracker"),
        ({"base_model": "embedded:huge"}, "no embedded model 'huge'; there are: base, small"),
        ({"base_model": "./nowhere"}, "there is no folder nowhere; name one, a Hugging Face id"),
        ({"input_path": "tasks.json"}, "input_path is for other tasks: the desk makes its own"),
        ({"context": "nowhere.json"}, "nowhere.json is not there"),
        ({"start_adapter": "nothing"}, "no training of weights 'nothing'"),
        (
            {"dataset_name": "repository", "input_path": "t.jsonl"},
            "takes many replies, and rft judges one completion",
        ),
        (
            {"dataset_name": "repository", "input_path": "t.jsonl", "data": "rows.jsonl"},
            "compare the models with journeyman evaluate agent --agent local:MODEL",
        ),
        ({"method": "grpo", "dataset_name": "", "domain": ""}, r"grpo needs something to learn from: tasks \(--tasks desk"),
    ],
)
def test_what_is_not_there_is_said_before_there_is_a_run(
    changed: dict[str, Any], message: str, settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JourneymanError, match=message):
        runs.begin(replace(DESK, **changed), settings)
    assert not list(Path(settings.project).glob("runs/*"))


def test_a_folder_without_a_model_is_told_from_a_name(settings: RunSettings, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no model: it has no config\.json"):
        runs.begin(replace(DESK, base_model=str(tmp_path)), settings)


def test_a_domain_that_is_examined_at_the_very_end_is_looked_for_at_the_beginning(settings: RunSettings) -> None:
    with pytest.raises(InputError, match="earlier: no shop 'nowhere' at the desk"):
        runs.begin(DESK, replace(settings, earlier=("cairo", "nowhere")))


def test_rows_are_counted_as_what_is_learned_from_them() -> None:
    labelled = Labelled(prompt="User: hi", completion="hello", label=True)
    assert Material([labelled, labelled], None).examples("kto") == 2
    assert Material([GROUP, GROUP], None).examples("grpo-offline") == 6
    assert Material([GROUP, GROUP], None).examples("dpo") == 2


def test_the_time_that_a_file_of_rows_takes_is_estimated() -> None:
    config = replace(DESK, dataset_name="", domain="", data="rows.jsonl", method="kto", base_model="Qwen/Qwen2.5-0.5B-Instruct")
    blind, counted = prepare(config, fitting=False), prepare(config, fitting=False, examples=80)
    assert blind.estimate is not None
    assert counted.estimate is not None
    assert blind.estimate.steps is None
    assert counted.estimate.steps == 30
    assert counted.config.max_steps is None, "an estimate decides nothing"


def test_setup_comes_before_the_rows_and_recorded_completions_are_never_taken_for_fresh(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = RLTrainer(TrainingConfig(base_model="embedded:small", method="grpo", max_steps=1), settings)
    trainer.setup()
    assert trainer.run is None
    monkeypatch.setattr(trainer, "finish", lambda run: run)
    with caplog.at_level(logging.WARNING):
        trainer.train([GROUP])
    assert trainer.run is not None
    assert trainer.run.config.method == "grpo-offline"
    assert "recorded earlier" in caplog.text


def test_a_run_that_was_refused_at_its_beginning_is_forgotten_and_one_that_learned_something_is_not(
    settings: RunSettings,
) -> None:
    one, two = runs.begin(DESK, settings), runs.begin(replace(DESK, seed=1), settings)
    two.job.checkpoints.mkdir()
    one.forget()
    two.forget()
    assert [path.name for path in Path(settings.project, "runs").iterdir()] == [two.id]


def test_bf16_that_would_be_emulated_is_not_used_and_that_is_said(
    settings: RunSettings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "detect_hardware", get_ryzen_optimized_config)
    with caplog.at_level(logging.WARNING):
        run = runs.begin(replace(DESK, use_bf16=True), settings)
    assert run.config.use_bf16 is False
    assert "bf16 is not used, though it was asked for: fp32" in caplog.text


def test_an_extra_that_is_missing_is_told_before_there_is_a_run_with_what_to_type(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda name: None if name == "trl" else find_spec(name))
    with pytest.raises(MissingExtra, match=re.escape(f"trl is missing: {installing('weights')}")):
        runs.begin(DESK, settings)
    assert not list(Path(settings.project).glob("runs/*"))
