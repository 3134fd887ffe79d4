"""Architecture: does what changed keep to a profile of sizes and shapes?

    compliance = mean over changed files of ½ · (share of the file's own measures that comply)
                                          + ½ · (share of the measures of its functions and classes that comply)

A measure is one number of one changed file, class or function (its lines, its parameters, …). The halves keep many tiny
functions from hiding a huge file. Only what changed is judged, and what was over its limit before and did not grow is not held
against the one who came later.

Soft by default: compliance is a share, and multiplies the reward for functionality (see `Development`), since few files of even
good code comply in everything. `Architecture(soft=False)` gives 1 when everything complies and 0 otherwise.
"""

import ast
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from journeyman.core.errors import InputError, JourneymanError, MissingExtra
from journeyman.rewards.base import RewardResult
from journeyman.rewards.development.work import DevelopmentWork, Function, functions, lines_of, parsed, unknown

# A compliance profile: how large and how tangled code may be, in numbers that a team can set.


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplianceProfile:
    """The most of each thing that complies. `None` sets no limit. The defaults are the preset "V2"."""

    name: str = "V2"
    file_lines: int | None = 400
    critical_file_lines: int | None = 600
    """A file above this is a critical fault."""
    classes: int | None = 5
    """In one file, nested ones and enums included."""
    functions: int | None = 10
    """In one file, outside of classes and of other functions."""
    enums: int | None = 3
    """In one file."""
    function_lines: int | None = 30
    class_lines: int | None = 200
    parameters: int | None = 5
    """`self` and `cls` are not counted."""
    complexity: int | None = 10
    """Cyclomatic, of one function."""
    nesting: int | None = 3
    """Blocks within blocks within a function; `elif` is no deeper than `if`."""
    inheritance: int | None = 2
    """How many ancestors deep a class is, as far as its file shows. `object` is none."""
    forbidden_imports: tuple[str, ...] = ()
    """Modules that must not be imported, with all below them: `os.system` forbids just that."""


V2 = ComplianceProfile()
PRESETS = {"V2": V2}
_LIMITS = tuple(each.name for each in fields(ComplianceProfile) if each.name not in ("name", "forbidden_imports"))


