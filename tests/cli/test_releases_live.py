"""`journeyman releases start`, `ramp`, `promote`, `rollback` and the like, as a person types them."""

import json
import math
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import openai
import pytest

from journeyman import Playbook
from journeyman.cli import main
from journeyman.cli.shared import show_evidence
from journeyman.core.candidate import BASE, Candidate, Kind
from journeyman.core.playbook import Bullet
from journeyman.core.release import Release, Stage
from journeyman.core.rollout import Rollout, drawn, unit_of
from journeyman.core.rollout_plan import RolloutPlan
from journeyman.core.task import Task
from journeyman.experiments.agents import candidate_of
from journeyman.optimizers.playbook import files
from journeyman.serving.monitor import Monitor
from journeyman.serving.releases.assignment import session_key
from journeyman.stores import EvaluationRecord, open_store
from journeyman.stores.base import Assignment, EvidenceRecord
from journeyman.stores.registry import GateVerdict, gate_word
from journeyman.stores.rollouts import open_rollouts
from tests.serving.gateway.test_passing import ask
from tests.serving.gateway.test_process import COMPLETION, served, until
from tests.support.upstream import ok, upstream

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)
SLOT = "context:desk/oslo"
WHERE = ("--agent", "desk", "--domain", "oslo")
WHY = ("--reason", "I looked at it")
FORCED = ("--force", *WHY)


def learned(text: str) -> tuple[Playbook, Candidate]:
    playbook = Playbook(bullets=(Bullet(id="b-1", content=text, domain="oslo"),))
    candidate = candidate_of(playbook)
    assert candidate is not None
    return playbook, candidate


PLAYBOOK, NEW = learned("Write amounts in cents.")
_, OLD = learned("Write amounts in kroner.")


def evaluation(candidate: Candidate = NEW, *, number: int = 1, passed: bool = True, **report: Any) -> EvaluationRecord:
    return EvaluationRecord(
        id=f"run-{number}/{candidate.id}/{BASE}/h/{number}",
        candidate_id=candidate.id,
        baseline_id=BASE,
        held_out_id="h",
        passed=passed,
        reason="gain +0.250 on 40 tasks" if passed else "gain -0.250 on 40 tasks",
        report=report,
        at=NOON + timedelta(hours=number),
    )


