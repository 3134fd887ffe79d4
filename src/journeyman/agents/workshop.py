"""Where tasks of repositories are worked on: their files, the sandboxes of their environments, what an attempt left."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from journeyman.core.errors import SandboxError, TaskError
from journeyman.core.score import Reward
from journeyman.core.task import Task
from journeyman.core.trace import Step, ToolCall, Trace
from journeyman.rewards.repository import verify
from journeyman.rewards.repository.suite import limits_for
from journeyman.sandbox.base import KIB, Program, RunOutcome, Sandbox
from journeyman.tasks.repository import RepositoryTask
from journeyman.tasks.repository.tree import Tree, is_source

PLACE = "workspace"
"""The folder, in a run's own, in which the repository lies: beside it is what is no part of it."""
SUBMIT = "submit"
"""The step of a trace that holds what was left."""

# What a task is worked on in, and judged by.


class RepositoryWorkshop:
    """Tasks of repositories with their files and the sandboxes of their environments. Implements `tasks.base.Verifier`.

    Of what runs here, only so much runs at once; what else is asked for waits.
    """

    def __init__(
        self,
        tasks: Sequence[RepositoryTask],
        tree: Callable[[str], Tree],
        open_sandbox: Callable[[str], Sandbox],
        *,
        jobs: int = 2,
        plugins: Sequence[str] = (),
    ) -> None:
        """
        Args:
            tree: Gives the files of a digest.
            open_sandbox: Gives a sandbox in the environment of a digest; it is started, and closed, here.
            jobs: Runs at once.
            plugins: Of pytest, by module, that the tests need.
        """
        self._tasks = {task.id: task for task in tasks}
        self._tree, self._open, self._jobs, self._plugins = tree, open_sandbox, jobs, tuple(plugins)
        self._trees: dict[str, Tree] = {}
        self._boxes: dict[str, Sandbox] = {}
        self._turns: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None
        self.known: dict[tuple[str, str], Reward] = {}
        """Verdicts that were reached, by task and by the digest of what was examined: the same work is not judged twice."""

    @property
    def tasks(self) -> tuple[RepositoryTask, ...]:
        return tuple(self._tasks.values())

    def of(self, task: Task) -> RepositoryTask:
        """
        Raises:
            TaskError: It is none of these.
        """
        if task.id not in self._tasks:
            raise TaskError(f"{task.id} is none of the {len(self._tasks)} tasks of repositories that are worked on")
        return self._tasks[task.id]

    def tree(self, task: RepositoryTask) -> Tree:
        """The files that it was made of."""
        if task.tree not in self._trees:
            self._trees[task.tree] = self._tree(task.tree)
        return self._trees[task.tree]

    def box(self, task: RepositoryTask) -> Sandbox:
        """The sandbox of its environment."""
        if task.environment not in self._boxes:
            self._boxes[task.environment] = self._open(task.environment)
        return self._boxes[task.environment]

    @property
    def turn(self) -> asyncio.Semaphore:
        """To be held by whoever runs something."""
        loop = asyncio.get_running_loop()
        if self._turns is None or self._turns[0] is not loop:
            self._turns = loop, asyncio.Semaphore(self._jobs)
        return self._turns[1]

    async def start(self) -> None:
        """See that every task has its files, and a sandbox that runs.

        Raises:
            InputError: The files or the environment of a task are not here.
            SandboxError: A sandbox cannot run.
        """
        for task in self._tasks.values():
            self.tree(task)
            self.box(task)
        for box in self._boxes.values():
            await box.start()

    async def close(self) -> None:
        """End the sandboxes. The next run opens others."""
        boxes, self._boxes = list(self._boxes.values()), {}
        for box in boxes:
            await box.close()

    def examined(self, task: RepositoryTask, trace: Trace) -> Tree:
        """What is judged of an attempt."""
        tree = self.tree(task)
        return task.taken(tree, task.start(tree).changed(left_in(trace)).files)

    async def verify(self, task: Task, trace: Trace) -> Reward:
        """Whether what the attempt left does what was asked."""
        own = self.of(task)
        left = self.examined(own, trace)
        if (key := (own.id, left.digest)) not in self.known:
            async with self.turn:
                try:
                    found = await verify(own, self.tree(own), left.files, self.box(own), plugins=self._plugins)
                except SandboxError as error:
                    return Reward(name="repository", value=None, evidence=str(error))
            if found.value is None:
                return found
            self.known[key] = found
        return self.known[key]


def submitted(task: RepositoryTask, start: Tree, files: Mapping[str, bytes], said: str = "") -> ToolCall:
    """The last step of an attempt: what it left, as far as it may change it."""
    touched = sorted(path for path in {*files, *start.files} if files.get(path) != start.files.get(path))
    kept = {path: files[path].decode(errors="replace") if path in files else None for path in touched if task.allows(path)}
    others = [path for path in touched if not task.allows(path)]
    lines = [said, f"{len(kept)} files changed", *([f"not taken over: {', '.join(others[:20])}"] if others else [])]
    return ToolCall(
        tool=SUBMIT, arguments=json.dumps({"files": kept}, ensure_ascii=False), result="\n".join(filter(None, lines))
    )


def left_in(trace: Trace) -> dict[str, str | None]:
    """What an attempt changed: texts by path, and `None` for what is gone. Nothing where it broke off."""
    last = next((step for step in reversed(trace.steps) if isinstance(step, ToolCall) and step.tool == SUBMIT), None)
    return {} if last is None else dict(json.loads(last.arguments)["files"])


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedAgent:
    """Leaves what was prepared: for calibration, or because it was attempted before. Implements `attempt.Agent`."""

    deterministic: ClassVar[bool] = True

    workshop: RepositoryWorkshop
    changes: Callable[[RepositoryTask], Mapping[str, str | None]]
    candidate_id: str

    async def run(self, task: Task) -> AsyncIterator[Step]:
        own = self.workshop.of(task)
        start = own.start(self.workshop.tree(own))
        yield submitted(own, start, start.changed(self.changes(own)).files)


