"""`journeyman train weights` and `journeyman pipeline weights`: what they say before anything is trained."""

import json
from pathlib import Path

import pytest

from journeyman.cli import main

DESK = ("--tasks", "desk", "--domain", "oslo", "--base-model", "embedded:small")
KTO = '{"prompt": "User: hi", "completion": "hello", "label": true}\n'
GRPO = '{"prompt": "User: hi", "completions": ["a", "b"], "rewards": [1.0, -1.0]}\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kto.jsonl").write_text(KTO)
    (tmp_path / "grpo.jsonl").write_text(GRPO)
    (tmp_path / "bad.jsonl").write_text(KTO + '{"prompt": "a", "completion": "b", "label": "yes"}\n')
    (tmp_path / "empty.jsonl").write_text("")
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1, "one sentence"
    assert not Path(".journeyman/runs").exists(), "nothing is left behind"
    return told.err


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "grpo needs something to learn from: tasks (--tasks desk --domain oslo)"),
        (("--method", "kto"), "kto needs something to learn from: a file of rows (--data FILE), or tasks"),
        (("--tasks", "nosuch"), "no data set 'nosuch'; there are bfcl, custom, desk"),
        (("--tasks", "desk"), "the desk needs the name of a shop, such as --domain oslo"),
        (("--tasks", "desk", "--domain", "nowhere"), "no shop 'nowhere' at the desk"),
        (("--tasks", "custom", "--input", "nosuch.json"), "nosuch.json is not there"),
        ((*DESK, "--input", "nosuch.json"), "--input is for other tasks: the desk makes its own"),
        ((*DESK, "--base-model", "embedded:huge"), "no embedded model 'huge'"),
        ((*DESK, "--base-model", "./nowhere"), "--base-model: there is no folder nowhere"),
        ((*DESK, "--reward", "nosuch"), "no reward 'nosuch'; there are code_execution"),
        ((*DESK, "--playbook", "nosuch.json"), "nosuch.json is not there"),
        ((*DESK, "--start-adapter", "nosuch"), "there is no training of weights 'nosuch'"),
        ((*DESK, "--earlier", "nowhere"), "--earlier: no shop 'nowhere' at the desk"),
        ((*DESK, "--tracker", "trackio"), "trackio is missing: pip install trackio"),
        ((*DESK, "--profile", "nosuch"), "there is no profile 'nosuch'; there are RYZEN_OPTIMIZED"),
        ((*DESK, "--lora-r", "0"), "--lora-r is 0, and must be at least 1"),
        ((*DESK, "--batch-size", "0"), "--batch-size is 0, and must be at least 1"),
        ((*DESK, "--learning-rate", "0"), "--learning-rate is 0.0, and must lie between 0 and 1"),
        ((*DESK, "--held-out", "0"), "--held-out is 0, and must be at least 1"),
        (("--method", "grpo", "--data", "grpo.jsonl"), "--data: grpo judges fresh completions, of tasks (--tasks)"),
        (
            ("--method", "grpo-offline", "--data", "kto.jsonl"),
            "--data: grpo-offline cannot learn from such rows; build them with --method grpo",
        ),
        (("--method", "kto", "--data", "bad.jsonl"), 'bad.jsonl:2 needs a "label" that is true or false'),
        (("--method", "kto", "--data", "empty.jsonl"), "--data: there are no rows in empty.jsonl"),
        (("--method", "kto", "--data", "nosuch.jsonl"), "nosuch.jsonl is not there; journeyman dataset build makes one"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence_dry_or_not(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str, dry: tuple[str, ...]
) -> None:
    assert why in refused(capsys, "train", "weights", *arguments, *dry)


def test_resuming_nothing_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no unfinished training of weights" in refused(capsys, "train", "weights", "--resume")
    assert "no training of weights 'nosuch'" in refused(capsys, "train", "weights", "--resume", "nosuch")
    assert "leave the other options out" in refused(capsys, "train", "weights", "--resume", "--seed", "2")
    assert "there is no unfinished pipeline of weights" in refused(capsys, "pipeline", "weights", "--resume")
    assert "leave the other options out" in refused(capsys, "pipeline", "weights", "--resume", "--seed", "2")


def test_a_pipeline_needs_something_to_learn_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert "name an agent (--agent), tasks (--tasks) or rows (--data)" in refused(capsys, "pipeline", "weights")
    assert "'Q9' is no type that can be exported" in refused(capsys, "pipeline", "weights", *DESK, "--quantization", "Q9")


def test_a_dry_run_touches_nothing_and_tells_the_time_that_rows_take(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    before = sorted(path.name for path in here.iterdir())
    given = ("--method", "kto", "--data", "kto.jsonl", "--base-model", "Qwen/Qwen2.5-0.5B-Instruct")
    assert main(["train", "weights", *given, "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["estimate"]["steps"] == 1
    assert told["estimate"]["seconds"] > 0
    assert main(["train", "weights", *DESK, "--dry-run"]) == 0
    assert "Nothing was trained." in capsys.readouterr().out
    assert sorted(path.name for path in here.iterdir()) == before


@pytest.mark.training
def test_a_training_that_its_program_refuses_leaves_no_run_to_go_on_with(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    assert main(["train", "weights", "--method", "kto", *DESK[4:], "--data", "kto.jsonl", "--target-modules", "nosuch"]) == 2
    assert "has no layers 'nosuch' to adapt" in capsys.readouterr().err
    assert list((here / ".journeyman" / "runs").iterdir()) == []
