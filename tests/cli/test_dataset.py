"""`journeyman dataset`: sets of rows are built, shown and checked."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.trace import Message, ModelCall, ToolCall, Trace
from journeyman.stores.traces import open_traces
from journeyman.tracing.importers.jsonl import line
from tests.optimizers.weights.data.attempts import answered, attempt


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with open_traces(".journeyman/journeyman.db") as traces:
        traces.add(answered(f"desk{at}", f"{at}", agent="desk", reward=at / 3) for at in range(4))
        traces.add(answered(f"coder{at}", f"c{at}", agent="coder", task_id="u", reward=1.0) for at in range(2))
    return tmp_path


def built(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["dataset", "build", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["dataset", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    return told.err


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_the_store_becomes_rows_with_a_sheet_beside_them(capsys: pytest.CaptureFixture[str], here: Path, suffix: str) -> None:
    found = built(capsys, "--method", "kto", "--out", f"kto.{suffix}", "--from-traces")
    assert (found["rows"], found["good"], found["bad"], found["agents"]) == (6, 4, 2, {"desk": 4, "coder": 2})
    assert sorted(path.name for path in here.glob("kto*")) == [
        f"kto.{suffix}",
        f"kto.{suffix}.sheet.json",
        f"kto.{suffix}.sheet.md",
    ]
    assert main(["dataset", "check", f"kto.{suffix}", "--json"]) == 0
    checked = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (checked["kind"], checked["form"], checked["good"], checked["faults"]) == ("kto", "conversational", 4, [])


@pytest.mark.parametrize(
    "filters",
    [
        ("--agent", "desk", "--min-reward", "0.5"),
        ("--from-traces", "agent=desk,min-reward=0.5"),
        ("--from-traces", "agent=desk", "--from-traces", "min_reward=0.5"),
    ],
)
def test_filters_are_those_of_traces_list_in_either_form(
    capsys: pytest.CaptureFixture[str], here: Path, filters: tuple[str, ...]
) -> None:
    found = built(capsys, "--method", "kto", "--out", "kto.jsonl", *filters)
    assert (found["rows"], found["agents"]) == (2, {"desk": 2})


def test_groups_from_a_file_of_traces(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "traces.jsonl").write_text("\n".join(line(attempt(id, reward=float(id == "a"))) for id in "ab"))
    found = built(capsys, "--method", "grpo", "--out", "grpo.jsonl", "--from-traces", "traces.jsonl")
    assert (found["rows"], found["completions"], found["groups"]) == (1, 2, 1)
    assert main(["dataset", "show", "grpo.jsonl"]) == 0
    out = capsys.readouterr().out
    for told in ("user: Where is order 7?", 'assistant calls find {"id": 7}', "→ +1.000 (from 1.000)", "→ -1.000"):
        assert told in out


def test_a_dry_run_says_what_would_be_and_writes_nothing(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    found = built(capsys, "--method", "kto", "--out", "kto.jsonl", "--balance", "undersample", "--dry-run")
    assert (found["rows"], found["good"], found["bad"], found["out"], found["sha256"]) == (4, 2, 2, None, None)
    assert list(here.glob("kto*")) == []


def test_words_for_people_go_to_stderr(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    assert (
        main(["dataset", "build", "--method", "kto", "--out", "kto.jsonl", "--agent-weight", "coder=2", "--balance", "weights"])
        == 0
    )
    told = capsys.readouterr()
    assert told.out == ""
    assert "8 rows, 8 completions of 6 traces: 6 good, 2 bad in kto.jsonl" in told.err
    assert "train with --desirable-weight 1 --undesirable-weight 3" in told.err


def test_what_cannot_be_trained_on_is_said_and_the_answer_is_no(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    built(capsys, "--method", "kto", "--out", "good.jsonl", "--agent", "coder")
    built(capsys, "--method", "grpo", "--out", "flat.jsonl", "--agent", "coder")
    (here / "empty.jsonl").write_text("")
    built(capsys, "--method", "kto", "--out", "changed.jsonl")
    (here / "changed.jsonl").write_bytes((here / "changed.jsonl").read_bytes() * 2)
    said = {
        "good": "all its labels are good",
        "flat": "no group has any spread",
        "empty": "it has no rows",
        "changed": "not the file that changed.jsonl.sheet.json speaks of",
    }
    for name, why in said.items():
        assert main(["dataset", "check", f"{name}.jsonl"]) == 1
        assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--from-traces", "agnt=desk"), "'agnt=desk' is no filter"),
        (("--from-traces", "label=fine"), "a label is one of good, bad, none, some"),
        (("--from-traces", "min-reward=much"), "'much' is no number"),
        (("--from-traces", "missing.jsonl"), "there is no file missing.jsonl"),
        (("--from-traces", "rows.jsonl", "--tool", "find"), "--tool is for traces of a store"),
        (("--from-traces", "rows.jsonl", "--store", "x.db"), "--store is for traces of a store"),
        (("--agent-weight", "coder"), "write NAME=NUMBER"),
        (("--agent-weight", "codr=2"), "there is no trace of an agent 'codr' to weigh"),
        (("--threshold", "2"), "--threshold is 2.0, and must lie above 0"),
        (("--max-tokens", "0"), "--max-tokens is 0, and must be at least 1"),
        (("--agent", "nobody"), "there are no traces of 'nobody' to learn from"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(
    capsys: pytest.CaptureFixture[str], here: Path, arguments: tuple[str, ...], why: str
) -> None:
    told = refused(capsys, "build", "--method", "kto", "--out", "kto.jsonl", *arguments)
    assert why in told
    assert list(here.glob("kto*")) == []


def test_a_bad_row_is_named_by_its_line(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "rows.jsonl").write_text('{"prompt": "x", "completion": "y", "label": true}\n{"prompt": "x"}\n')
    for command in ("check", "show"):
        assert "rows.jsonl:2 has neither" in refused(capsys, command, "rows.jsonl")
    assert "is not there" in refused(capsys, "check", "missing.jsonl")


ORDER = {"type": "object", "properties": {"date": {"type": "string"}}, "required": ["date"]}


def refused_order(at: int, **more: Any) -> Trace:
    """An order whose date an API refused, as the gateway records it."""
    told = json.dumps([{"type": "function", "function": {"name": "order", "parameters": ORDER}}])
    call = ModelCall(
        model="clerk",
        prompt="",
        reply="",
        messages=(Message(role="user", text=f"Please send {at} mugs"),),
        id=f"call{at}",
        raw={"dialect": "openai.chat", "request": {"tools": ["order"], **more}, "tools": told, "base_url": "http://h/v1"},
    )
    said = 'Error: date: expected "05.09.2026", got "5"'
    tool = ToolCall(tool="order", arguments='{"date": "5"}', result=said, ok=False, id=f"tool{at}", parent=call.id)
    when = datetime(2026, 1, 1, 0, at, tzinfo=UTC)
    return Trace(id=f"order{at}", task_id="", candidate_id="base", started_at=when, steps=(call, tool), source="gateway")


def test_recorded_requests_become_tasks_and_what_cannot_be_asked_again_is_counted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_traces(".journeyman/journeyman.db") as traces:
        traces.add([*(refused_order(at) for at in range(3)), refused_order(3, tool_choice="required")])
    assert main(["dataset", "from-traces", "--output", "tasks.jsonl", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tasks"], found["traces"], found["kinds"]) == (3, 4, {"call": 3})
    assert found["left_out"] == {"requests whose tool was forced by tool_choice": 1}
    rows = [json.loads(line) for line in Path("tasks.jsonl").read_text().splitlines()]
    assert rows[0]["messages"] == [{"role": "user", "content": "Please send 0 mugs"}]
    assert rows[0]["answer"]["faults"][0]["expected_value"] == "05.09.2026"
    assert {row["trace"] for row in rows} == {"order0", "order1", "order2"}
    assert len({row["id"] for row in rows}) == 3


def test_tasks_that_would_be_drawn_are_told_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_traces(".journeyman/journeyman.db") as traces:
        traces.add([refused_order(0)])
    assert main(["dataset", "from-traces", "--output", "tasks.jsonl", "--dry-run"]) == 0
    assert "1 task of 1 trace: 1 call (nothing was written)" in capsys.readouterr().err
    assert not Path("tasks.jsonl").exists()