def load(source: Path | str) -> ComplianceProfile:
    """The preset of that name, or the profile in a TOML or JSON file. What the file does not name stays as in the preset "V2".

    A limit of `false` in TOML, or `null` in JSON, sets none.

    Raises:
        InputError: It is neither, or not a profile. Names every fault.
    """
    if str(source) in PRESETS:
        return PRESETS[str(source)]
    path = Path(source)
    data = _data(path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: a profile is a table of limits, such as function_lines = 30")
    faults = [fault for name, value in data.items() if (fault := _fault(name, value))]
    if faults:
        raise InputError(f"{path} is not a compliance profile: {'; '.join(faults)}")
    values: dict[str, Any] = {name: None if value is False else value for name, value in data.items()}
    values["forbidden_imports"] = tuple(values.get("forbidden_imports", ()))
    return ComplianceProfile(**{"name": path.stem, **values})


def _data(path: Path) -> Any:
    try:
        text = path.read_text("utf-8")
        return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except FileNotFoundError:
        raise InputError(f"{path} is neither a file nor a preset; presets: {', '.join(PRESETS)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} could not be read: {error}") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: {error}; a profile is TOML, or JSON in a file called .json") from None


def _fault(name: str, value: Any) -> str | None:
    if name == "name":
        return None if isinstance(value, str) else "name must be a text"
    if name == "forbidden_imports":
        fine = isinstance(value, list) and all(isinstance(each, str) and each for each in value)
        return None if fine else "forbidden_imports must be a list of module names"
    if name not in _LIMITS:
        near = get_close_matches(name, _LIMITS, 1)
        return f"no limit is called {name!r}" + (f", do you mean {near[0]!r}?" if near else f"; limits: {', '.join(_LIMITS)}")
    if value is None or value is False or (isinstance(value, int) and value is not True and value >= 0):
        return None
    return f"{name} must be a whole number from 0 on, or false for no limit, not {value!r}"


def as_json(profile: ComplianceProfile) -> Mapping[str, Any]:
    """The profile as a JSON object that `load` reads."""
    return {each.name: getattr(profile, each.name) for each in fields(ComplianceProfile)}


# How large and how tangled Python code is, by its syntax tree alone.

_ENUMS = {"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag", "ReprEnum"}
_BLOCKS = ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try | ast.TryStar | ast.Match
_BRANCHES = ast.If | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler | ast.IfExp | ast.Assert | ast.match_case
_NEW_SCOPE = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


class CodeMeasure(NamedTuple):
    """One number that a profile may limit."""

    limit: str
    """The limit's name in `ComplianceProfile`."""
    where: str
    """`path`, or `path:line name`."""
    value: int
    unit: str
    """The function or class, dotted; empty for the file."""


def sources(text: str, tree: ast.Module) -> dict[str, str]:
    """What each unit is made of, without comments and positions: two that are equal were not changed."""
    classes = {node.name: ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return {"": text, **classes, **{name: ast.unparse(node) for name, node in functions(tree)}}


def of_file(path: str, text: str, tree: ast.Module) -> Iterator[CodeMeasure]:
    """Every measure of one file: its own, and those of its functions and classes."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    free = [node for node in ast.walk(tree) if isinstance(node, ast.If | ast.Try | ast.Module)]
    yield CodeMeasure("file_lines", path, len(text.splitlines()), "")
    yield CodeMeasure("classes", path, len(classes), "")
    yield CodeMeasure("enums", path, sum(bool(_ENUMS & set(_bases(node))) for node in classes), "")
    yield CodeMeasure("functions", path, sum(isinstance(each, Function) for node in free for each in _children(node)), "")
    for name, function in functions(tree):
        yield from _of_function(f"{path}:{function.lineno} {name}", name, function)
    bases = {each.name: _bases(each) for each in classes}
    for node in classes:
        where = f"{path}:{node.lineno} {node.name}"
        yield CodeMeasure("class_lines", where, lines_of(node), node.name)
        yield CodeMeasure("inheritance", where, _depth(node.name, bases), node.name)


def forbidden(path: str, tree: ast.Module, profile: ComplianceProfile) -> Iterator[tuple[str, str]]:
    """Where a forbidden module is imported, and which."""
    for node in ast.walk(tree):
        for name in _imported(node):
            for module in profile.forbidden_imports:
                if name == module or name.startswith(f"{module}."):
                    yield f"{path}:{getattr(node, 'lineno', 1)}", name


def _of_function(where: str, name: str, node: Function) -> Iterator[CodeMeasure]:
    yield CodeMeasure("function_lines", where, lines_of(node), name)
    yield CodeMeasure("parameters", where, _parameters(node, method="." in name), name)
    yield CodeMeasure("complexity", where, complexity(node), name)
    yield CodeMeasure("nesting", where, nesting(node.body), name)


def complexity(node: ast.AST) -> int:
    """McCabe's, of a function or of a module: one, and one more for each branch; nested functions count for themselves."""
    return 1 + sum(_weight(each) for each in _own(node))


def nesting(body: list[ast.stmt]) -> int:
    """The deepest block within a block."""
    return max((_nested(node) for node in body), default=0)


def _nested(node: ast.stmt) -> int:
    if not isinstance(node, _BLOCKS):
        return 0
    bodies = [getattr(part, "body", []) for part in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ()))]
    bodies.append(getattr(node, "finalbody", []))
    rest = getattr(node, "orelse", [])
    # `elif` is an If alone in the else of an If, and reads as one level.
    chained = _nested(rest[0]) if isinstance(node, ast.If) and len(rest) == 1 and isinstance(rest[0], ast.If) else 0
    deepest = max(nesting(body) for body in bodies)
    return max(1 + deepest, chained or 1 + nesting(rest))


