import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.playbook import Batch, Bullet, BulletOrigin, Evidence, Hold, Playbook, Provenance
from journeyman.core.trace import Trace
from journeyman.experiments.agents import candidate_of
from journeyman.optimizers.playbook import edit, files
from journeyman.stores import EvaluationRecord, RunRecord, open_store
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Query

NOW = datetime.now(UTC)
LEARNED = Provenance(
    run="run-1",
    model="embedded:base",
    origin=BulletOrigin.ENVIRONMENT,
    traces=("trace-a", "trace-b", "trace-c"),
    trace_count=12,
    principals=5,
    evidence="place_order date: expected <text>",
)
OSLO = Playbook(
    bullets=(
        Bullet(id="b-aa11", content="dates: day first", domain="oslo", helpful=3, harmful=1, shown=9, provenance=LEARNED),
        Bullet(
            id="b-aa22", content="Refund [bold]late[/bold] orders.", domain="oslo", held="it names money", provenance=LEARNED
        ),
        Bullet(id="b-bb33", content="Never ask.", domain="oslo", held="it names checks", expires_at="2026-12-01"),
        Bullet(id="b-cc44", content="Old.", domain="oslo", held="it names limits", retired="wrong"),
        Bullet(id="b-dd55", content="Kept.", domain="oslo", held="it names money", locked=True),
    )
)


class Told:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """stdout of `journeyman playbook ARGUMENTS`; stderr is in `err`."""
        assert main(["playbook", *arguments]) == code
        said = self._capsys.readouterr()
        self.err = said.err
        return said.out

    def json(self, *arguments: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self(*arguments, "--json").splitlines()[-1])
        return told


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOURNEYMAN_USER", "ada")
    files.save(OSLO, Path("oslo.json"))
    return Told(capsys)


def kept(*ids: str) -> None:
    """Traces in the project's store."""
    Path(".journeyman").mkdir(exist_ok=True)
    with open_traces("sqlite:///.journeyman/journeyman.db") as store:
        for place, id in enumerate(ids):
            store.add([Trace(id=id, task_id="t", candidate_id="base", started_at=NOW - timedelta(hours=place))])


def examined(playbook: Playbook, passed: bool, at: datetime) -> str:
    candidate = candidate_of(playbook)
    assert candidate is not None
    with open_store("sqlite:///.journeyman/journeyman.db") as store:
        run = f"run-{at.timestamp():.0f}"
        store.add_run(RunRecord(id=run, kind="evaluate", config={}, started_at=at))
        store.add_candidate(candidate)
        store.add_evaluation(
            EvaluationRecord(
                id=f"{run}/1",
                candidate_id=candidate.id,
                baseline_id="base",
                held_out_id="h",
                passed=passed,
                reason=f"{'better' if passed else 'worse'} on 45 calls",
                report={},
                at=at,
            )
        )
    return candidate.id


def test_why_says_where_a_bullet_came_from_and_how_to_see_its_traces(run: Told) -> None:
    kept("trace-a", "trace-c")
    out = run("why", "oslo.json", "b-aa1")
    assert "dates: day first" in out
    assert "the environment: what a tool said" in out
    assert "place_order date: expected <text>" in out
    assert "from 12 traces of 5 principals" in out
    assert [line.split()[-1] for line in out.splitlines() if "journeyman traces show" in line] == ["trace-a", "trace-c"]
    assert "1 of the 3 traces that are named are not in the store any more" in out
    assert "3 helpful, 1 harmful (confidence 0.67)" in out
    assert "not yet, or not in this store" in out


def test_traces_that_were_pruned_are_said_to_be_so(run: Told) -> None:
    kept("trace-a", "trace-b", "trace-c")
    with open_traces("sqlite:///.journeyman/journeyman.db") as store:
        store.prune(before=NOW - timedelta(minutes=30), keep_labelled=False)
        assert store.count(Query()) == 1
    told = run.json("why", "oslo.json", "b-aa11")
    assert told["traces"] == [{"id": id, "kept": id == "trace-a"} for id in LEARNED.traces]
    assert (told["trace_count"], told["principals"]) == (12, 5)


