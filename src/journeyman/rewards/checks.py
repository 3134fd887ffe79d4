"""Checks that must pass: shell commands and files of tests, run on what an agent wrote.

Tests run where the agent's code is not: it lives in another sandbox and is asked for values. Where tests need its files, or
hand it something that cannot leave their process, both run in one, and the tests must also be able to fail. Every check has a
fresh copy, with the check's own files laid over it.
"""

import ast
import asyncio
import copy
import json
import random
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from journeyman.core.errors import InputError, SandboxError
from journeyman.rewards.unit_tests import (
    PACKAGE,
    TIME,
    CodeUnderTest,
    Tests,
    UnitTestVerdict,
    carried,
    ended_by,
    examine,
    prepared,
)
from journeyman.sandbox.base import Limits, Program, RunOutcome, Sandbox

# Makes tests that must fail of tests that must pass: what passes both has not been tested.
#
# An assertion that compares with a literal gets another literal, so that not even who reads the tests knows which of two
# versions
# is the real one. Where something else is expected, it is mostly asked to equal that and more: an object that equals everything
# still does. Others are turned round.

_RARE = ("EOFError", "BufferError", "StopAsyncIteration")
"""Errors that hardly any code raises and hardly any test expects."""
_MOSTLY = 0.75
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


def names_of_tests(text: str) -> tuple[str, ...]:
    """The names of the tests in a file, `Class.name` for methods, in order.

    Raises:
        SyntaxError: It is no Python.
    """
    return tuple(name for name, _ in _tests(ast.parse(text)))


def sabotaged(text: str, names: Collection[str], chance: random.Random) -> tuple[str, frozenset[str]]:
    """The file with other expectations in the tests of these names, and those of them that have any to change.

    Comments and spacing go, so that a version with no change looks like the others.
    """
    tree = ast.parse(text)
    changed = set()
    for name, function in _tests(tree):
        if name in names:
            spoiler = _Spoiler(chance)
            function.body = [spoiler.visit(statement) for statement in function.body]
            if spoiler.changes:
                changed.add(name)
    return ast.unparse(ast.fix_missing_locations(tree)), frozenset(changed)


def _tests(tree: ast.Module) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    found: list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            found.append((node.name, node))
        elif isinstance(node, ast.ClassDef):
            found += [
                (f"{node.name}.{inner.name}", inner)
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and inner.name.startswith("test")
            ]
    return found


class _Spoiler(ast.NodeTransformer):
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.changes = 0
        # Alike in all of a test: one assertion that fails hides what the others would have shown.
        self._asks_for_more = chance.random() < _MOSTLY

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.changes += 1
        return ast.copy_location(ast.Assert(test=self._turned(node.test), msg=None), node)

    def visit_With(self, node: ast.With) -> ast.AST:
        for item in node.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and _last_name(call.func) == "raises" and call.args:
                others = [name for name in _RARE if name != _last_name(call.args[0])]
                call.args[0] = ast.Name(self.chance.choice(others), ast.Load())
                self.changes += 1
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """The assertions of `unittest`."""
        turned = {"assertEqual": "assertNotEqual", "assertTrue": "assertFalse", "assertFalse": "assertTrue"}
        name = _last_name(node.func)
        if name == "assertEqual" and len(node.args) == 2:
            for place in (1, 0):
                if (other := self._other(node.args[place])) is not None:
                    node.args[place] = other
                    self.changes += 1
                    return self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and name in turned:
            node.func.attr = turned[name]
            self.changes += 1
        return self.generic_visit(node)

    def _turned(self, test: ast.expr) -> ast.expr:
        if not (isinstance(test, ast.Compare) and len(test.ops) == 1):
            return ast.UnaryOp(ast.Not(), test)
        if isinstance(test.ops[0], ast.Eq | ast.Is) and (other := self._with_another(test)):
            return other
        if isinstance(test.ops[0], ast.Lt | ast.LtE) and (far := self._far(test)):
            return far
        if isinstance(test.ops[0], ast.Eq) and self._asks_for_more:
            return self._more(test)
        return ast.Compare(test.left, [_TURNED[type(test.ops[0])]()], test.comparators)

    def _with_another(self, test: ast.Compare) -> ast.Compare | None:
        """`f(x) == 3` or `3 == f(x)` with another literal."""
        if (other := self._other(test.comparators[0])) is not None:
            return ast.Compare(test.left, test.ops, [other])
        if (other := self._other(test.left)) is not None:
            return ast.Compare(other, test.ops, test.comparators)
        return None

    def _far(self, test: ast.Compare) -> ast.Compare | None:
        """`abs(f(x) - 3.14) < 0.01` with a number that is further away than that."""
        match test:
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(left=left, op=ast.Sub(), right=right)]),
                comparators=[ast.Constant(value=int() | float() as margin)],
            ):
                value = next((number for side in (right, left) if (number := _number(side)) is not None), None)
                if value is None:
                    return None
                far = ast.Constant(value + self.chance.choice((-1, 1)) * (2 + self.chance.randrange(8)) * (1 + 2 * margin))
                sides = (left, far) if _number(right) is not None else (far, right)
                call = ast.Call(ast.Name("abs", ast.Load()), [ast.BinOp(sides[0], ast.Sub(), sides[1])], [])
                return ast.Compare(call, test.ops, test.comparators)
        return None

    def _more(self, test: ast.Compare) -> ast.Compare:
        """`f(x) == expected` as `f(x) == (expected, None)`, on the side where no call is: the other is the code's."""
        left, right = test.left, test.comparators[0]
        calls = [any(isinstance(node, ast.Call) for node in ast.walk(side)) for side in (left, right)]
        if (calls[0] and not calls[1]) or (calls[0] == calls[1] and self.chance.random() < 0.5):
            return ast.Compare(left, test.ops, [_and_more(right)])
        return ast.Compare(_and_more(left), test.ops, [right])

    def _other(self, expected: ast.expr) -> ast.expr | None:
        """The same expression with another value, where one can be thought of."""
        places = [node for node in ast.walk(expected) if isinstance(node, ast.Constant) and _variants(node.value)]
        if not places or not _is_literal(expected):
            return None
        made = copy.deepcopy(expected)
        again = [node for node in ast.walk(made) if isinstance(node, ast.Constant) and _variants(node.value)]
        place = self.chance.choice(again)
        place.value = self.chance.choice(_variants(place.value))
        # {1: 1, 2: 1} with another 1 may be the same again.
        return made if ast.literal_eval(made) != ast.literal_eval(expected) else None


