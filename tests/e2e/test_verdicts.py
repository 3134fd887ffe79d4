"""Was this attempt good? One answer, all the way from what was recorded to the rows that are learned from."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.reward import Reward
from journeyman.core.score import Score
from journeyman.core.task import Split
from journeyman.core.trace import Trace
from journeyman.experiments import wiring
from journeyman.stores import AttemptRecord, RunRecord, open_store
from journeyman.stores.traces import open_traces
from tests.optimizers.weights.data.attempts import answered

pytestmark = pytest.mark.service

RIGHT, WRONG = 6, 12


def attempt(number: int) -> AttemptRecord:
    """The first are right; the others are wrong, end well and look well."""
    right = number < RIGHT
    trace: Trace = answered(f"t{number}", f"It is {number}.", question=f"What is {number if right else number + 1}?")
    verdict = Reward(name="answer", value=float(right), evidence="" if right else f'answer: expected "{number + 1}"')
    trace = replace(trace, task_id=f"task{number % 3}")
    return AttemptRecord(run_id="r", split=Split.TRAIN, trace=trace, score=Score(trace_id=trace.id, rewards=(verdict,)))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    with open_store(tmp_path / "my.db") as runs:
        runs.add_run(RunRecord(id="r", kind="train playbook", config={}, started_at=datetime(2026, 1, 1, tzinfo=UTC)))
        runs.add_attempts([attempt(number) for number in range(RIGHT + WRONG)])
    return "my.db"


def rows(store: str, method: str) -> list[dict[str, Any]]:
    assert main(["dataset", "build", "--store", store, "--method", method, "--out", f"{method}.jsonl"]) == 0
    return [json.loads(line) for line in Path(f"{method}.jsonl").read_text().splitlines()]


def labelled(store: str) -> dict[str, tuple[bool, str]]:
    """The label of each trace, and who decided."""
    return {row["source"]["trace"]: (row["label"], row["source"]["label"]) for row in rows(store, "kto")}


def test_scores_that_are_kept_make_no_wrong_answer_a_good_row_and_a_person_s_word_holds(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", "--store", store, "--keep"]) == 0
    assert f"{RIGHT + WRONG} traces: {RIGHT} good, {WRONG} bad, 0 undecided" in capsys.readouterr().out
    found = labelled(store)
    assert {id for id, (good, _) in found.items() if good} == {f"r:t{number}" for number in range(RIGHT)}
    assert len(found) == RIGHT + WRONG
    assert found["r:t7"] == (False, 'the check answer says bad: answer: expected "8"')
    for id, word, who in (
        ("r:t0", "bad", "ada"),
        ("r:t1", "good", "ada"),
        ("r:t1", "bad", "ground-truth"),
        ("r:t6", "good", "ada"),
        ("r:t7", "good", "end-user"),
    ):
        assert main(["traces", "label", id, word, "--who", who, "--store", store]) == 0
    found = labelled(store)
    assert found["r:t0"] == (False, "the person ada says bad; but the check answer says good")
    assert found["r:t1"] == (False, "the ground truth says bad; but the check answer says good")
    assert found["r:t6"] == (True, 'the person ada says good; but the check answer says bad: answer: expected "7"')
    assert found["r:t7"] == (False, 'the check answer says bad: answer: expected "8"; but the end user says good')
    assert sum(good for good, _ in found.values()) == RIGHT - 2 + 1
    capsys.readouterr()
    assert main(["score", "--store", store, "--out", "scores.jsonl"]) == 0
    scored = {row["trace_id"]: row for row in map(json.loads, Path("scores.jsonl").read_text().splitlines())}
    assert {f"r:{id}": (row["label"], row["reason"]) for id, row in scored.items()} == found, "one rule, the same sentences"
    with open_traces(store) as traces:
        pages = {trace.id: (trace.verdict.good, trace.verdict.reason) for trace in traces.traces()}
    assert pages == found


def test_what_a_group_is_rewarded_with_is_what_decided(store: str) -> None:
    before = rows(store, "grpo")
    assert main(["score", "--store", store, "--keep"]) == 0
    assert [row["rewards"] for row in rows(store, "grpo")] == [row["rewards"] for row in before]
    assert main(["traces", "label", "r:t0", "bad", "--who", "ada", "--store", store]) == 0
    after = rows(store, "grpo")
    worth = {text: score for row in after for text, score in zip(map(str, row["completions"]), row["scores"], strict=True)}
    assert [score for text, score in worth.items() if "It is 0." in text] == [0.0]


def test_what_nobody_can_judge_is_no_row(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    with open_traces("other.db") as traces:
        traces.add([replace(answered("a", "Hello."), rewards=())])
    assert main(["score", "--store", "other.db", "--keep"]) == 0
    assert "1 trace: 0 good, 0 bad, 1 undecided" in capsys.readouterr().out
    assert main(["dataset", "build", "--store", "other.db", "--method", "kto", "--out", "kto.jsonl"]) == 2
    assert "nobody knows what they were worth" in capsys.readouterr().err
    with open_traces("other.db") as traces:
        traces.label("a", False, who="ada", at=wiring.now())
    assert labelled("other.db") == {"a": (False, "the person ada says bad")}
