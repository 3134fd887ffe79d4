import pytest
from hypothesis import given

from journeyman.core.errors import InputError
from journeyman.core.playbook import Bullet, Playbook
from journeyman.optimizers.playbook import formats
from tests.support.playbooks import PLAYBOOKS

LEARNED = Playbook(
    bullets=(
        Bullet(id="b-1", content="Use cents.\nAlways.", domain="oslo"),
        Bullet(id="b-2", content="Never guess.", section="harmful", domain="oslo"),
        Bullet(id="b-3", content="Old.", domain="oslo", retired="wrong"),
    )
)


def test_a_skill_says_its_name_and_use_and_then_what_was_learned() -> None:
    assert formats.write_skill(LEARNED, "oslo-orders").text == (
        "---\n"
        "name: oslo-orders\n"
        'description: "Strategies learned from experience on oslo, 2 in all. Use when working on such tasks."\n'
        "---\n\n"
        "# Oslo orders\n\n"
        "Learned from earlier attempts at such tasks.\n\n"
        "## Do\n\n- Use cents.\n  Always.\n\n"
        "## Avoid\n\n- Never guess.\n"
    )


def test_several_domains_have_a_heading_each() -> None:
    both = Playbook(bullets=(*LEARNED.bullets, Bullet(id="b-4", content="C")))
    assert "## general\n\n### Do\n\n- C\n" in formats.write_skill(both).text


@pytest.mark.parametrize("name", ["Oslo", "oslo--orders", "-oslo", "", "x" * 65, "oslo orders"])
def test_a_name_that_no_skill_can_have_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="skill cannot be called"):
        formats.write_skill(LEARNED, name)


@given(PLAYBOOKS)
def test_every_playbook_is_a_skill_with_one_head(playbook: Playbook) -> None:
    lines = formats.write(playbook, "skill").text.split("\n")
    assert lines[0] == lines[3] == "---"
    assert len(lines[2]) < 1200