def _and_more(node: ast.expr) -> ast.expr:
    return ast.Tuple([node, ast.Constant(None)], ast.Load())


def _number(node: ast.expr) -> float | None:
    if not _is_literal(node):
        return None
    value = ast.literal_eval(node)
    return value if isinstance(value, int | float) else None


def _variants(value: Any) -> list[Any]:
    match value:
        case bool():
            return [not value]
        case int():
            return [value + step for step in (-3, -2, -1, 1, 2, 3)]
        case float():
            return [value + step for step in (-2.5, -1.0, 1.0, 2.5)]
        case str():
            return [value + "s", value[1:], value.swapcase() + "a"] if value else ["a", "x"]
    return []


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return True


def _last_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


# Tests in one process with the code they test, where it cannot be otherwise, and believed only as far as they can also fail.
#
# The same tests are run several times, each in a sandbox of its own: once as they are, and a few times with other expectations
# in
# some of them, drawn by lot. Code that passes tests is to fail exactly those that expect something else. Whatever makes all
# tests
# pass, or fakes their results, cannot know which these are.

ROUNDS = 3
"""Runs with other expectations."""


@dataclass(frozen=True, slots=True)
class _Run:
    outcome: RunOutcome
    report: Mapping[str, Any] | None
    """`None` unless there was exactly one."""

    def became(self, name: str) -> str:
        """What became of a test, or of all tests that were made of it."""
        reports = (self.report or {}).get("became", {})
        every = {what for node, what in reports.items() if _name(node) == name}
        return "failed" if "failed" in every else every.pop() if len(every) == 1 else "unclear"


async def examine_together(
    sandbox: Sandbox, text: str, candidate: CodeUnderTest, *, file: str, chance: random.Random
) -> UnitTestVerdict:
    """Run a file of tests, written by the task's author, in the folder of the candidate's files.

    Args:
        chance: Draws which tests expect something else. The candidate must not be able to guess it.
    """
    names = names_of_tests(text)

    async def run(version: str) -> _Run:
        return await _run_one_process(sandbox, version, file, candidate)

    try:
        real = await run(sabotaged(text, (), chance)[0])
        verdict = _as_it_is(real, names)
        if not verdict.passed:
            return verdict
        versions = [_drawn(text, names, chance) for _ in range(ROUNDS)]
        if not any(changed for _, changed in versions):
            return UnitTestVerdict(
                passed=None, evidence="the tests assert nothing that could be turned round, so passing says nothing"
            )
        others = await asyncio.gather(*(run(version) for version, _ in versions))
    except SandboxError as error:
        return UnitTestVerdict(passed=None, evidence=str(error))
    for other, (_, changed) in zip(others, versions, strict=True):
        if any(other.became(name) != ("failed" if name in changed else "passed") for name in names):
            return UnitTestVerdict(
                passed=False,
                evidence="the tests do not fail where they expect something else, so their passing is not believed",
                tests=verdict.tests,
                tests_passed=0,
                outcome=real.outcome,
            )
    return verdict


