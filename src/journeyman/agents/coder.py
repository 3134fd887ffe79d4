"""The agent that writes code: files out of a reply, run in a sandbox, and repaired after what was found, a few times.

Every round is on the trace: the exchange with the model, and what the sandbox made of the files.
"""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from journeyman.agents import answer
from journeyman.agents.answer import CITE, PLAYBOOK, Answer, Choose, call_of, line, nothing
from journeyman.core.candidate import BASE
from journeyman.core.playbook import Bullet
from journeyman.core.task import Task
from journeyman.core.trace import Step, ToolCall, Trace
from journeyman.io.markdown import Fence, fences
from journeyman.models.base import Dialect, Model, ModelRequest, PromptMessage

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
        system += f"\n\n{CITE}" + PLAYBOOK.format(bullets="\n".join(line(bullet) for bullet in bullets))
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
    """Writes, runs, reads the failure, repairs. Implements `rollout.Agent`."""

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
