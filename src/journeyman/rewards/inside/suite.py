"""A repository's own tests, or some of them, run where they are, and what became of each.

What is reported here comes from where the code under test is: it tells what honest code does, and is believed no further.
"""

import io
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_WEIGHT = {"failed": 3, "passed": 2, "skipped": 1}


class Outcomes:
    """A plug-in that keeps what became of each test function: of all that are made of one, the worst."""

    def __init__(self, coverage: Any = None) -> None:
        self.became: dict[str, str] = {}
        self.why: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self._coverage = coverage

    def pytest_runtest_setup(self, item: Any) -> None:
        """From here on lines are this test's."""
        if self._coverage is not None:
            self._coverage.switch_context(item.nodeid.partition("[")[0])

    def pytest_runtest_logreport(self, report: Any) -> None:
        node = report.nodeid.partition("[")[0]
        self.seconds[node] = self.seconds.get(node, 0.0) + report.duration
        if report.failed:
            self._note(node, "failed")
            crash = getattr(report.longrepr, "reprcrash", None)
            self.why.setdefault(node, f"{crash.message if crash else report.longrepr}"[:500])
        elif report.skipped or hasattr(report, "wasxfail"):
            self._note(node, "skipped")
        elif report.when == "call":
            self._note(node, "passed")

    def _note(self, node: str, what: str) -> None:
        self.became[node] = max(what, self.became.get(node, what), key=_WEIGHT.__getitem__)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.why[report.nodeid] = str(report.longrepr)[-500:]


def run(
    report: Callable[[str], object], tests: Sequence[str], *, roots: Sequence[str], plugins: Sequence[str], cover: str
) -> None:
    """Run tests of the repository in the working folder.

    Args:
        tests: Files, or functions as `file::Class::test`; none is all.
        roots: Folders in which its modules lie.
        plugins: Of pytest, by module, that are to be loaded.
        cover: Where measured lines are wanted, the folder whose files they are of: "." for all.
    """
    here = Path.cwd()
    sys.path[:0] = [str(here / root) for root in roots]
    os.environ.update(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTHONDONTWRITEBYTECODE="1")
    coverage = _coverage(here / cover) if cover else None
    import pytest

    outcomes = Outcomes(coverage)
    options = ["-q", "--tb=native", "-p", "no:cacheprovider", "--import-mode=importlib", "-c", os.devnull, "-W", "ignore"]
    # A file that cannot be imported says nothing of the tests in others.
    options += ["--continue-on-collection-errors"]
    options += [f"--rootdir={here}", f"--confcutdir={here}", *(word for name in plugins for word in ("-p", name))]
    began = time.process_time()
    if coverage is not None:
        coverage.start()
    printed, sys.stdout = sys.stdout, io.StringIO()
    try:
        code = int(pytest.main([*options, *tests], plugins=[outcomes]))
    finally:
        sys.stdout = printed
    found: dict[str, Any] = {"code": code, "cpu_seconds": time.process_time() - began}
    if coverage is not None:
        coverage.stop()
        found["lines"] = _lines(coverage, here)
    report(json.dumps({**found, "became": outcomes.became, "why": outcomes.why, "seconds": outcomes.seconds}))


def _coverage(source: Path) -> Any:
    import coverage

    return coverage.Coverage(data_file=None, source=[str(source)], config_file=False, messages=False)


def _lines(measured: Any, here: Path) -> dict[str, dict[str, list[int]]]:
    """By file and test the lines that it came by."""
    data, found = measured.get_data(), {}
    for path in data.measured_files():
        by_test: dict[str, list[int]] = {}
        for number, tests in sorted(data.contexts_by_lineno(path).items()):
            for test in filter(None, tests):
                by_test.setdefault(test, []).append(number)
        found[Path(path).relative_to(here).as_posix()] = by_test
    return found