def _drawn(text: str, names: tuple[str, ...], chance: random.Random) -> tuple[str, frozenset[str]]:
    """A version in which about half of the tests expect something else, and at least one."""
    chosen = {name for name in names if chance.random() < 0.5} or {chance.choice(names)}
    version, changed = sabotaged(text, chosen, chance)
    return (version, changed) if changed else sabotaged(text, names, chance)


def _as_it_is(run: _Run, names: tuple[str, ...]) -> UnitTestVerdict:
    outcome = run.outcome
    became = [run.became(name) for name in names]
    good = became.count("passed")
    passed = outcome.ok and run.report is not None and run.report["code"] == 0 and bool(names) and good == len(names)
    if passed:
        evidence = f"{good} of {good} passed in one process with the code, and failed where they expected something else"
    elif run.report is None or not outcome.ok:
        evidence = f"the tests did not come to their end: {ended_by(outcome)}\n{outcome.stderr[-500:]}".strip()
    else:
        evidence = "; ".join(run.report["why"][:5]) or f"{good} of {len(names)} passed"
    return UnitTestVerdict(
        passed=passed,
        evidence=evidence,
        tests=len(names),
        tests_passed=good,
        timed_out=outcome.limit in TIME,
        outcome=outcome,
    )


async def _run_one_process(sandbox: Sandbox, text: str, file: str, candidate: CodeUnderTest) -> _Run:
    told: list[str] = []

    async def tell(arguments: Mapping[str, Any]) -> None:
        told.append(str(arguments["0"])[: 1 << 20])

    code = (
        f"from {PACKAGE} import together\n"
        + prepared(candidate.setup)
        + f"together.run(lambda text: tools.report(text), {file!r})\n"
    )
    laid = {**candidate.files, file: text.encode(), **carried("together")}
    outcome = await sandbox.run(Program(code=code, files=laid, limits=candidate.limits, warm="pytest"), tools={"report": tell})
    return _Run(outcome, _read(told))


def _read(told: list[str]) -> Mapping[str, Any] | None:
    """The one report. It comes from where the candidate is, and may be anything."""
    try:
        (text,) = told
        found = json.loads(text)
        became = {str(node): str(what) for node, what in found["became"].items()}
        return {"became": became, "why": [str(line) for line in found["why"]], "code": int(found["code"])}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _name(node: str) -> str:
    """`file::Class::test[case]` is `Class.test`."""
    return ".".join(re.sub(r"\[.*$", "", node, flags=re.DOTALL).split("::")[1:])


LIMITS = Limits(cpu_seconds=20.0, wall_seconds=30.0)
"""For one check."""

NOT_FOUND = 127
"""What a shell ends with where a command is not installed."""
_FILE = "test_check.py"
_NEEDS_FILES = frozenset(
    {
        "open",
        "Path",
        "pathlib",
        "tmp_path",
        "tmpdir",
        "tmp_path_factory",
        "monkeypatch",
        "mocker",
        "mock",
        "patch",
        "capfd",
        "subprocess",
        "importlib",
        "runpy",
        "inspect",
        "os",
        "shutil",
        "glob",
        "sqlite3",
        "sys",
        "reload",
        "threading",
        "caplog",
    }
)
"""Names in tests that speak of more than values: of files, processes, or the inside of the code."""
_TAKES_OVER = (
    "sitecustomize.py",
    "usercustomize.py",
    "conftest.py",
    "pytest.py",
    "unittest.py",
    "_pytest",
    "pytest",
    "unittest",
)
"""What changes, from the working folder, how programs in it run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that must hold of what an agent wrote. Written by the task's author, never by the agent."""

    name: str
    kind: Literal["shell", "pytest"]
    text: str
    """A shell script whose exit code 0 is a pass, or a file of tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What a check found."""

    check: Check
    passed: bool | None
    """`None` when it could not be told."""
    tests: int | None
    """How many tests there are; `None` for a shell check, and where they could not be counted."""
    tests_passed: int | None
    evidence: str
    """What was found and in which way. A reflector reads this."""
    outcome: RunOutcome | None
    """Of a run in which the agent's code was; `None` when the sandbox failed, or the code was ended after its last answer."""


