"""What the documents show is true: their programs run, their links lead somewhere, and they name no machine."""

import re
from pathlib import Path

import pytest

from tests.support import warm

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PROGRAMS = [
    pytest.param(found.group(1), id=f"{path.name}:{path.read_text()[: found.start()].count(chr(10)) + 1}")
    for path in DOCUMENTS
    if path.name != "CONTRIBUTING.md"  # its blocks are pairs of lines, good and bad
    for found in re.finditer(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
]


@pytest.mark.service
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_in_the_documents_runs(program: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra: pip install 'journeyman[embedded]'")
    run = warm.run("-c", program, cwd=tmp_path)
    assert run.returncode == 0, run.stderr


def test_links_within_the_project_lead_somewhere() -> None:
    lost = [
        f"{document.name}: {target}"
        for document in DOCUMENTS
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text())
        if not target.startswith("https://") and not (document.parent / target).exists()
    ]
    assert lost == []


def test_no_document_names_a_path_of_somebodys_machine() -> None:
    private = re.compile(r"(?<![\w.])/(?:root|work|home|tmp)/")
    assert [document.name for document in DOCUMENTS if private.search(document.read_text())] == []


def test_the_files_that_the_architecture_names_are_there() -> None:
    named = re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", (ROOT / "docs" / "architecture.md").read_text())
    assert len(named) > 20
    assert [name for name in named if not (ROOT / "src" / "journeyman" / name).exists()] == []


def test_each_message_that_troubleshooting_explains_is_one_that_is_said() -> None:
    said = "".join(path.read_text() for path in (ROOT / "src" / "journeyman").rglob("*.py"))
    explained = re.findall(r"^### `(.*)`$", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    assert len(explained) > 15
    assert [each for each in explained if each not in said] == []
