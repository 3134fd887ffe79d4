"""`journeyman plan`: a tree for people, JSON for programs, and nothing written to look."""

import json
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from tests.support.planners import written

pytestmark = pytest.mark.training

OWN = """
from journeyman.agents.workers import ByFunction
from journeyman.core.policy import Card

def fails():
    raise RuntimeError("the oven is cold")

def worker(name, call, kind="model"):
    return ByFunction(call=call, card=Card(name=name, kind=kind, call_price=0.5))

CREW = {"clerk": worker("clerk", lambda: "a letter")}
COLD = {"clerk": worker("clerk", fails)}
TOOLS = {"bake": worker("bake", lambda: "bread", "tool")}
"""
NOTE = "for oslo: we need 4 green bowls to lima"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JOURNEYMAN_STORE", raising=False)
    Path("bakers_who_plan.py").write_text(OWN)
    return tmp_path


def files() -> set[str]:
    return {str(path) for path in Path().rglob("*") if path.is_file() and "__pycache__" not in path.parts}


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_a_plan_alone_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    before = files()
    assert main(["plan", "write it", "--workers-from", "bakers_who_plan:CREW"]) == 0
    out, err = capsys.readouterr()
    assert "clerk" in out
    assert "--run carries it out" in err
    assert files() == before


def test_what_was_carried_out_is_told_and_logged(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "write it", "--workers-from", "bakers_who_plan:CREW", "--run", "--logs", "logs", "--json"]) == 0
    found = told(capsys)
    assert (found["success"], found["outputs"], found["total_cost"]) == (None, {"1": "a letter"}, 0.5)
    assert "logs/executions.jsonl" in files()


def test_the_exit_code_says_that_it_failed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "write it", "--workers-from", "bakers_who_plan:COLD", "--run"]) == 1
    out, err = capsys.readouterr()
    assert "the oven is cold" in out
    assert "it failed" in err


def test_a_plan_that_was_written_is_carried_out_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "write it", "--workers-from", "bakers_who_plan:CREW", "--output", "plan.json"]) == 0
    assert main(["plan", "else", "--plan", "plan.json", "--workers-from", "bakers_who_plan:CREW", "--run", "--json"]) == 0
    found = told(capsys)
    assert found["plan"]["instruction"] == "write it"
    assert found["outputs"] == {"1": "a letter"}


def test_a_plan_of_tools_needs_no_model_in_the_crew(capsys: pytest.CaptureFixture[str]) -> None:
    plan = {"instruction": "bread", "subtasks": [{"id": "1", "text": "bake", "type": "baking", "tool": "bake"}]}
    Path("plan.json").write_text(json.dumps(plan))
    assert main(["plan", "bread", "--plan", "plan.json", "--workers-from", "bakers_who_plan:TOOLS", "--run", "--json"]) == 0
    assert told(capsys)["outputs"] == {"1": "bread"}


def test_a_learned_planner_shows_its_plan_without_a_key_for_its_models(capsys: pytest.CaptureFixture[str]) -> None:
    written(Path("checkpoints"))
    assert main(["plan", "easy letter number 3", "--planner", "checkpoints/phase1_best", "--json"]) == 0
    found = told(capsys)
    assert found["planner"]
    assert {step["worker"] for step in found["plan"]["subtasks"]} <= {"small", "large", "bake"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x", "--planner", "nobody"], "no planner 'nobody' is in the store"),
        (["x", "--planner", "."], "no planner '.'"),
        (["x", "--workers-from", "bakers_who_plan:NOBODY"], "the crew 'bakers_who_plan:NOBODY' cannot be loaded"),
        (["x", "--workers-from", "bakers_who_plan:TOOLS"], "nobody who plans"),
        (["x", "--plan", "bakers_who_plan.py", "--workers-from", "bakers_who_plan:CREW"], "is no plan"),
        (["x", "--workers-from", "bakers_who_plan:CREW", "--run", "--max-cost", "0.1"], ""),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing_behind(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files()
    code = main(["plan", *arguments])
    err = capsys.readouterr().err.strip()
    if "--max-cost" in arguments:
        assert code == 1
        assert "execution_logs/executions.jsonl" in files(), "that the money did not reach is logged"
    else:
        assert (code, len(err.splitlines()), files()) == (2, 1, before)
        assert said in err
