"""`journeyman deployment`, as a person types it, with the wrong words, too."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="needs the extra: pip install 'journeyman[gguf]'")

from journeyman.cli import main
from journeyman.core.candidate import BASE, Candidate, Kind
from journeyman.core.rollout import Slot
from journeyman.io.files import sha256
from journeyman.stores import EvaluationRecord, open_store
from journeyman.stores.base import EvidenceRecord
from journeyman.stores.rollouts import open_rollouts
from tests.contracts.test_rollout_stores import NOON
from tests.support import ollama
from tests.support.ggufs import gguf

pytestmark = pytest.mark.service
FORCED = ("--force", "--reason", "no tasks are held out for it")
STORE = Path(".journeyman") / "journeyman.db"


class Desk:
    """A project, an Ollama, and what is said of both."""

    def __init__(self, box: ollama.Ollama, capsys: pytest.CaptureFixture[str]) -> None:
        self.box, self._capsys = box, capsys
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0, group: str = "deployment") -> dict[str, Any]:
        self._capsys.readouterr()
        assert main([group, *arguments, "--json"]) == code, self._capsys.readouterr().err
        said = self._capsys.readouterr()
        self.err = said.err
        told: dict[str, Any] = json.loads(said.out.splitlines()[-1]) if said.out else {}
        return told

    def shown(self, *arguments: str) -> str:
        self._capsys.readouterr()
        assert main(["deployment", *arguments]) == 0
        said = self._capsys.readouterr()
        return said.out + said.err

    def deploy(self, name: str, *more: str, file: str = "", code: int = 0) -> dict[str, Any]:
        where = ("--to", "ollama", "--host", self.box.url)
        return self("--deploy", "--model-path", file or f"{name}.gguf", "--model-id", name, *where, *more, code=code)

    def rows(self) -> int:
        if not STORE.exists():
            return 0
        with closing(sqlite3.connect(STORE)) as database:
            tables = ("rollouts", "rollout_events", "slot_moves", "served_models", "audit", "candidates", "moves")
            return sum(database.execute(f"select count(*) from {table}").fetchone()[0] for table in tables)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOURNEYMAN_USER", "ann")
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("agent_v1.0", "agent_v1.1", "other-v1.1"):
        gguf(tmp_path / f"{name}.gguf", weights=name.encode())
    with ollama.serving(tmp_path / "blobs") as box:
        yield Desk(box, capsys)


def _passed(file: str) -> Candidate:
    """Its gate let it pass on held-out tasks."""
    candidate = Candidate(kind=Kind.ADAPTER, body=sha256(Path(file)))
    reason = "gain +0.250 on 40 tasks"
    word = EvaluationRecord(
        id="e1", candidate_id=candidate.id, baseline_id=BASE, held_out_id="h", passed=True, reason=reason, report={}, at=NOON
    )
    with open_store(STORE) as store:
        store.add_candidate(candidate)
        store.add_evaluation(word)
    return candidate


def test_a_first_version_that_passed_its_gate_is_in_production_at_once_and_goes_by_one_word(desk: Desk) -> None:
    candidate = _passed("agent_v1.0.gguf")
    told = desk.deploy("agent_v1.0", "--agent", "desk", "--replaces", "gpt-*")
    assert (told["candidate"], told["production"], told["slot"]) == (candidate.id, candidate.id, "weights:desk/*")
    shown = desk.shown("--monitor", "--model-id", "agent_v1.0")
    assert all(word in shown for word in ("answers    yes", "weights:desk/*", "gpt-*", "none yet"))
    with open_rollouts(STORE) as store:
        (rollout,) = store.rollouts()
        assert not any(event.cause.forced for event in rollout.events)
        assert [event.kind for event in rollout.events] == ["start", "ramp", "promote", "conclude"]
        assert store.verify() is None
    # Deployed once more, nothing else happens.
    assert desk.deploy("agent_v1.0", "--agent", "desk", "--replaces", "gpt-*")["production"] == candidate.id
    assert desk("--rollback", "--model-id", "v1.0")["production"] == {"weights:desk/*": BASE}


def test_a_version_that_was_promoted_is_taken_back_and_what_was_there_before_comes_again(desk: Desk) -> None:
    first = desk.deploy("agent_v1.0", *FORCED)["candidate"]
    second = desk.deploy("agent_v1.1")["candidate"]
    begun = desk("--ab-test", "--model-a", "v1.0", "--model-b", "v1.1", "--test-name", "t", *FORCED)
    shown = desk.shown("--monitor", "--model-id", "agent_v1.1")
    assert all(word in shown for word in ("of no slot", "canary", "agent_v1.0", "nobody has compared its sessions yet"))
    success = {"canary": 12, "production": 11, "difference": 0.125, "low": -0.25, "high": 0.5, "e_harm": 0.1, "e_promote": 2.0}
    with open_rollouts(STORE) as store:
        store.add_evidence(begun["rollout"]["id"], EvidenceRecord(1, 23, {}, {"metrics": {"success": success}}, NOON))
    shown = desk.shown("--monitor", "--model-id", "agent_v1.1")
    assert all(word in shown for word in ("success", "0.125", "-0.25", "0.5"))
    (seen,) = desk("--monitor", "--model-id", "agent_v1.0")["rollouts"]
    assert seen["evidence"]["summary"]["metrics"] == {"success": success}
    assert desk("promote", "weights", "--reason", "it is better", group="releases")["production"] == second
    desk("close", "weights", "--reason", "nobody complains", group="releases")
    assert desk("--rollback", "--model-id", "agent_v1.1", "--reason", "somebody does")["production"] == {"weights:*/*": first}
    assert "agent_v1.0 is taken back; nothing is in production of weights:*/*" in desk.shown("--rollback", "--model-id", "v1.0")
    with open_rollouts(STORE) as store:
        assert [move.candidate_id for move in store.slot_history(Slot.parse("weights"))] == [first, second, first, BASE]


def test_a_version_that_does_not_answer_is_said_to_and_is_not_compared(desk: Desk) -> None:
    desk.deploy("agent_v1.0", *FORCED)
    desk.deploy("agent_v1.1")
    del desk.box.models["agent_v1.1:latest"]
    seen = desk("--monitor", "--model-id", "v1.1", code=1)
    assert (seen["answers"], "not found" in seen["reason"]) == (False, True)
    rows = desk.rows()
    assert desk("--ab-test", "--model-a", "v1.0", "--model-b", "v1.1", "--test-name", "t", *FORCED, code=2) == {}
    assert "not found" in desk.err
    assert desk.rows() == rows


DEPLOY = ("--deploy", "--model-path", "agent_v1.1.gguf", "--model-id", "m")
TEST = ("--ab-test", "--test-name", "t", "--model-b", "v1.0", "--model-a")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "one of --deploy, --monitor, --ab-test, --rollback says what is to be done, not none of them"),
        (("--deploy", "--monitor"), 2, "not 2 of them"),
        (("--deploy", "--model-id", "m"), 2, "--deploy needs --model-path, --model-id; --model-path is missing"),
        (("--monitor", "--model-id", " "), 2, "--model-id is missing"),
        (("--monitor", "--model-id", "m", "--force"), 2, "--force is not for --monitor, which takes --model-id"),
        (("--rollback", "--model-id", "nonsense"), 2, "no model 'nonsense' was deployed with --release; there are agent_v1.0"),
        (("--monitor", "--model-id", "v1.1"), 2, "'v1.1' may be any of agent_v1.1, other-v1.1"),
        (("--rollback", "--model-id", "agent_v1.1"), 1, "in production of no slot and in no open rollout"),
        ((*DEPLOY, "--model-path", "no.gguf"), 2, "there is no run, adapter, model or GGUF file 'no.gguf'"),
        ((*DEPLOY, "--force"), 2, "--force needs --reason"),
        ((*DEPLOY, "--host", "box"), 2, "--host is for --to ollama"),
        ((*DEPLOY, "--model-id", "agent_v1.0"), 1, "agent_v1.0 is what other weights"),
        (("--ab-test", "--model-a", "v1.0", "--model-b", "agent_v1.1"), 2, "--test-name is missing"),
        ((*TEST, "agent_v1.1"), 1, "in production of no slot"),
        (
            (*TEST, "agent_v1.1", "--agent", "desk"),
            1,
            "agent_v1.0 is in production of weights:desk/*, so agent_v1.1 is",
        ),
        ((*TEST, "v1.0", *FORCED), 1, "is in production there already"),
        ((*TEST, "v1.0", "--force"), 2, "--force needs --reason"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_moves_nothing(
    desk: Desk, arguments: tuple[str, ...], code: int, said: str
) -> None:
    desk.deploy("agent_v1.0", *FORCED)
    desk.deploy("agent_v1.1")
    desk.deploy("other-v1.1")
    rows, there = desk.rows(), dict(desk.box.models)
    told = desk(*arguments, code=code)
    assert said in desk.err.splitlines()[-1]
    assert bool(told) == (code == 1)
    assert desk.rows() == rows
    assert desk.box.models == there
