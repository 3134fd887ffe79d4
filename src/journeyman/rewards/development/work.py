"""What an agent that develops software did: the one value that every component is given."""

import ast
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from journeyman.core.trace import Trace
from journeyman.rewards import base, blocks
from journeyman.rewards.base import RewardResult
from journeyman.rewards.checks import CheckResult
from journeyman.sandbox.base import RunOutcome

DEEPEST = 200
"""Levels of a syntax tree. What measures them calls itself for each, and radon gives up from about 300 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkCheckResult:
    """What one check found, run outside of the agent's reach."""

    name: str
    passed: bool | None
    """`None` when it could not be run."""
    edge: bool = False
    """Whether it tries an edge case: empty, huge, negative, malformed, at the limit."""
    tests: int = 1
    """How many tests are in it."""
    tests_passed: int = 0
    """Of these, in a check that did not pass as a whole."""
    evidence: str = ""
    """What was found."""


def checked(results: Iterable[CheckResult], edges: Container[str] = ()) -> tuple[WorkCheckResult, ...]:
    """The results of `checks.run_checks`; `edges` names those that try edge cases.

    A check that failed with all its tests passed was ended by something else, so none of them is believed.
    """
    return tuple(
        WorkCheckResult(
            name=result.check.name,
            passed=result.passed,
            edge=result.check.name in edges,
            tests=result.tests or 1,
            evidence=result.evidence,
            tests_passed=0 if result.tests_passed == result.tests else max(0, result.tests_passed or 0),
        )
        for result in results
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Which of the statements that changed the tests executed."""

    executed: int
    statements: int
    """How many there are, counted from the source and not by the run."""

    @property
    def share(self) -> float | None:
        return self.executed / self.statements if self.statements else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DevelopmentWork:
    """Evidence alone: what was recorded, written, checked and measured. What the agent says of itself is no part of it."""

    trace: Trace
    before: Mapping[str, str] = field(default_factory=dict)
    """The files as the agent found them, by relative path; empty for work from nothing."""
    after: Mapping[str, str] = field(default_factory=dict)
    """The files as it left them."""
    checks: tuple[WorkCheckResult, ...] = ()
    """What the checks found; empty when none were run."""
    coverage: Coverage | None = None
    outcomes: tuple[RunOutcome, ...] = ()
    """The runs in the sandbox that the attempt caused, in order."""
    earlier: tuple[str, ...] = ()
    """Sources of earlier solutions of the same task."""
    unaided: float | None = None
    """The share of the same tests passed without a playbook, where that was tried."""

    @property
    def changed(self) -> dict[str, str]:
        """The Python files that are new or not what they were."""
        return {
            path: text for path, text in sorted(self.after.items()) if path.endswith(".py") and self.before.get(path) != text
        }

    @property
    def passed(self) -> float | None:
        """The share of tests passed; `None` when there are none or a check could not be run: half a verdict is none."""
        return share(self.checks)


def share(checks: tuple[WorkCheckResult, ...]) -> float | None:
    """The share of tests that passed, or `None` when that cannot be told."""
    if not checks or any(check.passed is None for check in checks):
        return None
    good = sum(check.tests if check.passed else check.tests_passed for check in checks)
    return good / sum(check.tests for check in checks)


class Component(Protocol):
    """One aspect of the work.

    The details of its result hold "evidence", and under "critical" the faults that are penalised whatever the mean, if any.
    """

    @property
    def name(self) -> str: ...

    def compute(self, work: DevelopmentWork) -> RewardResult: ...


def unknown(why: str, **details: Any) -> RewardResult:
    """It could not be told."""
    return base.unknown(why, is_binary=False, **details)


def parsed(files: Mapping[str, str]) -> tuple[dict[str, ast.Module], dict[str, str]]:
    """Which of the files are Python, as trees, and for the others why not (`line 3: invalid syntax`)."""
    trees, faults = {}, {}
    for path, text in files.items():
        try:
            tree = blocks.parsed(text)
        except ValueError as error:
            faults[path] = str(error)
            continue
        if _deeper(tree, DEEPEST):
            faults[path] = f"nested deeper than {DEEPEST} levels"
        else:
            trees[path] = tree
    return trees, faults


def _deeper(tree: ast.AST, most: int) -> bool:
    level = [tree]
    for _ in range(most):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return bool(level)


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, Function]]:
    """Every function and method with its dotted name, nested ones too."""
    for node in ast.iter_child_nodes(tree):
        name = within
        if isinstance(node, Function | ast.ClassDef):
            name = f"{within}.{node.name}" if within else node.name
        if isinstance(node, Function):
            yield name, node
        yield from functions(node, name)


def lines_of(node: Function | ast.ClassDef) -> int:
    """From `def` or `class` to its last line; decorators are not counted."""
    return (node.end_lineno or node.lineno) - node.lineno + 1
