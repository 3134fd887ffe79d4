"""`journeyman evaluate decisions`, on a log made of RouteLLM's recorded outcomes: real answers, choices drawn here."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from journeyman.cli import main
from journeyman.core.policy import Choice, Ending, Outcome
from journeyman.optimizers.router.decisions import DecisionLog

DATA = Path(__file__).parents[1] / "data" / "routellm" / "gsm8k.jsonl.gz"
ROWS = [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]


def logged(path: Path, share: float, rounds: int = 4) -> Path:
    """A policy that asks the weak model, and explores a share; each question comes several times."""
    log, chance = DecisionLog(path), np.random.default_rng(0)
    for row in ROWS * rounds:
        worker = ("weak", "strong")[int(chance.random() < share / 2)]
        propensity = share / 2 if worker == "strong" else 1 - share / 2
        choice = Choice(worker=worker, propensity=propensity, candidates=("strong", "weak"), policy="base")
        success = float(row[f"{worker}_correct"])
        ending = Ending.RIGHT if success else Ending.WRONG
        log.became(log.decided(choice, row["prompt"]), Outcome(ending=ending, success=success, cost=0.001, seconds=1.0))
    return path


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_the_stronger_model_is_told_to_have_been_better_with_an_interval_that_holds_the_truth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logged(tmp_path / "log.jsonl", 0.5)
    assert main(["evaluate", "decisions", "--log", str(log), "--always", "strong", "--json"]) == 0
    found = told(capsys)
    truth = np.mean([row["strong_correct"] for row in ROWS])
    doubly = found["estimates"]["DR"]  # type: ignore[index]
    assert doubly["low"] < truth < doubly["high"]
    assert found["gain"]["low"] > 0  # type: ignore[index]


def test_what_is_already_done_is_no_gain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logged(tmp_path / "log.jsonl", 0.5)
    assert main(["evaluate", "decisions", "--log", str(log), "--always", "weak", "--json"]) == 1
    assert told(capsys)["refused"] == ""


def test_a_log_that_hardly_explored_is_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logged(tmp_path / "log.jsonl", 0.05, rounds=1)
    assert main(["evaluate", "decisions", "--log", str(log), "--always", "strong", "--explain-reward"]) == 1
    tables, words = capsys.readouterr()
    assert "explore a larger share" in words
    assert "success" in tables


def test_a_worker_that_nobody_ever_asked_cannot_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logged(tmp_path / "log.jsonl", 0.5, rounds=1)
    assert main(["evaluate", "decisions", "--log", str(log), "--always", "unheard-of", "--json"]) == 1
    assert "most of them unheard-of" in str(told(capsys)["refused"])


def test_a_provider_that_failed_was_no_help(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, chance = DecisionLog(tmp_path / "log.jsonl"), np.random.default_rng(0)
    for at in range(400):
        worker = ("down", "up")[int(chance.random() < 0.5)]
        choice = Choice(worker=worker, propensity=0.5, candidates=("down", "up"), policy="base")
        failed = worker == "down" and at % 4 > 0
        outcome = Outcome(ending=Ending.ERROR) if failed else Outcome(ending=Ending.RIGHT, success=1.0)
        log.became(log.decided(choice, f"request {at}"), outcome)
    assert main(["evaluate", "decisions", "--log", str(log.path), "--always", "down", "--json"]) == 1
    found = told(capsys)
    assert found["skipped"] == 0
    assert found["estimates"]["DR"]["high"] < 0.5  # type: ignore[index]


def test_lines_that_are_no_log_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = logged(tmp_path / "log.jsonl", 0.5, rounds=1)
    id = json.loads(path.read_text().splitlines()[0])["decision"]
    with path.open("a") as file:
        file.write('{"decision": ' + "[" * 100_000 + "\n" + json.dumps({"outcome_of": id, "success": "much"}) + "\n")
    assert main(["evaluate", "decisions", "--log", str(path), "--always", "weak"]) == 2
    assert f"{path}:{len(path.read_text().splitlines())}: no decision" in capsys.readouterr().err


@pytest.mark.parametrize("named", [[], ["--always", "weak", "--policy", "x"], ["--policy", "x", "--objective", "quality"]])
def test_options_that_do_not_say_one_policy_are_refused(named: list[str], tmp_path: Path) -> None:
    log = logged(tmp_path / "log.jsonl", 0.5, rounds=1)
    assert main(["evaluate", "decisions", "--log", str(log), *named]) == 2


@pytest.mark.training
def test_a_trained_router_is_judged_by_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    log = logged(tmp_path / "log.jsonl", 1.0)
    outcomes = tmp_path / "outcomes.jsonl"
    told_rows = (
        {"prompt": row["prompt"], "scores": {name: row[f"{name}_correct"] for name in ("weak", "strong")}} for row in ROWS
    )
    outcomes.write_text("".join(json.dumps(row) + "\n" for row in told_rows))
    assert main(["train", "router", "--outcomes", str(outcomes), "--output", "routers/one", "--json"]) in (0, 1)
    capsys.readouterr()
    assert main(["evaluate", "decisions", "--log", str(log), "--policy", "routers/one", "--json"]) in (0, 1)
    found = told(capsys)
    assert found["refused"] == ""
    assert set(found["estimates"]) == {"IPS", "SNIPS", "DM", "DR"}  # type: ignore[call-overload]
