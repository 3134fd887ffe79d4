"""Rewards for agents that develop software: seven components, each from evidence alone, and what they come to together."""

import ast
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import PurePosixPath

from journeyman.core.errors import InputError, JourneymanError, MissingExtra
from journeyman.core.format import counted
from journeyman.core.trace import ModelCall, Step, ToolCall, Trace
from journeyman.rewards import base
from journeyman.rewards.base import UNREACHABLE, RewardResult, version
from journeyman.rewards.checks import Check, run_checks
from journeyman.rewards.development.code_measures import Architecture, CodeQuality
from journeyman.rewards.development.work import (
    Component,
    Coverage,
    DevelopmentWork,
    WorkCheckResult,
    checked,
    parsed,
    share,
    unknown,
)
from journeyman.sandbox.base import MIB, Limits, Program, Sandbox

__all__ = [
    "ASKING",
    "PARTS",
    "VERSION",
    "WEIGHTS",
    "Autonomy",
    "ChecksReward",
    "Component",
    "Coverage",
    "Development",
    "DevelopmentEfficiency",
    "DevelopmentReward",
    "DevelopmentWork",
    "Functionality",
    "Innovation",
    "Learning",
    "TaskBudget",
    "WorkCheckResult",
    "components",
    "examine",
    "measure_coverage",
    "shingles",
    "similarity",
    "work_of",
]

# Functionality: what the checks found, how much of the code they reached, and how it does on edge cases.
#
#     functionality = 0.6 · passed + 0.2 · coverage + 0.2 · edge cases passed       over those that are known
#
# Without the share of passed checks nothing is told: coverage alone says that code ran, not that it is right.
# That no test passed is a critical fault.

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
        summary = f"{len(work.checks) - len(failed)} of {len(work.checks)} checks passed"
        evidence = f"{summary}; failed: {', '.join(failed[:5])}" if failed else summary
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


# Autonomy: how much it did by itself, and how little of that led nowhere.
#
#     autonomy = decisions / (decisions + questions) · (1 - wasted / decisions)
#
# A decision is a tool call that asks nobody. A question is a call of a tool that asks a person, or a reply that ends in a
# question mark and is followed by no step but another model call: the agent stopped and waited. Wasted is a call that failed
# and
# either repeats an earlier failure word for word, or was never followed by a success of the same tool.

ASKING = frozenset({"ask", "ask_user", "ask_human", "ask_question", "request_clarification", "clarify", "human_input"})
"""Names of tools that ask a person, lower-case."""


@dataclass(frozen=True, slots=True)
class Autonomy:
    """How much it did by itself: decisions taken, questions asked, failures overcome."""

    asking: frozenset[str] = ASKING
    name: str = "autonomy"

    def compute(self, work: DevelopmentWork) -> RewardResult:
        """Unknown when the trace shows neither a decision nor a question."""
        calls = [step for step in work.trace.steps if isinstance(step, ToolCall)]
        decisions = [call for call in calls if call.tool.lower() not in self.asking]
        questions = len(calls) - len(decisions) + _spoken(work.trace)
        if not decisions and not questions:
            return unknown("the trace shows no tool call and no question")
        failed, retried, wasted = _failures(decisions)
        useful = 1 - wasted / len(decisions) if decisions else 0.0
        score = useful * len(decisions) / (len(decisions) + questions)
        summary = f"{len(decisions)} decisions, {questions} questions, {failed} failures, {retried} overcome, {wasted} wasted"
        counts = {"decisions": len(decisions), "questions": questions, "failures": failed, "overcome": retried}
        return RewardResult(score=score, details={"evidence": summary, **counts, "wasted": wasted})


def _spoken(trace: Trace) -> int:
    """The replies in which the agent stopped and asked."""
    following: tuple[Step | None, ...] = (*trace.steps[1:], None)
    return sum(
        isinstance(step, ModelCall) and step.reply.rstrip().endswith("?") and (after is None or isinstance(after, ModelCall))
        for step, after in zip(trace.steps, following, strict=False)
    )


