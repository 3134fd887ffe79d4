"""`journeyman check` on files of tasks and samples."""

import json
from pathlib import Path

import pytest

from journeyman.cli import main
from journeyman.cli.check import lines

pytestmark = pytest.mark.service

TASK = {"task_id": "a", "text": "Double it.", "test_list": ["assert double(2) == 4"]}


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    samples = [{"task_id": "a", "solution": f"def double(x): return {body}"} for body in ("2 * x", "x", "2 * x")]
    (tmp_path / "tasks.jsonl").write_text(json.dumps(TASK))
    (tmp_path / "samples.jsonl").write_text("\n".join(json.dumps(row) for row in samples))
    files = ["--samples", str(tmp_path / "samples.jsonl"), "--tasks", str(tmp_path / "tasks.jsonl")]
    return ["check", "code", *files, "--unsafe-local"]


def test_the_result_has_the_fields_that_are_promised(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--k", "1,2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["samples"], found["passed"], found["failed"], found["timeout"]) == (3, 2, 1, 0)
    assert found["verdicts"] == {"a": [True, False, True]}
    assert found["pass@1"] == pytest.approx(2 / 3)
    assert found["pass@2"] == 1.0


def test_people_are_shown_a_table_and_how_far_it_has_come(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert "pass@1     0.6667" in shown.out
    assert "pass@10: fewer than 10 samples with a verdict for some task" in shown.out
    assert "no sample passed" not in shown.out
    assert "without a sandbox" in shown.out
    assert "3/3 samples" in shown.err


def test_people_are_told_which_tasks_no_sample_passed_and_the_walls() -> None:
    verdicts = {"good": [True, False], "unknown": [None], **{f"t{n}": [False, None] for n in range(12)}}
    result = {
        "samples": 27,
        "passed": 1,
        "failed": 13,
        "timeout": 0,
        "unknown": 13,
        "verdicts": verdicts,
        "sandbox": "landlock",
    }
    assert list(lines(result, ()))[-2:] == [
        "tasks that no sample passed: t0, t1, t2, t3, t4, t5, t6, t7, t8, t9 and 2 more",
        "sandbox: landlock",
    ]


def test_a_sample_of_no_task_is_refused_before_anything_runs(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "samples.jsonl").write_text('{"task_id": "b", "completion": ""}\n')
    assert main(arguments) == 2
    assert "samples.jsonl:1: no task 'b' in the file of tasks, where ids look like 'a'" in capsys.readouterr().err


def test_k_must_be_numbers(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--k", "one"]) == 2
    assert "1,10,100" in capsys.readouterr().err
