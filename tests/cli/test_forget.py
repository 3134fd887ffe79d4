"""`journeyman traces forget`: what is named goes, and what was learned from it stands on what is left."""

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.playbook import Playbook
from journeyman.core.rollout import Arm, Cause, EventKind, Rollout, RolloutEvent, Slot, nothing
from journeyman.core.rollout_plan import RolloutPlan
from journeyman.experiments.agents import candidate_of
from journeyman.optimizers.playbook import edit, files
from journeyman.stores import open_store, open_traces
from journeyman.stores.rollouts import open_rollouts
from journeyman.stores.traces.base import Query
from tests.support.desk_traces import CLERK, recorded

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)


class Project:
    """A folder in which a playbook was learned from traces, and the commands in it."""

    store = Path(".journeyman") / "journeyman.db"
    playbook = Path("playbooks") / "desk-oslo.json"

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        traces = recorded("oslo", 0, 60, customers=6)
        with open_traces(self.store) as store:
            store.add(traces)
        self("train", "playbook", "--from", "traces", "--model", CLERK, "--no-evaluate")

    def __call__(self, *arguments: str, code: int = 0) -> str:
        assert main(arguments) == code
        said = self._capsys.readouterr()
        self.err = said.err
        return said.out

    def forget(self, *arguments: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self("traces", "forget", *arguments, "--json").splitlines()[-1])
        return told

    @property
    def traces(self) -> int:
        with open_traces(self.store) as store:
            return store.count(Query())

    @property
    def learned(self) -> Playbook:
        return files.load(self.playbook)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Project:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JOURNEYMAN_STORE", raising=False)
    return Project(capsys)


def test_a_customers_traces_go_and_the_counts_fall(project: Project) -> None:
    before = project.learned
    told = project.forget("--customer", "customer-1", "--yes")
    assert (told["traces"], project.traces) == (10, 50)
    after = project.learned
    with open_traces(project.store) as store:
        left = {trace.id for trace in store.traces()}
    for was, now in zip(before.bullets, after.bullets, strict=True):
        assert set(now.provenance.traces) == set(was.provenance.traces) & left
        assert len(now.provenance.traces) <= now.provenance.trace_count <= was.provenance.trace_count
    (playbook,) = told["playbooks"]
    assert playbook["file"].endswith("desk-oslo.json")
    assert {each["kind"] for each in playbook["changes"]} <= {"met", "retired"}
    assert "forget" in edit.revisions(project.playbook)[-1].change.id  # type: ignore[union-attr]


def test_a_rule_behind_which_fewer_than_three_people_are_left_is_retired_with_the_reason(project: Project) -> None:
    for at in range(6):
        project.forget("--customer", f"customer-{at}", "--yes")
    assert project.traces == 0
    assert project.learned.active == ()
    for bullet in project.learned.bullets:
        assert "needed" in bullet.retired
        assert bullet.provenance.principals < 3
    # It is in the journal, and can be seen as it was.
    assert edit.at_revision(f"{project.playbook}@1").active


def test_a_dry_run_says_all_of_it_and_lets_nothing_go(project: Project) -> None:
    before = project.playbook.read_bytes()
    would = project.forget("--agent", "desk", "--dry-run")
    assert (would["traces"], would["dry_run"], project.traces) == (60, True, 60)
    assert {each["kind"] for each in would["playbooks"][0]["changes"]} == {"met", "retired"}
    assert project.playbook.read_bytes() == before
    project("traces", "forget", "--agent", "desk", "--dry-run")
    assert "60 traces would go" in project.err
    assert "would change:" in project.err


def test_it_asks_first_and_says_how_many(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    before = project.playbook.read_bytes()
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    project("traces", "forget", "--session", "oslo-session-3", code=130)
    assert "Forget 1 trace for good?" in project.err
    assert (project.traces, project.playbook.read_bytes()) == (60, before)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    project("traces", "forget", "--session", "oslo-session-3")
    assert project.traces == 59
    assert "1 trace and" in project.err or "1 trace is forgotten" in project.err


def test_what_is_named_is_combined(project: Project) -> None:
    assert project.forget("--customer", "customer-1", "--session", "oslo-session-2", "--dry-run")["traces"] == 0
    assert project.forget("--customer", "customer-1", "--session", "oslo-session-1", "--dry-run")["traces"] == 1
    two = ("--trace", "oslo-0001", "--trace", "oslo-0002")
    assert project.forget(*two, "--customer", "customer-2", "--dry-run")["traces"] == 1
    assert project.forget(*two, "--yes")["traces"] == 2
    with open_traces(project.store) as store:
        with_words = store.count(Query(text="urgent"))
    assert project.forget("--words", "urgent", "--dry-run")["traces"] == with_words > 0
    # A name that is a principal's digest, or another one's beginning, is nobody's.
    assert project.forget("--customer", "customer", "--yes")["traces"] == 0


def test_what_is_served_is_not_changed_and_said(project: Project) -> None:
    candidate = candidate_of(project.learned)
    assert candidate is not None
    cause = Cause(reason="it helps", actor="person:ann", at=NOON)
    rollout = Rollout(
        id="r1",
        slot=Slot.parse("context:desk/oslo"),
        arms=(Arm(name="canary", candidate_id=candidate.id, digest=candidate.id),),
        baseline=nothing(),
        salt="s" * 32,
        plan=RolloutPlan(),
        verdict="checked",
        created_at=NOON,
        events=(RolloutEvent(number=1, kind=EventKind.START, shares={}, cause=cause),),
    )
    with open_store(project.store) as store, open_rollouts(project.store) as rollouts:
        store.add_candidate(candidate)
        rollouts.start(rollout)
        rollout = rollout.then(EventKind.RAMP, cause, rollout.next_shares(None))
        rollouts.advance(rollout)
        rollouts.advance(rollout.then(EventKind.PROMOTE, cause, {"canary": 0.95}))
    project("traces", "forget", "--agent", "desk", "--yes")
    assert "context:desk/oslo still shows what has lost its support" in project.err
    assert "journeyman releases start" in project.err
    with open_rollouts(project.store) as rollouts:
        assert rollouts.live().baseline(rollout.slot).candidate_id == candidate.id


def test_a_playbook_that_is_named_is_changed_and_no_other(project: Project) -> None:
    other = Path("elsewhere.json")
    files.save(project.learned, other)
    before = project.playbook.read_bytes()
    told = project.forget("--agent", "desk", "--playbook", str(other), "--yes")
    assert [each["file"] for each in told["playbooks"]] == [str(other)]
    assert files.load(other).active == ()
    assert project.playbook.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "say which traces"),
        (("--words", " "), "--words is empty, and would mean everything"),
        (("--customer", ""), "--customer is empty, and would mean everything"),
        (("--trace", ""), "--trace is empty, and would mean everything"),
        (("--trace", "nobody"), "nobody"),
        (("--agent", "desk", "--playbook", "gone.json"), "gone.json is not there"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_goes(project: Project, arguments: tuple[str, ...], said: str) -> None:
    project("traces", "forget", *arguments, "--yes", code=2)
    assert said in project.err
    assert project.traces == 60


def test_a_file_in_the_folder_that_is_no_playbook_is_left_and_said(project: Project) -> None:
    Path("playbooks/notes.json").write_text("{}")
    project("traces", "forget", "--session", "oslo-session-1", "--yes")
    assert "left as it is" in project.err
    assert project.traces == 59
