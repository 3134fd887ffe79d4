"""Code quality: ruff, radon and bandit on the files that changed. They read the code; nothing is imported or run.

    lint            = max(0, 1 - (5 · errors + others) / statements)     the formula of pylint's score, with ruff's findings
    complexity      = per function 1 up to a cyclomatic complexity of 5, falling to 0 at 30, weighted by lines
    maintainability = min(1, MI / 49.7), weighted by lines             85 on the original scale of 171 is "highly maintainable"
    security        = max(0, 1 - Σ severity · confidence)
    quality         = security · mean(lint, complexity, maintainability)

The limits of complexity are radon's ranks A and D; of the maintainability index, Coleman et al., Using Metrics to Evaluate
Software System Maintainability (1994). Comments do not raise it here, since padding is cheap. `# noqa` and `# nosec` are not
obeyed, and no settings are read from the files: an agent must not grade itself. A file that is no Python makes the whole 0.
"""

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from journeyman.errors import JourneymanError, MissingExtra
from journeyman.rewards.base import RewardResult
from journeyman.rewards.development.work import Work, functions, lines_of, parsed, unknown

RULES = ("E4", "E7", "E9", "F", "B", "PLE", "RET", "SIM")
"""What ruff looks for: its own defaults, likely bugs, errors, needless complication. Layout is a formatter's business."""
_ERRORS = ("F5", "F6", "F7", "F82", "E9", "PLE", "invalid-syntax")
"""Findings that are bugs: bad formats and literals, misplaced statements, undefined names. They count five times."""
_NOT_A_RISK = "B101"
"""bandit's rule against `assert`, which is what tests are made of."""
_SEVERITY = {"HIGH": 1.0, "MEDIUM": 0.25, "LOW": 0.05}
_CONFIDENCE = {"HIGH": 1.0, "MEDIUM": 0.6, "LOW": 0.3}
_SIMPLE, _HOPELESS = 5, 30
_MAINTAINABLE = 49.7
_SECONDS = 60


class Finding(NamedTuple):
    """What a tool found, where."""

    where: str
    """`path:line`."""
    rule: str
    what: str
    weight: float


@dataclass(frozen=True, slots=True)
class CodeQuality:
    """How well the changed files are written: lint, complexity, maintainability and security."""

    name: str = "code_quality"

    def compute(self, work: Work) -> RewardResult:
        """Unknown when no Python file changed.

        Raises:
            MissingExtra: ruff, radon or bandit is not installed.
            JourneymanError: One of them did not answer.
        """
        changed = work.changed
        if not changed:
            return unknown("no Python file changed")
        trees, faults = parsed(changed)
        if faults:
            path, fault = next(iter(faults.items()))
            broken = [f"{path}: {fault}" for path, fault in faults.items()]
            return RewardResult(
                score=0.0, details={"evidence": f"{path} is not Python: {fault}", "syntax": broken, "critical": broken}
            )
        if not any(tree.body for tree in trees.values()):
            return unknown("the files that changed are empty")
        return _judged(changed, trees)


def _judged(changed: Mapping[str, str], trees: Mapping[str, ast.Module]) -> RewardResult:
    lint_findings, risks = _tools(changed)
    statements = sum(isinstance(node, ast.stmt) for tree in trees.values() for node in ast.walk(tree))
    parts = {
        "lint": max(0.0, 1 - sum(finding.weight for finding in lint_findings) / statements),
        "complexity": _complexity(trees),
        "maintainability": _maintainability(changed),
    }
    security = max(0.0, 1 - sum(risk.weight for risk in risks))
    known = [value for value in parts.values() if value is not None]
    score = security * sum(known) / len(known)
    worst = sorted([*risks, *lint_findings], key=lambda finding: -finding.weight)
    first = f"; first {worst[0].where}: {worst[0].rule} {worst[0].what}" if worst else ""
    told = f"{len(lint_findings)} findings by ruff and {len(risks)} risks by bandit in {statements} statements{first}"
    critical = [f"{risk.where}: {risk.rule} {risk.what}" for risk in risks if risk.weight >= _SEVERITY["HIGH"]]
    findings = [finding._asdict() for finding in worst[:20]]
    return RewardResult(
        score=score, details={"evidence": told, **parts, "security": security, "findings": findings, "critical": critical}
    )


