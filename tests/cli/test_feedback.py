"""`journeyman feedback` and `journeyman audit`."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.feedback import Feedback, TargetKind
from journeyman.core.reward import Source
from journeyman.core.trace import ModelCall, Trace
from journeyman.stores.rollouts import open_rollouts
from journeyman.stores.traces import open_traces
from tests.contracts.test_rollout_stores import begun, promoted

NOW = datetime.now(UTC)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOURNEYMAN_USER", "ada")
    path = tmp_path / ".journeyman" / "journeyman.db"
    steps = tuple(ModelCall(id=each, model="m", prompt="user: Hi", reply="Hello") for each in ("t1", "r2"))
    trace = Trace(
        id="t1", task_id="order-7", candidate_id="base", started_at=NOW, steps=steps, session="visit", source="gateway"
    )
    with open_traces(path) as traces:
        traces.add([trace])
    return path


def said(store: Path, kind: TargetKind, target: str) -> list[Feedback]:
    with open_rollouts(store) as opened:
        return list(opened.feedback_of([(kind, target)]))


def label(store: Path) -> tuple[bool | None, str | None]:
    with open_traces(store) as traces:
        line = traces.line("t1")
    assert line is not None
    return line.label, line.labelled_by


def result(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["feedback", *arguments]) == 2
    return capsys.readouterr().err


def test_a_word_is_on_what_the_store_knows_the_target_as(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["feedback", "r2", "--value", "1"]) == 0
    assert "kept: success of the request r2" in capsys.readouterr().err
    (word,) = said(store, TargetKind.REQUEST, "r2")
    assert (word.value, word.source, word.rater, label(store)) == (1.0, Source.PERSON, "ada", (True, "ada"))
    assert main(["feedback", "t1", "--value", "false", "--source", "ground truth", "--text", "the refund was paid"]) == 0
    assert label(store) == (False, "ground-truth")
    for target, kind in (("visit", TargetKind.SESSION), ("order-7", TargetKind.TASK)):
        assert main(["feedback", target, "--value", "0.5", "--metric", "tone"]) == 0
        assert said(store, kind, target)[0].value == 0.5
    told = result(capsys, "feedback", "later", "--kind", "session", "--value", "Oslo", "--metric", "answer")
    assert (told["words"], told["known"], len(told["ids"])) == (1, 0, 1)


def test_a_trace_is_meant_also_where_a_task_was_made_of_it(store: Path) -> None:
    again = Trace(id="own", task_id="t1", candidate_id="base", started_at=NOW, steps=(), source="run")
    with open_traces(store) as traces:
        traces.add([again])
    assert main(["feedback", "t1", "--value", "1"]) == 0
    assert len(said(store, TargetKind.TRACE, "t1")) == 1


def test_what_cannot_be_meant_is_refused_in_one_sentence(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "the store knows no ghost; say what it is" in refused(capsys, "ghost", "--value", "1")
    assert "value is missing" in refused(capsys, "t1")
    assert "name a TARGET, or a --file" in refused(capsys)
    assert "name a TARGET, or a --file" in refused(capsys, "t1", "--file", "x.csv")
    assert "there are ground truth, person" in refused(capsys, "t1", "--value", "1", "--source", "boss")
    assert "value is a number" in refused(capsys, "t1", "--value", "NaN", "--metric", "x")
    assert "from 0 to 1" in refused(capsys, "t1", "--value", "4")
    assert "missing.csv" in refused(capsys, "--file", "missing.csv")
    assert said(store, TargetKind.TRACE, "t1") == []


CSV = "trace,metric,value,text\nt1,success,0,the refund was paid\nt2,success,1,\nt1,stars,4,\n"
JSONL = "".join(
    f'{{"trace": "t1", "metric": "{name}", "value": {value}}}\n' for name, value in (("success", "false"), ("stars", "4"))
)


@pytest.mark.parametrize(("name", "content", "words"), [("truth.csv", CSV, 3), ("truth.jsonl", JSONL, 2)])
def test_a_file_weeks_later_corrects_what_was_said_and_the_same_file_again_says_nothing_new(
    store: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, words: int
) -> None:
    main(["feedback", "t1", "--value", "1"])
    Path(name).write_text(content)
    capsys.readouterr()
    first = result(capsys, "feedback", "--file", name, "--source", "ground truth")
    assert (first["words"], first["known"], label(store)) == (words, 2, (False, "ground-truth"))
    assert result(capsys, "feedback", "--file", name, "--source", "ground truth") == first
    assert len(said(store, TargetKind.TRACE, "t1")) == 3


@pytest.mark.parametrize(
    ("name", "content", "where"),
    [
        ("a.csv", "trace,value\nt1,1\nt1,NaN\n", "a.csv:3: value is a number"),
        ("a.csv", "trace,value\nt1,1\nt1\n", "a.csv:3: it has more or fewer cells"),
        ("a.csv", "trace,mark\nt1,1\n", "a.csv:2: there is no 'mark'"),
        ("a.csv", "", "a.csv: there is no word"),
        ("a.jsonl", '{"trace": "t1", "value": 1}\n{"trace": "t1", "value": NaN}\n', "a.jsonl:2: value is a number"),
        ("a.jsonl", '{"trace": "t1", "value": 1}\n[]\n', "a.jsonl:2: an object is wanted"),
        ("a.jsonl", '{"trace": "t1", "value": 1}\n{\n', "a.jsonl:2: no JSON"),
        ("a.jsonl", '{"trace": "t1", "value": 1, "id": "x"}\n{"trace": "t1", "value": 0, "id": "x"}\n', "'x' is kept already"),
    ],
)
def test_a_bad_row_is_named_by_its_line_and_nothing_of_the_file_is_kept(
    store: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, where: str
) -> None:
    Path(name).write_text(content)
    assert where in refused(capsys, "--file", name)
    assert said(store, TargetKind.TRACE, "t1") == []


def test_secrets_in_what_is_said_are_not_kept(store: Path) -> None:
    key = "sk-proj-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGH"
    assert main(["feedback", "visit", "--metric", "comment", "--value", f"my key is {key}, keep it"]) == 0
    assert key not in (text := said(store, TargetKind.SESSION, "visit")[0].text or "")
    assert text.startswith("my key is [redacted")


def test_of_a_large_file_it_is_told_how_far_it_is(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("many.jsonl").write_text("".join(f'{{"session": "s{number}", "value": 1}}\n' for number in range(3000)))
    assert main(["feedback", "--file", "many.jsonl"]) == 0
    assert "1500/3000 words" in (told := capsys.readouterr().err)
    assert "3,000 words kept; what 0 of them are about is in the store" in told


def test_the_audit_shows_who_moved_which_share_and_why_and_finds_what_was_changed(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit"]) == 0
    assert "Nothing that is served was changed yet" in capsys.readouterr().err
    assert main(["audit", "--verify"]) == 0
    assert "whole; the head is not there yet" in capsys.readouterr().out
    with open_rollouts(store) as opened:
        promoted(opened, begun())
        head = opened.audit()[-1].hash
    assert main(["audit"]) == 0
    shown = capsys.readouterr()
    for words in ("person:ann", "r1#2", "canary 1%", "the next step", "promote", "not worse", "context:desk"):
        assert words in shown.out
    assert head in shown.err
    told = result(capsys, "audit", "--limit", "2")
    assert ([row["action"] for row in told["audit"]], told["head"]) == (["promote", "put"], head)
    assert result(capsys, "audit", "--verify") == {"head": head, "whole": True, "problem": None}
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("update audit set reason = 'nothing' where seq = 2")
    assert "audit row 2" in result(capsys, "audit", "--verify", code=1)["problem"]
    assert main(["audit", "--verify"]) == 1
    assert "was changed after it was written" in capsys.readouterr().out


def test_an_answer_a_note_and_what_is_taken_back_are_words_like_any_other(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["feedback", "t1", "--answer", "Hello, Ada"]) == 0
    assert main(["feedback", "t1", "--note", "ask the desk", "--rater", "bo"]) == 0
    assert main(["feedback", "t1", "--value", "1"]) == 0
    told = [(each.metric, each.text, each.value, each.rater) for each in said(store, TargetKind.TRACE, "t1")]
    assert told == [
        ("correct_answer", "Hello, Ada", None, "ada"), ("note", "ask the desk", None, "bo"), ("success", None, 1.0, "ada")
    ]  # fmt: skip
    assert main(["feedback", "t1", "--clear"]) == 0
    assert "taken back: success of the trace t1" in capsys.readouterr().err
    assert label(store) == (None, None)
    assert main(["feedback", "t1", "--metric", "answer", "--clear"]) == 0
    assert [each.metric for each in said(store, TargetKind.TRACE, "t1")] == ["note"]
    assert "stand alone" in refused(capsys, "t1", "--answer", "a", "--value", "1")
    assert "stand alone" in refused(capsys, "t1", "--answer", "a", "--note", "b")
    assert "clear takes back" in refused(capsys, "t1", "--clear", "--value", "1")


def test_scales_and_categories_of_the_project_hold_for_the_command_and_its_files(
    store: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Path("journeyman.toml").write_text('[labels]\nscales = ["helpful:1..5"]\ncategories = ["topic:refund,delivery"]\n')
    assert "helpful is a number from 1 to 5" in refused(capsys, "t1", "--metric", "helpful", "--value", "7")
    assert "topic is one of refund, delivery" in refused(capsys, "t1", "--metric", "topic", "--value", "weather")
    rows = tmp_path / "said.csv"
    rows.write_text("trace,metric,value,clear\nt1,helpful,5,\nt1,topic,delivery,\nt1,success,,true\n")
    assert main(["feedback", "--file", str(rows)]) == 0
    assert [(each.metric, each.reward.value) for each in said(store, TargetKind.TRACE, "t1")] == [
        ("helpful", 1.0),
        ("topic", None),
    ]
    rows.write_text("trace,metric,value\nt1,helpful,4\nt1,topic,weather\n")
    assert "said.csv:3: topic is one of" in refused(capsys, "--file", str(rows))
    Path("journeyman.toml").write_text('[labels]\nscales = ["helpful"]\n')
    assert "'helpful' is no scale" in refused(capsys, "t1", "--value", "1")
