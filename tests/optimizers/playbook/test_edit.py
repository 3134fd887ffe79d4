from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.core.errors import InputError, PlaybookError
from journeyman.core.playbook import Batch, Bullet, Lock, Playbook, Retire, Vote
from journeyman.optimizers.playbook import edit, files

START = Playbook(
    bullets=(
        Bullet(id="b-1", content="Use cents.", extra={"tags": ["a", 1.5, None]}),
        Bullet(id="b-2", content="Büro"),
    ),
    batches=frozenset({"run/1"}),
    training_config={"dataset": "desk", "sizes": [1, 2]},
    extra={"version": "v1.0.0-old"},
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    files.save(START, tmp_path / "oslo.json")
    return tmp_path / "oslo.json"


def retire(path: Path, id: str) -> edit.Edited:
    playbook = files.load(path)
    return edit.change(path, edit.batch(playbook, "retire", [Retire(bullet_id=id, reason="wrong")], "2026-01-01"))


def test_a_change_is_in_the_file_and_can_be_undone(path: Path) -> None:
    before = path.read_text()
    assert retire(path, "b-1").revision == 1
    assert files.load(path).bullets[0].retired == "wrong"
    assert [entry.revision for entry in edit.revisions(path)] == [0, 1]
    edit.restore(path, 0, "2026-01-02")
    assert files.load(path).active == START.bullets
    assert files.dumps(edit.at_revision(f"{path}@0")) == before
    assert edit.at_revision(f"{path}@1").bullets[0].retired == "wrong"


def test_locking_unlocking_and_locking_again_are_three_changes(path: Path) -> None:
    for locked in (True, False, True):
        lock = Lock(bullet_id="b-1", locked=locked)
        edit.change(path, edit.batch(files.load(path), "lock", [lock], ""))
    assert len(edit.revisions(path)) == 4
    assert files.load(path).bullets[0].locked


def test_a_change_that_changes_nothing_leaves_no_trace(path: Path) -> None:
    assert retire(path, "b-9").revision is None
    assert {one.name for one in path.parent.iterdir()} == {"oslo.json", ".oslo.json.lock"}


def test_a_file_that_another_program_has_written_begins_a_new_journal(path: Path) -> None:
    retire(path, "b-1")
    files.save(START.apply(Batch(id="run/2", deltas=(Vote(bullet_id="b-1", helpful=1),))), path)
    with pytest.raises(PlaybookError, match="was written by another program"):
        edit.restore(path, 0, "")
    moved = retire(path, "b-2").moved
    assert moved == path.with_name("oslo.journal.jsonl.1")
    assert edit.at_revision(f"{path}@0").bullets[0].helpful == 1
    assert len(edit.revisions(path)) == 2


def test_a_file_that_a_crash_kept_from_the_last_change_can_be_brought_up_to_date(path: Path) -> None:
    before = path.read_text()
    retire(path, "b-1")
    path.write_text(before)
    edit.restore(path, 1, "")
    assert files.load(path).bullets[0].retired


def test_only_a_playbook_file_is_changed_in_place(tmp_path: Path) -> None:
    for name, text in {"ace.txt": "[a-1] Use cents.", "checkpoint.json": '{"playbook": []}', "list.json": "[]"}.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match="playbook import"):
            edit.change(tmp_path / name, Batch(id="1", deltas=()))
        assert (tmp_path / name).read_text() == text


def test_a_file_without_a_journal_says_so(path: Path) -> None:
    with pytest.raises(InputError, match="has no journal"):
        edit.revisions(path)
    with pytest.raises(InputError, match="has no journal"):
        edit.at_revision(f"{path}@1")


def test_a_journal_can_be_read_in_place_of_a_playbook(path: Path) -> None:
    retire(path, "b-1")
    journal = edit.journal_of(path)
    assert edit.at_revision(str(journal)) == files.load(path)
    assert edit.at_revision(f"{journal}@0") == replace(START)
