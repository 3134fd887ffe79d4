"""`journeyman demo`: the whole loop, and its story."""

import json
from pathlib import Path
from typing import Any

import pytest

import journeyman
from journeyman.cli import main

pytestmark = pytest.mark.training

PROMISED = ["tasks", "unknown", "baseline", "candidate", "gain", "low", "high", "passed", "reason", "bullets", "seconds"]
WEIGHTS = Path(journeyman.__file__).parent / "models" / "embedded" / "weights" / "base" / "config.json"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.skipif(not WEIGHTS.exists(), reason="the embedded model's weights are not installed")
def test_it_tells_the_story_and_prints_the_promised_fields(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    arguments = ["demo", "--num-examples", "10", "--held-out", "30"]
    code = main(arguments)
    told = capsys.readouterr().out
    for said in (
        "The order desk of oslo",
        "What it learned:",
        "Held-out tasks, right at the first attempt:",
        "What next:",
        "journeyman demo --live",
    ):
        assert said in told
    assert main([*arguments, "--json"]) == code, "it is the same every time"
    out = capsys.readouterr().out
    found: dict[str, Any] = json.loads(out)
    assert list(found) == PROMISED
    assert code == (0 if found["passed"] else 1)
    assert (found["tasks"], found["unknown"]) == (30, 0)
    assert found["bullets"] > 0
    assert sorted(path.name for path in Path().iterdir()) == [".journeyman"], "all of it is in one folder"


def test_a_model_that_learns_nothing_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--model", "scripted:no", "--num-examples", "5", "--held-out", "5"]) == 2
    err = capsys.readouterr().err
    assert "the demo learned nothing: nothing was learned; see .journeyman/demo/oslo.metrics.json" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--domain", "atlantis"], "no shop 'atlantis' at the desk; there are"),
        (["--model", "embeded"], "no model client 'embeded'"),
        (["--num-examples", "0"], "--num-examples is 0, and must be at least 1"),
    ],
)
def test_what_cannot_be_used_ends_with_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *arguments]) == 2
    assert message in capsys.readouterr().err
