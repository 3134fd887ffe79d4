import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import example, given

from journeyman.core.errors import InputError, PlaybookError
from journeyman.core.playbook import Bullet, Playbook, Provenance, bullet_id
from journeyman.core.release import Stage
from journeyman.optimizers.playbook import files
from tests.support.playbooks import PLAYBOOKS

DOCUMENTED = """{
  "version": "v1.0.0",
  "created_at": "2025-10-13T17:00:00",
  "training_config": {
    "dataset": "gsm8k",
    "num_examples": 100,
    "generator_model": "gpt-4-turbo",
    "reflector_model": "gpt-4o-mini"
  },
  "bullets": [
    {
      "id": "B001",
      "content": "Break complex problems into smaller steps",
      "domain_id": "arithmetic",
      "section": "helpful",
      "stage": "shadow",
      "activation_count": 15,
      "confidence": 0.92
    }
  ]
}
"""


@given(PLAYBOOKS)
@example(Playbook(bullets=(Bullet(id="1", content="half a pair \ud800 "),)))
@example(Playbook(bullets=(Bullet(id="1", content="", extra={"confidence": 0.5}),)))
@example(Playbook(bullets=(Bullet(id="1", content="", extra={"confidence": 0.9}, helpful=2),)))
def test_what_is_saved_is_loaded(playbook: Playbook) -> None:
    text = files.dumps(playbook)
    assert files.loads(text) == playbook
    assert files.dumps(files.loads(text)) == text


def test_the_documented_file_is_read_and_written_byte_for_byte() -> None:
    playbook = files.loads(DOCUMENTED)
    (bullet,) = playbook.bullets
    assert (bullet.id, bullet.domain, bullet.stage, bullet.shown) == ("B001", "arithmetic", Stage.SHADOW, 15)
    assert files.dumps(playbook) == DOCUMENTED


def test_votes_replace_a_confidence_whose_votes_nobody_knows() -> None:
    (bullet,) = files.loads(DOCUMENTED).bullets
    voted = Playbook(bullets=(Bullet(id=bullet.id, content=bullet.content, helpful=3, harmful=1, extra=bullet.extra),))
    (row,) = files.bullets_json(voted)
    assert row["confidence"] == round(4 / 6, 4)
    assert files.loads(files.dumps(voted)) == voted


def test_a_new_bullet_takes_seven_lines() -> None:
    (row,) = files.bullets_json(Playbook(bullets=(Bullet(id="b-1", content="Use cents."),)))
    assert list(row) == ["id", "content", "domain_id", "section", "stage", "activation_count", "confidence"]


def test_one_vote_changes_two_lines_of_the_file() -> None:
    bullet = Bullet(id="b-1", content="Use cents.", helpful=1)
    before, after = (
        files.dumps(Playbook(bullets=(bullet, other))).splitlines()
        for other in (Bullet(id="b-2", content="é", helpful=1), Bullet(id="b-2", content="é", helpful=2))
    )
    assert [new for old, new in zip(before, after, strict=True) if old != new] == [
        '      "confidence": 0.75,',
        '      "helpful_count": 2',
    ]


def test_a_checkpoint_is_read_as_the_playbook_in_it() -> None:
    bullets = json.loads(DOCUMENTED)["bullets"]
    text = json.dumps({"timestamp": "2025-10-13", "config": {"epochs": 2}, "metrics": {}, "playbook": bullets})
    playbook = files.loads(text)
    assert playbook.bullets == files.loads(DOCUMENTED).bullets
    assert (playbook.created_at, playbook.training_config) == ("2025-10-13", {"epochs": 2})


def test_a_bare_list_of_texts_gets_ids_made_of_the_texts() -> None:
    (bullet,) = files.loads('[{"content": "Use cents.", "domain_id": "oslo"}]').bullets
    assert bullet == Bullet(id=bullet_id("oslo", "Use cents."), content="Use cents.", domain="oslo")
    assert files.loads("[]") == Playbook()


def test_stages_and_sections_of_other_systems_are_understood() -> None:
    rows = [{"id": str(n), "content": "x", "section": "Harmful", "stage": s} for n, s in enumerate(["prod", "staging"])]
    rows.append({"id": "q", "content": "x", "section": "Neutral", "stage": "quarantined"})
    one, two, three = files.loads(json.dumps({"bullets": rows})).bullets
    assert (one.stage, two.stage, three.stage) == (Stage.PRODUCTION, Stage.CANARY, Stage.ROLLED_BACK)
    assert (one.section, three.section) == ("harmful", "neutral")
    assert three.retired


