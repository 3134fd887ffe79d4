"""Reading rows that somebody else wrote."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.tasks.rows import Complaints, read

rows = st.lists(st.dictionaries(st.text(max_size=5), st.text() | st.integers() | st.none(), max_size=3), max_size=6)


def written(folder: Path, text: str, name: str = "rows.json") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def values(path: Path) -> list[dict[str, Any]]:
    bad = Complaints("bad")
    found = [row.value for row in read(path, bad)]
    bad.check()
    return found


@given(rows)
def test_lines_lists_and_gzipped_files_hold_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, wrote: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in wrote)
    assert values(written(folder, lines)) == wrote
    assert values(written(folder, json.dumps(wrote, indent=1))) == wrote
    (folder / "rows.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    assert values(folder / "rows.jsonl.gz") == wrote


def test_every_row_knows_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, '[\n  {"a": 1},\n  {"a":\n    2},\n\n  {"a": 3}\n]\n')
    assert [row.where for row in read(path, Complaints("bad"))] == [f"{path}:{line}" for line in (2, 3, 6)]


@pytest.mark.parametrize(
    "text", ['{"a": "ok \\ud83d\\ude00"}\n{"a": ["x", {"b\\udc00": 1}]}', '[{"a": 1},\n{"a": "\\uD800!"}]']
)
def test_half_a_character_is_named_with_its_line(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    bad = Complaints("bad")
    assert len(list(read(path, bad))) == 1
    with pytest.raises(InputError, match="not valid Unicode") as caught:
        bad.check()
    assert f"{path}:2: " in str(caught.value)


def test_everything_wrong_is_said_at_once_and_in_order(tmp_path: Path) -> None:
    path = written(tmp_path, '{"a": 1}\n[2]\nnot json\n"text"\n{"a": 5}\n')
    bad = Complaints("two files")
    assert [row.value for row in read(path, bad)] == [{"a": 1}, {"a": 5}]
    with pytest.raises(InputError) as caught:
        bad.check()
    first, second, third, fourth = str(caught.value).splitlines()
    assert (first, second) == ("two files:", f"  {path}:2: not a JSON object")
    assert third.startswith(f"  {path}:3: no JSON (")
    assert fourth == f"  {path}:4: not a JSON object"


def test_of_many_faults_a_few_of_each_kind_are_named_and_the_rest_counted(tmp_path: Path) -> None:
    path = written(tmp_path, "1\n" * 100 + '{"a": 1}\nnot json\n')
    bad = Complaints("mend them")
    assert len(list(read(path, bad))) == 1
    with pytest.raises(InputError) as caught:
        bad.check()
    lines = str(caught.value).splitlines()
    assert lines[1:6] == [f"  {path}:{line}: not a JSON object" for line in range(1, 6)]
    assert lines[6].startswith(f"  {path}:102: no JSON (")
    assert lines[7:] == ["  and 95 more"]


@given(st.lists(st.tuples(st.text("ab", min_size=1, max_size=2), st.integers(1, 9)), min_size=1, max_size=40))
def test_every_fault_is_named_or_counted(faults: list[tuple[str, int]]) -> None:
    bad = Complaints("bad")
    for what, line in faults:
        bad.add(f"f:{line}", what)
    with pytest.raises(InputError) as caught:
        bad.check()
    text = str(caught.value)
    rest = int(text.rpartition("and ")[2].partition(" more")[0]) if text.endswith(" more") else 0
    assert text.count("f:") == len(faults) - rest
    assert text.count("f:") <= 10


@pytest.mark.parametrize("text", ['[{"a": 1}, {"a"', '[{"a": 1}', "[", '[{"a": 1}] {"a": 2}', "[" * 100_000])
def test_a_list_that_does_not_end_as_it_should_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"rows.json:1: no"):
        values(written(tmp_path, text))


@pytest.mark.parametrize("content", [b"\x1f\x8bbroken", b"\xff\xfe\x00", gzip.compress(b'{"a": 1}', mtime=0)[:-4]])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.jsonl").write_bytes(content)
    with pytest.raises(InputError, match=r"rows\.jsonl"):
        values(tmp_path / "rows.jsonl")


def test_a_missing_file_or_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere"):
        values(tmp_path / "nowhere")
    with pytest.raises(InputError, match="could not be read"):
        values(tmp_path)