class Desk:
    """A project, and what is said in it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.path = folder / ".journeyman" / "journeyman.db"
        self.out = self.err = ""

    def __call__(self, *arguments: str, code: int = 0, group: str = "releases") -> dict[str, Any]:
        """Twice the same words: for people first, where nothing is done by it."""
        self._capsys.readouterr()
        assert main([group, *arguments, "--json"]) == code, self._capsys.readouterr().err
        said = self._capsys.readouterr()
        self.err = said.err
        told: dict[str, Any] = json.loads(said.out.splitlines()[-1]) if said.out else {}
        return told

    def shown(self, *arguments: str, code: int = 0) -> str:
        self._capsys.readouterr()
        assert main(["releases", *arguments]) == code
        said = self._capsys.readouterr()
        return said.out + said.err

    def start(self, *more: str, candidate: str = NEW.id[:6], code: int = 0) -> dict[str, Any]:
        return self("start", candidate, *WHERE, *more, code=code)

    def in_production(self) -> str:
        with open_rollouts(self.path) as store:
            return next((move.candidate_id for slot, move in store.live().production.items() if str(slot) == SLOT), BASE)

    def rows(self) -> int:
        """Of all that a command could have written."""
        tables = ("rollouts", "rollout_events", "slot_moves", "assignments", "audit", "candidates", "moves")
        with closing(sqlite3.connect(self.path)) as database:
            return sum(database.execute(f"select count(*) from {table}").fetchone()[0] for table in tables)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "220")
    monkeypatch.setenv("JOURNEYMAN_USER", "ann")
    found = Desk(tmp_path, capsys)
    with open_store(found.path) as store:
        for each in (NEW, OLD):
            store.add_candidate(each)
        store.add_evaluation(evaluation())
    return found


def test_the_list_of_releases_says_where_each_is_served_and_not_only_how_far_it_may_go(desk: Desk) -> None:
    with open_store(desk.path) as store:
        store.add_release(Release.begin(NEW.id, Stage.PRODUCTION, "asked for", NOON))
    assert desk("list")["releases"][0]["served"] == []
    assert re.search(r"production +to nobody", desk.shown("list"))
    desk.start()
    assert desk("list")["releases"][0]["served"] == [f"canary of {SLOT}"]
    desk("promote", SLOT, *WHY)
    assert desk("list")["releases"][0]["served"] == [f"production of {SLOT}"]


def test_a_metric_of_which_no_session_is_known_has_no_difference_of_0(capsys: pytest.CaptureFixture[str]) -> None:
    told = {"canary": 0, "production": 3, "difference": 0.0, "low": -1.0, "high": 1.0, "e_harm": 1.0, "e_promote": 1.0,
            "mean_canary": None, "mean_production": 0.5}  # fmt: skip
    show_evidence({"sessions": 3, "metrics": {"success": told}})
    out = capsys.readouterr().out.splitlines()
    assert out[-1].split() == ["success", "0", "3", "-", "0.5", "-", "-1", "1", "1", "1"]
    assert "of canary" in out[-2]


def test_a_candidate_is_brought_to_production_step_by_step_and_taken_back(desk: Desk) -> None:
    begun = desk.start()
    rollout = begun["rollout"]
    assert (begun["done"], begun["gate"]["verdict"], rollout["state"]) == (True, "passed", "canary")
    assert (rollout["slot"], rollout["shares"], rollout["baseline"]["candidate_id"]) == (SLOT, {"canary": 0.01}, BASE)
    assert rollout["arms"] == [{"name": "canary", "candidate_id": NEW.id, "digest": NEW.digest}]
    assert [event["cause"]["actor"] for event in rollout["events"]] == ["person:ann"] * 2
    assert not any(event["cause"]["forced"] for event in rollout["events"])
    assert "salt" not in rollout
    id = rollout["id"]

    (slot,) = desk("slots")["slots"]
    assert (slot["slot"], slot["production"], slot["rollout"]["id"]) == (SLOT, BASE, id)
    assert all(word in desk.shown("slots") for word in (SLOT, id, NEW.id, "canary", "0.01"))

    assert desk("ramp", id[:15], *WHY)["rollout"]["shares"] == {"canary": 0.05}
    assert desk("ramp", SLOT, "--share", "0.4", *WHY)["rollout"]["shares"] == {"canary": 0.4}
    assert desk("hold", SLOT, *WHY)["rollout"]["state"] == "held"
    refused = desk("ramp", SLOT, *WHY, code=1)
    assert refused["done"] is False
    assert "held: ramp cannot happen" in refused["reason"]
    assert desk("resume", SLOT, *WHY)["rollout"]["shares"] == {"canary": 0.4}
    promoted = desk("promote", SLOT, *WHY)
    assert (promoted["production"], promoted["rollout"]["state"]) == (NEW.id, "holdback")
    assert promoted["rollout"]["shares"] == {"canary": 0.95}
    assert "roll it back or close it first" in desk("undo", SLOT, *WHY, code=1)["reason"]
    assert desk("close", SLOT, *WHY)["rollout"]["state"] == "concluded"
    assert desk.in_production() == NEW.id

    undone = desk("undo", SLOT, *WHY)["move"]
    assert (undone["candidate_id"], undone["actor"], undone["rollout_id"]) == (BASE, "person:ann", None)
    assert desk.in_production() == BASE

    # What was taken back can be tried again, and is rolled back while it is a canary.
    again = desk.start()["rollout"]["id"]
    assert again != id
    assert desk("rollback", again, *WHY)["rollout"]["state"] == "rolled_back"
    assert "its story is over" in desk("rollback", again, *WHY, code=1)["reason"]
    assert [each["id"] for each in desk("rollouts")["rollouts"]] == [again, id]
    assert [each["id"] for each in desk("rollouts", SLOT, "--limit", "1")["rollouts"]] == [again]

    with open_rollouts(desk.path) as store:
        audit, broken = store.audit(), store.verify()
    assert broken is None
    done = ["start", "ramp", "ramp", "ramp", "hold", "resume", "promote", "put", "conclude", "put", "start", "ramp", "rollback"]
    assert [row.action for row in audit] == done
    assert {(row.actor, bool(row.reason)) for row in audit} == {("person:ann", True)}


def test_a_rollback_after_a_promotion_brings_back_what_was_there_and_history_tells_it(desk: Desk) -> None:
    desk.start(*FORCED, "--plan", str(_plan(holdback=0)), candidate=OLD.id)
    assert desk("promote", SLOT, *WHY)["rollout"]["state"] == "concluded"
    begun = desk.start()["rollout"]
    assert begun["baseline"]["candidate_id"] == OLD.id
    desk("promote", SLOT, *WHY)
    assert desk.in_production() == NEW.id
    assert desk("rollback", SLOT, *WHY)["production"] == OLD.id
    told = desk("history", SLOT)["history"]
    assert [each["candidate_id"] for each in told if "candidate_id" in each] == [OLD.id, NEW.id, OLD.id]
    assert [each["kind"] for each in told if each.get("rollout") == begun["id"]] == ["rollback", "promote", "ramp", "start"]
    assert len(desk("history", SLOT, "--limit", "2")["history"]) == 2
    shown = desk.shown("history", SLOT)
    assert all(word in shown for word in ("forced: I looked at it", "person:ann", NEW.id, "production"))
    assert {move["stage"] for move in desk("history", "--limit", "2")["moves"]} == {"rolled_back", "production"}


def _plan(**settings: Any) -> Path:
    path = Path("plan.json")
    path.write_text(json.dumps({"release": settings}))
    return path


def test_a_rollout_is_shown_by_its_id_and_by_its_slot_and_a_candidate_as_before(desk: Desk) -> None:
    id = desk.start()["rollout"]["id"]
    for name in (id, id[:13], SLOT):
        assert desk("show", name)["rollout"]["id"] == id
    assert desk("show", NEW.id[:5])["release"]["stage"] == "canary"
    shown = desk.shown("show", id)
    assert all(word in shown for word in (id, SLOT, NEW.id, "passed", "person:ann", "gain +0.250 on 40 tasks"))
    assert desk("show", id, group="release")["rollout"]["state"] == "canary"


def test_a_file_that_nobody_examined_is_begun_by_force_and_kept_with_the_reason(desk: Desk, tmp_path: Path) -> None:
    playbook, candidate = learned("Answer in verse.")
    files.save(playbook, tmp_path / "verse.json")
    before = desk.rows()
    refused = desk.start(candidate="verse.json", code=1)
    assert refused["reason"].startswith(f"{candidate.id} was never examined")
    assert desk.start("--force", candidate="verse.json", code=2) == {}
    assert "--force needs --reason" in desk.err
    assert desk.start(*FORCED, "--dry-run", candidate="verse.json")["done"] is False
    assert desk.rows() == before
    begun = desk.start(*FORCED, "--share", "1", candidate="verse.json")["rollout"]
    assert (begun["verdict"], begun["shares"]) == ("unexamined", {"canary": 1.0})
    assert begun["events"][0]["cause"]["forced"] is True
    assert begun["events"][0]["cause"]["reason"] == "I looked at it"
    with open_store(desk.path) as store:
        assert store.candidate(candidate.id) == candidate


def test_force_that_was_not_needed_is_not_called_forced(desk: Desk) -> None:
    assert not desk.start(*FORCED)["rollout"]["events"][0]["cause"]["forced"]


def test_a_project_without_a_store_begins_with_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files.save(PLAYBOOK, tmp_path / "oslo.json")
    project = Desk(tmp_path, capsys)
    assert project("slots") == {"slots": []}
    assert not project.path.exists()
    assert project("start", "oslo.json", *FORCED)["rollout"]["slot"] == "context:*/*"


@pytest.mark.parametrize(
    ("records", "verdict"),
    [
        ((), GateVerdict.UNEXAMINED),
        ((evaluation(),), GateVerdict.PASSED),
        ((evaluation(passed=False),), GateVerdict.REFUSED),
        ((evaluation(), evaluation(number=2, passed=False)), GateVerdict.REFUSED),
        ((evaluation(passed=False), evaluation(number=2)), GateVerdict.PASSED),
        ((evaluation(passed=False, verdict="checked"),), GateVerdict.CHECKED),
        ((evaluation(verdict="not_examinable"),), GateVerdict.NOT_EXAMINABLE),
        ((evaluation(verdict="something new"),), GateVerdict.PASSED),
    ],
)  # fmt: skip
def test_the_latest_evaluation_is_the_gates_word(records: tuple[EvaluationRecord, ...], verdict: GateVerdict) -> None:
    assert gate_word(records).verdict is verdict
    assert verdict.may_start == (verdict in (GateVerdict.PASSED, GateVerdict.CHECKED))


def test_a_pass_that_was_contradicted_starts_nothing_and_says_by_what(desk: Desk) -> None:
    with open_store(desk.path) as store:
        store.add_evaluation(evaluation(OLD, decided_low=0.1, decided_high=0.4))
        later = evaluation(OLD, number=2, passed=False, decided_low=-0.4, decided_high=-0.1)
        store.add_evaluation(later)
    before = desk.rows()
    said = desk.start(candidate=OLD.id, code=1)["reason"]
    assert "refused" in said
    assert f"contradicted by {later.id}" in said
    assert desk.rows() == before
    assert desk.start(*FORCED, candidate=OLD.id)["rollout"]["verdict"] == "refused"


def test_a_second_rollout_in_a_slot_is_refused_and_one_of_what_is_there(desk: Desk) -> None:
    id = desk.start("--plan", str(_plan(holdback=0)))["rollout"]["id"]
    before = desk.rows()
    for more in ((), ("--dry-run",)):
        assert f"the rollout {id} is open there" in desk.start(*more, code=1)["reason"]
    assert desk.rows() == before
    desk("promote", id, *WHY)
    assert f"{NEW.id} is in production there already" in desk.start(code=1)["reason"]


def test_what_is_only_planned_serves_nobody_until_it_is_ramped(desk: Desk) -> None:
    rollout = desk.start("--planned-only")["rollout"]
    assert (rollout["state"], rollout["shares"]) == ("planned", {})
    assert desk("assign", "s-1", *WHERE)["arm"] == "production"
    assert "promote cannot happen" in desk("promote", SLOT, *WHY, code=1)["reason"]
    assert desk("ramp", SLOT, *WHY)["rollout"]["shares"] == {"canary": 0.01}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("start", "ffffffff", *WHERE), "no candidate has an id that begins so"),
        (("start", "gone.json", *WHERE), "gone.json: there is no such file"),
        (("start", NEW.id, "--share", "1.5"), "--share is above 0 and at most 1, not 1.5"),
        (("start", NEW.id, "--share", "nan"), "--share is above 0 and at most 1, not nan"),
        (("start", NEW.id, "--plan", "bad.toml"), "bad.toml: there is no 'stepps'"),
        (("start", NEW.id, "--plan", "many.toml"), "many.toml: steps"),
        (("start", NEW.id, "--agent", "a/b"), "no / in the agent's name"),
        (("start", NEW.id, *WHERE, "--force"), "--force needs --reason"),
        (("ramp", "2099", *WHY), "2099: no rollout has an id that begins so"),
        (("ramp", SLOT, "--share", "2", *WHY), "a share is above 0 and at most 1, not 2"),
        (("ramp", SLOT, "--share", "nan", *WHY), "a share is above 0 and at most 1, not nan"),
        (("ramp", "context:desk/rome", *WHY), "no rollout is open in context:desk/rome"),
        (("hold", SLOT, "--reason", " "), "--reason is empty"),
        (("undo", "desk/oslo", *WHY), "'desk/oslo' is no slot"),
        (("show", "2099"), "no release has an id that begins so"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_sentence_and_moves_nothing(desk: Desk, arguments: tuple[str, ...], said: str) -> None:
    Path("bad.toml").write_text("[release]\nstepps = [0.5]\n")
    Path("many.toml").write_text("steps = [0.5, 1.5]\nstep_sessions = [1, 1]\nstep_hours = [1, 1]\nstep_worst = [1, 1]\n")
    if arguments[0] != "start":
        desk.start()
    before = desk.rows()
    desk(*arguments, code=2)
    assert said in desk.err
    assert len(desk.err.strip().splitlines()) == 1
    assert desk.rows() == before


@pytest.mark.parametrize("command", ["ramp", "hold", "resume", "promote", "rollback", "close", "undo"])
def test_whoever_moves_something_says_why(desk: Desk, command: str) -> None:
    assert desk(command, SLOT, code=2) == {}
    assert "--reason" in desk.err


@pytest.mark.parametrize(
    ("kind", "said"),
    [(Kind.POLICY, "is no router's policy; train one with"), (Kind.ADAPTER, "no server answers with the weights")],
)
def test_what_no_gateway_could_serve_is_refused(desk: Desk, kind: Kind, said: str) -> None:
    other = Candidate(kind=kind, body='{"format": "x"}')
    with open_store(desk.path) as store:
        store.add_candidate(other)
    before = desk.rows()
    desk.start(*FORCED, candidate=other.id, code=2)
    assert other.id in desk.err
    assert said in desk.err
    assert desk.rows() == before


def test_where_a_session_is_can_be_asked_and_nothing_is_written(desk: Desk) -> None:
    nowhere = desk("assign", "s-1", *WHERE)
    assert (nowhere["slot"], nowhere["arm"], nowhere["candidate"]) == (None, "production", None)
    desk.start("--share", "0.5")
    with open_rollouts(desk.path) as store:
        (rollout,) = store.rollouts()
    before = desk.rows()
    arms = {}
    # The salt is drawn anew: of so many, all on one side happens once in half a million runs.
    for name in map("s-{}".format, range(20)):
        told = desk("assign", name, *WHERE)
        unit = unit_of(rollout.salt, session_key(name))
        arms[name] = told["arm"]
        assert (told["arm"], told["unit"], told["kept"]) == (drawn(unit.bucket, rollout.shares), unit.id, False)
        assert told["candidate"] == (NEW.id if told["arm"] == "canary" else BASE)
    assert set(arms.values()) == {"canary", "production"}
    assert desk.rows() == before
    assert desk("assign", "s-1", "--domain", "rome")["slot"] is None
    # What is kept holds, whatever the shares say by now.
    unit = unit_of(rollout.salt, session_key("s-1"))
    other = "canary" if arms["s-1"] == "production" else "production"
    with open_rollouts(desk.path) as store:
        store.assign([Assignment(rollout.id, unit.id, other, 2, "drawn", NOON)])
    told = desk("assign", "s-1", *WHERE)
    assert (told["arm"], told["kept"]) == (other, True)
    assert "by the shares of event 2" in desk.shown("assign", "s-1", *WHERE)


def test_evidence_is_shown_and_none_is_said_to_be_none(desk: Desk) -> None:
    id = desk.start()["rollout"]["id"]
    assert desk("evidence", SLOT) == {"rollout": id, "evidence": None}
    assert f"no evidence on {id} yet" in desk.shown("evidence", id)
    metric = {"canary": 31, "production": 290, "difference": -0.021, "low": -0.2, "high": 0.11, "e_harm": 1.5, "e_promote": 0.8}
    summary = {"metrics": {"success": metric, "cost": None}, "reason": "not yet known"}
    with open_rollouts(desk.path) as store:
        store.add_evidence(id, EvidenceRecord(1, 321, {}, summary, NOON))
    assert desk("evidence", id)["evidence"]["summary"] == summary
    shown = desk.shown("evidence", id)
    assert all(word in shown for word in ("success", "-0.021", "31", "290", "not yet known", "1.5"))
    # Whoever decides knows what was seen.
    assert desk("hold", id, *WHY)["rollout"]["events"][-1]["cause"]["evidence"] == {"evidence": 1}


def test_evidence_made_anew_stands_beside_what_the_test_had_and_says_whether_the_verdict_changes(desk: Desk) -> None:
    id = desk.start("--share", "0.5")["rollout"]["id"]
    assert desk("evidence", id, "--rebuild") == {"rollout": id, "evidence": None}
    with open_rollouts(desk.path) as store:
        (rollout,) = store.rollouts()
        at = rollout.events[-1].cause.at
        units = [unit_of(rollout.salt, f"session:s{n}") for n in range(40)]
        arms = [drawn(unit.bucket, rollout.shares) for unit in units]
        store.assign([Assignment(id, unit.id, arm, 2, "drawn", at) for unit, arm in zip(units, arms, strict=True)])
        Monitor(store, clock=lambda: at + timedelta(days=2)).once()
    before = desk.rows()
    told = desk("evidence", id, "--rebuild")
    assert told["rebuilt"]["summary"] == told["evidence"]["summary"]
    assert (told["rebuilt"]["changed"], told["rebuilt"]["was"]) == (False, told["rebuilt"]["now"])
    assert desk.rows() == before
    shown = desk.shown("evidence", id, "--rebuild")
    assert all(word in shown for word in ("by the rows as they are now", "the verdict is the same", "labelled"))


def test_a_slot_begins_against_what_its_requests_are_served_and_falls_back_to_it(desk: Desk) -> None:
    """A more specific slot must not take the general playbook away from those who are not drawn."""
    desk("start", OLD.id, "--plan", str(_plan(holdback=0)), *FORCED)
    desk("promote", "context", *WHY)
    begun = desk.start()["rollout"]
    assert begun["baseline"]["candidate_id"] == OLD.id
    desk("promote", SLOT, *WHY)
    assert desk("rollback", SLOT, *WHY)["production"] == OLD.id
    assert desk("assign", "s-1", *WHERE)["slot"] == "context:*/*"
    with open_rollouts(desk.path) as store:
        assert store.verify() is None


def test_a_candidate_that_was_changed_by_hand_is_not_begun(desk: Desk) -> None:
    with closing(sqlite3.connect(desk.path)) as database, database:
        database.execute("update candidates set body = replace(body, 'cents', 'beans') where id = ?", (NEW.id,))
    before = desk.rows()
    assert "was changed in the store" in desk.start(code=1)["reason"]
    assert desk.rows() == before


def test_ids_of_rollouts_sort_by_time_and_say_it() -> None:
    def begun(hour: int) -> Rollout:
        from journeyman.core.rollout import Cause, Slot, nothing

        at = NOON + timedelta(hours=hour)
        cause = Cause(reason="because", actor="person:ann", at=at)
        return Rollout.begin([NEW], Slot.parse(SLOT), nothing(), RolloutPlan(), "passed", cause)

    ids = [begun(hour).id for hour in range(20)]
    assert ids == sorted(ids)
    assert ids[0].startswith("20260305-120000-")
    assert len({begun(0).salt for _ in range(20)}) == 20
    assert math.isclose(sum(begun(0).next_shares().values()), 0.01)


def test_several_candidates_are_begun_together_and_one_is_taken_out_or_promoted_by_name(desk: Desk) -> None:
    _, third = learned("Answer in one sentence.")
    with open_store(desk.path) as store:
        store.add_candidate(third)
        store.add_evaluation(evaluation(OLD, number=2))
        store.add_evaluation(evaluation(third, number=3, passed=False, verdict="checked"))
    begun = desk("start", NEW.id, OLD.id, third.id, *WHERE)
    rollout = begun["rollout"]
    assert [(arm["name"], arm["candidate_id"]) for arm in rollout["arms"]] == [
        ("canary-1", NEW.id), ("canary-2", OLD.id), ("canary-3", third.id),
    ]  # fmt: skip
    assert rollout["shares"] == dict.fromkeys(("canary-1", "canary-2", "canary-3"), 0.01 / 3)
    # What asks most of one asks it of all.
    assert rollout["verdict"] == "checked"
    assert [gate["verdict"] for gate in begun["gate"]] == ["passed", "passed", "checked"]
    assert all(each in desk.shown("show", SLOT) for each in (NEW.id, OLD.id, third.id))
    desk("ramp", SLOT, "--share", "0.6", *WHY, code=2)
    assert "3 candidates have 50% together at most" in desk.err
    assert sum(desk("ramp", SLOT, "--share", "0.3", *WHY)["rollout"]["shares"].values()) == pytest.approx(0.3)
    desk("promote", SLOT, *WHY, code=2)
    assert "several candidates are on their way; name one of canary-1" in desk.err
    desk("rollback", SLOT, "--arm", "canary-9", *WHY, code=2)
    assert "'canary-9' is not one arm of" in desk.err
    with open_rollouts(desk.path) as kept:
        (now,) = kept.rollouts()
        unit = unit_of(now.salt, session_key("s-1"))
        kept.assign([Assignment(now.id, unit.id, "canary-2", 2, "drawn", NOON)])
    assert desk("assign", "s-1", *WHERE)["candidate"] == OLD.id
    out = desk("rollback", SLOT, "--arm", OLD.id, *WHY)["rollout"]
    told = desk("assign", "s-1", *WHERE)
    assert (told["arm"], told["candidate"]) == ("canary-2", BASE)
    assert told["why"].endswith("its candidate was taken out since")
    assert (out["state"], out["shares"]) == ("canary", {"canary-1": 0.15, "canary-3": 0.15})
    promoted = desk("promote", SLOT, "--arm", "canary-3", *WHY)
    assert (promoted["production"], promoted["rollout"]["shares"]) == (third.id, {"canary-3": 0.95})
    assert desk("rollback", SLOT, *WHY)["production"] == BASE
    with open_rollouts(desk.path) as kept:
        assert kept.verify() is None
        assert [row.action for row in kept.audit()] == ["start", "ramp", "ramp", "drop", "promote", "put", "rollback", "put"]


def test_several_candidates_that_no_plan_can_compare_are_refused(desk: Desk) -> None:
    before = desk.rows()
    for arguments, said in (
        ((NEW.id, NEW.id), "one candidate or several different ones"),
        ((NEW.id, OLD.id, *FORCED, "--share", "0.9"), "steps: several candidates have 50% of new sessions at most together"),
        ((NEW.id, OLD.id, "--force"), "--force needs --reason"),
    ):
        desk("start", *arguments, *WHERE, code=2)
        assert said in desk.err
    assert f"{OLD.id} was never examined" in desk("start", NEW.id, OLD.id, *WHERE, code=1)["reason"]
    assert desk.rows() == before


# With a gateway beside it.

USER: Any = [{"role": "user", "content": "Where is order 7?"}]
TEXT = PLAYBOOK.prompt(Task(id="t", question="q", domain="oslo"))
SYSTEM: Any = [{"role": "system", "content": TEXT}]
HEADERS = {"X-Journeyman-Agent": "desk", "X-Journeyman-Domain": "oslo", "X-Journeyman-Session": "s-17"}


@pytest.mark.service
def test_a_running_gateway_follows_within_three_seconds_and_bytes_come_back(desk: Desk, tmp_path: Path) -> None:
    with upstream() as up, served(tmp_path, "--upstream", up.url, "--no-pages", "--no-record") as (url, _):
        up.answer = lambda asked: ok(COMPLETION)
        with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, default_headers=HEADERS) as client:

            def asked() -> tuple[bytes, str | None, str | None, str | None]:
                """What came to the upstream, and which release, rollout and arm the answer names."""
                headers = client.chat.completions.with_raw_response.create(model="m", messages=USER).headers
                release, rollout, arm = (headers.get(f"x-journeyman-{name}") for name in ("release", "rollout", "arm"))
                return up.asked[-1].body, release, rollout, arm

            before = asked()
            assert json.loads(before[0])["messages"] == USER
            assert before[1:] == (None, None, None)
            desk.start("--share", "1")
            # The first time it also loads what it reads the store by, which takes long on a busy machine.
            assert until(lambda: asked()[1] == NEW.id, 10)
            assert json.loads(asked()[0])["messages"] == [*SYSTEM, *USER]
            told = desk("assign", "s-17", *WHERE)
            assert (told["kept"], told["arm"]) == (True, "canary")
            assert asked()[2:] == (told["rollout"], "canary")
            desk("rollback", SLOT, *WHY)
            assert until(lambda: asked() == before, 3)
            # The same after a promotion, which is served to all.
            desk.start("--share", "1", "--plan", str(_plan(holdback=0)))
            desk("promote", SLOT, *WHY)
            assert until(lambda: asked()[1] == NEW.id, 3)
            desk("undo", SLOT, *WHY)
            assert until(lambda: asked() == before, 3)


@pytest.mark.service
def test_a_candidate_whose_body_was_changed_in_the_database_is_not_served(desk: Desk, tmp_path: Path) -> None:
    desk.start("--share", "1")
    with closing(sqlite3.connect(desk.path)) as database, database:
        database.execute("update candidates set body = replace(body, 'cents', 'beans') where id = ?", (NEW.id,))
    with upstream() as up, served(tmp_path, "--upstream", up.url, "--no-pages", "--no-record") as (url, _):
        body = json.dumps({"model": "m", "messages": USER}).encode()
        _, headers, _ = ask(url, body=body, headers=HEADERS)
        assert up.asked[-1].body == body
        assert "x-journeyman-release" not in headers
        state = json.loads(ask(url, "/health", None, "GET")[2])["releases"]
        assert "not in the store as it was examined" in state["unservable"][NEW.id]


@pytest.mark.service
def test_a_monitor_beside_a_gateway_leaves_the_processor_to_answers(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_rollouts(path):
        pass
    command = [sys.executable, "-m", "journeyman", "monitor", "--with-parent", "--store", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=tmp_path) as process:
        wanted = os.getpriority(os.PRIO_PROCESS, 0) + 10
        assert until(lambda: os.getpriority(os.PRIO_PROCESS, process.pid) == min(wanted, 19), 60)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0
