"""`journeyman plan --plan`: a plan from a file."""

from pathlib import Path

import pytest

from journeyman.cli import main

pytestmark = pytest.mark.training


@pytest.mark.parametrize("text", ["", "[1]", "[" * 100_000, '{"instruction": "x", "subtasks": [{"id": 1}]}'])
def test_a_file_that_is_no_plan_is_said_in_a_sentence(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(text)
    assert main(["plan", "x", "--plan", "plan.json"]) == 2
    assert "plan.json is no plan" in capsys.readouterr().err
