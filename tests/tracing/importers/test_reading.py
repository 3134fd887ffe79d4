"""What a file is, its content says; what is broken is named, and what is whole comes in."""

import gzip
import io
import json
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core import registry
from journeyman.core.errors import InputError
from journeyman.core.trace import ModelCall, Trace
from journeyman.tracing.base import NO_TIME, RecordedTrace
from journeyman.tracing.importers import NAMES, Problem, holds_spans, read, source
from journeyman.tracing.importers.jsonl import line
from tests.support.examples import examples

SAMPLES = Path(__file__).parents[2] / "data" / "collect"


def said(text: str, **known: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": text}], **known}


def written(folder: Path, data: bytes | str, name: str = "file") -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def found(path: Path, format: str | None = None) -> tuple[list[RecordedTrace], list[Problem]]:
    every = list(read(path, format))
    return [one for one in every if isinstance(one, RecordedTrace)], [one for one in every if isinstance(one, Problem)]


ROWS = [said("a"), said("b"), said("c")]


@pytest.mark.parametrize(
    "data",
    [
        "\n".join(map(json.dumps, ROWS)),
        "\ufeff" + "\r\n\r\n".join(map(json.dumps, ROWS)) + "\r\n",
        json.dumps(ROWS),
        " \n" + json.dumps(ROWS, indent=2) + "\n ",
        gzip.compress(json.dumps(ROWS).encode()),
        gzip.compress(json.dumps(ROWS[0]).encode() + b"\n") + gzip.compress("\n".join(map(json.dumps, ROWS[1:])).encode()),
    ],
    ids=["lines", "lines of Windows", "list", "indented list", "gzip", "gzip in two parts"],
)
def test_the_same_records_are_the_same_traces_however_they_are_packed(tmp_path: Path, data: bytes | str) -> None:
    one, problems = found(written(tmp_path, data))
    assert problems == []
    assert [each.trace.reply for each in one] == ["a", "b", "c"]
    other, _ = found(written(tmp_path, "\n".join(map(json.dumps, ROWS)), "other"))
    assert [each.trace for each in one] == [each.trace for each in other]


def test_one_object_over_several_lines_is_one_record(tmp_path: Path) -> None:
    (one,), problems = found(written(tmp_path, json.dumps(said("a"), indent=4)))
    assert (one.trace.reply, problems) == ("a", [])


def test_ids_that_are_not_unique_are_made_so_by_the_content(tmp_path: Path) -> None:
    ours, _ = found(written(tmp_path, json.dumps(said("a", id=7))))
    theirs, _ = found(written(tmp_path, json.dumps(said("b", id=7)), "other"))
    assert ours[0].name == theirs[0].name == "7"
    assert ours[0].trace.id.startswith("7-")
    assert ours[0].trace.id != theirs[0].trace.id
    reordered = dict(reversed(list(said("a", id=7).items())))
    again, _ = found(written(tmp_path, json.dumps(reordered, indent=1), "again"))
    assert again[0].trace.id == ours[0].trace.id


def test_the_same_record_twice_in_a_file_is_two_attempts(tmp_path: Path) -> None:
    both, _ = found(written(tmp_path, "\n".join(map(json.dumps, [said("a"), said("a")]))))
    assert both[1].trace.id == f"{both[0].trace.id}.2"


def test_our_own_ids_are_kept(tmp_path: Path) -> None:
    trace = Trace(id="mine", task_id="t", candidate_id="base", started_at=NO_TIME)
    (one,), _ = found(written(tmp_path, line(trace)))
    assert (one.trace.id, one.trace.source) == ("mine", "journeyman")


def test_a_trace_that_was_exported_still_says_how_it_came_in(tmp_path: Path) -> None:
    trace = Trace(id="mine", task_id="t", candidate_id="base", started_at=NO_TIME, source="gateway")
    (one,), _ = found(written(tmp_path, line(trace)))
    assert (one.trace, one.format) == (trace, "journeyman")


def test_every_broken_place_is_named_and_what_is_whole_comes_in(tmp_path: Path) -> None:
    lines = [json.dumps(said("a")), "{", '{"messages": [{"content": 1}]}', "[1]", '{"x": 1}', json.dumps(said("b"))]
    one, problems = found(written(tmp_path, "\n".join(lines)))
    assert [each.trace.reply for each in one] == ["a", "b"]
    assert [(problem.where.rpartition(":")[2], problem.why.partition(":")[0]) for problem in problems] == [
        ("2", "is not JSON"),
        ("3", "messages.0.role"),
        ("4", "is of no format that is known"),
        ("5", "is of no format that is known"),
    ]


def test_a_list_that_was_cut_off_gives_what_is_whole(tmp_path: Path) -> None:
    one, problems = found(written(tmp_path, json.dumps(ROWS)[:-10]))
    assert [each.trace.reply for each in one] == ["a", "b"]
    assert problems[0].where.endswith("file item 3")


def test_an_archive_that_was_cut_off_gives_what_is_whole(tmp_path: Path) -> None:
    rows = [said(f"{number} " + "x" * number) for number in range(2000)]
    packed = gzip.compress("\n".join(map(json.dumps, rows)).encode())
    one, problems = found(written(tmp_path, packed[: len(packed) // 2]))
    assert [each.trace.reply for each in one] == [row["messages"][0]["content"] for row in rows[: len(one)]]
    assert "is a broken archive" in problems[-1].why


@pytest.mark.parametrize(
    "data", ["# Notes\n\ntext", "[tool.x]\na = 1\n", '{"x": 1}', "[1, 2]", b"\x00\x01\x02\xff\xfe" * 9, "()"]
)
def test_what_is_of_no_known_format_says_which_there_are(tmp_path: Path, data: bytes | str) -> None:
    one, (problem,) = found(written(tmp_path, data))
    assert one == []
    assert problem.strange
    assert all(name in problem.why for name in NAMES)


@pytest.mark.parametrize(
    ("record", "what"),
    [
        ({"simulation_id": "s", "judge_response": "pass"}, "verdicts of a judge on traces"),
        ({"submitting_organization": "o", "results": {}}, "entries of a leaderboard"),
        ({"skills": {}, "sections": {}}, "a skill book"),
        ({"4f": {"input": {"success": True, "data": []}}}, "messages that Langfuse took out of a trace"),
    ],
)
def test_files_that_are_known_to_be_no_traces_are_named(tmp_path: Path, record: dict[str, Any], what: str) -> None:
    one, (problem,) = found(written(tmp_path, json.dumps(record)))
    assert (one, problem.strange) == ([], True)
    assert problem.why.startswith(f"holds {what}")


def test_an_empty_file_has_no_traces(tmp_path: Path) -> None:
    assert found(written(tmp_path, b"")) == ([], [])
    assert found(written(tmp_path, b" \n\n")) == ([], [])


def test_a_format_that_is_named_is_the_one_that_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({**said("a"), "trajectory_format": "mini-swe-agent-1"}))
    assert found(path)[0][0].trace.source == "mini-swe-agent"
    assert found(path, "chat")[0][0].trace.source == "chat"
    assert [problem.why for problem in found(path, "langsmith")[1]] == ["is no record of the format langsmith"]
    with pytest.raises(InputError, match="no format 'xml'; there are journeyman, "):
        list(read(path, "xml"))


def test_a_session_whose_first_line_is_broken_is_still_a_session(tmp_path: Path) -> None:
    lines = (SAMPLES / "kayba" / "openclaw.jsonl").read_text()
    (one,), (problem,) = found(written(tmp_path, "/speci" + lines))
    assert (one.trace.source, len(one.trace.calls)) == ("openclaw", 5)
    assert problem.where.endswith("file:1")


def test_several_sessions_in_a_file_are_several_traces(tmp_path: Path) -> None:
    lines = (SAMPLES / "kayba" / "openclaw.jsonl").read_text()
    both, _ = found(written(tmp_path, lines + lines.replace("f967d602", "00000000")))
    assert [one.trace.id[:8] for one in both] == ["f967d602", "00000000"]


def test_runs_of_langsmith_in_a_list_are_joined_to_their_traces(tmp_path: Path) -> None:
    root = {
        "id": "r",
        "trace_id": "r",
        "run_type": "chain",
        "name": "desk",
        "inputs": {"q": 1},
        "start_time": "2026-01-02T03:04:05Z",
    }
    tool = {"id": "t", "trace_id": "r", "parent_run_id": "r", "run_type": "tool", "name": "find", "inputs": {"input": "x"}}
    failed = {**tool, "error": "gone", "start_time": "2026-01-02T03:04:06Z"}
    other = {
        "id": "o",
        "trace_id": "o",
        "run_type": "llm",
        "name": "m",
        "inputs": {"messages": []},
        "outputs": {"content": "hi"},
    }
    both, problems = found(written(tmp_path, json.dumps([failed, other, root])))
    assert problems == []
    assert [one.trace.id for one in both] == ["r", "o"]
    assert both[0].trace.agent == "desk"
    (call,) = both[0].trace.tool_calls
    assert (call.tool, call.ok, call.error, call.parent) == ("find", False, "gone", "r")


def archive(**files: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            packed.writestr(name.replace("__", "/") + ".json", data)
    return made.getvalue()


HEADER = json.dumps({"eval": {"task": "t", "run_id": "r"}, "status": "success"}).encode()
SAMPLE = json.dumps({"id": 1, "epoch": 1, "messages": [{"role": "assistant", "content": "x"}]}).encode()


def test_a_file_in_an_archive_that_is_a_bomb_is_refused_and_the_others_are_read(tmp_path: Path) -> None:
    bomb = b'{"messages": "' + b"0" * 20_000_000 + b'"}'
    data = archive(header=HEADER, samples__1_epoch_1=SAMPLE, samples__2_epoch_1=bomb, samples__3_epoch_1=b"{")
    tracemalloc.start()
    try:
        (one,), problems = found(written(tmp_path, data))
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert one.trace.task_id == "t/1"
    assert [problem.where.rpartition("/")[2] for problem in problems] == ["2_epoch_1.json", "3_epoch_1.json"]
    assert "times its size" in problems[0].why


def test_a_log_that_was_cut_off_before_its_header_is_read_by_the_one_it_was_begun_with(tmp_path: Path) -> None:
    (one,), problems = found(written(tmp_path, archive(_journal__start=HEADER, samples__1_epoch_1=SAMPLE)))
    assert (one.trace.task_id, problems) == ("t/1", [])


def test_an_archive_of_something_else_is_named(tmp_path: Path) -> None:
    assert "no .eval log" in found(written(tmp_path, archive(other=b"{}")))[1][0].why
    assert "broken archive" in found(written(tmp_path, archive(header=HEADER)[:40]))[1][0].why


def test_a_line_that_is_too_long_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "LONGEST", 2_000_000)
    rows = b"\n".join([json.dumps(said("a")).encode(), b"{}"]) + b"\n" + b'{"messages": "' + b"x" * 5_000_000
    one, problems = found(written(tmp_path, gzip.compress(rows)))
    assert len(one) == 1
    assert "a line of more than" in problems[-1].why


@pytest.mark.service
@pytest.mark.parametrize("packed", ["lines", "list"])
def test_a_large_file_is_read_piece_by_piece(tmp_path: Path, packed: str) -> None:
    row = json.dumps(said("x" * 5_000))
    count = 3_000
    with gzip.open(tmp_path / "large", "wt", compresslevel=1) as file:
        file.write("[" if packed == "list" else "")
        for number in range(count):
            file.write(row + ((",\n" if packed == "list" else "\n") if number < count - 1 else ""))
        file.write("]" if packed == "list" else "")
    tracemalloc.start()
    try:
        assert sum(isinstance(one, RecordedTrace) for one in read(tmp_path / "large")) == count
        assert tracemalloc.get_traced_memory()[1] < 15_000_000
    finally:
        tracemalloc.stop()


def test_how_far_it_has_come_is_told_in_bytes_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress("\n".join(map(json.dumps, ROWS * 1000)).encode()))
    told: list[int] = []
    assert sum(1 for _ in read(path, done=told.append)) == 3000
    assert sum(told) == path.stat().st_size


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not there"):
        list(read(tmp_path / "nowhere"))


@pytest.mark.parametrize("format", [None, "chat"])
def test_a_file_of_zstd_is_a_sentence_that_says_what_to_do_and_keeps_no_other_file_away(
    tmp_path: Path, format: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    path = written(tmp_path, b"\x28\xb5\x2f\xfd" + b"\0" * 20, "traces.zst")
    (problem,) = read(path, format)
    assert isinstance(problem, Problem)
    assert str(problem).endswith("or unpack it first: zstd -d traces.zst")
    assert "pip install 'journeyman[zstd]'" in str(problem)
    assert not holds_spans(path)


def test_a_file_of_zstd_is_read_as_what_it_holds_and_a_broken_one_is_named(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard", reason="needs the extra: pip install 'journeyman[zstd]'")
    lines = [json.dumps(said(f"number {number}")).encode() + b"\n" for number in range(3000)]
    plain = [each.trace for each in read(written(tmp_path, b"".join(lines), "plain")) if not isinstance(each, Problem)]
    # Two frames behind each other, as programs write that add to a file.
    packed = b"".join(zstandard.compress(b"".join(some)) for some in (lines[:2000], lines[2000:]))
    found = list(read(written(tmp_path, packed, "traces.zst")))
    assert [each.trace for each in found if not isinstance(each, Problem)] == plain
    assert len(plain) == len(found) == 3000
    for broken, why in ((packed[:-50], "ends before its end"), (packed[:200] + b"x" * 200, "broken archive")):
        *_, last = read(written(tmp_path, broken, "broken.zst"))
        assert isinstance(last, Problem)
        assert why in str(last)


def test_spans_are_known_by_their_content(tmp_path: Path) -> None:
    assert holds_spans(written(tmp_path, '{"resourceSpans": []}'))
    assert not holds_spans(written(tmp_path, json.dumps(said("a")), "other"))
    assert not holds_spans(written(tmp_path, b"", "empty"))


KEYS = sorted(
    {
        "id", "steps", "messages", "traj", "reward", "task_id", "info", "messages_display", "simulations", "termination_reason",
        "reward_info", "eval", "status", "samples", "trace", "observations", "post", "patch", "run_type", "trace_id", "inputs",
        "outputs", "trajectory", "history", "role", "content", "type", "timestamp", "parentId", "message", "conversations",
        "from", "value", "instruction", "planner_outputs", "execution_result", "success", "version", "scores",
        "attachments", "events",
        "tool_calls", "function", "name", "arguments", "usage", "metadata", "parentObservationId", "input", "output",
        "raw_data",
        "dotted_order", "exit_status", "choices", "model_selections", "adjacency", "workflow_graph", "latency_ms",
    }
)  # fmt: skip
LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
    | st.sampled_from(["GENERATION", "TOOL", "session", "model", "tool", "assistant", "2026-01-01T00:00:00Z", "{}", "[1"])
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=25,
)
RECORDS = st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=7)


def whole(one: RecordedTrace | Problem) -> None:
    """A trace that our own format can carry, or a sentence."""
    if isinstance(one, Problem):
        assert one.where
        assert one.why
        assert "Traceback" not in str(one)
    else:
        line(one.trace).encode()
        assert one.trace.id


@examples(one_fixture=True)
@given(
    st.binary(max_size=200)
    | st.binary(max_size=80).map(gzip.compress)
    | st.binary(max_size=80).map(lambda b: b"PK\x03\x04" + b)
)
def test_any_bytes_are_traces_or_named_problems(tmp_path: Path, data: bytes) -> None:
    for one in read(written(tmp_path, data)):
        whole(one)


@examples(one_fixture=True)
@given(st.lists(RECORDS, min_size=1, max_size=3), st.booleans(), st.sampled_from([None, *registry.names("importers")]))
def test_any_records_are_traces_or_named_problems(
    tmp_path: Path, records: list[dict[str, Any]], as_list: bool, format: str | None
) -> None:
    data = json.dumps(records) if as_list else "\n".join(map(json.dumps, records))
    for one in read(written(tmp_path, data), format):
        whole(one)


@examples(one_fixture=True)
@given(
    st.sampled_from(sorted(path for path in SAMPLES.rglob("*.json*") if path.stat().st_size < 4000)),
    st.data(),
)
def test_a_real_file_with_anything_in_one_place_is_traces_or_named_problems(
    tmp_path: Path, path: Path, data: st.DataObject
) -> None:
    raw = path.read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    at = data.draw(st.integers(0, len(text)))
    other = data.draw(st.binary(max_size=4) | st.sampled_from([b"null", b"{}", b"[]", b"1e999", b'""', b"\\ud800"]))
    for one in read(written(tmp_path, text[:at] + other + text[at + len(other) :])):
        whole(one)


def test_nesting_without_end_is_a_sentence(tmp_path: Path) -> None:
    one, problems = found(written(tmp_path, '{"messages": ' + "[" * 200_000))
    assert one == []
    assert problems
    _, problems = found(written(tmp_path, "[" + '{"a":' * 200_000, "other"))
    assert problems


def test_what_follows_a_call_continues_it(tmp_path: Path) -> None:
    messages = [{"role": "assistant", "content": text} for text in "ab"]
    (one,), _ = found(written(tmp_path, json.dumps({"messages": messages})))
    first, second = one.trace.steps
    assert isinstance(second, ModelCall)
    assert second.continues == first.id