def _weight(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return int(isinstance(node, _BRANCHES))


def _own(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _NEW_SCOPE):
            yield child
            yield from _own(child)


def _children(node: ast.If | ast.Try | ast.Module) -> Iterator[ast.stmt]:
    """The statements at the top of a file, those under `if` and `try` included, not those within classes and functions."""
    yield from node.body
    yield from getattr(node, "orelse", ())
    for handler in getattr(node, "handlers", ()):
        yield from handler.body


def _parameters(node: Function, *, method: bool) -> int:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    taken = bool(method and positional and positional[0].arg in ("self", "cls"))
    stars = (arguments.vararg is not None) + (arguments.kwarg is not None)
    return len(positional) + len(arguments.kwonlyargs) + stars - taken


def _bases(node: ast.ClassDef) -> list[str]:
    named = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return [ast.unparse(base).rpartition(".")[2] for base in named]


def _depth(name: str, bases: dict[str, list[str]], below: frozenset[str] = frozenset()) -> int:
    """Ancestors that are not in the file count as one: what they inherit is not shown."""
    parents = [base for base in bases.get(name, ()) if base not in ("object", "Protocol", "Generic")]
    met = below | {name}
    return max((1 if base in met else 1 + _depth(base, bases, met) for base in parents), default=0)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A measure over its limit."""

    where: str
    limit: str
    value: int | str
    allowed: int | str

    def __str__(self) -> str:
        return f"{self.where}: {self.limit} {self.value}, allowed {self.allowed}"


@dataclass(frozen=True, slots=True)
class Architecture:
    """How far the changed code keeps to a profile of sizes and shapes."""

    profile: ComplianceProfile = V2
    soft: bool = True
    name: str = "architecture"

    def compute(self, work: DevelopmentWork) -> RewardResult:
        """Unknown when no Python file changed. A file that is no Python complies with nothing."""
        changed = work.changed
        if not changed:
            return unknown("no Python file changed")
        trees, faults = parsed(changed)
        known, _ = parsed({path: work.before[path] for path in changed if path in work.before})
        good, whole, violations = 0.0, 2.0 * len(faults), []
        for path, tree in trees.items():
            earlier, same = _earlier(path, work, tree, known[path]) if path in known else ({}, set())
            here = [measure for measure in of_file(path, changed[path], tree) if measure.unit not in same]
            bad = [*_over(here, self.profile, earlier), *_imports(path, tree, self.profile, known.get(path))]
            files, units = _shares(here, bad)
            good, whole = good + files + units, whole + 2.0
            violations += bad
        broken = [f"{path}: {fault}" for path, fault in faults.items()]
        score = good / whole if self.soft else float(not violations and not broken)
        return RewardResult(score=score, is_binary=not self.soft, details=self._details(violations, broken, len(changed)))

    def _details(self, violations: list[Violation], broken: list[str], files: int) -> dict[str, object]:
        most = self.profile.critical_file_lines
        critical = [
            str(violation)
            for violation in violations
            if violation.limit == "forbidden_imports"
            or (violation.limit == "file_lines" and most is not None and int(violation.value) > most)
        ]
        found = [*broken, *map(str, violations)]
        first = f"; {found[0]}" if found else ""
        summary = f"{len(found)} violations of {self.profile.name} in {files} changed files{first}"
        return {"evidence": summary, "violations": found[:50], "critical": critical, "profile": self.profile.name}


_Earlier = dict[tuple[str, str], CodeMeasure]


def _earlier(path: str, work: DevelopmentWork, tree: ast.Module, before: ast.Module) -> tuple[_Earlier, set[str]]:
    """What was measured before, and which units are what they were."""
    measured = {(measure.limit, measure.unit): measure for measure in of_file(path, work.before[path], before)}
    old, new = sources(work.before[path], before), sources(work.after[path], tree)
    return measured, {unit for unit in old if new.get(unit) == old[unit]}


def _over(measures: list[CodeMeasure], profile: ComplianceProfile, earlier: _Earlier) -> list[Violation]:
    found = []
    for measure in measures:
        allowed = getattr(profile, measure.limit)
        before = earlier.get((measure.limit, measure.unit))
        if allowed is not None and measure.value > max(allowed, before.value if before else 0):
            found.append(Violation(where=measure.where, limit=measure.limit, value=measure.value, allowed=allowed))
    return found


def _imports(path: str, tree: ast.Module, profile: ComplianceProfile, before: ast.Module | None) -> list[Violation]:
    already = {name for _, name in forbidden(path, before, profile)} if before else set()
    return [
        Violation(where=where, limit="forbidden_imports", value=name, allowed="none")
        for where, name in forbidden(path, tree, profile)
        if name not in already
    ]


def _shares(measures: list[CodeMeasure], violations: list[Violation]) -> tuple[float, float]:
    """The share of a file's own measures that comply, its imports being one, and that of its functions' and classes'."""
    bad = {(violation.where, violation.limit) for violation in violations}
    of_files = [(measure.where, measure.limit) not in bad for measure in measures if not measure.unit]
    of_files.append(not any(violation.limit == "forbidden_imports" for violation in violations))
    of_units = [(measure.where, measure.limit) not in bad for measure in measures if measure.unit]
    return sum(of_files) / len(of_files), sum(of_units) / len(of_units) if of_units else 1.0


def complies(text: str, profile: ComplianceProfile = V2) -> bool:
    """Whether a whole file keeps to a profile in everything. Not Python complies with nothing."""
    trees, _ = parsed({"file.py": text})
    if not trees:
        return False
    tree: Mapping[str, ast.Module] = trees
    measures = list(of_file("file.py", text, tree["file.py"]))
    return not _over(measures, profile, {}) and not _imports("file.py", tree["file.py"], profile, None)


# Code quality: ruff, radon and bandit on the files that changed. They read the code; nothing is imported or run.
#
#     lint            = max(0, 1 - (5 · errors + others) / statements)     the formula of pylint's score, with ruff's findings
#     complexity      = per function 1 up to a cyclomatic complexity of 5, falling to 0 at 30, weighted by lines
#     maintainability = min(1, MI / 49.7), weighted by lines             85 on the original scale of 171 is "highly
#     maintainable"
#     security        = max(0, 1 - Σ severity · confidence)
#     quality         = security · mean(lint, complexity, maintainability)
#
# The limits of complexity are radon's ranks A and D; of the maintainability index, Coleman et al., Using Metrics to Evaluate
# Software System Maintainability (1994). Comments do not raise it here, since padding is cheap. `noqa` and `nosec` are not
# obeyed, and no settings are read from the files: an agent must not grade itself. A file that is no Python makes the whole 0.

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


class CodeFinding(NamedTuple):
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

    def compute(self, work: DevelopmentWork) -> RewardResult:
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
    summary = f"{len(lint_findings)} findings by ruff and {len(risks)} risks by bandit in {statements} statements{first}"
    critical = [f"{risk.where}: {risk.rule} {risk.what}" for risk in risks if risk.weight >= _SEVERITY["HIGH"]]
    findings = [finding._asdict() for finding in worst[:20]]
    return RewardResult(
        score=score, details={"evidence": summary, **parts, "security": security, "findings": findings, "critical": critical}
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


def _tools(files: Mapping[str, str]) -> tuple[list[CodeFinding], list[CodeFinding]]:
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


def _ruff(copies: Sequence[str], folder: Path, names: Mapping[str, str]) -> list[CodeFinding]:
    options = ("check", "--isolated", "--no-cache", "--ignore-noqa", "--exit-zero", "--output-format", "json")
    rows = _run("ruff", [*options, "--select", ",".join(RULES), "--target-version", "py311", *copies], folder)
    return [
        CodeFinding(
            f"{names[Path(row['filename']).name]}:{row['location']['row']}",
            row["code"] or "",
            row["message"],
            5.0 if str(row["code"]).startswith(_ERRORS) else 1.0,
        )
        for row in rows
    ]


def _bandit(copies: Sequence[str], folder: Path, names: Mapping[str, str]) -> list[CodeFinding]:
    options = ("--quiet", "--ignore-nosec", "--exit-zero", "--format", "json", "--skip", _NOT_A_RISK)
    found = _run("bandit", [*options, *copies], folder)
    return [
        CodeFinding(
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
