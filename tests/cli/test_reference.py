import re
import subprocess
import sys
from pathlib import Path

import pytest

from journeyman.cli import main

pytestmark = pytest.mark.service

ROOT = Path(__file__).parents[2]


def test_the_reference_of_commands_is_what_the_commands_say() -> None:
    run = subprocess.run([sys.executable, ROOT / "docs" / "make_commands.py"], capture_output=True, text=True, check=True)
    assert run.stdout == (ROOT / "docs" / "commands.md").read_text(), "the help has changed: make docs"


def test_the_example_in_the_documentation_of_the_store_prints_what_stands_below_it(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "store.md").read_text()
    found = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", text, re.DOTALL)
    assert found is not None
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", found[1]], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert run.stdout == found[2]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["compare", "--least-gain", "x"], "'--min-gain'"),
        (["compare", "--least_tasks", "x"], "'--min-tasks'"),
        (["evaluate", "--trials", "x"], "'--attempts-per-task'"),
        (["train", "playbook", "--rounds", "x"], "'--rounds'"),
        (["plan", "x", "--crew", "nowhere:NOBODY"], "the crew 'nowhere:NOBODY' cannot be loaded"),
        (["train", "planner", "--phase", "2", "--checkpoint", "nowhere", "--pay", "x"], "nowhere"),
    ],
)
def test_options_are_still_read_as_they_were_spelled_before(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert named in said
    assert "No such option" not in said