def test_without_a_store_it_is_said_that_nobody_can_tell(run: Told) -> None:
    out = run("why", "oslo.json", "b-aa11")
    assert "3 traces named, and there is no store here to see them in" in out
    assert {trace["kept"] for trace in run.json("why", "oslo.json", "b-aa11")["traces"]} == {None}
    assert not Path(".journeyman").exists()


def test_why_tells_the_latest_examination_of_the_playbook_as_it_is_else_of_one_that_had_the_bullet(run: Told) -> None:
    kept()
    examined(OSLO, False, NOW - timedelta(hours=2))
    known = examined(OSLO, True, NOW - timedelta(hours=1))
    assert "passed: better on 45 calls" in run("why", "oslo.json", "b-aa11")
    assert run.json("why", "oslo.json", "b-aa11")["examined"]["as_it_is"] is True
    run("approve", "oslo.json", "b-aa22", "--reason", "it is in our terms")
    out = run("why", "oslo.json", "b-aa11")
    assert f"as a part of candidate {known}, not of the playbook as it is now: passed" in out
    assert run.json("why", "oslo.json", "b-aa22")["examined"] is None
    assert "while it is held it is in no candidate" in run("why", "oslo.json", "b-bb33")


def test_why_tells_what_a_bullet_waits_for_and_what_was_done_to_it(run: Told) -> None:
    out = run("why", "oslo.json", "b-bb")
    assert "it names checks" in out
    assert "2026-12-01, unless what it is about is met again" in out
    assert "journeyman playbook approve oslo.json b-bb33 --reason" in run.err
    run("reject", "oslo.json", "b-bb33", "--reason", "we always ask")
    told = run.json("why", "oslo.json", "b-bb33")
    assert (told["state"], told["retired"]) == ("retired", "rejected by ada: we always ask")
    (change,) = told["changes"]
    assert change["revision"] == 1
    assert change["what"].startswith("reject ")
    assert change["what"].endswith("1 retire (rejected by ada: we always ask)")
    assert run.json("why", "oslo.json@0", "b-bb33")["state"] == "held"


def test_approved_bullets_are_shown_from_then_on_and_the_journal_says_who_and_why(run: Told) -> None:
    told = run.json("approve", "oslo.json", "b-aa2", "b-bb33", "b-bb33", "--reason", " read both ", "--who", "grace")
    assert told == {
        "output": "oslo.json",
        "revision": 1,
        "bullets": 3,
        "ids": ["b-aa22", "b-bb33"],
        "held": 1,
        "by": "grace",
        "reason": "read both",
    }
    assert [bullet.id for bullet in files.load("oslo.json").active] == ["b-aa11", "b-aa22", "b-bb33"]
    (entry,) = [row["what"] for row in run.json("log", "oslo.json")["revisions"][1:]]
    assert entry.endswith(": 2 approved (grace: read both)")
    change = edit.revisions(Path("oslo.json"))[1].change
    assert isinstance(change, Batch)
    assert change.deltas[0] == Hold(bullet_id="b-aa22", by="grace", why="read both")
    assert run("diff", "oslo.json@0", "oslo.json").splitlines() == [
        "b-aa22 was approved; it had been held: it names money",
        "b-bb33 was approved; it had been held: it names checks",
    ]
    run("restore", "oslo.json", "0")
    assert len(files.load("oslo.json").held) == 3


