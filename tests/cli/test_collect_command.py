"""`journeyman collect`: files and folders go in, and the traces are in the store."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.trace import Trace
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Query
from journeyman.tracing.importers.jsonl import line

SAMPLES = Path(__file__).parents[1] / "data" / "collect"
SECRET = "sk-proj-" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9" * 2


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def collected(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> dict[str, Any]:
    assert main(["collect", *map(str, arguments), "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def stored(url: str = ".journeyman/journeyman.db") -> list[Trace]:
    with open_traces(url) as store:
        return list(store.traces(Query()))


def chat(text: str) -> str:
    return json.dumps({"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": "so"}]})


def test_a_file_is_counted_and_is_in_the_store(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    found = collected(capsys, SAMPLES / "tau2-bench" / "airline.json.gz")
    assert {name: found[name] for name in ("format", "traces", "model_calls", "tool_calls", "rewards", "errors")} == {
        "format": "tau2-bench",
        "traces": 2,
        "model_calls": 11,
        "tool_calls": 6,
        "rewards": 2,
        "errors": [],
    }
    assert (found["input_tokens"], found["output_tokens"], found["mean_reward"], found["stored"]) == (79543, 1791, 0.5, 2)
    assert sorted(reward.value or 0 for trace in stored() for reward in trace.rewards) == [0, 1]


def test_the_same_file_twice_is_the_same_traces(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    path = SAMPLES / "kayba" / "car_bench.jsonl"
    assert collected(capsys, path)["stored"] == 3
    assert collected(capsys, path)["stored"] == 0
    assert len(stored()) == 3


def test_a_dry_run_stores_nothing_and_makes_no_store(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    found = collected(capsys, SAMPLES / "chat", "--dry-run")
    assert (found["traces"], found["stored"], found["dry_run"]) == (4, 0, True)
    assert list(here.iterdir()) == []


def test_a_folder_is_walked_and_what_holds_no_traces_is_left_out(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    found = collected(capsys, SAMPLES, "--dry-run")
    assert found["format"] is None
    assert found["traces"] == sum(each["traces"] for each in found["files"]) == 41
    assert {each["format"] for each in found["files"]} == {path.name for path in SAMPLES.iterdir() if path.is_dir()} - {
        "agentgym",
        "kayba",
    } | {"sharegpt", "openclaw", "tau-bench", "mini-swe-agent"}
    assert len(found["left_out"]) == 2
    assert (found["errors"], found["input_tokens"]) == ([], None)


def test_what_is_broken_is_named_and_what_is_whole_comes_in(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "half.jsonl").write_text(f"{chat('a')}\n{{\n{chat('b')}\n")
    found = collected(capsys, "half.jsonl", code=1)
    assert (found["traces"], found["stored"]) == (2, 2)
    assert found["errors"][0].startswith("half.jsonl:2: is not JSON")
    (here / "bad.jsonl").write_text("{\n{\n")
    assert collected(capsys, "bad.jsonl", code=2)["traces"] == 0
    (here / "notes.txt").write_text("notes")
    assert "there are journeyman, " in collected(capsys, "notes.txt", code=2)["errors"][0]
    assert main(["collect", "half.jsonl", "notes.txt"]) == 1
    assert "half.jsonl:2: is not JSON" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("chat", "rows.jsonl"), ("--format", "chat", "rows.jsonl")])
def test_a_format_can_be_named_both_ways(capsys: pytest.CaptureFixture[str], here: Path, arguments: tuple[str, ...]) -> None:
    (here / "rows.jsonl").write_text(chat("a"))
    assert collected(capsys, *arguments)["format"] == "chat"


def test_a_trace_that_no_store_takes_is_named_and_the_others_are_stored(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    def line(id: str, tokens: int) -> str:
        call = {"model": "m", "prompt": "p", "reply": "r", "input_tokens": tokens}
        began = "2026-01-01T00:00:00Z"
        return json.dumps({"id": id, "task_id": "q", "candidate_id": "base", "started_at": began, "steps": [call]}) + "\n"

    (here / "some.jsonl").write_text(line("before", 1) + line("too large", 2**70) + line("after", 1))
    told = collected(capsys, "some.jsonl", code=1)
    assert (told["traces"], told["stored"]) == (3, 2)
    assert ["some.jsonl: trace 'too large' is left out" in error for error in told["errors"]] == [True]
    assert sorted(trace.id for trace in stored()) == ["after", "before"]


def test_what_cannot_be_meant_is_one_sentence(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "rows.jsonl").write_text(chat("a"))
    for arguments, message in (
        (["nowhere"], "there is no file nowhere"),
        (["rows.jsonl", "--format", "xml"], "no format 'xml'; there are journeyman, "),
    ):
        assert main(["collect", *arguments]) == 2
        assert message in capsys.readouterr().err
    assert not (here / ".journeyman").exists()


def test_the_options_have_their_say(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "rows.jsonl").write_text(chat("a"))
    collected(capsys, "rows.jsonl", "--agent", "desk", "--domain", "orders", "--session", "monday", "--store", "other.db")
    (trace,) = stored("other.db")
    assert (trace.agent, trace.domain, trace.session, trace.source) == ("desk", "orders", "monday", "chat")


def test_keys_are_taken_out_before_anything_is_stored(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "rows.jsonl").write_text(chat(f"my key is {SECRET}"))
    collected(capsys, "rows.jsonl")
    assert SECRET not in line(stored()[0])
    assert not any(SECRET.encode() in path.read_bytes() for path in here.rglob("journeyman.db*"))


def test_without_content_only_shapes_and_numbers_stay(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "rows.jsonl").write_text(chat("Where is the blue mug?"))
    collected(capsys, "rows.jsonl", "--no-content")
    (trace,) = stored()
    assert "mug" not in line(trace)
    assert len(trace.calls) == 1


def test_spans_of_one_trace_in_two_files_are_one_trace(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    def span(id: str, name: str, parent: str = "") -> dict[str, Any]:
        attributes = [
            {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
            {"key": "gen_ai.request.model", "value": {"stringValue": name}},
        ]
        times = {"startTimeUnixNano": "1700000000000000000", "endTimeUnixNano": "1700000001000000000"}
        return {
            "traceId": "a" * 32,
            "spanId": id * 16,
            "parentSpanId": parent,
            "name": "chat",
            "attributes": attributes,
            **times,
        }

    for id, name in (("b", "one"), ("c", "two")):
        request = {"resourceSpans": [{"scopeSpans": [{"spans": [span(id, name)]}]}]}
        (here / f"{name}.json").write_text(json.dumps(request))
    found = collected(capsys, "otlp", "one.json", "two.json")
    assert (found["format"], found["traces"], found["model_calls"]) == ("otlp", 1, 2)
    assert len(stored()[0].calls) == 2


def test_pictures_and_programs_in_a_folder_are_left_out(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "logs").mkdir()
    (here / "logs" / "rows.jsonl").write_text(chat("a"))
    (here / "logs" / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9)
    (here / "logs" / "db.toml").write_text("[table]\na = 1\n")
    (here / "logs" / ".hidden.jsonl").write_text(chat("b"))
    found = collected(capsys, "logs")
    assert (found["traces"], found["errors"], len(found["left_out"])) == (1, [], 2)


def test_people_get_a_table(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "rows.jsonl.gz").write_bytes(gzip.compress(chat("a").encode()))
    assert main(["collect", "rows.jsonl.gz"]) == 0
    out = capsys.readouterr()
    assert "chat" in out.out
    assert "1 trace in sqlite:///" in out.err
