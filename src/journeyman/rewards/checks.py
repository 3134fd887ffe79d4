"""Checks that must pass: shell commands and files of tests, run on what an agent wrote.

They run on a fresh copy that the agent's code has never touched, with the check's own files laid over it.
"""

import ast
import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from journeyman.errors import SandboxError
from journeyman.sandbox.base import Limits, Outcome, Program, Sandbox

LIMITS = Limits(cpu_seconds=20.0, wall_seconds=30.0)
"""For one check."""

_SUMMARY = re.compile(r"(\d+) (passed|failed|error|errors|skipped|xfailed|xpassed|deselected)")


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
    """`None` when it could not be told, because the sandbox failed."""
    tests: int | None
    """How many tests there are; `None` for a shell check, and where they could not be counted."""
    tests_passed: int | None
    evidence: str
    """One sentence, and the end of what was printed where it failed. A reflector reads this."""
    outcome: Outcome | None
    """Of the run itself; `None` when the sandbox failed."""


async def run_checks(
    sandbox: Sandbox,
    checks: Sequence[Check],
    *,
    files: Mapping[str, bytes],
    setup: str = "",
    limits: Limits = LIMITS,
) -> tuple[CheckResult, ...]:
    """Run every check on a copy of its own of `files`, at once; the results in the order of the checks.

    Args:
        files: What the agent wrote, by relative path.
        setup: A shell script by the task's author that is run in each copy before its check.
    """
    return tuple(await asyncio.gather(*(_run(sandbox, check, files, setup, limits) for check in checks)))


async def _run(sandbox: Sandbox, check: Check, files: Mapping[str, bytes], setup: str, limits: Limits) -> CheckResult:
    try:
        outcome = await sandbox.run(_program(check, files, setup, limits))
    except SandboxError as error:
        return CheckResult(check=check, passed=None, tests=None, tests_passed=None, evidence=str(error), outcome=None)
    tests, good = (None, None) if check.kind == "shell" else _counted(check.text, outcome)
    passed = outcome.ok and tests == good and tests != 0
    return CheckResult(
        check=check, passed=passed, tests=tests, tests_passed=good, evidence=_evidence(check, passed, outcome), outcome=outcome
    )


def _program(check: Check, files: Mapping[str, bytes], setup: str, limits: Limits) -> Program:
    if check.kind == "shell":
        return Program(language="shell", code=f"{setup}\n{check.text}", files=files, limits=limits)
    laid = {**files, "test_check.py": check.text.encode()}
    options = "-q -p no:cacheprovider --noconftest -c /dev/null --rootdir=. test_check.py"
    return Program(language="shell", code=f"{setup}\npython -m pytest {options}", files=laid, limits=limits)


def _counted(text: str, outcome: Outcome) -> tuple[int | None, int | None]:
    """How many tests ran and how many passed, by pytest's own summary, and at least as many as stand in the file."""
    counts = {word: int(number) for number, word in _SUMMARY.findall(outcome.stdout.rstrip().rpartition("\n")[2])}
    if not counts:
        return None, None
    written = sum(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
        for node in ast.walk(ast.parse(text))
    )
    return max(written, sum(counts.values())), counts.get("passed", 0)


def _evidence(check: Check, passed: bool, outcome: Outcome) -> str:
    if passed:
        return f"{check.name}: passed"
    why = f"{outcome.limit} limit" if outcome.limit else outcome.signal or f"exit code {outcome.exit_code}"
    return f"{check.name}: failed ({why})\n{(outcome.stdout + outcome.stderr)[-2000:].strip()}".rstrip()
