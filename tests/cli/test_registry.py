"""`journeyman runs`, `candidates`, `evaluations` and `releases`, and the registry that they read."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import journeyman
from journeyman.cli import main
from journeyman.core.candidate import Candidate, Kind
from journeyman.core.errors import InputError, StoreError
from journeyman.core.evaluation import Pair
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.release import Release, Stage
from journeyman.core.score import Reward, Score
from journeyman.core.task import Split
from journeyman.core.trace import ModelCall, Trace
from journeyman.optimizers.playbook import files
from journeyman.stores import AttemptRecord, EvaluationRecord, RunRecord, RunState, Store, open_store
from journeyman.stores.registry import contradiction

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
OLD = Candidate(kind=Kind.PLAYBOOK, body=json.dumps({"bullets": ["Be kind.", "Ask twice."]}))
NEW = Candidate(kind=Kind.PLAYBOOK, body=json.dumps({"bullets": ["Be kind.", "Ask once."]}), parents=(OLD.id,))


def attempt(run: str, side: str, task: str, score: float, candidate: str) -> AttemptRecord:
    id = f"{run}/evaluation/{side}/0/{task}"
    call = ModelCall(model="m", prompt="?", reply="!", input_tokens=10, output_tokens=5, cost=0.25)
    trace = Trace(id=id, task_id=task, candidate_id=candidate, started_at=NOON, steps=(call,))
    reward = Reward(name="right", value=score)
    return AttemptRecord(run_id=run, split=Split.HELD_OUT, trace=trace, score=Score(trace_id=id, rewards=(reward,)))


def evaluation(run: str, *, passed: bool, pairs: bool) -> EvaluationRecord:
    report: dict[str, Any] = {"gain": 0.25, "wins": 2, "losses": 1}
    if pairs:
        told = (("a", 0.0, 1.0), ("b", 1.0, 0.5), ("c", 0.25, 1.0), ("d", 1.0, 1.0))
        report["pairs"] = [{"task_id": id, "baseline": before, "candidate": after} for id, before, after in told]
    reason = "gain +0.250 on 4 tasks" if passed else "too few tasks"
    return EvaluationRecord(
        id=f"{run}/{NEW.id}/{OLD.id}/h/1",
        candidate_id=NEW.id,
        baseline_id=OLD.id,
        held_out_id="h",
        passed=passed,
        reason=reason,
        report=report,
        at=NOON + HOUR,
    )


def fill(store: Store) -> None:
    for number, id in enumerate(("20260305-120000", "20260306-120000")):
        config = {"seed": number, "gate": {"alpha": 0.05}, "model": "scripted"}
        store.add_run(RunRecord(id=id, kind="train playbook", config=config, started_at=NOON + number * HOUR))
        store.add_evaluation(evaluation(id, passed=bool(number), pairs=bool(number)))
    store.mark_run("20260306-120000", RunState.FINISHED, NOON + 2 * HOUR, {"reason": "gain +0.250", "gain": 0.25})
    store.add_run(RunRecord(id="router-1", kind="train router", config={}, started_at=NOON))
    run = "20260305-120000"
    for side, candidate, scores in (("baseline", OLD.id, (0.0, 1.0)), ("candidate", NEW.id, (1.0, 1.0))):
        store.add_attempts(attempt(run, side, task, score, candidate) for task, score in zip("ab", scores, strict=True))
    store.add_candidate(OLD)
    store.add_candidate(NEW)
    store.add_release(Release.begin(NEW.id, Stage.PRODUCTION, "gain +0.250", NOON + 2 * HOUR, forced=True))


class Said:
    """A command on one store, and what it has said."""

    def __init__(self, capsys: pytest.CaptureFixture[str], store: Path) -> None:
        self._capsys = capsys
        self.store = store
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        assert main([*arguments, "--store", str(self.store)]) == code
        said = self._capsys.readouterr()
        self.err = said.err
        return said.out

    def json(self, *arguments: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self(*arguments, "--json").splitlines()[-1])
        return told


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    with open_store(tmp_path / "store.db") as store:
        fill(store)
    return Said(capsys, tmp_path / "store.db")


def test_runs_are_listed_newest_first_and_filtered(say: Said) -> None:
    assert [run["id"] for run in say.json("runs", "list")["runs"]] == ["router-1", "20260306-120000", "20260305-120000"]
    assert [run["id"] for run in say.json("runs", "list", "--state", "finished")["runs"]] == ["20260306-120000"]
    assert [run["id"] for run in say.json("runs", "list", "--kind", "train playbook", "--limit", "1")["runs"]] == [
        "20260306-120000"
    ]
    out = say("runs", "list")
    assert "20260306-120000" in out
    assert "gain +0.250" in out


def test_a_run_is_shown_with_its_settings_its_attempts_and_its_evaluations(say: Said) -> None:
    told = say.json("runs", "show", "20260305")
    assert told["run"]["config"]["gate"] == {"alpha": 0.05}
    assert told["attempts"] == [
        {"split": "held_out", "candidate_id": id, "attempts": 2, "unscored": 0, "mean_score": mean, "tokens": 30, "cost": 0.5}
        for id, mean in ((OLD.id, 0.5), (NEW.id, 1.0))
    ]
    assert [each["passed"] for each in told["evaluations"]] == [False]
    out = say("runs", "show", "20260305")
    assert f"2 held-out ({OLD.id}), mean score 0.500, 30 tokens, cost $0.50" in out
    assert f"2 held-out ({NEW.id}), mean score 1.000" in out
    assert "not passed: too few tasks" in out


def test_two_runs_are_told_apart_by_settings_and_result(say: Said) -> None:
    told = say.json("runs", "diff", "20260305", "20260306")["changes"]
    assert {each["name"]: (each["before"], each["after"]) for each in told} == {
        "config.seed": (0, 1),
        "state": ("running", "finished"),
        "result": ({}, None),
        "result.gain": (None, 0.25),
        "result.reason": (None, "gain +0.250"),
    }
    assert "config.seed" in say("runs", "diff", "20260305", "20260306")
    assert say("runs", "diff", "20260305", "20260305") == ""
    assert "the same settings" in say.err


def test_a_run_is_forgotten_unless_a_release_stands_on_it(say: Said) -> None:
    say("runs", "rm", "20260306", "--yes", code=2)
    assert f"the run 20260306-120000 stays: the release of {NEW.id} stands on its evaluation" in say.err
    assert say.json("runs", "rm", "router", "--yes") == {"run": "router-1", "attempts": 0}
    assert len(say.json("runs", "list")["runs"]) == 2


def test_candidates_are_listed_shown_and_compared(say: Said) -> None:
    listed = say.json("candidates", "list", "--kind", "playbook")["candidates"]
    assert [(each["id"], each["stage"], each["passed"]) for each in listed] == [
        (NEW.id, "production", True),
        (OLD.id, None, None),
    ]
    told = say.json("candidates", "show", OLD.id[:6])
    assert (told["candidate"]["body"], told["children"], told["release"]) == (OLD.body, [NEW.id], None)
    assert "Ask once." in say("candidates", "show", NEW.id[:6])
    bullet = Bullet(id="b-1", content="Be brief.", helpful=3, shown=4)
    learned = Candidate(kind=Kind.PLAYBOOK, body=files.dumps(Playbook(bullets=(bullet,))))
    with open_store(say.store) as store:
        store.add_candidate(learned)
    shown = say("candidates", "show", learned.id)
    assert re.search(r"b-1 +helpful +Be brief\. +\+3 -0", shown)
    assert "{" not in shown
    lines = say("candidates", "diff", OLD.id, NEW.id).splitlines()
    assert '-  "Ask twice."' in lines
    assert '+  "Ask once."' in lines


def test_an_evaluation_is_shown_with_the_tasks_won_and_lost_side_by_side(say: Said) -> None:
    told = say.json("evaluations", "show", "20260306")
    assert [pair["task_id"] for pair in told["won"]] == ["a", "c"]
    assert told["lost"] == [{"task_id": "b", "baseline": 1.0, "candidate": 0.5}]
    assert [pair["task_id"] for pair in told["same"]] == ["d"]
    out = say("evaluations", "show", "20260306")
    assert "2 won, 1 lost, 1 the same" in out
    assert ["b", "1.000", "0.500", "-0.500"] in [line.split() for line in out.splitlines()]
    assert ["d", "1.000", "1.000", "+0.000"] in [
        line.split() for line in say("evaluations", "show", "20260306", "--all").splitlines()
    ]


def test_the_tasks_of_an_older_evaluation_are_those_of_its_runs_attempts(say: Said) -> None:
    with journeyman.Registry.open(say.store) as registry:
        found = registry.evaluation("20260305")
        assert found.won == (Pair(task_id="a", baseline=0.0, candidate=1.0),)
        assert found.same == (Pair(task_id="b", baseline=1.0, candidate=1.0),)
        assert len(list(registry.attempts("20260305"))) == 4


def test_evaluations_are_listed_newest_first_and_filtered(say: Said) -> None:
    listed = say.json("evaluations", "list")["evaluations"]
    assert [each["run_id"] for each in listed] == ["20260306-120000", "20260305-120000"]
    assert [each["run_id"] for each in say.json("evaluations", "list", "--not-passed")["evaluations"]] == ["20260305-120000"]
    assert len(say.json("evaluations", "list", "--candidate", NEW.id[:5])["evaluations"]) == 2
    assert "+0.250" in say("evaluations", "list")


def test_releases_are_listed_and_shown_with_every_move(say: Said) -> None:
    assert [each["stage"] for each in say.json("releases", "list")["releases"]] == ["production"]
    assert say.json("releases", "list", "--stage", "canary")["releases"] == []
    told = say.json("releases", "show", NEW.id[:4])
    assert [move["stage"] for move in told["release"]["moves"]] == ["shadow", "canary", "production"]
    assert [each["passed"] for each in told["evaluations"]] == [True, False]
    assert [move["stage"] for move in say.json("releases", "history", "--limit", "2")["moves"]] == ["production", "canary"]
    assert "forced: gain +0.250" in say("releases", "history")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("runs", "show", "20260307-120000"),
            "no run has an id that begins so; the nearest are 20260306-120000, 20260305-120000",
        ),
        (
            ("runs", "show", "2026"),
            r"more than one run has an id that begins so (20260305-120000, 20260306-120000); write more",
        ),
        (("runs", "rm", "", "--yes"), "no run has an id that begins so; journeyman runs list shows them"),
        (("candidates", "show", "zz"), "zz: no candidate has an id that begins so"),
        (("releases", "show", OLD.id), f"{OLD.id}: no release has an id that begins so"),
    ],
)
def test_an_id_that_is_none_is_answered_with_the_nearest(say: Said, arguments: tuple[str, ...], message: str) -> None:
    say(*arguments, code=2)
    assert message in say.err


@pytest.mark.parametrize("what", ["runs", "candidates", "evaluations", "releases"])
def test_where_there_is_no_store_there_is_an_empty_list_and_no_store_afterwards(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([what, "list"]) == 0
    assert f"There are no such {what} in sqlite:///" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.service
def test_listing_loads_no_model_no_learner_and_no_migration(tmp_path: Path) -> None:
    code = "import sys, journeyman.cli as c; c.main(['runs', 'list']); c.main(['traces', 'list']); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    loaded = set(run.stdout.splitlines()[-1].split())
    assert not {"alembic", "numpy", "torch", "journeyman.experiments.wiring"} & loaded
    # What can be set is declared beside what it sets, and weighs nothing.
    learners = {name for name in loaded if name.startswith("journeyman.optimizers.")}
    assert learners <= {"journeyman.optimizers.playbook", "journeyman.optimizers.playbook.config"}
    assert list(tmp_path.iterdir()) == []


def test_the_tasks_of_a_finding_with_a_form_of_its_own_are_shown_too(say: Said) -> None:
    """A router's and a planner's evaluation hold the report with the pairs within what else they say."""
    plain = evaluation("router-1", passed=True, pairs=True)
    told = {"requests": 4, "gain": 0.5, "report": dict(plain.report)}
    with open_store(say.store) as store:
        store.add_evaluation(replace(plain, report=told))
    shown = say.json("evaluations", "show", "router-1")
    assert [each["task_id"] for each in shown["won"]] == ["a", "c"]
    assert [each["task_id"] for each in shown["lost"]] == ["b"]
    assert shown["evaluation"]["report"] == {"requests": 4, "gain": 0.5, "report": {"gain": 0.25, "wins": 2, "losses": 1}}
    assert "2 won, 1 lost, 1 the same" in say("evaluations", "show", "router-1")


@pytest.mark.parametrize(
    ("held_out", "baseline", "low", "high", "against"),
    [
        ("h", OLD.id, -0.2, 0.04, True),
        ("h", OLD.id, -0.2, 0.06, False),
        ("other tasks", OLD.id, -0.2, 0.04, False),
        ("other tasks", OLD.id, -0.2, -0.04, True),
        ("h", "another baseline", -0.2, -0.04, False),
        ("h", OLD.id, None, None, False),
    ],
)
def test_a_later_evaluation_contradicts_a_pass_where_the_intervals_lie_apart(
    held_out: str, baseline: str, low: float | None, high: float | None, against: bool
) -> None:
    first = replace(evaluation("one", passed=True, pairs=False), report={"decided_low": 0.05, "decided_high": 0.3})
    later = replace(
        first,
        id="two",
        passed=False,
        held_out_id=held_out,
        baseline_id=baseline,
        report={"report": {"decided_low": low, "decided_high": high}},
    )
    assert (contradiction([first, later]) is later) == against
    assert contradiction([later, first]) is None
    assert contradiction([first, later, replace(first, id="three")]) is None, "it passed once more since"


def test_the_registry_of_an_open_store_answers_the_same(tmp_path: Path) -> None:
    with open_store("memory:") as store:
        fill(store)
        registry = journeyman.Registry(store)
        assert registry.candidate(NEW.id).stage is Stage.PRODUCTION
        assert registry.run("router").run.kind == "train router"
        with pytest.raises(InputError, match="no evaluation has an id that begins so"):
            registry.evaluation("nothing")
        with pytest.raises(StoreError, match="stays"):
            registry.remove_run("20260306")
