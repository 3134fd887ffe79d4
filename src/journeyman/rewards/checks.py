"""Checks that must pass: shell commands and files of tests, run on what an agent wrote.

Tests run where the agent's code is not: it lives in another sandbox and is asked for values. Where tests need its files, or
hand it something that cannot leave their process, both run in one, and the tests must also be able to fail. Every check has a
fresh copy, with the check's own files laid over it.
"""

import ast
import asyncio
import json
import random
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from journeyman.core.errors import InputError, SandboxError
from journeyman.rewards.sabotage import VERSIONS, TestFile, TestVersion, spoiled
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

# Tests in one process with the code they test, where it cannot be otherwise, and believed only as far as they can also fail.
#
# Several versions of the tests are run at once, each in a sandbox of its own. What is expected stands as it is in one of them,
# drawn for each test by itself, and is something else in the others. Code that passes tests is to pass each where it is as it
# is, and to fail it elsewhere. Whatever makes all tests pass, or fakes their results, cannot know where that is; not even if
# the runs could tell each other what they were asked, since no run has all that is true and none comes before the others.


FIRST_LOOK = 2
"""Versions that are tried first: whoever fakes results is mostly found out by these."""
FEW = 10
"""One test in so many may have nothing but assertions that no run comes past."""


@dataclass(frozen=True, slots=True)
class _Run:
    outcome: RunOutcome
    report: Mapping[str, Any] | None
    """`None` unless there was exactly one."""

    @property
    def ended(self) -> bool:
        return self.outcome.ok and self.report is not None

    def became(self, name: str) -> str:
        """What became of a test, or of all tests that were made of it: "absent" when there was none."""
        reports = (self.report or {}).get("became", {})
        every = {what for node, what in reports.items() if _name(node) == name}
        return next((what for what in ("failed", "passed", "skipped") if what in every), "absent")

    def why(self, name: str) -> str:
        """What a test said when it failed, or why there was none."""
        reasons = (self.report or {}).get("why", {})
        own = [f"{node}: {why}" for node, why in reasons.items() if _name(node) in (name, "")]
        return own[0] if own else f"{name} was not run"


