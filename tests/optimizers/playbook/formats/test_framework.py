import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import PlaybookError
from journeyman.core.playbook import Batch, Bullet, Playbook, Provenance, Retire, Vote
from journeyman.optimizers.playbook import files, formats
from tests.support.playbooks import DATA, EXTRA, JSON, PLAYBOOKS, TEXT, real

NAMES = ["ace-framework-v0", "ace-framework-v1", "ace-framework-v1.5", "ace-framework-v2"]
DATE = "2026-03-18T14:08:22.435257+00:00"
OLD = {"helpful": 1, "harmful": 0, "neutral": 2, "created_at": DATE, "updated_at": DATE}
SOURCE = {"trace_uid": "u", "source_system": "s", "trace_id": "t", "epoch": 1}
SKILLS: dict[str, dict[str, Any]] = {
    "ace-framework-v0": {"id": "a-00001", "section": "a", "content": "Use cents.", **OLD},
    "ace-framework-v1": {
        "id": "a-00001",
        "section": "a",
        "content": "Use cents.",
        **OLD,
        "embedding": [0.5],
        "status": "active",
    },
    "ace-framework-v1.5": {
        **{"id": "a-00001", "section": "a", "content": "Use cents.", "justification": "j", "evidence": None},
        **{"created_at": DATE, "updated_at": DATE, "status": "invalid", "sources": [SOURCE]},
    },
    "ace-framework-v2": {
        **{"id": "a-00001", "section": "context", "keywords": ["money"], "issue": "Prices are odd.", "insight": "Use cents."},
        **{"occurrences": [SOURCE], "active": False, "used_count": 4, "helpful_count": 2, "harmful_count": 1},
        **{"neutral_count": 1, "created_at": DATE, "updated_at": DATE},
    },
}


