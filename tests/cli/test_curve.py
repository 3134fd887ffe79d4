"""`journeyman curve`: from whatever was recorded to a plot, a picture and honest sentences."""

import gzip
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from journeyman.cli import main
from journeyman.core.installation import installing
from journeyman.core.playbook import Playbook
from journeyman.core.score import Reward, Score
from journeyman.core.task import Split
from journeyman.core.trace import ModelCall, Trace
from journeyman.io.atomic import write_json
from journeyman.optimizers.playbook.run import PlaybookRun
from journeyman.stores import AttemptRecord, RunRecord, open_store

pytestmark = pytest.mark.service

DATA = os.environ.get("JOURNEYMAN_DATA")
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(path: Path, count: int = 30) -> Path:
    """Tasks that go wrong at first and right from the middle on, for fewer and fewer tokens."""
    found = [{"task_id": n, "score": int(n >= count / 2), "tokens": 1000 - 10 * n + n % 7} for n in range(count)]
    path.write_text("\n".join(json.dumps(row) for row in found))
    return path


def attempt(number: int, split: Split = Split.TRAIN) -> AttemptRecord:
    call = ModelCall(model="m", prompt="p", reply="r", input_tokens=900 - 10 * number, output_tokens=100)
    id = f"{split}/{number}"
    trace = Trace(
        id=id, task_id=id, candidate_id="base", started_at=BEGUN + timedelta(seconds=number), steps=(call,), domain="oslo"
    )
    score = Score(trace_id=id, rewards=(Reward(name="right", value=float(number > 9)),))
    return AttemptRecord(run_id="desk-oslo", split=split, trace=trace, score=score)


def run(folder: Path) -> Path:
    """A run with its attempts in the project's store."""
    runs = folder / ".journeyman" / "runs" / "desk-oslo"
    PlaybookRun.begin(runs, {"name": "x"}, Playbook())
    with open_store(folder / ".journeyman" / "journeyman.db") as store:
        store.add_run(RunRecord(id="desk-oslo", kind="train playbook", config={}, started_at=BEGUN))
        store.add_attempts(map(attempt, reversed(range(21))))
        store.add_attempts([attempt(number, Split.HELD_OUT) for number in range(50)])
    return runs


@pytest.mark.parametrize("of_scenarios", [False, True])
def test_a_run_that_was_interrupted_before_its_first_attempt_is_to_be_gone_on_with(
    folder: Path, capsys: pytest.CaptureFixture[str], of_scenarios: bool
) -> None:
    begun = folder / ".journeyman" / "runs" / "desk-oslo"
    PlaybookRun.begin(begun, {"name": "x"}, Playbook())
    if of_scenarios:
        write_json(folder / "results.json", {"results": []})
        write_json(begun / "results.json", {"path": str(folder / "results.json")})
    assert main(["curve"]) == 2
    told = capsys.readouterr().err
    assert "run desk-oslo has no attempts yet" in told
    assert "--resume desk-oslo" in told


def test_it_says_what_changed_and_what_is_not_known(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["curve", str(rows(folder / "rows.jsonl"))]) == 0
    said = capsys.readouterr().out
    assert "success: 0 % → 100 % (+100 points, 95 % interval +59 to +100 points; n = 20): better" in said
    assert "tokens: 957 → 758 (-200, -21%, 95 % interval -228 to -171; n = 20): better" in said
    assert "cost: not known of any of 30 tasks" in said
    assert "shows that it changed, not why" in said
    assert "score: 1 where a task succeeded and 0 where not" in said


def test_what_is_not_shown_is_called_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(json.dumps({"task_id": n, "score": n % 2}) for n in range(30)))
    main(["curve", str(path)])
    said = capsys.readouterr().out
    assert "not shown: the interval includes 0" in said
    assert "not why" not in said


def test_json_is_the_last_line_of_stdout(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["curve", str(rows(folder / "rows.jsonl")), "--json", "--window", "4"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tasks"], found["window"], found["changes"]["success"]["verdict"]) == (30, 4, "better")
    assert found["changes"]["cost"]["known"] == 0
    assert found["changes"]["cost"]["first"] is None


def test_the_newest_run_is_read_out_of_the_store_without_its_examination(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(folder)
    for source in ([], ["desk-oslo"], [".journeyman/runs/desk-oslo"]):
        assert main(["curve", *source, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["source"], found["tasks"]) == ("run desk-oslo", 21)
        assert (found["changes"]["tokens"]["first"], found["changes"]["tokens"]["last"]) == (970, 830)


def test_a_run_on_scenarios_is_read_out_of_its_file_of_results(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = run(folder)
    results = [{"scenario": {"name": str(n)}, "success": True, "metadata": {"cost_usd": 0.1}} for n in range(12)]
    write_json(folder / "results" / "training_results_1.json", {"results": results})
    write_json(runs / "results.json", {"session_id": "1", "path": "results/training_results_1.json"})
    assert main(["curve", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tasks"], found["changes"]["cost"]["known"]) == (12, 12)


def test_the_picture_is_a_png_also_where_there_is_no_screen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    pytest.importorskip("matplotlib")
    assert main(["curve", str(rows(folder / "a $strange$ _name_.jsonl")), "--png", "pictures/curve.png"]) == 0
    assert (folder / "pictures" / "curve.png").read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_tasks_are_drawn_and_not_judged(folder: Path, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["curve", str(rows(folder / "rows.jsonl", count)), "--png", "curve.png"]) == 0
    assert "too few; the first and the last part need 3 each" in capsys.readouterr().out


def test_a_picture_without_the_extra_says_what_to_type(folder: Path) -> None:
    rows(folder / "rows.jsonl")
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from journeyman.cli import main\n"
        "sys.exit(main(['curve', 'rows.jsonl', '--json', '--png', 'curve.png']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"matplotlib is missing: {installing('plot')}" in done.stderr


@pytest.mark.skipif(not DATA, reason="set JOURNEYMAN_DATA to the folder with the full data sets")
def test_a_published_run_with_a_growing_cheat_sheet_shows_no_gain_and_more_tokens(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "AIME_2024__gpt-4o_DynamicCheatsheet_Cumulative.jsonl.gz"
    with (
        gzip.open(Path(DATA or "") / "dynamic-cheatsheet" / name, "rt", encoding="utf-8") as file,
        (folder / "rows.jsonl").open("w") as out,
    ):
        for number, line in enumerate(file):
            row = json.loads(line)
            answers = re.findall(r"\d+", str(row["final_answer"]))
            score = int(bool(answers) and int(answers[-1]) == int(row["target"]))
            tokens = len(row["final_output"]) // 4 + len(row["final_cheatsheet"] or "") // 4
            out.write(json.dumps({"task_id": number, "score": score, "tokens": tokens}) + "\n")
    main(["curve", "rows.jsonl"])
    said = capsys.readouterr().out
    assert "success: 40 % → 30 % (-10 points, 95 % interval -51 to +34 points; n = 20): not shown" in said
    assert "tokens: 1,898 → 2,475 (+576, +30%, 95 % interval +207 to +946; n = 20): WORSE" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["curve"], "there is no run in"),
        (["curve", "nowhere.json"], "nowhere.json is neither a file nor a run; there are: none"),
        (["curve", "rows.jsonl", "--part", "0.7"], "--part is 0.7, and must lie above 0 and at most at 0.5"),
        (["curve", "rows.jsonl", "--png", "."], "is a directory"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(
    folder: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows(folder / "rows.jsonl")
    assert main(arguments) == 2
    assert said in capsys.readouterr().err
