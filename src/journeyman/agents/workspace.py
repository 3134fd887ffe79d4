"""Where scenarios are worked on: a sandbox in which the agent tries its code, and in which the result is judged afterwards.

Two runs that must not be confused. While it works, the agent is told what its code printed and what the open checks found; the
text of a check it never sees, of a hidden one not even the verdict, and at an examination (a held-out task) none at all, as in
production nobody has checks. The verdict comes from a run of its own on the final files, with every check, in fresh copies.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from journeyman.agents.coder import Findings, tries
from journeyman.core.errors import SandboxError
from journeyman.core.score import Reward
from journeyman.core.task import Split, Task
from journeyman.core.trace import Trace
from journeyman.rewards.checks import LIMITS, Check, CheckResult, run_checks
from journeyman.rewards.unit_tests import ended_by
from journeyman.sandbox.base import Program, RunOutcome, Sandbox
from journeyman.tasks.scenarios.scenario import Acceptance, Scenario

# What can be said of a work without running it: which of the requirements it speaks of. Never a proof of anything.

ENOUGH = 0.5
"""Share of a requirement's words that must occur for it to be called spoken of."""
_STEM = 5
"""Letters by which words are compared, so that "validates" speaks of "validation"."""
_SMALL = frozenset({"and", "are", "but", "for", "from", "has", "its", "must", "not", "that", "the", "this", "when", "with"})


@dataclass(frozen=True, slots=True)
class Read:
    """What was found."""

    spoken: tuple[str, ...]
    """The requirements that the work speaks of."""
    silent: tuple[str, ...]

    @property
    def share(self) -> float:
        return len(self.spoken) / (len(self.spoken) + len(self.silent))

    @property
    def evidence(self) -> str:
        """One sentence, and what is missing."""
        said = f"only read, not run: speaks of {len(self.spoken)} of {len(self.spoken) + len(self.silent)} requirements"
        return f"{said}; nothing on: {'; '.join(self.silent)}" if self.silent else said


def read(requirements: Sequence[str], work: str) -> Read:
    """Which requirements a work speaks of. It can be fooled by whoever repeats them, so it decides about nothing.

    Args:
        requirements: At least one; of a scenario without any, its goal.
    """
    words = _stems(work)
    found = [(requirement, _stems(requirement)) for requirement in requirements]
    spoken = [requirement for requirement, wanted in found if words and len(wanted & words) >= ENOUGH * len(wanted)]
    return Read(tuple(spoken), tuple(requirement for requirement in requirements if requirement not in spoken))


def _stems(text: str) -> frozenset[str]:
    words = re.findall(r"[^\W_]{3,}|\d+", text.casefold())
    return frozenset(word[:_STEM] for word in words if word not in _SMALL)


ANSWER = "answer.md"
"""The file that holds a reply in words, for the checks of a scenario that is not code."""
CHECKS, READING = "checks", "reading"
"""Names of the two rewards: only the first one is a proof."""
_TOLD = re.compile(r"(E\s.*|FAILED .*|ERROR .*)")
"""The lines of pytest's report that say what went wrong, without those that quote the tests."""
_LONGEST = 3000


