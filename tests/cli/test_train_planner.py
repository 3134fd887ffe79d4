"""`journeyman train planner`: two phases by the command line; a killed one goes on to the same bytes."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.optimizers.planner import data
from tests.support import warm
from tests.support.planners import KINDS, bakery, written

pytestmark = pytest.mark.training

ROOT = Path(__file__).parents[2]
DESK = ROOT / "tests/data/desk_outcomes/outcomes.jsonl"
FIRST = ["train", "planner", "--phase", "1", "--data", "set.json", "--tracker", "none", "--batch-size", "8"]
SECOND = ["train", "planner", "--phase", "2", "--replay", "outcomes.jsonl", "--tracker", "none"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JOURNEYMAN_STORE", raising=False)


def letters(number: int = 80) -> None:
    """Letters that were given to both models, in a file; the small one gets the easy ones right alone."""
    rows = []
    for at in range(number):
        right = {"small": float(at % 2 == 0), "large": 1.0}
        outcomes = {name: {"success": right[name], "cost": 0.01 if name == "small" else 0.4, "seconds": 1.0} for name in right}
        split = "held_out" if at % 4 > 1 else "train"
        request = f"please, {KINDS[at % 2]} number {at}"
        rows.append({"id": f"r{at}", "request": request, "type": KINDS[at % 2], "split": split, "outcomes": outcomes})
    Path("outcomes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def files() -> set[str]:
    return {str(path) for path in Path().rglob("*") if path.is_file()}


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_phase_1_trains_says_each_epoch_and_does_not_overwrite_itself(capsys: pytest.CaptureFixture[str]) -> None:
    data.write(bakery(40), Path("set.json"))
    assert main([*FIRST, "--epochs", "2"]) == 0
    err = capsys.readouterr().err
    assert "epoch   1" in err
    assert "epoch   2" in err
    assert {"checkpoints/phase1_best.safetensors", "checkpoints/phase1_last.safetensors"} <= files()
    assert main([*FIRST, "--epochs", "3"]) == 2
    assert "holds a phase 1 already: go on with it by --resume" in capsys.readouterr().err
    assert main([*FIRST, "--epochs", "3", "--resume"]) == 0
    err = capsys.readouterr().err
    assert "epoch   2" not in err
    assert "epoch   3" in err


def test_phase_2_on_record_ends_in_a_verdict_and_goes_on_only_where_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    letters()
    written(Path("checkpoints"))
    assert main([*SECOND, "--episodes", "64", "--json"]) == 1
    found = told(capsys)
    assert (found["phase"], found["episodes"], found["passed"]) == (2, 64, False)
    assert set(found["sides"]) == {"reinforced", "supervised", "small", "large"}
    assert main([*SECOND, "--episodes", "64"]) == 2
    assert "holds a phase 2 already" in capsys.readouterr().err
    assert main([*SECOND, "--episodes", "64", "--resume", "--json"]) == 1
    assert told(capsys)["policy"] == found["policy"]


def test_phase_2_starts_from_a_candidate_by_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    letters()
    written(Path("checkpoints"))
    assert main([*SECOND, "--episodes", "8", "--no-evaluate", "--json"]) == 1
    id = told(capsys)["policy"]
    assert main([*SECOND, "--episodes", "8", "--checkpoint", id, "--output-dir", "again", "--no-evaluate", "--json"]) == 1
    assert "again/phase2_best.safetensors" in files()


@pytest.mark.parametrize("phase", [FIRST, SECOND])
def test_a_dry_run_writes_nothing(phase: list[str]) -> None:
    letters()
    data.write(bakery(40), Path("set.json"))
    written(Path("checkpoints"))
    before = files()
    assert main([*phase, "--dry-run"]) == 0
    assert files() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--phase", "1"], "phase 1 needs examples: --data FILE"),
        (["--phase", "1", "--data", "set.json", "--learning-rate", "-1"], "--learning-rate is -1.0, and must be above 0"),
        (["--phase", "1", "--data", "few.json"], "too few to train and validate on"),
        (["--phase", "2", "--checkpoint", "nobody"], "no planner 'nobody' is in the store"),
        (["--phase", "2", "--checkpoint", "bakers"], "nobody can tell whether the work of small, large is right"),
        (["--phase", "2", "--checkpoint", "bakers", "--replay", "poems.jsonl"], "of the kind 'poem', unknown to the planner"),
        (["--phase", "2", "--checkpoint", "bakers", "--replay", "alone.jsonl"], "there is a choice to learn from two on"),
        (
            ["--phase", "2", "--checkpoint", "bakers", "--replay", "outcomes.jsonl", "--success-value", "much"],
            "is not USD,SECONDS",
        ),
        (["--explain-reward"], "name them with --logs PATH"),
    ],
)
def test_what_cannot_be_trained_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    letters()
    rows = [json.loads(line) for line in Path("outcomes.jsonl").read_text().splitlines()]
    Path("poems.jsonl").write_text("".join(json.dumps({**row, "type": "poem"}) + "\n" for row in rows))
    alone = [{**row, "outcomes": {"small": row["outcomes"]["small"]}} for row in rows]
    Path("alone.jsonl").write_text("".join(json.dumps(row) + "\n" for row in alone))
    data.write(bakery(40), Path("set.json"))
    data.write(bakery(1), Path("few.json"))
    written(Path("bakers"))
    assert main(["train", "planner", "--tracker", "none", *arguments]) == 2
    err = capsys.readouterr().err.strip()
    assert said in err
    assert len(err.splitlines()) == 1


def test_where_no_plan_is_carried_out_nothing_is_said_of_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    data.write(bakery(40), Path("set.json"))
    written(Path("bakers"))
    Path("journeyman.toml").write_text('[gate]\nguardrails = ["cost:10%"]\n')
    compared = ["evaluate", "planner", "--planner", "bakers", "--data", "set.json", "--json"]
    assert main(compared) == 1
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["guardrails"], "cost" in found["reason"]) == ([], False)
    assert main([*compared, "--guardrail", "cost:10%"]) == 2
    assert "with --data none is carried out" in capsys.readouterr().err


def run(*arguments: str, server: str = "one") -> subprocess.CompletedProcess[str]:
    made = warm.run("-m", "journeyman", *arguments, server=server)
    assert made.returncode in (0, 1), made.stderr
    assert "Traceback" not in made.stderr, made.stderr
    return made


def cold(*arguments: str) -> subprocess.CompletedProcess[str]:
    """As a user starts it, and with hashes of its own."""
    made = subprocess.run([sys.executable, "-m", "journeyman", *arguments], capture_output=True, text=True, check=False)
    assert made.returncode in (0, 1), made.stderr
    assert "Traceback" not in made.stderr, made.stderr
    return made


def killed(arguments: list[str], there: Path, *, after: float) -> None:
    """Start a command, and kill it some time after a file of it is there."""
    process = warm.start("-m", "journeyman", *arguments)
    limit = time.monotonic() + 120
    while not there.exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.02)
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it was over before it could be killed"


def test_kill_9_in_either_phase_and_resume_end_in_the_same_bytes() -> None:
    letters(400)
    data.write(bakery(120), Path("set.json"))
    first = [*FIRST, "--epochs", "6", "--patience", "0"]
    run(*first, "--output-dir", "whole")
    killed([*first, "--output-dir", "cut"], Path("cut/phase1_last.safetensors"), after=0.3)
    run(*first, "--output-dir", "cut", "--resume", server="other")
    for name in ("phase1_best", "phase1_last"):
        assert Path(f"cut/{name}.safetensors").read_bytes() == Path(f"whole/{name}.safetensors").read_bytes()

    second = [*SECOND, "--episodes", "1200", "--checkpoint", "whole/phase1_best", "--json"]
    whole = run(*second, "--output-dir", "whole")
    killed([*second, "--output-dir", "cut"], Path("cut/phase2/ppo.safetensors"), after=0.1)
    assert not Path("cut/phase2_best.safetensors").exists()
    cut = cold(*second, "--output-dir", "cut", "--resume")
    assert Path("cut/phase2_best.safetensors").read_bytes() == Path("whole/phase2_best.safetensors").read_bytes()
    assert json.loads(cut.stdout)["policy"] == json.loads(whole.stdout)["policy"]


def test_from_instructions_to_a_planner_that_carries_plans_out_and_a_router() -> None:
    run("collect", "executions", "--num-executions", "24", "--output-dir", "execution_logs/")
    run("dataset", "planner", "--logs", "execution_logs/", "--output", "training_data.json")
    run("train", "planner", "--phase", "1", "--data", "training_data.json", "--output-dir", "checkpoints/", "--epochs", "3")
    run("train", "planner", "--phase", "2", "--checkpoint", "checkpoints/phase1_best", "--episodes", "8", "--held-out", "4")
    run("train", "router", "--outcomes", str(DESK), "--objective", "quality - 20*cost")
    explained = run("route", "For oslo: we need 4 green bowls to lima", "--explain")
    assert all(name in explained.stdout for name in ("embedded:small", "embedded:base"))
    note = "for oslo: we need 4 green bowls to lima; for rome: please quote 9 red caps; then fill in the sheet"
    done = run("plan", note, "--planner", "checkpoints/phase2_best", "--run", "--json")
    assert json.loads(done.stdout)["states"]
    judged = run("evaluate", "planner", "--planner", "checkpoints/phase2_best", "--held-out", "4", "--json")
    assert {"candidate", "baseline", "passed"} <= set(json.loads(judged.stdout))
    assert Path("execution_logs/executions.jsonl").read_text().count("\n") == 25
