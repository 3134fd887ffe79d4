"""Checks that must pass: shell commands and files of tests, run on what an agent wrote.

Tests run where the agent's code is not: it lives in another sandbox and is asked for values. Where tests need its files, or
hand it something that cannot leave their process, both run in one, and the tests must also be able to fail. Every check has a
fresh copy, with the check's own files laid over it.
"""

import ast
import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from journeyman.errors import InputError, SandboxError
from journeyman.rewards.one_process import examine_together
from journeyman.rewards.out_of_process import Candidate, Tests, Verdict, ended_by, examine
from journeyman.rewards.sabotage import names_of_tests
from journeyman.sandbox.base import Limits, Outcome, Program, Sandbox

LIMITS = Limits(cpu_seconds=20.0, wall_seconds=30.0)
"""For one check."""

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
    outcome: Outcome | None
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
    candidate = Candidate(files=kept, limits=limits, setup=setup)
    return tuple(await asyncio.gather(*(_run(sandbox, check, candidate) for check in checks)))


async def _run(sandbox: Sandbox, check: Check, candidate: Candidate) -> CheckResult:
    try:
        verdict = await (_shell if check.kind == "shell" else _pytest)(sandbox, check.text, candidate)
    except InputError as error:
        # All that a sandbox can find wrong with a program here is what the agent called its files.
        verdict = Verdict(passed=False, evidence=str(error))
    word = {True: "passed", False: "failed", None: "could not be told"}[verdict.passed]
    return CheckResult(
        check=check,
        passed=verdict.passed,
        tests=verdict.tests,
        tests_passed=verdict.tests_passed,
        evidence=f"{check.name}: {word}: {verdict.evidence}",
        outcome=verdict.outcome,
    )


async def _pytest(sandbox: Sandbox, text: str, candidate: Candidate) -> Verdict:
    try:
        names = names_of_tests(text)
        apart = not _NEEDS_FILES & _names(ast.parse(text))
    except SyntaxError as error:
        return Verdict(passed=None, evidence=f"the tests are no Python: {error}")
    if not names:
        return Verdict(passed=None, evidence="the file holds no tests")
    if apart:
        verdict = await examine(sandbox, Tests(file=_FILE, files={_FILE: text.encode()}, runner="pytest"), candidate)
        if not verdict.needs_one_process:
            return verdict
    # The code must not be able to know what is drawn.
    return await examine_together(sandbox, text, candidate, file=_FILE, chance=random.SystemRandom())


async def _shell(sandbox: Sandbox, text: str, candidate: Candidate) -> Verdict:
    # In braces it is read whole before anything runs: the code cannot write the rest of it anew.
    script = f"{{\n{candidate.setup}\n(\n{text}\n)\nexit $?\n}}\n"
    try:
        outcome = await sandbox.run(Program(language="shell", code=script, files=candidate.files, limits=candidate.limits))
    except SandboxError as error:
        return Verdict(passed=None, evidence=str(error))
    printed = f"{outcome.stdout}{outcome.stderr}"[-2000:].strip()
    evidence = "exit code 0" if outcome.ok else f"{ended_by(outcome)}\n{printed}".strip()
    return Verdict(passed=outcome.ok, evidence=evidence, outcome=outcome)


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
