import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import PlaybookError
from journeyman.core.playbook import (
    Add,
    Batch,
    Bullet,
    BulletOrigin,
    Delta,
    Evidence,
    Hold,
    Lock,
    Merge,
    MoveTo,
    Playbook,
    Provenance,
    Retire,
    Support,
    UpdateBullet,
    Vote,
)
from journeyman.core.release import Stage
from journeyman.optimizers.playbook.journal import Journal, Restore, delta_from_json, delta_to_json, read, replay
from tests.support.full_disk import no_file_larger_than

IDS = st.sampled_from(["b-1", "b-2", "b-3"])
COUNTS = st.integers(0, 3)
TEXTS = st.text(max_size=20)
BULLETS = st.builds(
    Bullet,
    id=IDS,
    content=TEXTS,
    helpful=COUNTS,
    stage=st.sampled_from(list(Stage)),
    held=TEXTS,
    expires_at=TEXTS,
    provenance=st.builds(
        Provenance,
        tasks=st.lists(TEXTS, max_size=2).map(tuple),
        origin=st.sampled_from(["", *BulletOrigin]),
        traces=st.lists(TEXTS, max_size=2).map(tuple),
        trace_count=COUNTS,
        principals=COUNTS,
        evidence=TEXTS,
    ),
    extra=st.dictionaries(TEXTS, st.one_of(TEXTS, st.none(), st.integers(0, 9), st.lists(st.booleans())), max_size=2),
)
DELTAS: st.SearchStrategy[Delta] = st.one_of(
    st.builds(Add, bullet=BULLETS),
    st.builds(Support, bullet_id=IDS, task_ids=st.lists(TEXTS, max_size=2).map(tuple)),
    st.builds(Vote, bullet_id=IDS, shown=COUNTS, cited=COUNTS, helpful=COUNTS, harmful=COUNTS),
    st.builds(UpdateBullet, bullet_id=IDS, content=TEXTS, section=st.one_of(st.none(), TEXTS)),
    st.builds(Merge, kept=IDS, gone=st.lists(IDS, max_size=3).map(tuple)),
    st.builds(Retire, bullet_id=IDS, reason=TEXTS),
    st.builds(Lock, bullet_id=IDS, locked=st.booleans()),
    st.builds(Hold, bullet_id=IDS, reason=TEXTS, by=TEXTS, why=TEXTS),
    st.builds(
        Evidence,
        bullet_id=IDS,
        traces=st.lists(TEXTS, max_size=2).map(tuple),
        trace_count=COUNTS,
        principals=COUNTS,
        expires_at=TEXTS,
    ),
    st.builds(MoveTo, bullet_id=IDS, stage=st.sampled_from([None, *Stage]), domain=st.one_of(st.none(), TEXTS)),
)
STEPS = st.lists(st.one_of(st.lists(DELTAS, max_size=3), st.integers(0, 3)), max_size=6)
"""Deltas to merge, or a revision to restore."""


def batch(id: str, *deltas: Delta) -> Batch:
    return Batch(id=id, deltas=deltas, at="2026-03-05")


ADD = batch("run/1", Add(bullet=Bullet(id="b-1", content="Use cents.")))
VOTE = batch("run/2", Vote(bullet_id="b-1", shown=1, helpful=1))
MORE = batch("run/3", Add(bullet=Bullet(id="b-2", content="Never guess.")))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "journal.jsonl"


@pytest.fixture
def journal(path: Path) -> Journal:
    journal = Journal.create(path)
    for change in (ADD, VOTE, MORE):
        journal.append(change)
    return journal


@given(DELTAS)
def test_a_delta_survives_json(delta: Delta) -> None:
    assert delta_from_json(json.loads(json.dumps(delta_to_json(delta)))) == delta