def _failures(calls: list[ToolCall]) -> tuple[int, int, int]:
    """How many calls failed, were overcome later, and were wasted."""
    last_success = {call.tool: place for place, call in enumerate(calls) if call.ok}
    seen: set[tuple[str, str]] = set()
    failed, overcome, wasted = 0, 0, 0
    for place, call in enumerate(calls):
        if call.ok:
            continue
        failed += 1
        mended = last_success.get(call.tool, -1) > place
        repeated = (call.tool, call.arguments) in seen
        seen.add((call.tool, call.arguments))
        overcome += mended
        wasted += repeated or not mended
    return failed, overcome, wasted


# Efficiency: what the work cost, against a budget.
#
#     efficiency = passed · mean over known resources of min(1, budget / used)
#
# Cheap work that does not work is worth nothing; where the checks gave no verdict, `passed` is left out.


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskBudget:
    """What one task may use without a reduction."""

    tokens: float = 20_000
    """Into the models and out of them."""
    calls: float = 20
    """Of models and tools."""
    cpu_seconds: float = 10
    """All runs in the sandbox together."""
    wall_seconds: float = 30
    """Likewise."""
    peak_memory: float = 256 * MIB
    """Bytes, of the largest run."""


@dataclass(frozen=True, slots=True)
class DevelopmentEfficiency:
    """Time, memory, tokens and calls against a budget."""

    budget: TaskBudget = TaskBudget()
    name: str = "efficiency"

    def compute(self, work: DevelopmentWork) -> RewardResult:
        """Unknown when nothing was run and no model was called."""
        used = _used(work)
        known = {name: value for name, value in used.items() if value is not None}
        if not known:
            return unknown("nothing was run and no model was called")
        shares = {name: min(1.0, getattr(self.budget, name) / value) if value else 1.0 for name, value in known.items()}
        passed = 1.0 if work.passed is None else work.passed
        score = passed * sum(shares.values()) / len(shares)
        over = [f"{name} {known[name]:g} of {getattr(self.budget, name):g}" for name in shares if shares[name] < 1]
        summary = f"over budget: {', '.join(over)}" if over else f"within budget: {', '.join(known)}"
        return RewardResult(score=score, details={"evidence": summary, "used": used})


def _used(work: DevelopmentWork) -> dict[str, float | None]:
    """By the names of the budget's fields."""
    trace = work.trace
    into, out = trace.input_tokens, trace.output_tokens
    calls = len(trace.calls) + sum(isinstance(step, ToolCall) for step in trace.steps)
    memory = [outcome.peak_memory for outcome in work.outcomes]
    found = {
        "tokens": into + out if trace.calls and into is not None and out is not None else None,
        "calls": calls or None,
        "cpu_seconds": _sum(outcome.cpu_seconds for outcome in work.outcomes),
        "wall_seconds": _sum(outcome.wall_seconds for outcome in work.outcomes),
        "peak_memory": max((each for each in memory if each is not None), default=None) if None not in memory else None,
    }
    return {each.name: found[each.name] for each in fields(TaskBudget)}


def _sum(values: Iterable[float | None]) -> float | None:
    """`None` when there is nothing to add, or one part is unknown."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if known and len(known) == len(found) else None


# Innovation: how far a solution is from the earlier ones. Off by default, because it can be gamed.
#
#     innovation = passed · (1 - the largest Jaccard similarity to an earlier solution)
#
# Compared are runs of five syntax-tree tokens with names and constants left out, so renaming changes nothing. Padding with
# needless code does, and so does any odd detour: use it to look at a population of solutions, or with a small weight.

_RUN = 5


@dataclass(frozen=True, slots=True)
class Innovation:
    """How far it is from earlier solutions. Off by default: it can be gamed."""

    name: str = "innovation"

    def compute(self, work: DevelopmentWork) -> RewardResult:
        """Unknown without earlier solutions, without changed Python, and without a verdict of the checks."""
        trees, _ = parsed(work.changed)
        before, _ = parsed({str(place): text for place, text in enumerate(work.earlier)})
        if not trees or not before:
            return unknown("there is no earlier solution to compare with" if trees else "no Python was written")
        if work.passed is None:
            return unknown("whether it works is unknown, and what does not work is no innovation")
        mine = shingles(*trees.values())
        nearest = max(similarity(mine, shingles(tree)) for tree in before.values())
        summary = f"similarity {nearest:.2f} to the nearest of {len(before)} earlier solutions"
        return RewardResult(score=work.passed * (1 - nearest), details={"evidence": summary, "similarity": nearest})


def shingles(*trees: ast.Module) -> frozenset[tuple[str, ...]]:
    """Every run of tokens, of all trees together."""
    found = set()
    for tree in trees:
        tokens = list(_tokens(tree))
        found |= {tuple(tokens[at : at + _RUN]) for at in range(max(1, len(tokens) - _RUN + 1))}
    return frozenset(found)


def similarity(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> float:
    """Jaccard's: what they share of what they have, 0 to 1."""
    both = one | other
    return len(one & other) / len(both) if both else 1.0


