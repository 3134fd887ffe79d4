"""Tests and the code they test in one process, for tests that cannot have it otherwise. What is reported here is not believed
until it agrees with what tests that must fail say.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


class _Outcomes:
    """A plug-in that keeps what became of each test."""

    def __init__(self) -> None:
        self.became: dict[str, str] = {}
        self.why: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.became[report.nodeid] = "failed"
            crash = getattr(report.longrepr, "reprcrash", None)
            self.why.append(f"{report.nodeid}: {crash.message if crash else report.longrepr}"[:500])
        elif report.skipped or hasattr(report, "wasxfail"):
            self.became[report.nodeid] = "skipped"
        elif report.when == "call":
            self.became.setdefault(report.nodeid, "passed")

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.why.append(f"{report.nodeid}: {str(report.longrepr)[-500:]}")


def run(report: Callable[[str], object], file: str) -> None:
    """Run a file of tests with the code beside it, which hides nothing of the standard library's."""
    here = str(Path.cwd())
    sys.path[:] = [path for path in sys.path if path not in ("", here)]
    import pytest

    sys.path.append(here)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    outcomes = _Outcomes()
    options = ["-q", "-p", "no:cacheprovider", "--noconftest", "--import-mode=importlib", "-c", os.devnull, f"--rootdir={here}"]
    code = pytest.main([*options, file], plugins=[outcomes])
    report(json.dumps({"became": outcomes.became, "why": outcomes.why, "code": int(code)}))