async def run_checks(
    sandbox: Sandbox,
    checks: Sequence[Check],
    *,
    files: Mapping[str, bytes],
    setup: str = "",
    limits: Limits = LIMITS,
) -> tuple[CheckResult, ...]:
    """Run every check on a copy of its own of `files`, all at once; the results in the order of the checks.

    Args:
        files: What the agent wrote, by relative path.
        setup: A shell script by the task's author that is run in each copy before its check.
    """
    kept = {path: data for path, data in files.items() if path.partition("/")[0] not in _TAKES_OVER}
    candidate = CodeUnderTest(files=kept, limits=limits, setup=setup)
    return tuple(await asyncio.gather(*(_run(sandbox, check, candidate) for check in checks)))


async def _run(sandbox: Sandbox, check: Check, candidate: CodeUnderTest) -> CheckResult:
    try:
        verdict = await (_shell if check.kind == "shell" else _pytest)(sandbox, check.text, candidate)
    except InputError as error:
        # All that a sandbox can find wrong with a program here is what the agent called its files.
        verdict = UnitTestVerdict(passed=False, evidence=str(error))
    word = {True: "passed", False: "failed", None: "could not be told"}[verdict.passed]
    return CheckResult(
        check=check,
        passed=verdict.passed,
        tests=verdict.tests,
        tests_passed=verdict.tests_passed,
        evidence=f"{check.name}: {word}: {verdict.evidence}",
        outcome=verdict.outcome,
    )


async def _pytest(sandbox: Sandbox, text: str, candidate: CodeUnderTest) -> UnitTestVerdict:
    try:
        names = names_of_tests(text)
        apart = not _NEEDS_FILES & _names(ast.parse(text))
    except SyntaxError as error:
        return UnitTestVerdict(passed=None, evidence=f"the tests are no Python: {error}")
    if not names:
        return UnitTestVerdict(passed=None, evidence="the file holds no tests")
    if apart:
        verdict = await examine(sandbox, Tests(file=_FILE, files={_FILE: text.encode()}, runner="pytest"), candidate)
        if not verdict.needs_one_process:
            return verdict
    # The code must not be able to know what is drawn.
    return await examine_together(sandbox, text, candidate, file=_FILE, chance=random.SystemRandom())


async def _shell(sandbox: Sandbox, text: str, candidate: CodeUnderTest) -> UnitTestVerdict:
    # In braces it is read whole before anything runs: the code cannot write the rest of it anew.
    script = f"{{\n{candidate.setup}\n(\n{text}\n)\nexit $?\n}}\n"
    try:
        outcome = await sandbox.run(Program(language="shell", code=script, files=candidate.files, limits=candidate.limits))
    except SandboxError as error:
        return UnitTestVerdict(passed=None, evidence=str(error))
    printed = f"{outcome.stdout}{outcome.stderr}"[-2000:].strip()
    if outcome.exit_code == NOT_FOUND and (missing := await _missing(sandbox, text, candidate, outcome.stderr)):
        return UnitTestVerdict(passed=None, evidence=f"{missing}, so it says nothing about the code", outcome=outcome)
    evidence = "exit code 0" if outcome.ok else f"{ended_by(outcome)}\n{printed}".strip()
    return UnitTestVerdict(passed=outcome.ok, evidence=evidence, outcome=outcome)


async def _missing(sandbox: Sandbox, text: str, candidate: CodeUnderTest, stderr: str) -> str:
    """Which command of the check is not installed where it runs; nothing where that is not why it ended so.

    The code may end with 127 as well and print what it likes. So only a word of the check counts, and it is looked for where no
    file of the agent's is. A command with a path is one that the agent should have written.
    """
    for line in _NOT_INSTALLED.finditer(stderr):
        name = line[1]
        if "/" not in name and re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w./-])", text):
            look = f"{candidate.setup}\ncommand -v {shlex.quote(name)} || exit {NOT_FOUND}\n"
            try:
                found = await sandbox.run(Program(language="shell", code=look, limits=candidate.limits))
            except SandboxError as error:
                return str(error)
            if found.exit_code == NOT_FOUND:
                return f"{name} is not installed where the check runs"
    return ""


_NOT_INSTALLED = re.compile(r": ([^\s:]+): (?:command )?not found")


def _names(tree: ast.AST) -> set[str]:
    """Everything that is named in it: variables, attributes, modules and parameters."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name):
                found.add(name)
            case ast.alias(name=name):
                found.update(name.split("."))
            case ast.ImportFrom(module=str(name)):
                found.update(name.split("."))
    return found