class ScenarioWorkshop:
    """Tries out and judges the work on scenarios. Implements `coder.Workshop` and `tasks.base.Verifier`."""

    def __init__(self, scenarios: Sequence[Scenario], open_sandbox: Callable[[], Sandbox]) -> None:
        self._scenarios = {scenario.name: scenario for scenario in scenarios}
        self._open = open_sandbox
        self._sandbox: Sandbox | None = None

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        return tuple(self._scenarios.values())

    @property
    def sandbox(self) -> Sandbox:
        """Opened when it is first needed: a run that executes nothing needs none."""
        if self._sandbox is None:
            self._sandbox = self._open()
        return self._sandbox

    async def close(self) -> None:
        """End the sandbox. The next run opens another."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            await sandbox.close()

    def scenario(self, task: Task) -> Scenario:
        """The one that the task was made of; a task from elsewhere is a goal without checks."""
        return self._scenarios.get(task.id) or Scenario(name=task.id, goal=task.question)

    def runs(self, task: Task) -> bool:
        return self.scenario(task).runs

    def given(self, task: Task) -> Mapping[str, str]:
        return self.scenario(task).files

    async def try_out(self, task: Task, files: Mapping[str, str]) -> Findings:
        scenario = self.scenario(task)
        told = [check for check in scenario.checks if not check.hidden and task.split is not Split.HELD_OUT]
        if not told:
            return await self._run_alone(scenario, files)
        results = await self._checked(scenario, told, files)
        broken = [result for result in results if result.passed is None]
        if broken:
            raise SandboxError(broken[0].evidence)
        return Findings(
            passed=all(result.passed for result in results),
            text="\n\n".join(_told(result) for result in results),
            level=str(self.sandbox.level),
            seconds=_seconds([result.outcome for result in results]),
        )

    async def verify(self, task: Task, trace: Trace) -> Reward:
        """Every check, on the files as the agent left them; without checks what can be said from reading alone."""
        scenario = self.scenario(task)
        if not scenario.checks:
            found = read(scenario.requirements or (scenario.goal,), work(trace))
            return Reward(name=READING, value=found.share if work(trace).strip() else 0.0, evidence=found.evidence)
        files = last_files(trace) if scenario.runs else {ANSWER: trace.reply}
        if not files:
            return Reward(name=CHECKS, value=0.0, evidence="the reply holds no file that could be used")
        results = await self._checked(scenario, scenario.checks, files)
        if any(result.passed is None for result in results):
            lost = next(result.evidence for result in results if result.passed is None)
            return Reward(name=CHECKS, value=None, evidence=f"the checks could not be run: {lost}")
        value = sum(_share(result) for result in results) / len(results)
        hidden = {check.name for check in scenario.checks if check.hidden}
        passed = sum(result.passed is True for result in results)
        said = [f"{passed} of {len(results)} checks passed ({self.sandbox.level})", *_rounds(trace)]
        said += [_counted(result) if result.check.name in hidden else _told(result) for result in results if not result.passed]
        return Reward(name=CHECKS, value=value, evidence="\n".join(said))

    async def _checked(
        self, scenario: Scenario, checks: Sequence[Acceptance], files: Mapping[str, str]
    ) -> tuple[CheckResult, ...]:
        wanted = [Check(name=check.name, kind=check.kind, text=check.text) for check in checks]
        return await run_checks(self.sandbox, wanted, files=_bytes(files), setup=scenario.setup)

    async def _run_alone(self, scenario: Scenario, files: Mapping[str, str]) -> Findings:
        """What the code does by itself: its main program, or whether Python can read it."""
        python = sorted(path for path in files if path.endswith(".py"))
        if not python:
            return Findings(passed=None, text="there is no Python to run", level=str(self.sandbox.level))
        main = "main.py" in python
        command = "python main.py" if main else "python -m py_compile"
        named = "" if main else " " + shlex.join(python)
        program = Program(language="shell", code=f"{scenario.setup}\n{command}{named}", files=_bytes(files), limits=LIMITS)
        outcome = await self.sandbox.run(program)
        ended = "it ran to its end" if outcome.ok else f"failed ({ended_by(outcome)})"
        return Findings(
            passed=outcome.ok,
            text=f"{command}: {ended}\n{_tail(outcome.stdout + outcome.stderr)}".strip(),
            level=str(outcome.level),
            seconds=outcome.wall_seconds,
        )


def last_files(trace: Trace) -> Mapping[str, str]:
    """The files as a coder left them; none where it wrote none."""
    rounds = tries(trace)
    return rounds[-1][0] if rounds else {}


def work(trace: Trace) -> str:
    """All that an attempt brought: its files, and what it said."""
    return "\n".join([*last_files(trace).values(), trace.reply])


def _bytes(files: Mapping[str, str]) -> dict[str, bytes]:
    return {path: text.encode(errors="replace") for path, text in files.items()}


def _share(result: CheckResult) -> float:
    """Of a check's tests those that passed. It is whole only for a check that passed as a whole."""
    if result.passed:
        return 1.0
    tests, good = result.tests or 0, result.tests_passed or 0
    return good / tests if 0 <= good < tests else 0.0


def _counted(result: CheckResult) -> str:
    """What may be said of a hidden check: how much of it failed, and not by which values."""
    return f"{result.check.name}: failed{_of(result)}; what it asks is hidden"


def _of(result: CheckResult) -> str:
    good = result.tests_passed
    return f" ({good} of {result.tests} tests passed)" if result.tests and good is not None and good >= 0 else ""


def _told(result: CheckResult) -> str:
    """What a check found, without a line of its text."""
    if result.passed:
        return f"{result.check.name}: passed"
    found = result.evidence.removeprefix(f"{result.check.name}: failed: ")
    if result.check.kind == "pytest":
        found = "\n".join(line for line in found.splitlines() if _TOLD.match(line)) or found
    return f"{result.check.name}: failed{_of(result)}: {_tail(found)}"


def _rounds(trace: Trace) -> list[str]:
    """What the rounds before the last one were found to be: a reflector learns from a failure that was mended, too."""
    before = [findings for _, findings in tries(trace)][:-1]
    return [f"round {number} had failed: {_tail(findings.text)}" for number, findings in enumerate(before, start=1)]


def _tail(text: str) -> str:
    return text[-_LONGEST:].strip()


def _seconds(outcomes: Sequence[RunOutcome | None]) -> float | None:
    """The longest of runs that were under way at once."""
    known = [outcome.wall_seconds for outcome in outcomes if outcome is not None and outcome.wall_seconds is not None]
    return max(known, default=None)
