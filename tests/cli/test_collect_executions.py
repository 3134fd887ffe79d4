"""`journeyman collect executions`, with one's own crew and instructions."""

import json
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from tests.support.planners import bakery, written

pytestmark = pytest.mark.training

OWN = """
from journeyman.agents.workers import ByFunction
from journeyman.core.policy import Card

def worker(name, price):
    return ByFunction(call=lambda: f"by {name}", card=Card(name=name, call_price=price))

CREW = {"cheap": worker("cheap", 0.01), "dear": worker("dear", 0.04)}
UNPRICED = {"free": worker("free", None)}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JOURNEYMAN_STORE", raising=False)
    Path("bakers_who_collect.py").write_text(OWN)
    Path("asked.txt").write_text("".join(f"bake {at}\n" for at in range(12)))


def collect(*more: str, crew: str = "CREW") -> int:
    given = ["--workers-from", f"bakers_who_collect:{crew}", "--instructions", "asked.txt", "--output-dir", "logs"]
    return main(["collect", "executions", *given, *more])


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def files() -> set[str]:
    return {str(path) for path in Path().rglob("*") if path.is_file() and "__pycache__" not in path.parts}


def test_instructions_are_carried_out_once_and_the_same_command_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert collect("--num-executions", "5") == 0
    assert collect("--json") == 0
    found = told(capsys)
    assert (found["asked"], found["before"], found["ran"], found["unjudged"]) == (12, 5, 7, 7)
    assert len(Path("logs/executions.jsonl").read_text().splitlines()) == 12


def test_a_dry_run_shows_plans_and_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    before = files()
    assert collect("--dry-run", "--json") == 0
    found = told(capsys)
    assert (found["asked"], len(found["plans"]), found["dry_run"]) == (12, 3, True)
    assert files() == before


@pytest.mark.parametrize("place", ["options", "file", "environment"])
def test_a_limit_on_cost_stops_cleanly_and_says_so(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--max-cost", "0.1", "--explore", "0", "--concurrency", "1"] if place == "options" else []
    if place == "file":
        Path("journeyman.toml").write_text("[budget]\nmax_cost = 0.1\n[collect]\nexplore = 0.0\n[plan]\nconcurrency = 1\n")
    if place == "environment":
        for name, value in (("BUDGET__MAX_COST", "0.1"), ("COLLECT__EXPLORE", "0"), ("PLAN__CONCURRENCY", "1")):
            monkeypatch.setenv(f"JOURNEYMAN_{name}", value)
    assert collect(*options) == 0
    err = capsys.readouterr().err
    assert "2 executions" in err
    assert "stopped: the next plan could exceed the limit of $0.1; the same command goes on from here" in err


@pytest.mark.parametrize(
    ("more", "crew", "said"),
    [
        (["--max-cost", "1"], "UNPRICED", "free has no known price, so a limit on cost cannot be kept"),
        (["--max-cost", "nan"], "CREW", "--max-cost is nan, and must be above 0"),
        (["--max-cost", "-1"], "CREW", "--max-cost is -1.0, and must be above 0"),
        (["--planner", "nobody"], "CREW", "no planner 'nobody'"),
        ([], "NOBODY", "the crew 'bakers_who_collect:NOBODY' cannot be loaded"),
        (["--instructions", "empty.txt"], "CREW", "empty.txt"),
    ],
)
def test_what_cannot_be_done_is_one_line(more: list[str], crew: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert collect(*more, crew=crew) == 2
    err = capsys.readouterr().err.strip()
    assert said in err
    assert len(err.splitlines()) == 1
    assert not Path("logs").exists()


def test_the_desks_notes_are_not_given_to_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect", "executions", "--workers-from", "bakers_who_collect:CREW"]) == 2
    assert "are for the embedded desk; give your own with --instructions FILE" in capsys.readouterr().err


def test_a_learned_planners_id_stands_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    written(Path("checkpoints"), bakery(tool=False))
    assert collect("--planner", "checkpoints", "--num-executions", "2", "--json") == 0
    assert told(capsys)["ran"] == 2
    lines = [json.loads(line) for line in Path("logs/executions.jsonl").read_text().splitlines()]
    assert all(len(line["policy"]) == 16 for line in lines)


def test_logs_become_training_data_and_a_dry_run_writes_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert collect() == 0
    assert main(["dataset", "planner", "--logs", "logs", "--output", "set.json", "--dry-run", "--json"]) == 0
    assert told(capsys)["output"] is None
    assert not Path("set.json").exists()
    assert main(["dataset", "planner", "--logs", "logs", "--output", "deep/set.json", "--json"]) == 0
    found = told(capsys)
    assert (found["examples"], found["unjudged"], sorted(found["models"])) == (12, 12, ["cheap", "dear"])
    assert len(json.loads(Path("deep/set.json").read_text())["examples"]) == 12
