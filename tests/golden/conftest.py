"""What was right once and is kept, so that a change of it is seen: a file each in `kept`, renewed by `--golden-update`."""

import difflib
from collections.abc import Callable
from pathlib import Path

import pytest

KEPT = Path(__file__).parent / "kept"
_SHOWN = 200
"""Lines of a difference that a failure shows."""


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with the file of that name in `kept`; all differences are one failure."""

    def compare(name: str, text: str) -> None:
        path = KEPT / name
        if request.config.getoption("--golden-update"):
            path.write_text(text, encoding="utf-8")
            return
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = list(difflib.unified_diff(before.splitlines(), text.splitlines(), "kept", "now", lineterm="", n=2))
        more = [f"… and {len(lines) - _SHOWN} lines more"] if len(lines) > _SHOWN else []
        told = "\n".join([*lines[:_SHOWN], *more]) or "they differ in their ends of lines"
        assert text == before, f"{name} is not what was kept; if it should be: pytest tests/golden --golden-update\n{told}"

    return compare
