"""What is no playbook is not taken for one."""

import pytest

from journeyman.core.errors import PlaybookError
from journeyman.optimizers.playbook import files, formats


@pytest.mark.parametrize(
    "text",
    [
        "[build-system]\nrequires = ['x']\n\n[tool.ruff.lint]\nselect = []\n",
        "# A project\n\n## Use\n\nSee [the guide](docs/guide.md).\n\n[Training](training.md) and more\n",
        "## Notes\nbuy milk\n",
        "three blue mugs to Oslo\n",
    ],
)
def test_settings_documents_and_notes_are_no_playbooks(text: str) -> None:
    with pytest.raises(PlaybookError, match="no playbook is recognised here"):
        files.loads(text)


@pytest.mark.parametrize(
    "text", ["## STRATEGIES\n", "## A\n[shr-00001] Do.\n", "[x] Do.\n", "- [mis-00001] helpful=1 harmful=0 :: Do.\n"]
)
def test_headings_alone_and_bullets_with_any_id_are(text: str) -> None:
    assert formats.recognise(text) == "ace"