# The files, and what the tools do with them.

SHOWN_LINES = 400
SHOWN_HITS = 60
LONGEST = 8 * KIB
"""Of what a tool says; of more the middle is left out."""
_MARKS = re.compile(r"\A<{5,9} ?SEARCH\n(?P<old>.*?\n?)={5,9}\n(?P<new>.*?)>{5,9} ?REPLACE\n?\Z", re.DOTALL)


class Refused(Exception):
    """A tool was not used as it can be; the model is told."""


def read(files: Mapping[str, bytes], path: str, lines: str) -> str:
    """Lines of a file with their numbers, or the paths below a folder."""
    if path not in files:
        found = below(files, path)
        if not found:
            raise Refused(f"there is no {path}; `search` finds files by a part of their path")
        return "\n".join(found[:SHOWN_LINES])
    text = files[path].decode(errors="replace").splitlines()
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", lines or "1")
    if match is None:
        raise Refused(f"lines={lines} is no range such as 10-80")
    first = max(1, int(match[1]))
    last = min(len(text), int(match[2]) if match[2] else first + SHOWN_LINES - 1, first + SHOWN_LINES - 1)
    more = f"\n({len(text)} lines in all)" if last < len(text) else ""
    return "\n".join(f"{number:5} {text[number - 1]}" for number in range(first, last + 1)) + more


def below(files: Mapping[str, bytes], folder: str) -> list[str]:
    """The paths in a folder; all of them in "." ."""
    prefix = "" if folder in ("", ".") else f"{folder.rstrip('/')}/"
    return sorted(path for path in files if path.startswith(prefix))


def search(files: Mapping[str, bytes], wanted: str, folder: str) -> str:
    """Lines that hold a text, and paths that do. No pattern: one that a model wrote could run for ever here."""
    wanted = wanted.strip().partition("\n")[0]
    if not wanted:
        raise Refused("the block of `search` holds the text that is looked for")
    hits = list(_hits(files, wanted.casefold(), folder))
    more = f"\nand {len(hits) - SHOWN_HITS} more" if len(hits) > SHOWN_HITS else ""
    return "\n".join(hits[:SHOWN_HITS]) + more if hits else f"nothing holds {wanted!r}"


def _hits(files: Mapping[str, bytes], wanted: str, folder: str) -> Iterator[str]:
    for path in below(files, folder):
        if wanted in path.casefold():
            yield path
        if b"\0" in files[path][: 8 * KIB]:
            continue
        for number, line in enumerate(files[path].decode(errors="replace").splitlines(), start=1):
            if wanted in line.casefold():
                yield f"{path}:{number}: {line.strip()[:200]}"


def edited(text: str, body: str) -> str:
    """A text with a part that occurs once replaced.

    Raises:
        Refused: It does not, or the block is no replacement.
    """
    found = _MARKS.match(body)
    if found is None or not found["old"]:
        raise Refused("an `edit` holds <<<<<<< SEARCH, the old lines, =======, the new lines, >>>>>>> REPLACE")
    return replaced(text, found["old"], found["new"])


def replaced(text: str, old: str, new: str) -> str:
    """A text with a part that occurs once replaced.

    Raises:
        Refused: It does not.
    """
    if not old or (times := text.count(old)) != 1:
        raise Refused(f"the old lines occur {times if old else 0} times, and must once, letter for letter; `read` shows them")
    return text.replace(old, new, 1)


async def run_in(
    workshop: RepositoryWorkshop, task: RepositoryTask, files: Mapping[str, bytes], command: str, seconds: float
) -> tuple[RunOutcome, dict[str, bytes]]:
    """Run a shell command in the repository; what happened, and the files after it.

    Raises:
        SandboxError: The sandbox itself failed.
    """
    tree = Tree(files)
    roots = ":".join(f"$PWD/{root}".rstrip("/") for root in dict.fromkeys((tree.root, "")))
    code = f'exec 2>&1\ncd {PLACE}\nexport PYTHONPATH="{roots}" PYTHONDONTWRITEBYTECODE=1\n{command}\n'
    program = Program(
        code=code,
        language="shell",
        files=placed(files),
        limits=replace(limits_for(tree, seconds), output=LONGEST),
        collect=(f"{PLACE}/**",),
    )
    async with workshop.turn:
        outcome = await workshop.box(task).run(program)
    return outcome, taken_back(files, outcome.files)


def placed(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Where files lie in a run."""
    return {f"{PLACE}/{path}": data for path, data in files.items()}


def taken_back(before: Mapping[str, bytes], collected: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of a repository after a run; those of before where the run moved all of them away."""
    found = {path.removeprefix(f"{PLACE}/"): data for path, data in collected.items()}
    return {path: data for path, data in found.items() if path in before or is_source(path)} or dict(before)


def shortened(text: str) -> str:
    """What a tool says, without the middle of what is too long."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}\n[…]\n{text[-LONGEST // 2 :]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLimits:
    """What one attempt may take. Money is limited at the model: see `agents.replay.WithinBudget`."""

    rounds: int = 30
    """Replies of the model."""
    tokens: int = 500_000
    """In and out, as the server counts them. Where it does not, letters are counted."""
    run_seconds: float = 60.0
    """Of computing, for each command."""
    wall_seconds: float = 1800.0
    """Of a foreign agent, for the whole attempt."""