def _complexity(trees: Mapping[str, ast.Module]) -> float | None:
    """`None` when there is no function."""
    from radon.visitors import ComplexityVisitor

    total, lines = 0.0, 0
    for tree in trees.values():
        for _, function in functions(tree):
            visitor = ComplexityVisitor.from_ast(function)
            found = visitor.functions[0].complexity
            total += lines_of(function) * min(1.0, max(0.0, (_HOPELESS - found) / (_HOPELESS - _SIMPLE)))
            lines += lines_of(function)
    return total / lines if lines else None


def _maintainability(files: Mapping[str, str]) -> float | None:
    from radon.metrics import mi_compute, mi_parameters

    total, lines = 0.0, 0
    for text in files.values():
        volume, complexity, source_lines, _ = mi_parameters(text)
        total += source_lines * min(1.0, mi_compute(volume, complexity, source_lines, 0) / _MAINTAINABLE)
        lines += source_lines
    return total / lines if lines else None


def _tools(files: Mapping[str, str]) -> tuple[list[Finding], list[Finding]]:
    """What ruff and bandit find. They see numbered copies: a name must not lead elsewhere, or mean something to a tool."""
    for library in ("ruff", "radon", "bandit"):
        if find_spec(library) is None:
            raise MissingExtra(f"{library} is missing: pip install 'journeyman[code]'")
    with tempfile.TemporaryDirectory(prefix="journeyman-quality-") as folder:
        copies = {Path(folder) / f"f{number:05}.py": path for number, path in enumerate(files)}
        for copy, path in copies.items():
            copy.write_text(files[path], encoding="utf-8", errors="backslashreplace")
        names = {copy.name: path for copy, path in copies.items()}
        return _ruff(sorted(names), Path(folder), names), _bandit(sorted(names), Path(folder), names)


def _ruff(copies: Sequence[str], folder: Path, names: Mapping[str, str]) -> list[Finding]:
    options = ("check", "--isolated", "--no-cache", "--ignore-noqa", "--exit-zero", "--output-format", "json")
    rows = _run("ruff", [*options, "--select", ",".join(RULES), "--target-version", "py311", *copies], folder)
    return [
        Finding(
            f"{names[Path(row['filename']).name]}:{row['location']['row']}",
            row["code"] or "",
            row["message"],
            5.0 if str(row["code"]).startswith(_ERRORS) else 1.0,
        )
        for row in rows
    ]


def _bandit(copies: Sequence[str], folder: Path, names: Mapping[str, str]) -> list[Finding]:
    options = ("--quiet", "--ignore-nosec", "--exit-zero", "--format", "json", "--skip", _NOT_A_RISK)
    found = _run("bandit", [*options, *copies], folder)
    return [
        Finding(
            f"{names[Path(row['filename']).name]}:{row['line_number']}",
            row["test_id"],
            row["issue_text"],
            _SEVERITY.get(row["issue_severity"], 0.0) * _CONFIDENCE.get(row["issue_confidence"], 0.0),
        )
        for row in found["results"]
    ]


def _run(tool: str, arguments: Sequence[str], folder: Path) -> Any:
    """What the tool prints, from JSON."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    # -P keeps the folder out of the path: a file of the agent's must not be imported in the tool's place.
    command = [sys.executable, "-P", "-m", tool, *arguments]
    try:
        run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=True)
        return json.loads(run.stdout)
    except (subprocess.SubprocessError, json.JSONDecodeError) as error:
        said = str(getattr(error, "stderr", "") or error).strip()[-300:]
        raise JourneymanError(f"{tool} did not judge the code: {said}; check that `{tool} --version` works") from error