@dataclass(frozen=True, slots=True)
class _Examination:
    """Versions of a file of tests, and what is to become of each test in each of them."""

    tests: TestFile
    versions: tuple[TestVersion, ...]
    groups: tuple[frozenset[str], ...]
    """Functions that expect something else in the same versions. Those with nothing to change are in none."""

    @classmethod
    def drawn(cls, text: str, beside: Mapping[str, bytes], chance: random.Random) -> "_Examination":
        tests = TestFile.read(text, beside)
        seeds = {name: chance.getrandbits(64) for name in tests.functions}
        changeable = spoiled(text, beside, dict.fromkeys(seeds, 0), seeds).changed
        asked = set(tests.tests.values())
        groups = tuple(group for group in tests.groups() if group & changeable and group & asked)
        true_in = [chance.randrange(VERSIONS) for _ in groups]

        def ranks(version: int) -> dict[str, int]:
            others = ((group, (version - true - 1) % VERSIONS) for group, true in zip(groups, true_in, strict=True))
            return {name: rank for group, rank in others if rank < VERSIONS - 1 for name in group}

        versions = (spoiled(text, beside, ranks(version), seeds) for version in range(VERSIONS if groups else 1))
        return cls(tests, tuple(versions), groups)

    def expected(self, name: str, version: TestVersion) -> str | None:
        """What should become of it, where that can be read from the tests."""
        where = self.tests.tests.get(name)
        if where is None or where in version.surely:
            return where and "failed"
        group = next((group for group in self.groups if where in group), frozenset())
        return None if group & version.changed else "passed"

    def held_to(self, reference: Sequence[_Run] | None) -> list[dict[str, str]]:
        """What the code must do, by version and test. Whatever the reference does not obey is no evidence."""
        names = dict.fromkeys(self.tests.tests)
        if reference is None:
            return [{name: what for name in names if (what := self.expected(name, each))} for each in self.versions]
        for run in reference:
            names |= dict.fromkeys(_name(node) for node in (run.report or {}).get("became", {}))
        held: list[dict[str, str]] = []
        for version, run in zip(self.versions, reference, strict=True):
            became = {name: run.became(name) for name in names if run.ended}
            sensible = {name: what for name, what in became.items() if what in ("passed", "failed")}
            held.append({name: what for name, what in sensible.items() if self.expected(name, version) in (None, what)})
        obeyed = {name for each in held for name, what in each.items() if what == "passed"}
        return [{name: what for name, what in each.items() if name in obeyed} for each in held]

    def excused(self, name: str, what: str) -> bool:
        """Whether the tests' author may have meant that it does not run."""
        return (what == "skipped" and name in self.tests.may_skip) or (what == "absent" and name in self.tests.optional)

    def agreeing(self, runs: Sequence[_Run], held: Sequence[Mapping[str, str]]) -> bool:
        """Whether anything passes that must fail."""
        return any(
            run.became(name) == "passed"
            for run, wanted in zip(runs, held, strict=True)
            for name, what in wanted.items()
            if what == "failed"
        )

    def unmoved(self, runs: Sequence[_Run]) -> bool:
        """Whether nothing fails of tests that rest on each other where they expect something else.

        A few tests, whose own assertions stand where a run need not come past, may be so.
        """
        idle, moved = 0, 0
        for group in self.groups:
            names = [name for name, where in self.tests.tests.items() if where in group]
            became = [
                {run.became(name) for name in names}
                for run, version in zip(runs, self.versions, strict=True)
                if group & version.changed
            ]
            still = any("passed" in each and "failed" not in each for each in became)
            if still and not group <= set(self.tests.tests.values()):
                return True
            idle, moved = idle + still * len(names), moved + (not still) * len(names)
        return idle * FEW > moved


async def examine_together(
    sandbox: Sandbox,
    check: "Check",
    candidate: CodeUnderTest,
    *,
    chance: random.Random,
    reference: Mapping[str, bytes] | None = None,
) -> UnitTestVerdict:
    """Run a file of tests, written by the task's author, in the folder of the candidate's files.

    Args:
        chance: Draws which tests expect something else. The candidate must not be able to guess it.
        reference: Files that are right. Where they do not do as the tests expect, nothing is expected of the candidate. Where
            they are the candidate's they are run once: it is asked whether these tests could tell anything of them.
    """
    examination = _Examination.drawn(check.text, check.beside, chance)
    is_other = reference is not None and reference != candidate.files
    sides = [candidate, replace(candidate, files=reference or {})] if is_other else [candidate]

    def judged(examination: _Examination, runs: Sequence[Sequence[_Run]]) -> UnitTestVerdict:
        of_candidate, of_reference = [each[0] for each in runs], [each[-1] for each in runs]
        return _judged(examination, of_candidate, None if reference is None else of_reference)

    async def ran(versions: Sequence[TestVersion]) -> list[list[_Run]]:
        """By version, and by side."""
        every = (asyncio.gather(*(_run_one_process(sandbox, check, version, side) for side in sides)) for version in versions)
        return await asyncio.gather(*every)

    looks = FIRST_LOOK if reference is not None else len(examination.versions)
    try:
        runs = await ran(examination.versions[:looks])
        if len(examination.versions) > looks:
            # With more versions only more is expected: what fails with few does not pass with all.
            first = judged(replace(examination, versions=examination.versions[:looks]), runs)
            # And of what is held against itself nothing more fails: once some of it is believed, it stays believed.
            if first.passed is False or (first.passed and reference is not None and not is_other):
                return first
            runs += await ran(examination.versions[looks:])
    except SandboxError as error:
        return UnitTestVerdict(passed=None, evidence=str(error))
    return judged(examination, runs)