@given(st.lists(BULLETS, max_size=2, unique_by=lambda bullet: bullet.id), STEPS)
def test_what_is_replayed_is_what_was_merged(bullets: list[Bullet], steps: list[list[Delta] | int]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        journal = Journal.create(path, Playbook(bullets=tuple(bullets), batches=frozenset({"b", "a"})))
        states = [journal.playbook]
        for number, step in enumerate(steps):
            match step:
                case int():
                    states.append(journal.restore(min(step, journal.revision), "later"))
                case _:
                    states.append(journal.append(batch(f"run/{number}", *step)))
                    assert states[-1] == states[-2].apply(batch(f"run/{number}", *step))
        for revision, state in enumerate(states):
            assert replay(path, revision) == state
        assert Journal(path).playbook == states[-1]


def test_a_journal_may_begin_with_a_playbook(path: Path) -> None:
    start = Playbook(bullets=(Bullet(id="b-7", content="Be brief."),), created_at="2026-03-01", training_config={"epochs": 2})
    Journal.create(path, start)
    assert replay(path) == start


def test_a_batch_that_is_there_already_is_not_written_again(journal: Journal, path: Path) -> None:
    before = path.read_bytes()
    assert journal.append(VOTE) == Journal(path).append(ADD) == journal.playbook
    assert path.read_bytes() == before


def test_appending_adds_a_line_and_leaves_the_others(journal: Journal, path: Path) -> None:
    before = path.read_bytes()
    journal.append(batch("run/4", Retire(bullet_id="b-2", reason="x")))
    assert path.read_bytes().startswith(before)
    assert path.read_bytes()[len(before) :].count(b"\n") == 1


def test_a_journal_that_is_there_is_not_begun_again(journal: Journal, path: Path) -> None:
    with pytest.raises(PlaybookError, match="is there already"):
        Journal.create(path)


def test_a_tail_torn_at_any_byte_is_ignored_and_cut_off(journal: Journal, path: Path) -> None:
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    kept = b"".join(lines[:-1])
    without = replay(path, 2)
    for cut in range(len(kept), len(whole)):
        path.write_bytes(whole[:cut])
        assert replay(path) == without
        Journal(path).append(MORE)
        assert path.read_bytes() == whole


def test_zeros_left_by_a_power_cut_are_a_torn_tail(journal: Journal, path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0" * 100)
    assert Journal(path).playbook == journal.playbook


def tampered(lines: list[bytes], how: str) -> list[bytes]:
    match how:
        case "altered":
            return [line.replace(b'"helpful":1', b'"helpful":9') for line in lines]
        case "dropped":
            return [*lines[:2], *lines[3:]]
        case "swapped":
            return [lines[0], lines[1], lines[3], lines[2]]
        case _:
            return [*lines[:2], b"\n", *lines[2:]]


@pytest.mark.parametrize("how", ["altered", "dropped", "swapped", "empty"])
def test_a_broken_chain_is_named_by_file_and_line(journal: Journal, path: Path, how: str) -> None:
    path.write_bytes(b"".join(tampered(path.read_bytes().splitlines(keepends=True), how)))
    with pytest.raises(PlaybookError, match=r"journal\.jsonl:3: the line does not"):
        Journal(path)
    assert [bullet.content for bullet in replay(path, 1).bullets] == ["Use cents."]


def test_a_forged_line_with_a_right_hash_still_breaks_the_next(journal: Journal, path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    forger = Journal.create(other)
    forger.append(replace(ADD, deltas=()))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = other.read_bytes().splitlines(keepends=True)[1]
    path.write_bytes(b"".join(lines))
    with pytest.raises(PlaybookError, match=r":3: the line does not follow"):
        replay(path)


def test_a_second_writer_is_noticed(journal: Journal, path: Path) -> None:
    Journal(path).append(batch("run/4"))
    with pytest.raises(PlaybookError, match="open it again"):
        journal.append(batch("run/5"))


def test_restoring_appends_and_retires_what_was_born_since(journal: Journal, path: Path) -> None:
    before = path.read_bytes()
    restored = journal.restore(1, "2026-04-01")
    assert path.read_bytes().startswith(before)
    first, second = restored.bullets
    assert first == replay(path, 1).bullets[0]
    assert second.retired == "not in revision 1"
    assert restored.batches == {"run/1", "run/2", "run/3"}
    assert journal.append(VOTE) == restored
    assert [entry.change for entry in read(path)][-1] == Restore(1, "2026-04-01")


def test_a_restoration_can_be_taken_back(journal: Journal) -> None:
    newest = journal.playbook
    journal.restore(0)
    assert journal.restore(3) == newest


def test_a_locked_bullet_is_not_restored_away(journal: Journal) -> None:
    journal.append(batch("run/4", Lock(bullet_id="b-2")))
    locked = journal.playbook.bullets[1]
    assert journal.restore(1).bullets[1] == locked


def test_an_unknown_revision_is_answered_with_the_known_ones(journal: Journal, path: Path) -> None:
    with pytest.raises(PlaybookError, match="no revision 9; it has 0 to 3"):
        replay(path, 9)


@pytest.mark.parametrize("content", [b"", b"torn"])
def test_an_empty_file_is_no_journal(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_bytes(content)
    with pytest.raises(PlaybookError, match="no journal begins here"):
        Journal(path)
    with pytest.raises(PlaybookError, match="could not be read"):
        Journal(tmp_path / "none.jsonl")


def test_an_unknown_kind_of_delta_is_refused() -> None:
    with pytest.raises(PlaybookError, match="no kind of delta 'explode'; there are add, "):
        delta_from_json({"op": "explode"})


def test_text_that_no_file_can_hold_is_refused_before_it_is_written(journal: Journal, path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(PlaybookError, match="cannot be written"):
        journal.append(batch("run/4", UpdateBullet(bullet_id="b-1", content="\ud800")))
    assert path.read_bytes() == before
    assert journal.revision == 3


def test_a_written_line_is_forced_to_the_disk(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[int] = []
    monkeypatch.setattr(os, "fsync", forced.append)
    journal.append(batch("run/4"))
    assert len(forced) == 1


def _adding(id: str) -> Batch:
    return Batch(id=id, at="2026", deltas=(Add(bullet=Bullet(id=id, content=f"Say {id}.")),))


def test_a_full_disk_is_a_sentence_and_the_journal_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "journal.jsonl")
    journal.append(_adding("first"))
    for room in (0, 20):
        with (
            no_file_larger_than(journal.path.stat().st_size + room),
            pytest.raises(PlaybookError, match="could not be written"),
        ):
            journal.append(_adding("second"))
    journal.append(_adding("third"))
    assert replay(journal.path).batches == {"first", "third"}


def test_a_batch_whose_id_is_no_text_is_named_with_its_line(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "journal.jsonl")
    journal.append(_adding("first"))
    first, second = journal.path.read_bytes().splitlines(keepends=True)
    body = second.rpartition(b',"hash":"')[0].replace(b'{"id":"first","at"', b'{"id":{},"at"') + b"}"
    digest = hashlib.sha256(body).hexdigest().encode()
    journal.path.write_bytes(first + body[:-1] + b',"hash":"' + digest + b'"}\n')
    with pytest.raises(PlaybookError, match=r"journal\.jsonl:2: no entry of a journal"):
        replay(journal.path)