REFUSED = {
    "": "x.json:1: the file is empty",
    DOCUMENTED[:-30]: "x.json:18: this is not whole JSON (the file is cut off)",
    DOCUMENTED[:300]: "x.json:13: this is not whole JSON (the file is cut off)",
    "{": "x.json:1: this is not whole JSON",
    "[": "x.json:1: this is not whole JSON",
    '{"a": 1}': 'x.json:1: this JSON is no playbook: it has neither "bullets" nor "skills"',
    '{\n"bullets": 3}': 'x.json:2: "bullets" is not a list',
    '{"bullets": [\n3]}': "x.json:1: bullet 1 is not an object",
    '{"bullets": [\n{"id": "a"}]}': 'x.json:2: bullet 1 has no "content"',
    '{"bullets": [\n{"id": "a", "content": 3}]}': 'x.json:2: bullet 1 cannot be read: "content"',
    '{"bullets": [\n{"id": "a", "content": "", "activation_count": "x"}]}': '"activation_count"',
    '{"bullets": [\n{"id": "a", "content": "", "helpful_count": -1}]}': "x.json:2: bullet a: a count is below 0",
    '{"bullets": [{"id": "a", "content": ""},\n{"id": "a", "content": "x"}]}': 'x.json:2: a second bullet has the id "a"',
    '{"bullets": [{"id": "a", "content": "", "stage": "moon"}]}': '"stage"',
    '{"bullets": [],\n"batches": {}}': 'x.json:2: "batches" is not a list',
    '{"bullets": [],\n"version": "v2.0.0"}': "x.json:2: version v2.0.0 is newer than this program",
    '{"bullets": [{"id": "a", "content": "",\n"confidence": NaN}]}': "x.json:2: NaN is not JSON",
    '{"bullets": [\n<<<<<<< HEAD\n{"id": "a"}]}': "x.json:2: two versions stand here unmerged",
    '{"bullets": [], "n": ' + "9" * 5000 + "}": "x.json:1: this JSON holds a number that is too long",
    '{"bullets": ' + "[" * 100_000 + "]}": "x.json:1: this JSON is nested too deeply",
    "Dear Sir or Madam": "x.json:1: no playbook is recognised here",
}


@pytest.mark.parametrize(("text", "complaint"), REFUSED.items())
def test_a_file_that_is_no_playbook_is_refused_with_the_line(text: str, complaint: str) -> None:
    with pytest.raises(PlaybookError) as refusal:
        files.loads(text, "x.json")
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("length", range(0, len(DOCUMENTED) - 2, 7))
def test_a_file_cut_off_anywhere_is_never_adopted(length: int) -> None:
    with pytest.raises(PlaybookError):
        files.loads(DOCUMENTED[:length], "x.json")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "oslo.json"
    files.save(Playbook(bullets=(Bullet(id="b-1", content="Use cents."),)), path)
    old = path.read_text()
    with pytest.raises(PlaybookError):
        files.save(Playbook(bullets=(Bullet(id="b-1", content="\ud800", extra={"x": object()}),)), path)
    assert path.read_text() == old
    assert list(path.parent.iterdir()) == [path]


def test_a_saved_file_has_the_rights_that_a_new_file_or_the_old_one_has(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    path = tmp_path / "oslo.json"
    files.save(Playbook(), path)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    path.chmod(0o640)
    files.save(Playbook(), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"oslo\.json is not there"):
        files.load(tmp_path / "oslo.json")
    with pytest.raises(InputError, match="could not be read"):
        files.load(tmp_path)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")
    with pytest.raises(InputError, match="is not text in UTF-8"):
        files.load(tmp_path / "picture.png")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="could not be written"):
        files.save(Playbook(), tmp_path / "oslo.json")


def test_the_digest_tells_playbooks_apart() -> None:
    one = Playbook(bullets=(Bullet(id="b-1", content="Use cents."),))
    assert files.digest(one) == files.digest(files.loads(files.dumps(one))) != files.digest(Playbook())


def test_an_imported_bullet_says_which_file_it_came_from() -> None:
    learned = Provenance(run="r")
    playbook = Playbook(bullets=(Bullet(id="1", content="a"), Bullet(id="2", content="b", provenance=learned)))
    one, two = files.imported_from(playbook, "old.txt").bullets
    assert (one.provenance.model, two.provenance) == ("old.txt", learned)
