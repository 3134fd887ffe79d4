"""One reader of JSON Lines, and what it says of a line that it cannot use."""

import gzip
import json
from pathlib import Path

import pytest

from journeyman.core.errors import InputError
from journeyman.io import jsonl
from journeyman.io.jsonl import iter_jsonl, json_object


@pytest.mark.parametrize("packed", [False, True])
def test_values_come_in_order_each_with_where_it_stands(tmp_path: Path, packed: bool) -> None:
    # U+2028 separates lines for some, and for JSON Lines it does not; the archive's name says nothing.
    content = b'\xef\xbb\xbf{"a": 1}\r\n\n"\xe2\x80\xa8"\n[3]'
    path = tmp_path / "rows"
    path.write_bytes(gzip.compress(content) if packed else content)
    found = [(line.where, line.number, line.value) for line in iter_jsonl(path, json.loads)]
    assert found == [(f"{path}:1", 1, {"a": 1}), (f"{path}:3", 3, "\u2028"), (f"{path}:4", 4, [3])]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "no JSON ("),
        (b"[" * 100_000, "no JSON ("),
        (b'"\xff"', "no JSON ("),
        (b"[1]", "not a JSON object"),
        (b'{"a": "\\ud800"}', "text in it is not valid Unicode"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_or_left_out(tmp_path: Path, line: bytes, said: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"n": 1}\n' + line + b'\n{"n": 3}\n')
    with pytest.raises(InputError) as caught:
        list(iter_jsonl(path, json_object))
    assert str(caught.value).startswith(f"{path}:2: {said}")
    told: list[tuple[str, str]] = []
    assert [each.value["n"] for each in iter_jsonl(path, json_object, bad=lambda *each: told.append(each))] == [1, 3]
    ((where, why),) = told
    assert where == f"{path}:2"
    assert why.startswith(said)


def test_what_its_writer_did_not_finish_can_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("1\n2")
    assert [line.value for line in iter_jsonl(path, json.loads)] == [1, 2]
    assert [line.value for line in iter_jsonl(path, json.loads, unfinished=False)] == [1]


def test_a_line_that_is_no_line_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "LONGEST", 2**20)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"1\n" + json.dumps("x" * 2**20).encode())
    with pytest.raises(InputError, match=r"rows.jsonl:2: a line of more than 1 MB"):
        list(iter_jsonl(path, json.loads))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rows is not there; make one"):
        list(iter_jsonl(tmp_path / "rows", json.loads, missing="make one"))
    with pytest.raises(InputError, match="could not be read: Is a directory"):
        list(iter_jsonl(tmp_path, json.loads))
    whole = gzip.compress(b"1\n" * 1000)
    for name, content in (("cut", whole[:20]), ("broken", whole[:12] + b"\xff" * 20)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=f"{name} could not be read"):
            list(iter_jsonl(tmp_path / name, json.loads))
