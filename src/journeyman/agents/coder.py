"""The agent that writes code: files out of a reply, run in a sandbox, and repaired after what was found, a few times.

Every round is on the trace: the exchange with the model, and what the sandbox made of the files.
"""

import json
import re
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from journeyman.agents import answer
from journeyman.agents.answer import BETWEEN, CITE, Answer, Choose, call_of, nothing, strategies
from journeyman.core.candidate import BASE
from journeyman.core.errors import SandboxError
from journeyman.core.playbook import Bullet
from journeyman.core.score import Reward
from journeyman.core.task import Split, Task
from journeyman.core.trace import Step, ToolCall, Trace
from journeyman.io.markdown import Fence, fences
from journeyman.models.base import Dialect, Model, ModelRequest, PromptMessage
from journeyman.rewards.checks import LIMITS, Check, CheckResult, run_checks
from journeyman.rewards.unit_tests import ended_by
from journeyman.sandbox.base import Program, RunOutcome, Sandbox
from journeyman.tasks.scenarios.scenario import Acceptance, Scenario

# Files in a model's reply: fenced blocks that name a file.
#
# The form that is asked for is a fence with the name behind it, as in "```python file=app/main.py". Models also write the name
# alone behind the fence, on the line before it, or in a comment on the first line within; all of that is read. What is none of
# these, or would leave the folder, is refused with a sentence that the model can act on.

