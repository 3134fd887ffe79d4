import re
import subprocess
import sys
from pathlib import Path

import pytest

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
