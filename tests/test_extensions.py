"""The pages on extending, walked as a person would: files written into an empty folder, commands typed, output compared."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
_FILE = re.compile(r"`([\w.]+\.\w+)`[^`]*?:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
_TYPED = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def typed(text: str, folder: Path) -> str:
    """What a command shows on its standard output, the folder as `.`."""
    program, *arguments = shlex.split(text)
    assert program == "journeyman"
    surroundings = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
    run = subprocess.run(
        [sys.executable, "-m", "journeyman", *arguments],
        cwd=folder, env=surroundings, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert run.returncode in (0, 1), run.stderr
    return run.stdout.replace(str(folder), ".")


def shown(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.service
@pytest.mark.parametrize("page", sorted(DOCS.glob("extend-*.md")), ids=lambda page: page.stem)
def test_a_page_on_extending_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    if "--dataset desk" in text:
        pytest.importorskip("torch", reason="needs the extra: pip install 'journeyman[embedded]'")
    files = _FILE.findall(text)
    sessions = "".join(_TYPED.findall(text))
    assert files
    assert sessions
    for name, content in files:
        (tmp_path / name).write_text(content)
    for session in sessions.split("$ ")[1:]:
        command, _, expected = session.partition("\n")
        assert shown(typed(command, tmp_path)) == shown(expected), command
