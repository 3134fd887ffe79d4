import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError, JourneymanError
from journeyman.core.playbook import Playbook
from journeyman.optimizers.playbook import files, formats
from tests.support.playbooks import JSON


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"bullets": []}', "journeyman"),
        ('[{"content": "x"}]', "journeyman"),
        (" []\n", "journeyman"),
        ('{"playbook": []}', "journeyman"),
        ('{"bullets": {}}', "ace-framework"),
        ('{"skills": {}}', "ace-framework"),
        ("[shr-00001] Use cents.", "ace"),
        ("[calc-1] helpful=1 harmful=0 :: Use cents.", "ace"),
        ("\ufeff\r\n## STRATEGIES", "ace"),
        ("<cheatsheet></cheatsheet>", "cheatsheet"),
    ],
)
def test_a_format_is_told_from_the_content_alone(text: str, name: str) -> None:
    assert formats.recognise(text) == name
    assert isinstance(files.loads(text), Playbook)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("journeyman", '{"bullets": [{"content": "Use cents."}]}'),
        ("ace", "[calc-1] helpful=1 harmful=0 :: Use cents."),
        ("ace-framework", '{"skills": {"calc-1": {"id": "calc-1", "section": "calc", "content": "Use cents."}}}'),
        ("cheatsheet", "<memory_item><description>Use cents.</description></memory_item>"),
        ("skill", "---\nname: x\ndescription: y\n---\n- Use cents.\n"),
        ("agents-md", "- Use cents.\n"),
        ("langfuse", '{"name": "x", "prompt": "- Use cents."}'),
        ("mlflow", '{"name": "x", "template": "- Use cents."}'),
    ],
)
def test_every_format_that_is_offered_can_be_read_by_its_name(name: str, text: str) -> None:
    assert [bullet.content for bullet in formats.read(text, name).bullets] == ["Use cents."]
    assert name in formats.READABLE


@pytest.mark.parametrize("name", formats.WRITABLE)
def test_every_format_that_is_offered_can_be_written_by_its_name(name: str) -> None:
    playbook = formats.read("[calc-1] helpful=1 harmful=0 :: Use cents.", "ace")
    assert "Use cents." in formats.write(playbook, name).text


def complaint(text: str) -> str:
    """What is said of a text that is refused."""
    try:
        files.loads(text, "x")
    except JourneymanError as error:
        return str(error)
    return "x:"


@given(st.text() | JSON.map(str))
def test_whatever_stands_in_a_file_is_read_or_refused_in_one_sentence(text: str) -> None:
    assert complaint(text).startswith("x:")
    assert "\n" not in complaint(text)


@given(st.dictionaries(st.sampled_from(["bullets", "skills", "playbook", "version", "extra", "sections", "config"]), JSON))
def test_whatever_stands_in_json_is_read_or_refused_in_one_sentence(data: dict[str, object]) -> None:
    assert complaint(json.dumps(data)).startswith("x:")
    assert "\n" not in complaint(json.dumps(data))


def test_a_format_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(InputError, match="no format 'appworld' can be read; there are journeyman, ace, "):
        formats.read("", "appworld")
    with pytest.raises(InputError, match="no format 'cheatsheet' can be written; there are ace, appworld, "):
        formats.write(Playbook(), "cheatsheet")
