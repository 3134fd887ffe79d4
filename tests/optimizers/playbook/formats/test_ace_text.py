from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from journeyman.core.playbook import Batch, Bullet, Playbook, Retire, Vote
from journeyman.optimizers.playbook import files, formats
from tests.support.playbooks import DATA, PLAYBOOKS, real, unpacked

LINES = st.sampled_from(
    [
        "## STRATEGIES & INSIGHTS",
        "## STRATEGIES & INSIGHTS:",
        "##",
        "### not a header",
        "[str-00001] helpful=3 harmful=1 :: Use cents.",
        "[str-00001] helpful=3 harmful=1 :: Use cents.",
        "[cal-00002]  helpful=0 harmful=0::no spaces",
        "- [x y] helpful=1 harmful=0 ::   many   ",
        "[shr-00005] Look at the API first.",
        "[shr-00006]",
        "  [B7] indented\r",
        "a line that goes on",
        "    x = [1, 2]",
        "[1, 2]",
        "",
        "   ",
        "\ufeff",
    ]
)
TEXTS = st.lists(LINES | st.text(max_size=20), max_size=12).map("\n".join)


@given(TEXTS, st.sampled_from(["ace", "appworld"]))
@example("[a-1] x\n\n## B\n[a-1] y\n\ngoes on\n## A:\n## B\n[a-1] z", "appworld")
def test_a_text_that_was_read_is_written_again_byte_for_byte(text: str, variant: str) -> None:
    playbook = formats.read(text, "ace", "x.txt")
    assert playbook.extra["ace"]["variant"] in ("ace", "appworld")  # type: ignore[index]
    saved = files.loads(files.dumps(playbook))
    assert saved == playbook
    own = formats.write(saved, str(playbook.extra["ace"]["variant"]))  # type: ignore[index]
    assert (own.text, own.losses) == (text, ())
    # The other variant has another form, which is whole, too.
    other = formats.read(formats.write(saved, variant).text, "ace", "y.txt")
    assert [bullet.section for bullet in other.bullets] == [bullet.section for bullet in playbook.bullets]


@given(PLAYBOOKS, st.sampled_from(["ace", "appworld"]))
def test_every_playbook_can_be_written_and_read(playbook: Playbook, variant: str) -> None:
    exported = formats.write(playbook, variant)
    back = formats.read(exported.text, "ace", "x.txt")
    assert len(back.bullets) == len(playbook.active)
    assert formats.write(back, variant).text == exported.text
    if variant == "ace":
        votes = sorted((bullet.helpful, bullet.harmful) for bullet in playbook.active)
        assert sorted((bullet.helpful, bullet.harmful) for bullet in back.bullets) == votes


def test_a_plain_ace_playbook_is_understood() -> None:
    text = "## FORMULAS & CALCULATIONS\n[calc-00002] helpful=3 harmful=1 :: Round at the end.\n\n## OTHERS\n"
    (bullet,) = formats.read(text, "ace", "x.txt").bullets
    assert bullet == Bullet(
        id="calc-00002", content="Round at the end.", section="FORMULAS & CALCULATIONS", helpful=3, harmful=1
    )


def test_lines_that_follow_belong_to_the_bullet() -> None:
    text = (
        "## CODE\n[code-00001] helpful=0 harmful=0 :: Like so:\n    x = 1\n\n    y = 2\n\n[code-00002] helpful=0 harmful=0 :: B"
    )
    one, two = formats.read(text, "ace", "x.txt").bullets
    assert one.content == "Like so:\n    x = 1\n\n    y = 2"
    assert two.content == "B"


def test_an_id_that_is_there_twice_is_two_bullets_and_is_written_twice() -> None:
    text = "## A\n[a-00001] one\n[a-00001] two\n"
    playbook = formats.read(text, "ace", "x.txt")
    assert [bullet.id for bullet in playbook.bullets] == ["a-00001", "a-00001~2"]
    assert formats.write(playbook, "appworld").text == text


def test_a_change_is_the_only_difference() -> None:
    text = "## A:\n\n[a-1]  helpful=1 harmful=0 ::  odd spacing\n[a-2] helpful=0 harmful=0 :: B\n\n\n## C\n"
    playbook = formats.read(text, "ace", "x.txt")
    deltas = (Vote(bullet_id="a-1", helpful=1), Retire(bullet_id="a-2", reason="wrong"))
    exported = formats.write(playbook.apply(Batch(id="1", deltas=deltas)), "ace")
    assert exported.text == "## A:\n\n[a-1] helpful=2 harmful=0 :: odd spacing\n\n\n## C\n"
    assert exported.losses == ("retired bullets are left out (1 of 2 bullets)",)


def test_what_was_learned_here_goes_to_the_section_of_its_name_or_to_a_new_one() -> None:
    playbook = formats.read("## OTHERS\n[misc-00001] helpful=0 harmful=0 :: A\n", "ace", "x.txt")
    born = (Bullet(id="b-1", content="B", section="neutral"), Bullet(id="b-2", content="C", domain="oslo"))
    exported = formats.write(replace(playbook, bullets=(*playbook.bullets, *born)), "ace")
    assert exported.text == (
        "## OTHERS\n[misc-00001] helpful=0 harmful=0 :: A\n[b-1] helpful=0 harmful=0 :: B\n\n"
        "## STRATEGIES & INSIGHTS\n[b-2] helpful=0 harmful=0 :: C\n"
    )
    assert exported.losses == ("domains are left out (1 of 3 bullets)",)


def test_text_that_would_be_read_as_something_else_becomes_one_line_and_this_is_said() -> None:
    playbook = Playbook(bullets=(Bullet(id="b 1]", content="A\n## B\n[c-1] C"),))
    exported = formats.write(playbook, "ace")
    assert "[x-b-1-] helpful=0 harmful=0 :: A ## B [c-1] C\n" in exported.text
    assert len(exported.losses) == 2


@pytest.mark.parametrize(("name", "bullets"), [("initial", 8), ("offline_trained_no_gt", 318)])
def test_playbooks_that_ace_learned_come_back_byte_for_byte(name: str, bullets: int) -> None:
    text = unpacked(DATA / "ace-playbooks" / f"appworld_{name}_playbook.txt.gz")
    playbook = files.loads(text)
    assert len(playbook.bullets) == bullets
    assert formats.write(playbook, "appworld") == formats.ExportedPlaybook(text)


@pytest.mark.parametrize(("name", "bullets"), [("initial", 8), ("offline_trained_no_gt", 318), ("online_trained", 359)])
def test_all_the_published_playbooks_come_back_byte_for_byte(name: str, bullets: int) -> None:
    text = unpacked(real(f"ace-playbooks/appworld_{name}_playbook.txt.gz"))
    playbook = files.loads(files.dumps(files.loads(text)))
    assert len(playbook.bullets) == bullets
    assert formats.write(playbook, "appworld") == formats.ExportedPlaybook(text)