def skillbook(name: str, *skills: dict[str, Any], **more: Any) -> str:
    sections: dict[str, list[str]] = {}
    for skill in skills:
        sections.setdefault(skill["section"], []).append(skill["id"])
    top = "bullets" if name.endswith("v0") else "skills"
    data: dict[str, Any] = {"schema_version": "2"} if name.endswith("v2") else {}
    data |= {top: {skill["id"]: skill for skill in skills}, "sections": sections, "next_id": len(skills)}
    if not name.endswith("v0"):
        data["similarity_decisions"] = {}
    return json.dumps({**data, **more}, indent=2, ensure_ascii=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_skillbook_of_each_generation_comes_back_byte_for_byte(name: str) -> None:
    for text in (skillbook(name, SKILLS[name]), skillbook(name)):
        playbook = files.loads(files.dumps(files.loads(text)))
        assert formats.write(playbook, name) == formats.ExportedPlaybook(text)


@pytest.mark.parametrize("name", NAMES)
def test_a_skill_is_kept_as_small_as_what_it_says_beyond_ours(name: str) -> None:
    (bullet,) = files.loads(skillbook(name, SKILLS[name])).bullets
    assert "as_it_was" not in bullet.extra["ace-framework"]  # type: ignore[operator]


def test_the_last_of_the_oldest_generation_says_what_is_not_used() -> None:
    last = {**SKILLS["ace-framework-v0"], "embedding": None, "status": "invalid"}
    text = skillbook("ace-framework-v0", last)
    playbook = files.loads(text)
    assert playbook.bullets[0].retired
    assert "as_it_was" not in playbook.bullets[0].extra["ace-framework"]  # type: ignore[operator]
    assert formats.write(playbook, "ace-framework-v0") == formats.ExportedPlaybook(text)


def test_what_a_skill_says_becomes_a_bullet() -> None:
    (bullet,) = files.loads(skillbook("ace-framework-v2", SKILLS["ace-framework-v2"])).bullets
    assert (bullet.content, bullet.section) == ("Prices are odd: Use cents.", "context")
    assert (bullet.shown, bullet.helpful, bullet.harmful) == (4, 2, 1)
    assert bullet.retired
    (older,) = files.loads(skillbook("ace-framework-v1", SKILLS["ace-framework-v1"])).bullets
    assert (older.content, older.helpful, older.retired, older.created_at) == ("Use cents.", 1, "", DATE)


ROWS = st.fixed_dictionaries(
    {"id": TEXT, "section": TEXT},
    optional={
        "content": TEXT,
        "issue": TEXT,
        "insight": st.none() | TEXT,
        "helpful": st.integers(0, 9),
        "harmful_count": st.none() | st.integers(0, 9),
        "status": st.sampled_from(["active", "invalid"]) | JSON,
        "active": JSON,
        "embedding": JSON,
        "created_at": st.none() | TEXT,
        "sources": JSON,
    },
)


@given(
    st.sampled_from(NAMES),
    st.lists(st.tuples(ROWS, EXTRA), max_size=3),
    st.booleans(),
    st.dictionaries(st.sampled_from(["next_id", "sections", "order", "style", "zeta"]), JSON),
)
def test_skills_in_any_order_with_any_keys_come_back_byte_for_byte(
    name: str, rows: list[tuple[dict[str, Any], dict[str, Any]]], ascii: bool, more: dict[str, Any]
) -> None:
    skills = [{**extra, **row} for row, extra in rows]
    for skill in skills:
        for key in ("content", "created_at", "issue", "version"):
            if key in skill and not isinstance(skill[key], str | None):
                del skill[key]
    text = json.dumps(json.loads(skillbook(name, *skills, **more)), indent=2, ensure_ascii=ascii)
    playbook = files.loads(files.dumps(formats.read(text, "ace-framework", "x.json")))
    kept: Any = playbook.extra["ace-framework"]
    assert formats.write(playbook, f"ace-framework-{kept['generation']}").text == text


@given(PLAYBOOKS, st.sampled_from(NAMES))
def test_every_playbook_can_be_written_and_read(playbook: Playbook, name: str) -> None:
    exported = formats.write(playbook, name)
    back = formats.read(exported.text, "ace-framework", "x.json")
    there = playbook.active if name == NAMES[0] else [b for b in playbook.bullets if b.retired or not b.held]
    assert [bullet.id for bullet in back.bullets] == [bullet.id for bullet in there]
    assert [bullet.content for bullet in back.bullets] == [bullet.content for bullet in there]
    if back.bullets:
        assert formats.write(back, name) == formats.ExportedPlaybook(exported.text)


@pytest.mark.parametrize("name", formats.WRITABLE)
def test_what_waits_for_a_person_leaves_for_no_other_system_and_that_is_said(name: str) -> None:
    held = Bullet(id="b-2", content="Refund it all.", held="it names money", provenance=Provenance(origin="environment"))
    playbook = Playbook(bullets=(Bullet(id="b-1", content="Use cents."), held))
    exported = formats.write(playbook, name)
    assert "Use cents." in exported.text
    assert "Refund" not in exported.text
    assert "b-2" not in exported.text
    assert "held bullets are left out (1 of 2 bullets)" in exported.losses
    assert "traces of origin are left out (1 of 2 bullets)" in exported.losses


def test_a_change_is_the_only_difference() -> None:
    odd = {"content": "A", "id": "a-00001", "zeta": 1, "section": "a", "helpful": 1, "harmful": 0, "status": "active"}
    text = skillbook("ace-framework-v1", odd)
    after = files.loads(text).apply(
        Batch(id="1", deltas=(Vote(bullet_id="a-00001", helpful=1), Retire(bullet_id="a-00001", reason="x")))
    )
    exported = formats.write(after, "ace-framework-v1")
    assert exported.text == text.replace('"helpful": 1', '"helpful": 2').replace("active", "invalid")
    assert exported.losses == ("why bullets were retired is left out (1 reasons)",)


def test_what_was_learned_here_gets_the_keys_that_the_package_asks_for() -> None:
    playbook = Playbook(bullets=(Bullet(id="b-1", content="Use cents.", helpful=2, shown=3),))
    two = json.loads(formats.write(playbook, "ace-framework-v2").text)
    assert two["sections"] == {"context": ["b-1"]}
    assert two["skills"]["b-1"]["keywords"] == ["helpful"]
    assert two["skills"]["b-1"]["issue"] == two["skills"]["b-1"]["insight"] == "Use cents."
    one = json.loads(formats.write(playbook, "ace-framework-v1").text)["skills"]["b-1"]
    assert list(one) == ["id", "section", "content", "helpful", "harmful", "neutral", "embedding", "status"]
    assert set(json.loads(formats.write(playbook, "ace-framework-v0").text)["bullets"]["b-1"]) <= set(SKILLS[NAMES[0]])


def test_what_a_generation_cannot_say_is_said() -> None:
    playbook = Playbook(bullets=(Bullet(id="b-1", content="Use cents.", helpful=2, locked=True, domain="oslo"),))
    assert formats.write(playbook, "ace-framework-v1.5").losses == (
        "domains are left out (1 of 1 bullets)",
        "votes are left out (1 of 1 bullets)",
        "locks are left out (1 of 1 bullets)",
    )


REFUSED = {
    '{"skills": {\n"a": 3}}': 'x.json:2: skill "a": it is not an object',
    '{"skills": {\n"a": {"content": 3}}}': 'x.json:2: skill "a": "content" is not a text',
    '{"skills": {\n"a": {"content": "", "helpful": -1}}}': 'x.json:2: skill "a": "helpful" is not a count',
    '{"skills": []}': 'x.json:1: "skills" is not an object',
    '{"skills": {\n"a": {"content": "': "x.json:2: this is not whole JSON (the file is cut off)",
}


@pytest.mark.parametrize(("text", "complaint"), REFUSED.items())
def test_a_broken_skillbook_is_refused_with_the_line(text: str, complaint: str) -> None:
    with pytest.raises(PlaybookError) as refusal:
        files.loads(text, "x.json")
    assert complaint in str(refusal.value)


def test_a_skillbook_that_the_framework_learned_comes_back_byte_for_byte() -> None:
    text = (DATA / "kayba-ace" / "skillbook_20260318_150822.json").read_text(encoding="utf-8")
    playbook = files.loads(text)
    assert len(playbook.bullets) == 6
    assert formats.write(files.loads(files.dumps(playbook)), "ace-framework-v1") == formats.ExportedPlaybook(text)


def test_all_the_published_skillbooks_come_back_byte_for_byte() -> None:
    paths = sorted(real("kayba-ace").glob("skillbook_*.json"))
    assert len(paths) == 6
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert formats.write(files.loads(text), "ace-framework-v1") == formats.ExportedPlaybook(text)