@pytest.mark.parametrize("verb", ["approve", "reject"])
@pytest.mark.parametrize(
    ("bullet", "complaint"),
    [
        ("b-aa11", "bullet b-aa11 is not held, so there is nothing to decide"),
        ("b-aa", "more than one bullet of oslo.json has an id that begins so (b-aa11, b-aa22)"),
        ("b-zz", "oslo.json has no bullet b-zz; `journeyman playbook show oslo.json --all` lists them"),
        ("b-cc44", "bullet b-cc44 is retired (wrong), so there is nothing to decide"),
        ("b-dd55", "bullet b-dd55 is locked; `journeyman playbook unlock oslo.json b-dd55` comes first"),
    ],
)
def test_what_cannot_be_decided_is_named_and_nothing_is_written(run: Told, verb: str, bullet: str, complaint: str) -> None:
    before = Path("oslo.json").read_bytes()
    run(verb, "oslo.json", "b-bb33", bullet, "--reason", "x", code=2)
    assert complaint in run.err
    assert Path("oslo.json").read_bytes() == before
    assert not edit.journal_of(Path("oslo.json")).exists()


def test_nobody_decides_without_a_reason_or_on_another_system_s_file(run: Told) -> None:
    run("approve", "oslo.json", "b-aa22", "--reason", "  ", code=2)
    assert "--reason says nothing" in run.err
    run("approve", "oslo.json", "b-aa22", code=2)
    assert "Missing option '--reason'" in run.err
    run("reject", "oslo.json", "--reason", "x", code=2)
    assert "Missing argument 'BULLETS...'" in run.err
    Path("ace.txt").write_text("## A\n[a-1] helpful=1 harmful=0 :: Use cents.\n")
    run("approve", "ace.txt", "a-1", "--reason", "x", code=2)
    assert "bring it in with `journeyman playbook import" in run.err


def test_show_marks_and_counts_what_is_held_and_an_export_leaves_it_out(run: Told) -> None:
    out = " ".join(run("show", "oslo.json").replace("│", " ").split())
    assert "oslo.json: 1 bullet, 3 held, 1 retired" in out
    assert "(held: it names money)" in out
    assert "Refund [bold]late[/bold] orders." in out
    assert "journeyman playbook why oslo.json ID" in run.err
    told = run.json("show", "oslo.json")
    assert (told["active"], told["held"], told["retired"]) == (1, 3, 1)
    assert told["bullets"][1]["held"] == "it names money"
    told = run.json("export", "oslo.json", "--format", "ace-framework-v1")
    assert "Refund" not in told["text"]
    assert "held bullets are left out (3 of 5 bullets)" in told["losses"]


def test_a_candidate_is_what_may_be_shown_so_holding_another_bullet_changes_none(run: Told) -> None:
    base = candidate_of(replace(OSLO, bullets=OSLO.bullets[:1]))
    assert candidate_of(OSLO) == base
    assert base is not None
    assert "Refund" not in base.body
    approved = OSLO.apply(Batch(id="1", deltas=(Hold(bullet_id="b-aa22"),)))
    assert candidate_of(approved) != base
    assert candidate_of(replace(OSLO, bullets=OSLO.bullets[1:3])) is None


def test_what_is_held_is_in_no_prompt(run: Told) -> None:
    from journeyman import Task

    told = OSLO.prompt(Task(id="1", question="When?", domain="oslo"))
    assert "day first" in told
    assert not any(bullet.content in told for bullet in OSLO.bullets[1:])


def test_diff_says_in_words_what_became_of_the_evidence(run: Told) -> None:
    less = Evidence(bullet_id="b-aa11", traces=("trace-c",), trace_count=4, principals=2, expires_at="2026-12-24")
    holds = (Hold(bullet_id="b-aa11", reason="it names money"), Hold(bullet_id="b-bb33", reason="it names limits"))
    edit.change(Path("oslo.json"), Batch(id="x", deltas=(less, *holds), at="2026-11-23"))
    assert run("diff", "oslo.json@0", "oslo.json").splitlines() == [
        "b-aa11 is held until a person approves it: it names money",
        "b-aa11 stands on 4 traces of 2 principals, before on 12 of 5, expires 2026-12-24, before never",
        "b-bb33 stays held, now because: it names limits",
    ]
    assert run.json("log", "oslo.json")["revisions"][1]["what"] == "x: 1 evidence, 2 held"
    assert run.json("diff", "oslo.json@0", "oslo.json")["counts"] == {"held": 2, "met": 1}