def _judged(examination: _Examination, runs: Sequence[_Run], reference: Sequence[_Run] | None) -> UnitTestVerdict:
    held = examination.held_to(reference)
    stopped = next((run for run, wanted in zip(runs, held, strict=True) if wanted and not run.ended), None)
    if stopped is not None:
        found = f"the tests did not come to their end: {ended_by(stopped.outcome)}\n{stopped.outcome.stderr[-500:]}".strip()
        timed_out = stopped.outcome.limit in TIME
        return UnitTestVerdict(passed=False, evidence=found, timed_out=timed_out, outcome=stopped.outcome)
    became, why = _as_expected(examination, runs, held, alone=reference is None)
    good = sum(what == "passed" for what in became.values())
    verdict = UnitTestVerdict(
        passed=None, evidence="", tests=len(became), tests_passed=good, timed_out=False, outcome=runs[0].outcome
    )
    if why:
        return replace(verdict, passed=False, evidence="; ".join(list(why.values())[:5]))
    if not became:
        return replace(verdict, evidence="no test was run that says anything of the code")
    if examination.agreeing(runs, held) or (reference is None and examination.unmoved(runs)):
        found = "the tests do not fail where they expect something else, so their passing is not believed"
        return replace(verdict, passed=False, tests_passed=0, evidence=found)
    if not any(run.became(name) == "failed" for run, wanted in zip(runs, held, strict=True) for name in (*wanted, *became)):
        return replace(verdict, evidence="the tests assert nothing that could be turned round, so passing says nothing")
    found = f"{good} of {good} passed in one process with the code, and failed where they expected something else"
    return replace(verdict, passed=True, evidence=found)


def _as_expected(
    examination: _Examination, runs: Sequence[_Run], held: Sequence[Mapping[str, str]], *, alone: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """What became of each test where it is to pass, and why of those that did not."""
    became: dict[str, str] = {}
    why: dict[str, str] = {}
    for run, wanted in zip(runs, held, strict=True):
        for name in (name for name, what in wanted.items() if what == "passed"):
            what = run.became(name)
            if not (alone and examination.excused(name, what)):
                became[name] = what if became.get(name, "passed") == "passed" else "failed"
                if what != "passed":
                    why.setdefault(name, run.why(name))
    if alone:
        # Made where the file does not show it: they pass at least where nothing that they rest on is changed.
        made = {_name(node) for run in runs for node in (run.report or {}).get("became", {})} - set(examination.tests.tests)
        why |= {name: runs[0].why(name) for name in made if {run.became(name) for run in runs} == {"failed"}}
        became |= {name: "failed" if name in why else "passed" for name in made}
    return became, why


async def _run_one_process(sandbox: Sandbox, check: "Check", version: TestVersion, candidate: CodeUnderTest) -> _Run:
    told: list[str] = []
    conftest = any(_is_conftest(path) for path in check.beside)

    async def tell(arguments: Mapping[str, Any]) -> None:
        told.append(str(arguments["0"])[: 1 << 20])

    code = (
        f"from {PACKAGE} import together\n"
        + prepared(candidate.setup)
        + f"together.run(lambda text: tools.report(text), {check.file!r}, {sorted(candidate.modules)!r}, "
        + f"conftest={conftest!r}, plugins={check.plugins!r})\n"
    )
    laid = {**candidate.files, **check.beside, **version.beside, check.file: version.text.encode(), **carried("together")}
    outcome = await sandbox.run(Program(code=code, files=laid, limits=candidate.limits, warm="pytest"), tools={"report": tell})
    return _Run(outcome, _read(told))


def _read(told: list[str]) -> Mapping[str, Any] | None:
    """The one report. It comes from where the candidate is, and may be anything."""
    try:
        (text,) = told
        found = json.loads(text)
        became = {str(node): str(what) for node, what in found["became"].items()}
        return {"became": became, "why": {str(node): str(line) for node, line in found["why"].items()}}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _name(node: str) -> str:
    """`file::Class::test[case]` is `Class.test`."""
    return ".".join(re.sub(r"\[.*$", "", node, flags=re.DOTALL).split("::")[1:])


LIMITS = Limits(cpu_seconds=20.0, wall_seconds=30.0)
"""For one check."""

NOT_FOUND = 127
"""What a shell ends with where a command is not installed."""
_OF_PYTEST = frozenset({"pluggy", "packaging", "iniconfig", "pygments", "exceptiongroup", "py", "_pytest", "pytest"})
"""Modules that whatever runs tests needs itself: a candidate's of that name cannot take their place apart from the code."""
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
    file: str = "test_check.py"
    """Where a file of tests lies, by relative path."""
    beside: Mapping[str, bytes] = field(default_factory=dict)
    """What the tests need that is not the agent's, such as a conftest.py, by relative path. Laid over the agent's files."""
    plugins: tuple[str, ...] = ()
    """Of pytest, by module, that the tests need. Such tests are run in one process with the code."""


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
    reference: Mapping[str, bytes] | None = None,
    limits: Limits = LIMITS,
) -> tuple[CheckResult, ...]:
    """Run every check on a copy of its own of `files`, all at once; the results in the order of the checks.

    Args:
        files: What the agent wrote, by relative path.
        setup: A shell script by the task's author that is run in each copy before its check.
        reference: Files that are known to be right, in place of the agent's. What tests in one process say is then held against
            what they say of these: tests that fail for them too, or do not notice what is changed, are no evidence.
    """
    kept = {path: data for path, data in files.items() if path.partition("/")[0] not in _TAKES_OVER and not _is_conftest(path)}
    candidate = CodeUnderTest(files=kept, limits=limits, setup=setup)
    return tuple(await asyncio.gather(*(_run(sandbox, check, candidate, reference) for check in checks)))


