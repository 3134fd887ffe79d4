"""A program is right when its task's tests pass, which it cannot reach: they run in another sandbox and ask it for values."""

import asyncio
import json
import os
import py_compile
import sys
from asyncio import AbstractEventLoop, Semaphore
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from py_compile import PycInvalidationMode
from tempfile import TemporaryDirectory
from typing import Any, Literal
from weakref import WeakKeyDictionary

from journeyman.core.errors import SandboxError, TaskError
from journeyman.core.score import Reward
from journeyman.core.task import Task
from journeyman.core.trace import Trace
from journeyman.sandbox.base import Limits, Program, RunOutcome, Sandbox
from journeyman.stats import pass_at_k
from journeyman.tasks.code import MODULE, CodeSample, CodeTests, answer, code_tests

# Tests that the code they test cannot reach: the checker in one sandbox, the candidate in another, and data between them.
#
# The tests and the values they expect never enter the candidate's process, so it can neither read them nor touch what decides.

PACKAGE = "_journeyman"
"""What `inside` is called inside."""
_CANDIDATE = f"from {PACKAGE}.candidate import serve\nserve(lambda message: tools.exchange(message))\n"
_MOST_WAITING = 64
_FAREWELL_SECONDS = 1.0
_PATIENCE_SECONDS = 60.0
"""With a machine that is too busy to start the other end."""
_WORN_OUT = ("cpu", "memory")
TIME = ("cpu", "wall")
"""Limits that a program hits which only takes too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """What is run against a candidate. Written by the task's author."""

    file: str
    """The module of tests, with its ending."""
    files: Mapping[str, bytes]
    """That one, and what it needs that is not the candidate's, by relative path."""
    runner: str = "module"
    """Or "pytest"."""

    @property
    def own(self) -> tuple[str, ...]:
        """Modules whose objects the candidate may use by their public names."""
        return tuple(name.removesuffix(".py").replace("/", ".") for name in self.files if name.endswith(".py"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeUnderTest:
    """What is tested: files that nobody trusts."""

    files: Mapping[str, bytes]
    """By relative path."""
    limits: Limits
    """For all tests together. What runs the tests may itself take a little longer."""
    setup: str = ""
    """A shell script by the task's author, run in the folder before."""

    @property
    def modules(self) -> frozenset[str]:
        """The top-level modules among the files, for the tests to import."""
        tops = {path.partition("/")[0] for path in self.files if path.endswith(".py")}
        return frozenset(top.removesuffix(".py") for top in tops)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTestVerdict:
    """What the tests said."""

    passed: bool | None
    """`None` when this could not be told."""
    evidence: str
    tests: int | None = None
    tests_passed: int | None = None
    timed_out: bool = False
    needs_one_process: bool = False
    """Whether it could not be told, or not for certain, because the tests hold or hand over what cannot leave a process."""
    outcome: RunOutcome | None = None
    """Of the run in which the code was; `None` when it was ended after its last answer."""


_BESIDE: Mapping[str, tuple[str, ...]] = {
    "together": ("suite",),
    "suite": (),
    "examples": (),
    "recorded": ("suite",),
    "workload": (),
}
"""What a program needs of the others in `inside`; where nothing is said, what talks."""


@cache
def carried(program: str) -> Mapping[str, bytes]:
    """One program of the package `inside` as files for the sandbox, compiled as well: else every run would compile it anew."""
    names = ("__init__", *_BESIDE.get(program, ("peer",)), program)
    files: dict[str, bytes] = {}
    with TemporaryDirectory() as folder:
        for path in (Path(__file__).parent / "inside" / f"{name}.py" for name in names):
            name = f"{PACKAGE}/{path.name}"
            compiled = Path(folder, path.stem)
            # Not checked against the source's date, which is the date of the run. Another Python looks for another name.
            py_compile.compile(
                str(path), str(compiled), name, doraise=True, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH
            )
            files[name] = path.read_bytes()
            files[f"{PACKAGE}/__pycache__/{path.stem}.{sys.implementation.cache_tag}.pyc"] = compiled.read_bytes()
    return files


class _Line:
    """The wire between the two ends. Each has one tool, with which it gives a message and waits for the next.

    Only the time in which the checker waits for an answer is the candidate's: that a busy machine starts either of them slowly
    is not its fault.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self.out_of_time = False
        self.answered = False
        """Whether the candidate said anything at all."""
        self._to_checker: asyncio.Queue[str] = asyncio.Queue(_MOST_WAITING)
        self._to_candidate: asyncio.Queue[str] = asyncio.Queue(_MOST_WAITING)
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()
        self._gone = ""
        self.report: dict[str, Any] | None = None

    async def candidate_says(self, arguments: Mapping[str, Any]) -> str:
        message = str(arguments["0"])
        self._ready.set()
        if message:
            self.answered = True
            await self._to_checker.put(message)
        return await self._to_candidate.get()

    async def checker_says(self, arguments: Mapping[str, Any]) -> str:
        if not self._ended.is_set():
            await self._to_candidate.put(str(arguments["0"]))
        await self._ready.wait()
        answer = asyncio.ensure_future(self._to_checker.get())
        end = asyncio.ensure_future(self._ended.wait())
        clock = asyncio.get_running_loop().time
        began = clock()
        await asyncio.wait((answer, end), return_when=asyncio.FIRST_COMPLETED, timeout=self._left)
        self._left -= clock() - began
        end.cancel()
        if answer.done():
            return answer.result()
        answer.cancel()
        if not self._ended.is_set():
            self.out_of_time = True
            self.candidate_ended("wall limit")
        return json.dumps({"gone": self._gone})

    async def checker_reports(self, arguments: Mapping[str, Any]) -> None:
        self.report = json.loads(arguments["0"])

    def candidate_ended(self, why: str) -> None:
        self._gone = why
        self._ended.set()
        self._ready.set()

    def farewell(self) -> None:
        """Let the candidate go, unless it is busy."""
        if not self._to_candidate.full():
            self._to_candidate.put_nowait("{}")


async def examine(sandbox: Sandbox, tests: Tests, candidate: CodeUnderTest) -> UnitTestVerdict:
    """Run tests against a candidate."""
    line = _Line(candidate.limits.wall_seconds)
    running = asyncio.create_task(_candidate(sandbox, line, candidate))
    try:
        checked = await _checker(sandbox, line, tests, candidate)
        ended = running.done()
        line.farewell()
        if not line.out_of_time:
            await asyncio.wait((running,), timeout=_FAREWELL_SECONDS)
        outcome = running.result() if ended else None
    except SandboxError as error:
        return UnitTestVerdict(passed=None, evidence=str(error))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    if line.out_of_time:
        return UnitTestVerdict(passed=False, evidence="the code did not answer in time: wall limit", timed_out=True)
    return _verdict(line.report, checked, outcome, answered=line.answered)


async def _candidate(sandbox: Sandbox, line: _Line, candidate: CodeUnderTest) -> RunOutcome:
    why = "the sandbox failed"
    try:
        code = prepared(candidate.setup) + _CANDIDATE
        patient = replace(candidate.limits, wall_seconds=candidate.limits.wall_seconds + _PATIENCE_SECONDS)
        program = Program(code=code, files={**candidate.files, **carried("candidate")}, limits=patient)
        outcome = await sandbox.run(program, tools={"exchange": line.candidate_says})
        why = ended_by(outcome)
    finally:
        line.candidate_ended(why)
    return outcome


async def _checker(sandbox: Sandbox, line: _Line, tests: Tests, candidate: CodeUnderTest) -> RunOutcome:
    target = tests.file if tests.runner == "pytest" else tests.file.removesuffix(".py")
    code = (
        f"from {PACKAGE} import checker\n"
        f"met = checker.start(lambda m: tools.exchange(m), modules={sorted(candidate.modules)!r}, own={tests.own!r})\n"
        f"tools.report(checker.run_{tests.runner}(met, {target!r}))\n"
    )
    limits = candidate.limits
    longer = replace(limits, wall_seconds=limits.wall_seconds + _PATIENCE_SECONDS, cpu_seconds=limits.cpu_seconds + 10)
    warm: Literal["", "pytest"] = "pytest" if tests.runner == "pytest" else ""
    program = Program(code=code, files={**tests.files, **carried("checker")}, limits=longer, warm=warm)
    return await sandbox.run(program, tools={"exchange": line.checker_says, "report": line.checker_reports})


def _verdict(
    report: dict[str, Any] | None, checked: RunOutcome, outcome: RunOutcome | None, *, answered: bool
) -> UnitTestVerdict:
    if outcome is not None:
        found = f"the code ended before its tests did: {ended_by(outcome)}\n{outcome.stderr[-500:]}".strip()
        return UnitTestVerdict(passed=False, evidence=found, timed_out=outcome.limit in TIME, outcome=outcome)
    if report is None:
        found = f"the tests ended before they were through: {ended_by(checked)}\n{checked.stderr[-500:]}".strip()
        # Tests that know their own size come to that only with what the code answered.
        return UnitTestVerdict(passed=False if checked.limit in _WORN_OUT and answered else None, evidence=found)
    if report["could_not_cross"]:
        return UnitTestVerdict(passed=None, needs_one_process=True, evidence=report["could_not_cross"])
    tests, good = int(report["tests"]), int(report["passed"])
    evidence = "; ".join(report["failures"][:5]) or ("no test ran" if not tests else f"{good} of {tests} passed")
    passed = checked.ok and tests > 0 and good == tests and not report["failures"]
    return UnitTestVerdict(
        passed=passed,
        needs_one_process=not passed and bool(report.get("unclear")),
        evidence=evidence,
        tests=tests,
        tests_passed=good,
    )


def prepared(setup: str) -> str:
    """Python that runs the author's set-up, or nothing."""
    return f"import subprocess\nsubprocess.run(['sh', '-ec', {setup!r}], check=True)\n" if setup.strip() else ""


def ended_by(outcome: RunOutcome) -> str:
    """How a run ended, in a few words."""
    if outcome.limit:
        return f"{outcome.limit} limit"
    return outcome.signal or f"exit code {outcome.exit_code}"


SECONDS = 5.0
"""Of computing that a program may take for all its tests."""
_TESTS = "tests_of_the_task"


def limits(seconds: float = SECONDS) -> Limits:
    """For so many seconds of computing. Waiting may take longer, since a busy machine makes everybody wait."""
    return Limits(cpu_seconds=seconds, wall_seconds=1.5 * seconds + 1)


@dataclass(frozen=True, slots=True)
class UnitTests:
    """Runs the tests of programming tasks. Implements `tasks.base.Verifier`."""

    sandbox: Sandbox
    limits: Limits = limits()  # noqa: RUF009 - frozen as well

    _places: WeakKeyDictionary[AbstractEventLoop, Semaphore] = field(
        default_factory=WeakKeyDictionary, repr=False, compare=False
    )

    async def verify(self, task: Task, trace: Trace) -> Reward:
        """1 when the program in the reply passes all tests of its task, 0 when not, `None` when this could not be told."""
        try:
            tests = code_tests(task)
            async with self._free():
                text = answer(trace.reply)
                verdict = await self.check(tests, tests.program(text, continues=tests.goes_on(text)))
        except TaskError as error:
            return Reward(name="unit_tests", value=None, evidence=str(error))
        value = None if verdict.passed is None else float(verdict.passed)
        found = "the tests pass" if verdict.passed else verdict.evidence
        return Reward(name="unit_tests", value=value, evidence=f"{found} ({self.sandbox.level})")

    def _free(self) -> Semaphore:
        """All attempts at a set of tasks may end at once, and each verdict takes two sandboxes."""
        loop = asyncio.get_running_loop()
        return self._places.setdefault(loop, Semaphore(2 * (os.cpu_count() or 1)))

    async def check(self, tests: CodeTests, program: str) -> UnitTestVerdict:
        """Whether a program passes."""
        module = Tests(file=f"{_TESTS}.py", files={f"{_TESTS}.py": tests.module().encode()})
        files = {f"{MODULE}.py": program.encode("utf-8", "replace")}
        return await examine(self.sandbox, module, CodeUnderTest(files=files, limits=self.limits))


# Checks many samples of programming tasks at once, equal programs once, and says how many pass.


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeEvalResult:
    """What became of the samples."""

    verdicts: Mapping[str, tuple[UnitTestVerdict, ...]]
    """By task, in the order of its samples."""

    @property
    def all(self) -> tuple[UnitTestVerdict, ...]:
        return tuple(verdict for verdicts in self.verdicts.values() for verdict in verdicts)

    def pass_at(self, k: int) -> float | None:
        """The mean over tasks; `None` unless every task has at least `k` samples with a verdict."""
        counts = [
            (sum(verdict.passed is not None for verdict in verdicts), sum(bool(verdict.passed) for verdict in verdicts))
            for verdicts in self.verdicts.values()
        ]
        if not counts or min(known for known, _ in counts) < k:
            return None
        return sum(pass_at_k(known, passed, k) for known, passed in counts) / len(counts)

    def json(self, ks: Iterable[int] = (1, 10, 100)) -> dict[str, Any]:
        """`verdicts` are true, false, or null where it could not be told; `failed` holds those that ran out of time."""
        found = self.all
        rates = {f"pass@{k}": self.pass_at(k) for k in ks}
        return {
            "samples": len(found),
            "passed": sum(verdict.passed is True for verdict in found),
            "failed": sum(verdict.passed is False for verdict in found),
            "timeout": sum(verdict.timed_out for verdict in found),
            "unknown": sum(verdict.passed is None for verdict in found),
            **{name: rate for name, rate in rates.items() if rate is not None},
            "verdicts": {id: [verdict.passed for verdict in verdicts] for id, verdicts in self.verdicts.items()},
        }


async def check_samples(
    tasks: Sequence[Task],
    samples: Sequence[CodeSample],
    verifier: UnitTests,
    *,
    workers: int = 4,
    done: Callable[[UnitTestVerdict], None] = lambda _: None,
) -> CodeEvalResult:
    """Check every sample with the tests of its task, `workers` at a time; `done` is called after each."""
    tests = {task.id: code_tests(task) for task in tasks}
    free = asyncio.Semaphore(workers)
    begun: dict[tuple[str, str], asyncio.Task[UnitTestVerdict]] = {}

    async def check(id: str, program: str) -> UnitTestVerdict:
        async with free:
            return await verifier.check(tests[id], program)

    async def one(sample: CodeSample) -> tuple[str, UnitTestVerdict]:
        program = tests[sample.task_id].program(sample.text, continues=sample.continues)
        key = (sample.task_id, program)
        if key not in begun:
            begun[key] = asyncio.create_task(check(*key))
        verdict = await begun[key]
        done(verdict)
        return sample.task_id, verdict

    verdicts: dict[str, list[UnitTestVerdict]] = {}
    for id, verdict in await asyncio.gather(*(one(sample) for sample in samples)):
        verdicts.setdefault(id, []).append(verdict)
    return CodeEvalResult(verdicts={id: tuple(each) for id, each in verdicts.items()})
