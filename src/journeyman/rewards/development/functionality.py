"""Functionality: what the checks found, how much of the code they reached, and how it does on edge cases.

    functionality = 0.6 · passed + 0.2 · coverage + 0.2 · edge cases passed       over those that are known

Without the share of passed checks nothing is told: coverage alone says that code ran, not that it is right.
That no test passed is a critical fault.
"""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from journeyman.rewards.base import RewardResult
from journeyman.rewards.development.work import Coverage, DevelopmentWork, parsed, share, unknown
from journeyman.sandbox.base import Limits, Program, Sandbox

PARTS = {"passed": 0.6, "coverage": 0.2, "edge_cases": 0.2}


@dataclass(frozen=True, slots=True)
class Functionality:
    """Whether it does what was asked: tests passed, coverage and edge cases."""

    name: str = "functionality"

    def compute(self, work: DevelopmentWork) -> RewardResult:
        if work.passed is None:
            lost = sum(check.passed is None for check in work.checks)
            return unknown(f"{lost} of {len(work.checks)} checks could not be run" if lost else "no checks were run")
        values = {
            "passed": work.passed,
            "coverage": work.coverage.share if work.coverage else None,
            "edge_cases": share(tuple(check for check in work.checks if check.edge)),
        }
        known = {part: value for part, value in values.items() if value is not None}
        score = sum(PARTS[part] * value for part, value in known.items()) / sum(PARTS[part] for part in known)
        failed = [check.name for check in work.checks if not check.passed]
        told = f"{len(work.checks) - len(failed)} of {len(work.checks)} checks passed"
        evidence = f"{told}; failed: {', '.join(failed[:5])}" if failed else told
        critical = ["no check passed"] if not work.passed else []
        return RewardResult(score=score, details={"evidence": evidence, **values, "failed": failed, "critical": critical})


_REPORT = "journeyman-coverage.json"
_DRIVER = """\
import json, os, sys
import coverage
sources = json.loads(sys.argv[1])
meter = coverage.Coverage(data_file=None, include=[os.path.abspath(name) for name in sources], config_file=False)
meter.start()
try:
    import pytest
    pytest.main(["-q", "-p", "no:cacheprovider", *json.loads(sys.argv[2])])
finally:
    meter.stop()
    data = meter.get_data()
    lines = {name: sorted(data.lines(os.path.abspath(name)) or []) for name in sources}
    with open(sys.argv[3], "w") as file:
        json.dump(lines, file)
"""


async def measure_coverage(
    sandbox: Sandbox, files: Mapping[str, str], tests: Mapping[str, str], *, limits: Limits | None = None
) -> Coverage | None:
    """Run tests (pytest files by path) under coverage.py in the sandbox; which statements of `files` they executed.

    `None` when the run ended without a report. The report is written by the process that runs the code, so code that sets out
    to forge it can: coverage is a fifth of the component, and never decides anything alone.

    Raises:
        SandboxError: The sandbox itself failed.
    """
    statements = {path: spans for path, spans in _statements(files).items() if path not in tests}
    everything = {path: text.encode(errors="backslashreplace") for path, text in {**files, **tests}.items()}
    program = Program(
        code=_DRIVER,
        files=everything,
        arguments=(json.dumps(sorted(statements)), json.dumps(sorted(tests)), _REPORT),
        limits=limits or Limits(),
        collect=(_REPORT,),
    )
    report = (await sandbox.run(program)).files.get(_REPORT)
    executed = _executed(report) if report is not None else None
    if executed is None:
        return None
    met = sum(bool(span & executed.get(path, frozenset())) for path, spans in statements.items() for span in spans)
    return Coverage(executed=met, statements=sum(map(len, statements.values())))


def _executed(report: bytes) -> dict[str, frozenset[int]] | None:
    try:
        found = json.loads(report)
        return {str(path): frozenset(int(line) for line in lines) for path, lines in found.items()}
    except (ValueError, TypeError, AttributeError):
        return None


def _statements(files: Mapping[str, str]) -> dict[str, list[frozenset[int]]]:
    """The lines of each statement of each Python file; of one with a body, the lines before that."""
    trees, _ = parsed({path: text for path, text in files.items() if PurePosixPath(path).suffix == ".py"})
    return {
        path: [_span(node) for node in ast.walk(tree) if isinstance(node, ast.stmt) and not _is_silent(node)]
        for path, tree in trees.items()
    }


def _span(node: ast.stmt) -> frozenset[int]:
    body = getattr(node, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno
    return frozenset(range(node.lineno, max(node.lineno, last or 0) + 1))


def _is_silent(node: ast.stmt) -> bool:
    """Whether it compiles to nothing that could be seen to run: a docstring, a declaration."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Global | ast.Nonlocal) or (isinstance(node, ast.AnnAssign) and node.value is None)
