"""What the document of the code service shows happens so."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.code_service import in_thread

pytestmark = pytest.mark.service

DOCUMENT = Path(__file__).parents[2] / "docs" / "code-service.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples are curl's")
def test_the_examples_are_true_in_their_order(tmp_path: Path) -> None:
    blocks = re.findall(r"^```console\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    expected = [line for line in lines if not line.startswith("$ ")]
    with in_thread() as running:
        script = "\n".join(f"{line[2:]}\necho" for line in lines if line.startswith("$ "))
        script = script.replace("http://127.0.0.1:8002", running.url)
        run = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    said = [line for line in run.stdout.splitlines() if line]
    assert len(said) == len(expected), run.stdout + run.stderr
    for line, shown in zip(said, expected, strict=True):
        # `…` stands for anything.
        assert re.fullmatch(".*".join(map(re.escape, shown.split("…"))), line), line
