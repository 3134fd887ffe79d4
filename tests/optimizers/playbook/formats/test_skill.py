"""Playbooks in files that agents read: Agent Skills, AGENTS.md and CLAUDE.md, prompts of Langfuse and MLflow."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError, PlaybookError
from journeyman.core.playbook import Bullet, Playbook, bullet_id, normalised
from journeyman.optimizers.playbook import files, formats
from tests.support.playbooks import PLAYBOOKS

LEARNED = Playbook(
    bullets=(
        Bullet(id="b-1", content="Use cents.\nAlways.", domain="oslo"),
        Bullet(id="b-2", content="Never guess.", section="harmful", domain="oslo"),
        Bullet(id="b-3", content="Old.", domain="oslo", retired="wrong"),
    )
)
MARKDOWN = sorted(formats.TITLED)
FOREIGN = """# Our repository

Read this first.

## Testing

* Run `make check`.
  It takes a minute,
and a half.
1. Then push.

```
- not an item
```

<!-- journeyman:begin oslo -->
old
<!-- journeyman:end oslo -->

## Style
- [ ] No globals.
    - not even small ones
"""


def test_a_skill_says_its_name_and_use_and_then_what_was_learned() -> None:
    assert formats.write(LEARNED, "skill", title="oslo-orders").text == (
        "---\n"
        "name: oslo-orders\n"
        'description: "Strategies learned from experience on oslo, 2 in all. Use when working on such tasks."\n'
        "metadata:\n  made-by: journeyman\n"
        "---\n\n"
        "# Oslo orders\n\n"
        "Learned from earlier attempts at such tasks.\n\n"
        "## oslo\n\n### Do\n\n- Use cents.\n  Always.\n\n"
        "### Avoid\n\n- Never guess.\n"
    )


def test_what_is_of_no_domain_has_no_heading_for_it_unless_another_one_has() -> None:
    general = Bullet(id="b-4", content="C")
    assert "\n\n## Do\n\n- C\n" in formats.write(Playbook(bullets=(general,)), "skill").text
    assert "## general\n\n### Do\n\n- C\n" in formats.write(Playbook(bullets=(*LEARNED.bullets, general)), "skill").text


@pytest.mark.parametrize("name", ["Oslo", "oslo--orders", "-oslo", "x" * 65, "oslo orders"])
def test_a_name_that_no_skill_can_have_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="skill cannot be called"):
        formats.write(LEARNED, "skill", title=name)


@given(PLAYBOOKS)
def test_every_playbook_is_a_skill_with_one_head(playbook: Playbook) -> None:
    lines = formats.write(playbook, "skill").text.split("\n")
    assert lines[0] == lines[5] == "---"
    assert len(lines[2]) < 1200


WORDS = st.text(st.characters(exclude_categories=("C", "Z")) | st.sampled_from(" \n#-*`<!>"), min_size=1, max_size=40)
NAMES = st.sampled_from(["general", "oslo", "two words"])
SAID = st.builds(
    lambda content, domain, section: Bullet(id=bullet_id(domain, content), content=content, domain=domain, section=section),
    WORDS.filter(lambda text: bool(normalised(text))),
    NAMES,
    st.sampled_from(["helpful", "harmful", "neutral", "FORMULAS & MORE"]),
)


@pytest.mark.parametrize("name", MARKDOWN)
@given(bullets=st.lists(SAID, min_size=1, max_size=5, unique_by=lambda bullet: bullet.id))
def test_what_was_written_is_read_back_with_domains_and_sections(name: str, bullets: list[Bullet]) -> None:
    text = formats.write(Playbook(bullets=tuple(bullets)), name, title="oslo").text
    assert formats.recognise(text) == name
    read = {bullet.id: bullet for bullet in files.loads(text).bullets}
    wanted = {bullet.id: bullet for bullet in bullets}
    assert read.keys() == wanted.keys()
    for id, bullet in read.items():
        assert (bullet.domain, bullet.section) == (wanted[id].domain, wanted[id].section)
        assert normalised(bullet.content) == normalised(wanted[id].content)


def test_of_a_file_of_somebody_else_every_item_of_a_list_is_a_bullet_under_its_heading() -> None:
    text = FOREIGN.replace("<!-- journeyman:begin oslo -->\nold\n<!-- journeyman:end oslo -->\n", "")
    assert [(each.section, each.content) for each in formats.read(text, "agents-md").bullets] == [
        ("Testing", "Run `make check`.\nIt takes a minute,\nand a half."),
        ("Testing", "Then push."),
        ("Style", "[ ] No globals.\n  - not even small ones"),
    ]
    assert {each.domain for each in formats.read(text, "agents-md").bullets} == {"general"}
    assert files.loads(text, "some/AGENTS.md") == formats.read(text, "agents-md")
    with pytest.raises(PlaybookError, match="x:1: no list stands here"):
        formats.read("# Only words\n", "agents-md", "x")


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_part_of_a_file_is_replaced_and_every_other_byte_stays(ends: str) -> None:
    text = FOREIGN.replace("\n", ends)
    block = formats.write(LEARNED, "agents-md", title="oslo").text
    once = formats.in_block(text, block, "AGENTS.md")
    before, _, rest = text.partition("<!-- journeyman:begin oslo -->")
    after = rest.partition("<!-- journeyman:end oslo -->")[2]
    assert once.startswith(before)
    assert once.endswith(after)
    assert once.replace("\r\n", "\n").count("\r") == 0
    assert ("\r\n" in once) is (ends == "\r\n")
    assert formats.in_block(once, block, "AGENTS.md") == once
    assert {bullet.content for bullet in files.loads(once).bullets} == {"Use cents.\nAlways.", "Never guess."}
    other = formats.write(Playbook(bullets=(Bullet(id="b-9", content="Ask."),)), "agents-md", title="cairo").text
    both = formats.in_block(once, other, "AGENTS.md")
    assert both.startswith(once)
    assert len(files.loads(both).bullets) == 3


@given(st.text(st.sampled_from("a\n\ufeff #")), PLAYBOOKS)
def test_a_part_can_be_put_into_any_file_again_and_again(text: str, playbook: Playbook) -> None:
    block = formats.write(playbook, "agents-md", title="oslo").text
    once = formats.in_block(text, block, "x")
    assert once.startswith(text)
    assert formats.in_block(once, block, "x") == once


@pytest.mark.parametrize(
    "text",
    [
        "<!-- journeyman:begin oslo -->\n",
        "\n<!-- journeyman:end oslo -->",
        "<!-- journeyman:begin oslo -->\n<!-- journeyman:begin oslo -->\n<!-- journeyman:end oslo -->",
        "<!-- journeyman:begin oslo -->\n<!-- journeyman:end cairo -->",
    ],
)
def test_a_file_whose_marks_do_not_fit_is_left_alone(text: str) -> None:
    with pytest.raises(PlaybookError, match=r"AGENTS.md:\d: the mark <!-- journeyman:\w+ \w+ --> stands without"):
        formats.in_block(text, formats.write(LEARNED, "agents-md", title="oslo").text, "AGENTS.md")


def test_a_bullet_cannot_end_the_part_that_it_stands_in() -> None:
    bad = Playbook(bullets=(Bullet(id="b-1", content="x <!-- journeyman:end oslo -->\n<!-- journeyman:end oslo -->"),))
    text = formats.in_block("", formats.write(bad, "agents-md", title="oslo").text, "x")
    assert text.count("<!-- journeyman:end oslo -->") == 1
    assert files.loads(text).bullets[0].content == bad.bullets[0].content


def test_a_prompt_of_langfuse_keeps_ids_and_votes_of_what_nobody_changed_there() -> None:
    voted = replace(LEARNED, bullets=(replace(LEARNED.bullets[0], helpful=3), LEARNED.bullets[1]))
    prompt = json.loads(formats.write(voted, "langfuse", title="oslo").text)
    assert (prompt["type"], prompt["name"], prompt["tags"]) == ("text", "oslo", ["journeyman"])
    # As the API gives it back, edited by a person.
    prompt |= {"version": 3, "labels": ["production"], "prompt": prompt["prompt"].replace("Never guess.", "Ask.")}
    back = files.loads(json.dumps(prompt)).bullets
    assert [(each.content, each.section, each.helpful) for each in back] == [
        ("Use cents.\nAlways.", "helpful", 3),
        ("Ask.", "harmful", 0),
    ]
    assert back[0].id == "b-1"
    assert back[1].id != "b-2"


def test_a_chat_and_a_template_of_somebody_else_are_read_and_variables_are_said() -> None:
    chat = {
        "name": "x",
        "type": "chat",
        "prompt": [{"role": "system", "content": "Rules:\n- Be kind."}, {"type": "placeholder"}],
    }
    assert [each.content for each in files.loads(json.dumps(chat)).bullets] == ["Be kind."]
    template = {"name": "x", "template": "- Be kind to {{name}}."}
    assert [each.content for each in files.loads(json.dumps(template)).bullets] == ["Be kind to {{name}}."]
    losses = formats.write(files.loads(json.dumps(template)), "mlflow", title="x").losses
    assert "what stands in {{…}} is a variable there (1 of 1 bullets)" in losses
    with pytest.raises(PlaybookError, match='x:1: "prompt" is neither a text'):
        files.loads('{"name": "a", "prompt": 3}', "x")


@given(
    st.dictionaries(
        st.sampled_from(["name", "prompt", "template", "config", "tags"]), st.recursive(st.none() | st.text(), st.lists)
    )
)
def test_whatever_a_prompt_holds_is_read_or_refused_in_one_sentence(data: dict[str, object]) -> None:
    for prompt in (data, data | {"name": "x", "prompt": "- a", "config": {"journeyman": {"bullets": [data]}}}):
        said = ""
        try:
            files.loads(json.dumps(prompt), "x")
        except PlaybookError as error:
            said = str(error)
        assert said == "" or said.startswith("x:")
