import json

import pytest

from journeyman.cli import main
from journeyman.cli.hardware import METHODS, PROFILES
from journeyman.optimizers.weights.config import METHODS as ALL_METHODS
from journeyman.optimizers.weights.sizing import HardwareProfile


def test_the_options_name_what_there_is() -> None:
    assert METHODS == ALL_METHODS
    assert set(PROFILES) == {profile.value for profile in HardwareProfile}


def test_the_machine_and_what_follows_from_it_are_shown_with_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware", "--profile", "ryzen_optimized"]) == 0
    # However wide the terminal is.
    out = " ".join(capsys.readouterr().out.split())
    assert "AMD Ryzen 9 5950X" in out
    assert "AVX2 alone would emulate it" in out


def test_a_training_is_estimated_by_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware", "--profile", "CPU_ONLY", "--model", "embedded:small", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    training = told["training"]
    assert training["estimate"]["peak"] > training["estimate"]["activations"] > 0
    assert training["settings"]["per_device_batch_size"] == training["derived"]["per_device_batch_size"]["value"]
    assert (training["refusal"], training["unknown"]) == (None, None)


def test_a_training_that_will_not_fit_is_the_answer_no(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware", "--profile", "RYZEN_OPTIMIZED", "--model", "Qwen/Qwen2.5-72B-Instruct"]) == 1
    assert "take a smaller model" in " ".join(capsys.readouterr().out.split())


def test_a_model_that_is_not_here_is_said_to_be_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware", "--profile", "CPU_ONLY", "--model", "nobody/nothing"]) == 0
    assert "hf download nobody/nothing config.json" in capsys.readouterr().out
