"""What `journeyman learn` says, and what it refuses, before anything is spent."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.turn import LearnSubject, LearnTurn, TurnEvent, TurnSpent, TurnState
from journeyman.stores.artifacts import Artifacts
from journeyman.stores.turns import LEASE, open_turns
from tests.serving.gateway.test_process import until
from tests.support.learners import recorded

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOURNEYMAN_STORE", f"sqlite:///{tmp_path}/journeyman.db")
    monkeypatch.setenv("JOURNEYMAN_USER", "ada")


def told(capsys: pytest.CaptureFixture[str], *typed: str, code: int = 0) -> dict[str, Any]:
    assert main(["learn", *typed, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def settings(text: str) -> None:
    Path("journeyman.toml").write_text(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[learn]\nmin_nwe = 5\n", "journeyman.toml:2: there is no setting learn.min_nwe; did you mean learn.min_new?"),
        ('[learn]\nat = "two"\n', "two times of day such as 02:00-06:00, in UTC"),
        ("[learn]\nbudget = { cost_per_day = 0 }\n", "cost_per_day must be above 0"),
        (
            "[learn]\nbudget = { cost_per_day = 0.1, cost_per_turn = 0.5 }\n",
            "cost_per_turn (0.5) must be at most cost_per_day (0.1)",
        ),
        ('[learn]\nkinds = ["playbok"]\n', "journeyman.toml:2: learn.kinds"),
        ('[learn.commands]\nplaybook = "train playbok"\n', "did you mean playbook?"),
        ('[learn.commands]\nplaybook = "train playbook --form traces"\n', "--form"),
        ('[learn.commands]\nplaybook = "serve"\n', "which does not end by itself"),
        ('[learn]\nplan = "none.json"\n', "learn.plan names none.json, and there is no such file"),
    ],
)
def test_what_cannot_be_meant_is_said_in_a_sentence_before_anything_begins(
    text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings(text)
    assert main(["learn", "start", "--foreground"]) == 2
    problem = capsys.readouterr().err
    assert said in problem
    assert len(problem.strip().splitlines()) == 1
    assert not Path("journeyman.db").exists()


def test_a_dry_run_says_what_is_due_and_what_not_and_why_and_does_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings("[learn]\nmin_new = 2\n")
    recorded(tmp_path, "a", "b", "c")
    recorded(tmp_path, "d", domain="lima")
    found = told(capsys, "start", "--dry-run")
    assert [(each["subject"], each["due"], each["why"]) for each in found["plans"]] == [
        ("playbook desk/oslo", True, "3 new traces"),
        ("playbook desk/lima", False, "1 of 2 new traces"),
    ]
    assert found["left"] == {"cost": 2.0, "cpu_seconds": 7200.0, "looks": 60, "cost_per_turn": 0.5}
    assert told(capsys, "history")["turns"] == []
    assert told(capsys, "status", code=1)["holder"] == ""


def test_models_without_a_price_need_no_bound_of_money(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings("[learn]\nbudget = { cost_per_day = inf }\n")
    recorded(tmp_path, "a")
    left = told(capsys, "start", "--dry-run")["left"]
    assert (left["cost"], left["cost_per_turn"], left["looks"]) == (None, None, 60)


def test_another_file_may_say_when_to_learn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path, "a")
    Path("nightly.toml").write_text("[learn]\nmin_new = 1\n")
    assert not told(capsys, "start", "--dry-run")["plans"][0]["due"]
    assert told(capsys, "start", "--dry-run", "--config", "nightly.toml")["plans"][0]["due"]


def test_who_holds_the_lease_is_said_to_whoever_comes_second(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_turns(tmp_path / "journeyman.db") as store:
        store.lease(LEASE, "elsewhere/7", datetime.now(UTC), 60)
    assert told(capsys, "start", code=1) == {"started": False, "holder": "elsewhere/7"}
    assert told(capsys, "start", "--once", "--foreground", code=1)["elsewhere"] == "elsewhere/7"
    assert told(capsys, "status")["holder"] == "elsewhere/7"


def kept(folder: Path, *states: TurnState) -> list[LearnTurn]:
    """Turns of one subject that ended so, each with a file as it was before."""
    turns = []
    with open_turns(folder / "journeyman.db") as store:
        store.lease(LEASE, "us", NOON, 600)
        for number, state in enumerate(states):
            digest = Artifacts(folder / ".journeyman/artifacts").put(f"before {number}\r\n\xff".encode("latin-1"))
            begun = TurnEvent(number=0, state=TurnState.RUNNING, at=NOON)
            turn = LearnTurn(
                id=f"playbook-{number}", subject=LearnSubject("playbook", "desk", "oslo"), began=NOON.replace(minute=number),
                trigger="", data_digest=str(number), seen=number, events=(begun,),
                before={"files": {"playbooks/a.json": digest, "playbooks/b.json": None}},
            )  # fmt: skip
            store.begin(turn, "us")
            turns.append(turn.then(state, NOON, spent=TurnSpent(cpu_seconds=1.0)) if state is not TurnState.RUNNING else turn)
            if state is not TurnState.RUNNING:
                store.keep(turns[-1])
    return turns


def test_undo_puts_files_back_byte_for_byte_and_the_last_turn_goes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept(tmp_path, TurnState.LEARNED, TurnState.REFUSED, TurnState.LEARNED)
    Path("playbooks").mkdir()
    for name in ("a", "b"):
        Path(f"playbooks/{name}.json").write_text("learned since")
    why = ("--reason", "it was a mistake")
    assert "undo that first" in told(capsys, "undo", "playbook-0", *why, code=1)["reason"]
    assert main(["learn", "undo", "playbook-1", *why]) == 2
    assert "is refused: nothing came of it" in capsys.readouterr().err
    assert told(capsys, "undo", "playbook-2", *why, "--dry-run")["done"] is False
    assert Path("playbooks/a.json").read_text() == "learned since"
    assert set(told(capsys, "undo", "playbook-2", *why)["files"]) == {"playbooks/a.json", "playbooks/b.json"}
    assert Path("playbooks/a.json").read_bytes() == b"before 2\r\n\xff"
    assert not Path("playbooks/b.json").exists()
    assert told(capsys, "undo", "playbook-0", *why)["done"] is True
    assert Path("playbooks/a.json").read_bytes() == b"before 0\r\n\xff"
    assert [each["state"] for each in told(capsys, "history")["turns"]] == ["undone", "refused", "undone"]


def test_nothing_is_undone_under_the_hands_of_a_turn_at_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(tmp_path, TurnState.LEARNED, TurnState.RUNNING)
    assert "is at work on the same" in told(capsys, "undo", "playbook-0", "--reason", "why", code=1)["reason"]


def test_a_pause_is_told_until_it_is_over(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    recorded(tmp_path, "a")
    assert told(capsys, "pause", "--reason", "a sale")["said"] == "pause"
    assert told(capsys, "status", code=1)["paused"] is True
    told(capsys, "resume")
    assert told(capsys, "status", code=1)["paused"] is False


@pytest.mark.service
def test_in_the_background_it_runs_until_it_is_told_to_stop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path, "a")
    typed = [sys.executable, "-m", "journeyman", "learn", "start", "--every", "0.2", "--json"]
    started = json.loads(subprocess.run(typed, capture_output=True, text=True, check=True, timeout=60).stdout)
    assert until(lambda: main(["learn", "status"]) == 0)
    capsys.readouterr()
    found = told(capsys, "status")
    assert found["holder"].endswith(f"/{started['pid']}")
    assert found["plans"][0]["why"] == "1 of 50 new traces"
    told(capsys, "stop")
    assert until(lambda: main(["learn", "status"]) == 1)
    capsys.readouterr()
    assert told(capsys, "status", code=1)["daemon"]["state"] == "stopped"
