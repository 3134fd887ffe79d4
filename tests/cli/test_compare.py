"""`journeyman compare` on files of results."""

import gzip
import json
import os
import re
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


def in_families(path: Path, effect: list[float], **more: Any) -> str:
    """Twenty tasks of each family, half of them right and a share more."""
    rows = [
        {"task_id": f"f{family}-{n}", "score": int(n < 20 * (0.5 + share)), "cluster": f"repo {family}", **more}
        for family, share in enumerate(effect)
        for n in range(20)
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def test_tasks_of_clusters_are_judged_by_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = in_families(tmp_path / "a.jsonl", [0.0] * 20)
    uneven = in_families(tmp_path / "b.jsonl", [0.4] * 10 + [-0.2] * 10)
    even = in_families(tmp_path / "c.jsonl", [0.25] * 20)
    assert main(["compare", before, uneven, "--json"]) == 1
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "on 400 tasks in 20 clusters" in found["reason"]
    assert found["clusters"] == 20
    assert found["low"] == found["decided_low"] < 0
    assert main(["compare", before, even]) == 0
    assert main(["compare", before, even, "--min-clusters", "21"]) == 1
    assert "21 clusters are needed" in capsys.readouterr().out


def test_one_side_may_name_the_clusters_and_neither_may_contradict_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named, bare = in_families(tmp_path / "a.jsonl", [0.0] * 12), tmp_path / "b.jsonl"
    bare.write_text(re.sub(r', "cluster": "[^"]*"', "", Path(named).read_text()), encoding="utf-8")
    assert main(["compare", str(bare), named]) == 1
    assert "in 12 clusters" in capsys.readouterr().out
    other = tmp_path / "c.jsonl"
    other.write_text(Path(named).read_text().replace("repo 3", "repo 4"), encoding="utf-8")
    assert main(["compare", named, str(other)]) == 2
    assert "the task f3-0 is of cluster repo 3 and of repo 4; a task is of one" in capsys.readouterr().err
    some = tmp_path / "d.jsonl"
    some.write_text(Path(named).read_text().replace(', "cluster": "repo 3"', ""), encoding="utf-8")
    assert main(["compare", str(some), str(some)]) == 2
    assert "20 of 240 tasks have no cluster, though the others have one (f3-0, " in capsys.readouterr().err


def test_who_looks_after_every_batch_says_how_many_tasks_there_will_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = written(tmp_path / "a.jsonl", [0] * 60)
    after = written(tmp_path / "b.jsonl", [1] * 8 + [0] * 52)
    assert main(["compare", before, after]) == 0
    assert main(["compare", before, after, "--any-time"]) == 1
    assert main(["compare", before, after, "--planned-tasks", "80"]) == 0
    assert "interval at 60 of 80 planned tasks" in capsys.readouterr().out
    assert main(["compare", before, after, "--planned-tasks", "400"]) == 1
    assert main(["compare", before, after, "--planned-tasks", "4000"]) == 1
    assert "60 tasks are too few to tell anything of the 4000 planned" in capsys.readouterr().out
    assert main(["compare", before, after, "--planned-tasks", "59", "--json"]) == 1
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["reason"].startswith("60 tasks were compared, and 59 were planned")
    assert found["planned_tasks"] == 59
    assert main(["compare", before, after, "--planned-tasks", "80", "--any-time"]) == 2
    assert "leave it out beside --planned-tasks" in capsys.readouterr().err


def test_a_guardrail_refuses_what_costs_too_much(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = written(tmp_path / "a.jsonl", [0] * 40, cost=0.010, seconds=2)
    after = written(tmp_path / "b.jsonl", [1] * 40, cost=0.013)
    assert main(["compare", before, after, "--guardrail", "cost:50%"]) == 0
    assert main(["compare", before, after, "--guardrail", "cost:0.2", "--guardrail", "seconds:10%", "--json"]) == 1
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["reason"].endswith(
        "; but cost +30.0 %, at most +30.0 %, where +20.0 % is allowed"
        "; but seconds is not known of 40 tasks, where +10.0 % is allowed"
    )
    cost, seconds = found["guardrails"]
    assert (cost["metric"], cost["margin"], cost["passed"]) == ("cost", 0.2, False)
    assert cost["change"] == pytest.approx(0.3)
    assert (seconds["unknown"], seconds["baseline"], seconds["passed"]) == (40, None, False)


@pytest.mark.parametrize("said", ["money:10%", "cost", "cost:much", "cost:-5%"])
def test_a_guardrail_that_is_none_is_one_sentence(better: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *better, "--guardrail", said]) == 2
    err = capsys.readouterr().err
    assert f"{said!r} is no guardrail: name one of cost, seconds, tokens and what may be added, as in cost:10%" in err
    assert len(err.splitlines()) == 1


def test_what_an_attempt_took_must_be_an_amount(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "a.jsonl", [1], cost="much")
    assert main(["compare", path, path]) == 2
    assert "cost is 'much', and must be a number from 0 on, or null" in capsys.readouterr().err


def test_every_number_of_the_sentence_stands_in_the_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To the digits that the sentence gives; shares of the JSON are percent in it."""
    rough = tmp_path / "c.jsonl"
    rough.write_text(
        "".join(
            json.dumps({"task_id": f"t{n}", "score": [0.31, 0.87, 1, None][n % 4] if trial else 0.5, "trial": trial}) + "\n"
            for n in range(60)
            for trial in range(3)
        )
    )
    families = in_families(tmp_path / "a.jsonl", [0.0] * 20, cost=1), in_families(tmp_path / "b.jsonl", [0.2] * 20, cost=1.1)
    plain = written(tmp_path / "d.jsonl", [0, 1, 0, 0] * 15), written(tmp_path / "e.jsonl", [1, 0, 1, 1] * 15)
    half = written(tmp_path / "f.jsonl", [0.5] * 60)
    for files in (families, plain, plain[::-1], (half, str(rough)), (str(rough), half)):
        for options in ([], ["--looks", "7"], ["--guardrail", "cost:20%"], ["--any-time"], ["--planned-tasks", "700"]):
            main(["compare", *files, *options, "--json"])
            found = json.loads(capsys.readouterr().out.splitlines()[-1])
            missing = _numbers(found["reason"].partition("; it broke")[0]) - _known(found)
            assert not missing, (found["reason"], missing)


def _numbers(sentence: str) -> set[str]:
    return {each.rstrip(".") for each in re.findall(r"[+-]?\d[\d.]*", re.sub(r"at 0 and at 1\b", "", sentence))}


def _known(found: dict[str, Any]) -> set[str]:
    """Every number of the JSON as a sentence may say it."""
    guarded = [value for each in found["guardrails"] for value in each.values()]
    numbers = [value for value in (*found.values(), *guarded) if isinstance(value, int | float)]
    counts = [found["looks"] + 1, found["tasks"] + found["unknown"], 0.0]
    gate = {"+0.000", "30", "10", "5"}
    told = {f"{value:+.3f}" for value in numbers} | {str(value) for value in (*numbers, *counts)} | gate
    told |= {f"{100 * value:+.1f}" for value in numbers}
    return told | {f"{100 * value:.{digits}f}".rstrip("0").rstrip(".") for value in numbers for digits in range(2, 7)}


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
