"""A file is there whole, or as it was."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from journeyman.core.errors import InputError
from journeyman.io.atomic import atomic_write, commit, temporary_file, write_text


def test_what_was_written_stands_there_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    with atomic_write(path) as part:
        part.write_text("one\n")
        assert not path.exists()
    assert path.read_text() == "one\n"
    assert list(path.parent.iterdir()) == [path]


def test_a_block_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError), atomic_write(path) as part:
        part.write_text("half \ud800", encoding="utf-8")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_private_file_is_its_owners_alone_and_another_is_as_it_was(tmp_path: Path) -> None:
    private, public = tmp_path / "private", tmp_path / "public"
    with atomic_write(private) as part:
        part.write_text("")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    public.write_text("")
    public.chmod(0o604)
    write_text(public, "new")
    assert stat.S_IMODE(public.stat().st_mode) == 0o604


def test_a_link_is_replaced_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "kept")
    write_text(link, "new")
    assert not link.is_symlink()
    assert (tmp_path / "kept").read_text() == "kept"


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/rows could not be written"):
        write_text(tmp_path / "file" / "rows", "")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="folder could not be written"):
        write_text(tmp_path / "folder", "")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "folder"]


def test_a_file_whose_name_is_known_last_is_put_in_place_whole(tmp_path: Path) -> None:
    with temporary_file(tmp_path, ".new-") as part:
        part.write_text("content")
        commit(part, tmp_path / "named", mode=0o640)
    assert [each.name for each in tmp_path.iterdir()] == ["named"]
    assert stat.S_IMODE((tmp_path / "named").stat().st_mode) == 0o640


def test_what_a_killed_writer_left_is_cleared_away_and_what_another_still_writes_is_not(tmp_path: Path) -> None:
    (tmp_path / ".list.abc.part").write_text("half")
    (tmp_path / ".other.abc.part").write_text("of another file")
    with temporary_file(tmp_path, ".list.") as part:
        assert not (tmp_path / ".list.abc.part").exists()
        code = "import sys, pathlib, journeyman.io.atomic as a; a.write_text(pathlib.Path(sys.argv[1]), 'new')"
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "list")], check=True)
        assert part.exists()
        commit(part, tmp_path / "list")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.abc.part", "list"]