MOST_FILES = 64
MOST_CHARACTERS = 1_000_000
"""Of one reply's files together."""
ALONE = "main.py"
"""What the only block of Python is called when nothing names it."""
_PYTHON = frozenset({"", "python", "python3", "py"})
_NAME = r"[\w.][\w./-]*\.\w{1,8}"
_FIELD = re.compile(r"""\b(?:file|filename|name|path|title)\s*[=:]\s*(?:"([^"]*)"|'([^']*)'|(\S+))""", re.IGNORECASE)
_BARE = re.compile(rf"(?<![\w./-])(?:{_NAME}|Dockerfile|Makefile)(?![\w./-])")
_BEFORE = re.compile(rf"^[\s#*>\d.)-]*(?:file(?:name)?\s*:?\s*)?[*`_\"]*(?P<name>{_NAME})[*`_\"]*\s*:?[*`]*\s*$", re.IGNORECASE)
_WITHIN = re.compile(
    rf"^\s*(?:#|//|--|;|<!--|/\*)\s*(?:file(?:name)?\s*:\s*)?(?P<name>{_NAME})\s*(?:-->|\*/)?\s*$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Written:
    """What a reply wrote."""

    files: Mapping[str, str]
    """By relative path."""
    faults: tuple[str, ...]
    """What could not be used, a sentence each."""


def written(reply: str) -> Written:
    """The files of a reply; of two with one name the last. Never raises, whatever the reply holds."""
    blocks = list(fences(reply))
    named = [(name, block) for block in blocks if (name := _name(block))]
    if not named:
        unnamed = [block for block in blocks if block.info.strip().casefold() in _PYTHON]
        if len(unnamed) != 1:
            return Written({}, ("no fenced block names a file; begin each with its name, as in ```python file=main.py",))
        named = [(ALONE, unnamed[0])]
    files: dict[str, str] = {}
    faults: list[str] = []
    for name, block in named:
        path, fault = safe(name)
        if not block.closed:
            fault = f"the block of {name[:80]!r} has no end, so the reply was cut off; write shorter files, or fewer at once"
        if fault:
            faults.append(fault)
        else:
            files[path] = block.text
    if len(files) > MOST_FILES or sum(map(len, files.values())) > MOST_CHARACTERS:
        return Written({}, (f"that is more than {MOST_FILES} files or {MOST_CHARACTERS} characters; write less",))
    return Written(files, tuple(faults))


def safe(name: str) -> tuple[str, str]:
    """The path as it is used, or why it is refused: one that could leave its folder, on any system."""
    path = PurePosixPath(name.strip())
    parts = path.parts
    fine = (
        0 < len(parts) <= 8
        and len(str(path)) <= 200
        and ".." not in parts
        and re.fullmatch(r"[\w.][\w. +@-]*(/[\w.][\w. +@-]*)*", str(path), re.ASCII) is not None
    )
    if fine:
        return str(path), ""
    return "", f"{name[:80]!r} is no path that can be used; name files by a relative path of plain characters, without '..'"


def _name(block: Fence) -> str:
    """What the block's file is called; empty when nothing says it."""
    if found := _FIELD.search(block.info):
        return next(group for group in found.groups() if group is not None)
    if found := _BARE.search(block.info):
        return found.group()
    first = (block.lines or ("",))[0]
    inside = _WITHIN.match(first[:200]) or _BEFORE.match(block.before[-200:])
    return inside["name"] if inside else ""


# How a coding task, and what running the code found, are put to a model.

FORMAT = """\
You write programs that do what is asked, whole and as small as they can be. They run in an isolated sandbox: Python with its \
standard library, no network, nobody to answer a prompt, and no server that runs on without end.

Reply with each file in a fenced block that names it:
```python file=main.py
print("hello")
```
Write whole files, under the names that the task gives. A file that you do not repeat stays as it was. Acceptance checks that \
you cannot see will run on your files; special-casing the values of one failure does not pass them."""
FAILED = """\
That did not do yet:
{found}

Find the cause, and reply with every file that changes, whole, in the same form."""
LONGEST = 6000
"""Characters of what was found that a model is shown; of a longer text the middle is left out."""


def write(task: Task, bullets: Sequence[Bullet], dialect: Dialect) -> tuple[PromptMessage, ...]:
    """The prompt of the first round."""
    if dialect == "terse":
        return answer.answer(task, bullets, dialect)
    system = FORMAT
    if bullets:
        system += BETWEEN.join(["", CITE, strategies(bullets)])
    return (PromptMessage("system", system), PromptMessage("user", task.question))


def repair(messages: Sequence[PromptMessage], reply: str, found: str) -> tuple[PromptMessage, ...]:
    """The prompt of the next round, after what the last one was found to be."""
    short = found if len(found) <= LONGEST else f"{found[: LONGEST // 2]}\n[…]\n{found[-LONGEST // 2 :]}"
    return (*messages, PromptMessage("assistant", reply or "(nothing)"), PromptMessage("user", FAILED.format(found=short)))


TOOL = "sandbox"
"""The name of the tool in traces."""
ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What trying out the files gave."""

    passed: bool | None
    """`None` when there was nothing to run them by."""
    text: str
    """As much as the agent may know."""
    level: str
    """How strong the walls were."""
    seconds: float | None = None


class Workshop(Protocol):
    """Where code is tried out."""

    def runs(self, task: Task) -> bool:
        """Whether the task is to be done in code. Any other is answered in one call."""

    def given(self, task: Task) -> Mapping[str, str]:
        """The files that the agent begins with."""

    async def try_out(self, task: Task, files: Mapping[str, str]) -> Findings:
        """Run the files, and as much of the task's checks as the agent may know of.

        Raises:
            SandboxError: They could not be run.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Coder:
    """Writes, runs, reads the failure, repairs. Implements `attempt.Agent`."""

    model: Model
    workshop: Workshop
    choose: Choose = nothing
    """Which bullets stand in the prompt of a task."""
    candidate_id: str = BASE
    temperature: float | None = None
    seed: int | None = None
    rounds: int = ROUNDS
    """Calls at most: the first one writes, the others repair."""

    async def run(self, task: Task) -> AsyncIterator[Step]:
        if not self.workshop.runs(task):
            async for step in self._answer.run(task):
                yield step
            return
        bullets = tuple(self.choose(task))
        messages = write(task, bullets, self.model.dialect)
        files = dict(self.workshop.given(task))
        for number in range(1, self.rounds + 1):
            request = ModelRequest(messages=messages, temperature=self.temperature, seed=self.seed, task_id=task.id)
            reply = await self.model.complete(request)
            yield call_of(request, reply, shown=bullets)
            wrote = written(reply.text)
            found = "\n".join(wrote.faults)
            if wrote.files:
                files |= wrote.files
                findings = await self.workshop.try_out(task, files)
                yield _tried(files, findings, number)
                if findings.passed is not False and not wrote.faults:
                    return
                found = f"{findings.text}\n{found}".strip()
            if self.model.dialect == "terse":
                # It knows two formats, and none in which it could be told of its failure.
                return
            messages = repair(messages, reply.text, found)

    @property
    def _answer(self) -> Answer:
        return Answer(
            model=self.model,
            choose=self.choose,
            candidate_id=self.candidate_id,
            temperature=self.temperature,
            seed=self.seed,
        )


def _tried(files: Mapping[str, str], findings: Findings, number: int) -> ToolCall:
    found = {"passed": findings.passed, "found": findings.text, "level": findings.level}
    return ToolCall(
        tool=TOOL,
        arguments=json.dumps({"round": number, "files": dict(files)}, ensure_ascii=False),
        result=json.dumps(found, ensure_ascii=False),
        ok=findings.passed is not False,
        seconds=findings.seconds,
    )


def tries(trace: Trace) -> list[tuple[Mapping[str, str], Findings]]:
    """The files and findings of every round of a coder's trace, oldest first. None of another agent's, whatever its tools."""
    found = []
    for step in trace.steps:
        if isinstance(step, ToolCall) and step.tool == TOOL:
            try:
                files, said = json.loads(step.arguments)["files"], json.loads(step.result)
                findings = Findings(passed=said["passed"], text=said["found"], level=said["level"], seconds=step.seconds)
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            found.append((files, findings))
    return found


# Where scenarios are worked on: a sandbox in which the agent tries its code, and in which the result is judged afterwards.
#
# Two runs that must not be confused. While it works, the agent is told what its code printed and what the open checks found;
# the text of a check it never sees, of a hidden one not even the verdict, and at an examination (a held-out task) none at all,
# as in production nobody has checks. The verdict comes from a run of its own on the final files, with every check, in fresh
# copies.

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
_REPORT_LINE = re.compile(r"(E\s.*|FAILED .*|ERROR .*)")
"""The lines of pytest's report that say what went wrong, without those that quote the tests."""
_LONGEST = 3000


class ScenarioWorkshop:
    """Tries out and judges the work on scenarios. Implements `Workshop` and `tasks.base.Verifier`."""

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

    async def start(self) -> None:
        """See that the sandbox is there, where any scenario needs one."""
        if any(scenario.checks or scenario.runs for scenario in self._scenarios.values()):
            await self.sandbox.start()

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
            text="\n\n".join(_describe(result) for result in results),
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
        failed = [result for result in results if not result.passed]
        said += [_counted(result) if result.check.name in hidden else _describe(result) for result in failed]
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


def _describe(result: CheckResult) -> str:
    """What a check found, without a line of its text."""
    if result.passed:
        return f"{result.check.name}: passed"
    found = result.evidence.removeprefix(f"{result.check.name}: failed: ")
    if result.check.kind == "pytest":
        found = "\n".join(line for line in found.splitlines() if _REPORT_LINE.match(line)) or found
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
