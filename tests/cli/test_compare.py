"""`journeyman compare` on files of results."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main

DATA = os.environ.get("JOURNEYMAN_DATA")
SAMPLE = Path(__file__).parents[1] / "data" / "gsm8k" / "example_model_solutions.jsonl"


def written(path: Path, scores: list[Any], **more: Any) -> str:
    rows = [{"task_id": f"t{n}", "score": score, **more} for n, score in enumerate(scores)]
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are counted in a project's store: this one has none yet, whatever lies where the tests are started."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def better(tmp_path: Path) -> list[str]:
    return [written(tmp_path / "a.jsonl", [0] * 30 + [1] * 10), written(tmp_path / "b.jsonl", [1] * 39 + [0])]


def test_a_better_candidate_passes_with_a_table_and_a_sentence(better: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *better]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "baseline   0.2500"
    assert lines[3] == "tasks      40   30 better, 1 worse, 9 alike"
    assert lines[-1].startswith("passed: gain +0.725 on 40 tasks, 95 % interval ")


def test_the_other_way_round_it_does_not_pass(better: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *reversed(better)]) == 1
    assert "it broke t0, t1, t10, t11, t12 and 25 more" in capsys.readouterr().out


def test_json_is_the_last_line_and_has_the_promised_fields(better: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *better, "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    promised = ["tasks", "unknown", "baseline", "candidate", "gain", "low", "high", "passed", "reason"]
    assert list(found)[:9] == promised
    assert found["passed"] is True
    assert found["low"] < found["gain"] < found["high"]


def test_looks_a_least_gain_and_peeking_make_it_stricter(better: list[str], tmp_path: Path) -> None:
    few = [written(tmp_path / "c.jsonl", [0] * 40), written(tmp_path / "d.jsonl", [1] * 7 + [0] * 33)]
    assert main(["compare", *few]) == 0
    assert main(["compare", *few, "--looks", "5"]) == 1
    assert main(["compare", *few, "--any_time"]) == 1
    assert main(["compare", *better, "--any-time", "--looks", "5"]) == 0
    assert main(["compare", *better, "--min-gain", "0.7"]) == 1
    assert main(["compare", *better, "--least_tasks", "41"]) == 1


def test_tasks_on_one_side_are_counted_and_said(better: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fewer = written(tmp_path / "e.jsonl", [1] * 35)
    assert main(["compare", better[0], fewer]) == 1
    assert "unknown    5   5 only in the baseline" in capsys.readouterr().out
    assert main(["compare", better[0], fewer, "--most-unknown", "0.2"]) == 0


def test_all_bad_rows_are_named_and_the_exit_code_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.jsonl"
    bad = [
        '{"task_id": "a", "score": 1}',
        '{"task_id": "a", "score": 0}',
        '{"task_id": "b", "score": 1.5}',
        "?",
        '{"score": 1}',
    ]
    path.write_text("\n".join([*bad, '{"task_id": "c", "score": "1"}', '{"task_id": "d"}']), encoding="utf-8")
    assert main(["compare", str(path), str(path)]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    for line, what in (
        (2, "stands at"),
        (3, "score is 1.5"),
        (4, "no JSON"),
        (5, "no task_id"),
        (6, "score is '1'"),
        (7, "no score"),
    ):
        assert f"{path}:{line}: " in error
        assert what in error


@pytest.mark.parametrize("arguments", [["nowhere", "nowhere"], ["only-one"], ["a", "b", "--looks", "-1"]])
def test_what_cannot_be_used_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *arguments]) == 2
    assert capsys.readouterr().err


def recorded(folder: Path, solutions: Path, model: str) -> str:
    with gzip.open(solutions, "rt") if solutions.suffix == ".gz" else solutions.open() as lines:
        return written(folder / model, [float(json.loads(line)[model]["is_correct"]) for line in lines])


@pytest.mark.skipif(not DATA, reason="JOURNEYMAN_DATA names no folder of recorded data")
def test_a_real_improvement_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    solutions = Path(str(DATA)) / "gsm8k" / "example_model_solutions.jsonl.gz"
    sides = [recorded(tmp_path, solutions, model) for model in ("175b_finetuning", "175b_verification")]
    assert main(["compare", *sides, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tasks"], found["wins"], found["losses"]) == (1319, 360, 76)
    assert (found["baseline"], found["candidate"]) == (458 / 1319, 742 / 1319)


def test_twenty_real_tasks_are_too_few(tmp_path: Path) -> None:
    sides = [recorded(tmp_path, SAMPLE, model) for model in ("175b_finetuning", "175b_verification")]
    assert main(["compare", *sides]) == 1
