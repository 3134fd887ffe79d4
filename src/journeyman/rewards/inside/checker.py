"""The checker's end: runs the tests, which hold the expected values, against handles on the candidate's names.

No code of the candidate ever runs here. What it answers arrives as data.
"""

import importlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
import traceback
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .peer import UNNAMED, CannotCross, Handle, Peer, PeerGone, may_speak

_PASSED_ON = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)
_NO_OBJECTS = ("function", "builtin_function_or_method", "method", "generator", "coroutine")
"""Types of what is only called, or gives what it is asked for: no test compares it."""
_PUBLIC = {"call", "get", "set", "iter", "next", "len", "item", "contains", "str", "repr", "bool", "eq", "isinstance"}


class Checker(Peer):
    """Lends only what the tests hand over themselves, and shows nothing of it but its public side."""

    def __init__(self, exchange: Callable[[str], str], own: Sequence[str]) -> None:
        super().__init__(exchange)
        self._own = frozenset(own)
        self._importer = self._find("mine", [0, "function", []])
        self.could_not_cross: str | None = None
        """What the tests wanted to hand over and could not: then this way cannot tell."""
        self.objects_crossed = False
        """Whether the tests held an object of the code's own: then that a test fails may be for want of the object itself."""

    def name(self, module: str, name: str = "") -> Any:
        """What the candidate has under a name. A class that the tests name may say itself what it is equal to."""
        found = self.ask("call", self._importer, module, name)
        if isinstance(found, Handle) and name[:1].isupper():
            may_speak(found)
        return found

    def ask(self, operation: str, *args: Any, **named: Any) -> Any:
        try:
            if operation == UNNAMED:
                return self._compare(*args)
            return super().ask(operation, *args, **named)
        except CannotCross as error:
            self.could_not_cross = str(error)
            raise

    def _compare(self, operate: Callable[..., Any], left: Handle, right: Any) -> Any:
        own = self.ask("plain", left)
        other = self.ask("plain", right) if isinstance(right, Handle) else right
        if isinstance(right, Handle) and (isinstance(own, Handle) or isinstance(other, Handle)):
            # It would be the code that says which of them is the greater one.
            raise CannotCross(f"only the code could say how two objects of its own compare ({left._type})")
        return NotImplemented if isinstance(own, Handle) or isinstance(other, Handle) else operate(own, other)

    def _find(self, tag: str, rest: list[Any]) -> Any:
        found = super()._find(tag, rest)
        if tag == "mine" and isinstance(found, Handle) and found._type not in _NO_OBJECTS:
            self.objects_crossed = True
        return found

    def lendable(self, value: Any) -> bool:
        return isinstance(value, _PASSED_ON) or hasattr(type(value), "__next__") or self._is_own(value)

    def may(self, operation: str, args: list[Any]) -> bool:
        granted = self._grants(operation, args)
        # Honest code may need what only one process can give.
        self.objects_crossed = self.objects_crossed or not granted
        return granted

    def _grants(self, operation: str, args: list[Any]) -> bool:
        if operation not in _PUBLIC:
            return False
        if operation in ("get", "set"):
            return self._is_own(args[0]) and isinstance(args[1], str) and not args[1].startswith("_")
        # Not what both ends have: it would do here what it can do there.
        lent = any(args[0] is each for each in self._lent)
        return (lent and operation in ("call", "next", "iter")) or self._is_own(args[0])

    def _is_own(self, value: Any) -> bool:
        kind = value if isinstance(value, type) else type(value)
        return kind.__module__ in self._own

    def say(self, text: str) -> None:
        sys.stdout.write(text)


class _Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes `import` find the candidate's modules."""

    def __init__(self, checker: Checker, names: Sequence[str]) -> None:
        self._checker, self._names = checker, frozenset(names)

    def find_spec(
        self, fullname: str, path: Any = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self._names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: types.ModuleType) -> None:
        checker, name = self._checker, module.__name__
        checker.name(name)

        def resolve(attribute: str) -> Any:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            try:
                return checker.name(name, attribute)
            except NameError as error:
                raise AttributeError(str(error)) from None

        module.__getattr__ = resolve  # type: ignore[method-assign]


def start(exchange: Callable[[str], str], *, modules: Sequence[str], own: Sequence[str]) -> Checker:
    """Meet the candidate. From then on its modules can be imported here, and no others that are installed under their names."""
    checker = Checker(exchange, own)
    mine = {name.partition(".")[0] for name in own} | sys.stdlib_module_names
    names = [name for name in modules if name not in mine]
    for name in [name for name in sys.modules if name.partition(".")[0] in names]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Modules(checker, names))
    return checker


def run_module(checker: Checker, name: str) -> str:
    """Import a module whose statements are the tests; the report, as JSON."""
    report: dict[str, Any] = {"tests": 1, "passed": 0, "failures": []}
    try:
        importlib.import_module(name)
        report["passed"] = 1
    except PeerGone as gone:
        report["failures"] = [f"the code ended: {gone}"]
    except BaseException as error:  # noqa: BLE001 - the boundary: a test may raise anything
        report["failures"] = [_failing_line(error)]
    return json.dumps(report | {"could_not_cross": checker.could_not_cross})


def run_pytest(checker: Checker, file: str) -> str:
    """Run a file of tests with pytest; the report, as JSON."""
    import pytest

    counted = _Counted(checker)
    # Without the last pytest looks through the folders above, and where walls keep it from these it finds no test at all.
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={Path.cwd()}", f"--confcutdir={Path.cwd()}", file]
    code = pytest.main(options, plugins=[counted])
    report = {"tests": counted.tests, "passed": counted.passed if code == 0 else min(counted.passed, counted.tests - 1)}
    told = {"failures": counted.failures, "could_not_cross": checker.could_not_cross, "unclear": counted.unclear}
    return json.dumps(report | told)


class _Counted:
    """A plug-in that keeps what became of each test. Skipped and expected to fail is neither passed nor failed."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self.unclear = False
        """Whether a test failed that held an object of the code's own, or one that was raised here and not by the code."""
        self.tests = self.passed = 0
        self.failures: list[str] = []

    def pytest_runtest_logstart(self) -> None:
        self._checker.objects_crossed = False

    def pytest_runtest_makereport(self, call: Any) -> None:
        error = call.excinfo and call.excinfo.value
        if isinstance(error, Exception) and not isinstance(error, AssertionError) and not hasattr(error, "raised_there"):
            self.unclear = True

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.unclear = self.unclear or self._checker.objects_crossed
            self.failures.append(f"{report.nodeid}: {_crash(report)}")
        if report.when == "call" and not report.skipped:
            self.tests += 1
            self.passed += report.passed

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.tests += 1
            self.unclear = True
            self.failures.append(f"{report.nodeid}: {str(report.longrepr)[-500:]}")


def _crash(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longrepr)[:500]


def _failing_line(error: BaseException) -> str:
    """The line of the tests that failed, and why."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "_journeyman" not in frame.filename]
    line = frames[-1].line if frames else ""
    return f"{line}: {type(error).__name__}: {error}"[:500].removesuffix(": ")
