"""Tests and the code they test in one process, for tests that cannot have it otherwise. What is reported here is not believed
until it agrees with what tests that must fail say.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .suite import Outcomes


class _Examined(Outcomes):
    """Leaves out further cases of a test that failed: it would not become anything else."""

    def pytest_runtest_setup(self, item: Any) -> None:
        if self.became.get(item.nodeid.partition("[")[0]) == "failed":
            import pytest

            pytest.skip()


def run(report: Callable[[str], object], file: str, modules: Sequence[str], *, conftest: bool, plugins: Sequence[str]) -> None:
    """Run a file of tests with the code beside it, which hides nothing of the standard library's.

    Args:
        modules: The code's, for tests to import even where others of these names are installed.
        conftest: Whether there is one by the tests' author.
        plugins: Of pytest, by module, that are to be loaded.
    """
    here = str(Path.cwd())
    sys.path[:] = [path for path in sys.path if path not in ("", here)]
    import pytest

    installed = (number for number, path in enumerate(sys.path) if "-packages" in path)
    sys.path.insert(next(installed, len(sys.path)), here)
    for name in [name for name in sys.modules if name.partition(".")[0] in modules]:
        if name.partition(".")[0] not in sys.stdlib_module_names:
            del sys.modules[name]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    outcomes = _Examined()
    # Whatever shows the source of a failure parses it anew, which code that has used up the stack once can make impossible.
    options = ["-q", "--tb=native", "-p", "no:cacheprovider", "--import-mode=importlib", "-c", os.devnull]
    # Without the last pytest looks through the folders above, and where walls keep it from these it finds no test at all.
    options += [f"--rootdir={here}", f"--confcutdir={here}", *(word for name in plugins for word in ("-p", name))]
    pytest.main([*options, *([] if conftest else ["--noconftest"]), file], plugins=[outcomes])
    report(json.dumps({"became": outcomes.became, "why": outcomes.why}))