def can_fail(check: Check, names: Collection[str]) -> frozenset[str]:
    """Those of its tests that would fail if they expected something else: passing the others says nothing.

    Raises:
        SyntaxError: The tests are no Python.
    """
    tests = TestFile.read(check.text, check.beside)
    seeds = dict.fromkeys(tests.functions, 0)
    changeable = spoiled(check.text, check.beside, seeds, seeds).changed
    groups = [group for group in tests.groups() if group & changeable]
    return frozenset(name for name in names if any(tests.tests.get(name) in group for group in groups))


def _is_conftest(path: str) -> bool:
    return path.rpartition("/")[2] == "conftest.py"


async def _run(sandbox: Sandbox, check: Check, candidate: CodeUnderTest, reference: Mapping[str, bytes] | None) -> CheckResult:
    try:
        if check.kind == "shell":
            verdict = await _shell(sandbox, check.text, candidate)
        else:
            verdict = await _pytest(sandbox, check, candidate, reference)
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


async def _pytest(
    sandbox: Sandbox, check: Check, candidate: CodeUnderTest, reference: Mapping[str, bytes] | None
) -> UnitTestVerdict:
    try:
        names = TestFile.read(check.text, check.beside).tests
        needs = _names(ast.parse(check.text)).union(
            *(_names(ast.parse(text)) for path, text in check.beside.items() if _is_conftest(path))
        )
    except SyntaxError as error:
        return UnitTestVerdict(passed=None, evidence=f"the tests are no Python: {error}")
    if not names:
        return UnitTestVerdict(passed=None, evidence="the file holds no tests")
    if not (check.plugins or _NEEDS_FILES & needs or _OF_PYTEST & candidate.modules):
        files = {**check.beside, check.file: check.text.encode()}
        verdict = await examine(sandbox, Tests(file=check.file, files=files, runner="pytest"), candidate)
        if not verdict.needs_one_process:
            return verdict
    # The code must not be able to know what is drawn.
    return await examine_together(sandbox, check, candidate, chance=random.SystemRandom(), reference=reference)


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
