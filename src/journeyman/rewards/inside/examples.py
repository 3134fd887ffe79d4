"""The examples of a docstring, run where the function is that they are of.

What is reported here comes from where the examples are, and somebody wrote them: it says something only beside what they do
where the function is another.
"""

import doctest
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def run(report: Callable[[str], object], words: str, *, module: str, roots: Sequence[str]) -> None:
    """Run all examples in the names of a module.

    Args:
        words: The docstring.
        roots: Folders in which modules lie.
    """
    sys.path[:0] = [str(Path.cwd() / root) for root in roots]
    sys.dont_write_bytecode = True
    names = dict(vars(importlib.import_module(module)))
    test = doctest.DocTestParser().get_doctest(words, names, module, None, 0)
    said: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    report(json.dumps({"tried": result.attempted, "failed": result.failed, "why": "".join(said)[:500]}))