def _tokens(node: ast.AST) -> Iterator[str]:
    """The kinds of nodes, parents first, with no names, constants and docstrings."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr_context) or (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
            continue
        yield type(child).__name__
        yield from _tokens(child)


# Learning: did the bullets that were shown help?
#
#     learning = ½ · (1 + passed - passed without a playbook) · (1 - invented / cited)      where it was tried without one
#     learning = passed · (1 - invented / cited)                                            else
#
# A citation is the model's own word, so it can only cost: ids that were cited and never shown are invented. That a bullet was
# shown is recorded by the platform. In the first form ½ is a playbook that changed nothing.


@dataclass(frozen=True, slots=True)
class Learning:
    """What the bullets that were shown were worth to this attempt."""

    name: str = "learning"

    def compute(self, work: DevelopmentWork) -> RewardResult:
        """Unknown when no bullet was shown, or when the outcome is unknown."""
        shown, cited = work.trace.shown, work.trace.cited
        if not shown:
            return unknown("no bullet was shown")
        if work.passed is None:
            return unknown("whether the bullets helped is unknown: the checks gave no verdict")
        invented = cited - shown
        honest = 1 - len(invented) / len(cited) if cited else 1.0
        gain = None if work.unaided is None else work.passed - work.unaided
        worth = work.passed if gain is None else (1 + gain) / 2
        against = "" if work.unaided is None else f", {work.unaided:.0%} without them"
        summary = (
            f"{len(shown)} bullets shown, {work.passed:.0%} of the checks passed{against}; {len(invented)} citations invented"
        )
        used = sorted(cited & shown)
        return RewardResult(
            score=worth * honest, details={"evidence": summary, "gain": gain, "cited": used, "invented": sorted(invented)}
        )


# All components as one number.
#
#     w_i      = the documented weights, made to sum to 1 over the components that are on and could tell
#     a        = functionality · compliance                        the architecture of what does not work is worth nothing
#     mean     = w_architecture · a + Σ w_i · v_i                  over the other components
#     combined = mean · penalty_multiplier                         if any component found a critical fault (once, however many)
#              = mean + (1 - mean) · (mean - T) / (1 - T)          else if mean ≥ T, the bonus threshold
#              = mean                                              else
#
# So compliance multiplies the reward for functionality by a factor between w_functionality and w_functionality +
# w_architecture.
# The bonus is continuous at T, never leaves 0 to 1, and never changes the order of two works. Critical faults: code that does
# not
# parse, no check passed, a risk of high severity and confidence, a file over the profile's critical size, a forbidden import.

WEIGHTS: Mapping[str, float] = {
    "code_quality": 0.25,
    "functionality": 0.20,
    "architecture": 0.20,
    "autonomy": 0.15,
    "learning": 0.10,
    "efficiency": 0.10,
    "innovation": 0.05,
}
"""As documented. With innovation, which is off by default, they add up to 1.05 and are divided by that; without it, to 1."""

VERSION = 2
"""Changes with any formula of this package."""


def components() -> tuple[Component, ...]:
    """One of each, as they come."""
    return CodeQuality(), Functionality(), Architecture(), Autonomy(), Learning(), DevelopmentEfficiency(), Innovation()


@dataclass(frozen=True, slots=True, kw_only=True)
class Development:
    """The components together."""

    components: tuple[Component, ...] = field(default_factory=components)
    weights: Mapping[str, float] = field(default_factory=lambda: {**WEIGHTS, "innovation": 0.0})
    """By component; 0 turns one off. Only their proportions matter."""
    penalty_multiplier: float = 0.5
    bonus_threshold: float = 0.8
    """From this mean on there is a bonus; 1 for none."""

    def __post_init__(self) -> None:
        names = {component.name for component in self.components}
        if strange := set(self.weights) - names:
            raise InputError(f"no component is called {', '.join(sorted(strange))}; there are {', '.join(sorted(names))}")
        if any(weight < 0 for weight in self.weights.values()) or not sum(self.weights.values()) > 0:
            raise InputError("the weights of the components must not be negative, and one must be above 0")
        if not (0 <= self.penalty_multiplier <= 1 and 0 <= self.bonus_threshold <= 1):
            raise InputError("penalty_multiplier and bonus_threshold must lie between 0 and 1")

    def compute(self, work: DevelopmentWork) -> RewardResult:
        """The combined reward; its details hold every component, the weights that counted, and what could not be told.

        Unknown when no component could tell, or when functionality is on and could not: how well something is written does not
        stand in for whether it works.
        """
        found = {each.name: each.compute(work) for each in self.components if self.weights.get(each.name)}
        values = _values(found)
        known = {name: value for name, value in values.items() if value is not None}
        total = sum(self.weights[name] for name in known)
        weights = {name: self.weights[name] / total for name in known}
        critical = [f"{name}: {fault}" for name, result in found.items() for fault in result.details.get("critical", ())]
        missing = sorted(set(values) - set(known))
        details = {
            "components": {name: {"score": values[name], **result.details} for name, result in found.items()},
            "weights": weights,
            "unknown": missing,
            "critical": critical,
        }
        if not known or ("functionality" in values and values["functionality"] is None):
            evidence = "unknown: " + "; ".join(f"{name}: {found[name].details.get('evidence', '')}" for name in missing)
            return RewardResult(score=None, details={**details, "evidence": evidence})
        mean = sum(weights[name] * value for name, value in known.items())
        score = self._adjusted(mean, penalised=bool(critical))
        return RewardResult(score=score, details={**details, "mean": mean, "evidence": _evidence(found, known, critical)})

    def _adjusted(self, mean: float, *, penalised: bool) -> float:
        if penalised:
            return mean * self.penalty_multiplier
        if mean < self.bonus_threshold or self.bonus_threshold == 1:
            return mean
        return min(1.0, mean + (1 - mean) * (mean - self.bonus_threshold) / (1 - self.bonus_threshold))


def _values(found: Mapping[str, RewardResult]) -> dict[str, float | None]:
    """The components' scores, with architecture multiplied by functionality where that is on."""
    values = {name: result.score for name, result in found.items()}
    compliance, works = values.get("architecture"), values.get("functionality")
    if compliance is not None and "functionality" in values:
        values["architecture"] = None if works is None else compliance * works
    return values


