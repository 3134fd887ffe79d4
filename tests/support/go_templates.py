"""Go's own template library, where Go is installed."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest


@lru_cache(maxsize=1)
def _program() -> Path:
    """Built once: to compile takes longer than all tests."""
    made = Path(mkdtemp(prefix="journeyman-go-")) / "render"
    source = Path(__file__).parent / "go" / "render.go"
    subprocess.run(["go", "build", "-o", made, source], check=True, timeout=300, capture_output=True)
    return made


def render(template: str, messages: Sequence[Any], tools: Sequence[Any] = ()) -> str:
    """What Ollama would send to the model. Skips the test where there is no Go."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed: apt-get install golang-go")
    asked = json.dumps({"Template": template, "Messages": list(messages), "Tools": list(tools)})
    return subprocess.run([_program()], input=asked, capture_output=True, text=True, check=True, timeout=60).stdout