def _evidence(found: Mapping[str, RewardResult], known: Mapping[str, float], critical: list[str]) -> str:
    worst = min(known, key=lambda name: known[name])
    fault = f"critical: {critical[0]}; " if critical else ""
    return f"{fault}weakest is {worst} at {known[worst]:.2f}: {found[worst].details.get('evidence', '')}"


# The development components as a reward on a trace.

_WRITING = frozenset({"write_file", "create_file", "save_file", "edit_file", "write", "create"})
_PATH = ("path", "file_path", "filename", "file")
_TEXT = ("content", "contents", "file_text", "text", "code")


def work_of(trace: Trace) -> DevelopmentWork:
    """What the trace alone shows: the files that its tools wrote whole. Not the checks, the runs and the files before."""
    after: dict[str, str] = {}
    for step in trace.steps:
        if isinstance(step, ToolCall):
            after |= _written(step)
    return DevelopmentWork(trace=trace, after=after)


def _written(call: ToolCall) -> dict[str, str]:
    """By a tool that takes many files, which were tried whether or not they passed; or one, if it went well."""
    try:
        found = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    if isinstance(files := found.get("files"), dict):
        return {path: text for path, text in files.items() if isinstance(text, str)}
    path = next((found[name] for name in _PATH if isinstance(found.get(name), str)), None)
    text = next((found[name] for name in _TEXT if isinstance(found.get(name), str)), None)
    if path is None or text is None or not call.ok or call.tool.lower() not in _WRITING:
        return {}
    return {path: text}


async def examine(
    work: DevelopmentWork,
    sandbox: Sandbox,
    checks: Sequence[Check],
    *,
    edges: Container[str] = (),
    setup: str = "",
    reference: Mapping[str, str] | None = None,
) -> DevelopmentWork:
    """The same work with what its checks find, what of it the tests among them execute, and what running them took.

    Args:
        edges: Names of the checks that try edge cases.
        setup: A shell script by the task's author that is run before each check.
        reference: The files as they are when the work is done right, where they are known: see `checks.run_checks`.

    Raises:
        SandboxError: The sandbox failed while coverage was measured. Where it fails in a check, that is unknown.
    """
    files, right = _bytes(work.after), None if reference is None else _bytes({**work.before, **reference})
    results = await run_checks(sandbox, checks, files=files, setup=setup, reference=right)
    tests = {f"test_check_{number}.py": check.text for number, check in enumerate(checks) if check.kind == "pytest"}
    coverage = await measure_coverage(sandbox, work.after, tests) if tests else None
    outcomes = tuple(result.outcome for result in results if result.outcome is not None)
    return replace(work, checks=checked(results, edges), coverage=coverage, outcomes=(*work.outcomes, *outcomes))


def _bytes(files: Mapping[str, str]) -> dict[str, bytes]:
    return {path: text.encode(errors="backslashreplace") for path, text in files.items()}


@dataclass(frozen=True, slots=True)
class ChecksReward:
    """1 when every check of the task passed; binary.

    Unknown when there are none, and when one could not be run and none failed.
    """

    find: Callable[[Trace], DevelopmentWork] = work_of
    weight: float = 2.0
    name: str = "checks"

    @property
    def version(self) -> str:
        return version(VERSION)

    def compute(self, trace: Trace) -> RewardResult:
        try:
            checks = self.find(trace).checks
        except JourneymanError as error:
            return base.unknown(str(error), **{UNREACHABLE: True})
        failed = [check.name for check in checks if check.passed is False]
        lost = [check for check in checks if check.passed is None]
        if not failed and (lost or not checks):
            why = lost[0].evidence or f"the check {lost[0].name} could not be run" if lost else "there are no checks"
            return base.unknown(why, **({UNREACHABLE: True} if lost else {}))
        passed = f"{len(checks) - len(failed) - len(lost)} of {counted(len(checks), 'check')} passed"
        return base.binary(not failed, f"{passed}; failed: {', '.join(failed[:5])}" if failed else passed, failed=failed)


@dataclass(frozen=True, slots=True)
class DevelopmentReward:
    """All components of one trace as one reward.

    `find` gives the work that a trace is the record of, with its checks and runs. The default knows the trace alone, so there
    functionality cannot be summary, and neither can the whole.
    """

    development: Development = field(default_factory=Development)
    find: Callable[[Trace], DevelopmentWork] = work_of
    weight: float = 1.0
    name: str = "development"

    @property
    def version(self) -> str:
        return version(VERSION, self.development)

    def compute(self, trace: Trace) -> RewardResult:
        """Unknown as well when ruff or bandit did not answer.

        Raises:
            MissingExtra: ruff, radon or bandit is not installed.
        """
        try:
            return self.development.compute(self.find(trace))
        except MissingExtra:
            raise
        except JourneymanError as error:
            return unknown(str(error), **{UNREACHABLE: True})
