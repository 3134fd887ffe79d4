"""What tasks are made of, and what makes them."""

import ast
import random
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Protocol

from journeyman.core import registry
from journeyman.rewards.checks import can_fail
from journeyman.rewards.repository import verify
from journeyman.rewards.repository.cheats import changed_functions
from journeyman.rewards.repository.suite import Steady, SuiteRun, run_suite
from journeyman.rewards.repository.verdict import checks_of
from journeyman.sandbox.base import Level, Limits, Program, RunOutcome, Sandbox, Session, Tool
from journeyman.sandbox.environments import VirtualEnvironment
from journeyman.tasks.repository import Checks, RepositoryTask, split_of
from journeyman.tasks.repository.mutations import SourceFunction, functions
from journeyman.tasks.repository.tree import Tree, place_of_test

MOST_COVERING = 40
"""Tests that are run on a change; the quickest of those that come by it."""
OTHERS = 10
"""Tests that are asked to go on passing where all that come by the change fail."""
SLOWER = 10.0
"""Times what it took when it was right, code may take that is not."""
_SPARE = 2.0
"""Seconds of CPU besides."""
_TREES = "trees"
"""Beside environments, the folder with the files that tasks start from."""


def tree_file(digest: str, folder: Path) -> Path:
    """Where files are kept, by their digest, in the folder of environments."""
    return folder / _TREES / f"{digest}.tar.gz"


def keep_tree(tree: Tree, folder: Path) -> None:
    """Keep files that a task starts from."""
    path = tree_file(tree.digest, folder)
    if not path.exists():
        tree.pack(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSource:
    """A repository that tasks are made of: its files, and what its tests do in its environment."""

    name: str
    tree: Tree
    environment: VirtualEnvironment
    suite: Steady
    source: Path
    """Where it was read from: commits are looked up there."""
    license: str = ""
    plugins: tuple[str, ...] = ()
    sandbox: str = "auto"
    """What its code is run in, by name."""

    def functions(self) -> Iterator[tuple[str, SourceFunction]]:
        """All functions of its own code, with the file."""
        for path in self.tree.sources:
            for function in functions(self.tree.text(path)):
                yield path, function

    def keep(self, tree: Tree) -> None:
        """Lay files that a task starts from beside those of the repository itself."""
        keep_tree(tree, self.environment.folder.parent)

    def covered(self, path: str) -> frozenset[int]:
        """The lines of a file that passing tests come by."""
        by_test = self.suite.run.lines.get(path, {})
        return frozenset(line for test in self.suite.passing for line in by_test.get(test, ()))

    def covering(self, path: str, lines: Sequence[int]) -> tuple[str, ...]:
        """Passing tests that come by any of the lines of a file, quickest first."""
        wanted, passing = set(lines), set(self.suite.passing)
        by_test = self.suite.run.lines.get(path, {})
        found = [test for test, each in by_test.items() if test in passing and wanted.intersection(each)]
        return tuple(sorted(found, key=lambda test: (round(self.suite.run.seconds.get(test, 0.0), 2), test)))

    def patience(self, tests: Iterable[str], most: float) -> float:
        """Seconds of CPU that tests may take on broken code: some times what they take on the code as it is, at most `most`.

        A fault is often a loop without end, and each would be waited for.
        """
        took, suite = self.suite.run.seconds, self.suite
        start = max(0.0, suite.cpu_seconds - sum(took.values()))
        return min(most, _SPARE + start + SLOWER * sum(took.get(test, 0.0) for test in tests))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDraft:
    """What may become a task, before anything of it was run."""

    key: str
    """Names it among all drafts of its generator, the same each time."""
    source: str
    """The function (`module:name`) or commit that it is made of."""
    kind: str = ""
    """Of which there may be too many: the operator of a mutation."""
    path: str = ""
    base: Mapping[str, str | None] = field(default_factory=dict)
    reference: Mapping[str, str | None] = field(default_factory=dict)
    lines: tuple[int, ...] = ()
    """What is changed, in the file as it is in the tree."""
    told: Mapping[str, str] = field(default_factory=dict)
    """What else its generator wants to remember of it."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why a draft is no task."""

    reason: str
    """One of few, to be counted by."""
    evidence: str = ""


class Generator(Protocol):
    """Makes tasks of one category. One of one's own is named `module:Class`, made without arguments, and is also a
    `CategoryCheck`."""

    category: str
    version: str

    def drafts(self, subject: TaskSource, chance: random.Random) -> Iterator[TaskDraft]:
        """What may become a task, in an order that only `chance` decides. Nothing of the repository is run here."""

    async def task(self, draft: TaskDraft, subject: TaskSource, box: Sandbox) -> RepositoryTask | Rejected:
        """The task, once running it has shown that it is one: what is given fails. Whether its reference would be paid is asked
        of every task, and not by its generator: see `reference_paid`.

        Raises:
            SandboxError: The sandbox itself failed.
        """


def leaks(words: str, *, secrets: Iterable[str], paths: Iterable[str] = ()) -> Iterator[str]:
    """What words tell that they should not: what is right, and, of what is to be found, in which file and line it is."""
    yield from (f"it says {secret!r}" for secret in secrets if secret in words)
    for path in (places := tuple(paths)):
        if path in words or PurePosixPath(path).name in words:
            yield f"it names {path}"
    if places and (line := re.search(r"\bline \d+", words)):
        yield f"it says {line[0]!r}"


def alternating(*streams: Iterator[TaskDraft]) -> Iterator[TaskDraft]:
    """One of each stream in turn, as long as there are any."""
    left = list(streams)
    while left:
        for stream in tuple(left):
            draft = next(stream, None)
            if draft is None:
                left.remove(stream)
            else:
                yield draft


def tested(
    draft: TaskDraft, subject: TaskSource, run: SuiteRun, tests: Sequence[str], *, category: str, made_by: str
) -> RepositoryTask | Rejected:
    """The task, still without its words, that follows from what tests did on the code that is given."""
    tests = sorted(tests)  # How long each took differs from time to time, and tasks must not.
    failing = tuple(test for test in tests if run.became.get(test) == "failed")
    if not failing:
        return Rejected("no test notices it")
    if any(run.became.get(test) is None for test in tests):
        return Rejected("the code cannot be imported", next(iter(run.why.values()), ""))
    keep = tuple(test for test in tests if run.passed(test)) or _others(subject, failing)
    if not keep:
        return Rejected("all tests fail")
    task = RepositoryTask(
        category=category,
        repository=subject.name,
        tree=subject.tree.digest,
        environment=subject.environment.digest,
        statement="",
        base=draft.base,
        reference=draft.reference,
        checks=Checks(fail_to_pass=failing, pass_to_pass=keep),
        level={"lines": 1.0, "files": 1.0, "failing": float(len(failing)), "covering": float(len(tests))},
        source=draft.source,
        made_by=made_by,
        license=subject.license,
        split=split_of(subject.name, draft.source),
    )
    return noticed(task, subject.tree)


def _others(subject: TaskSource, failing: Sequence[str]) -> tuple[str, ...]:
    """Tests of the same files that have nothing to do with it."""
    files, gone = {test.partition("::")[0] for test in failing}, set(failing)
    same = [test for test in subject.suite.passing if test.partition("::")[0] in files and test not in gone]
    return tuple(same[:OTHERS])


def noticed(task: RepositoryTask, tree: Tree) -> RepositoryTask | Rejected:
    """The task, where passing its tests says something: each file of them holds some that could fail."""
    for check in checks_of(task, task.examined(tree, task.right(tree))):
        names = {name for path, name in map(place_of_test, task.checks.fail_to_pass) if path == check.file}
        if not can_fail(check, names):
            return Rejected("its tests assert nothing that could be turned round")
    return task


def right_texts(task: RepositoryTask, given: Tree) -> Iterator[tuple[str, str]]:
    """Functions of the reference that are otherwise in what is given, by file."""
    for path, text in task.reference.items():
        if path.endswith(".py") and path in given.files and text is not None:
            yield from ((path, each) for each in changed_functions(given.text(path), text).values())


def given_away(task: RepositoryTask, given: Tree) -> Iterator[str]:
    """Files that are given and in which what is right can be read."""
    for _, text in right_texts(task, given):
        yield from (path for path, data in given.files.items() if text.encode() in data)


def is_stub(text: str) -> bool:
    """Whether a function is what somebody writes who does nothing: a constant or an argument comes back, and that is all."""
    made = ast.parse(textwrap.dedent(text)).body[0]
    assert isinstance(made, ast.FunctionDef | ast.AsyncFunctionDef)
    match made.body[ast.get_docstring(made, clean=False) is not None :]:
        case [] | [ast.Pass()] | [ast.Return(value=None | ast.Constant() | ast.Name())]:
            return True
        case _:
            return False


async def reference_paid(
    task: RepositoryTask, tree: Tree, box: Sandbox, *, plugins: Sequence[str] = ()
) -> RepositoryTask | Rejected:
    """The task, where what examines an agent's answer pays the reference: its tests pass, and their passing is believed.

    Raises:
        SandboxError: The sandbox itself failed.
    """
    reward = await verify(task, tree, task.right(tree).files, box, plugins=plugins)
    if reward.value == 1.0:
        return task
    why = "whether its reference is right cannot be told" if reward.value is None else "the reference does not pass"
    return Rejected(why, reward.evidence or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A task whose tests were run before and after the work."""

    task: RepositoryTask
    before: SuiteRun


async def settled(
    task: RepositoryTask, tree: Tree, box: Sandbox, *, plugins: Sequence[str] = (), seconds: float = 15.0
) -> Settled | Rejected:
    """The task with those of its tests that fail before the work and pass after it, and those that pass both times.

    Tests that take too long before it fail, too.

    Raises:
        SandboxError: The sandbox itself failed.
    """
    asked = sorted({*task.checks.fail_to_pass, *task.checks.pass_to_pass})
    before = await run_suite(box, task.examined(tree, tree.changed(task.base)), asked, seconds=seconds, plugins=plugins)
    # How long it waited says how busy the machine is.
    too_long = before.outcome is not None and before.outcome.limit == "cpu"
    if before.broken and not too_long:
        return Rejected("it ends the tests", before.broken)
    if all(before.passed(test) for test in asked):
        return Rejected("no test tells the work from none")
    work = tree.changed(task.base).changed(task.reference)
    after = await run_suite(box, task.examined(tree, work), asked, seconds=seconds, plugins=plugins)
    passing = sorted(test for test in after.became if after.passed(test))
    if not passing:
        return Rejected("its tests do not pass on its own code", after.broken or next(iter(after.why.values()), ""))
    failing = tuple(test for test in passing if not before.passed(test))
    if not failing:
        return Rejected("no test tells the work from none")
    keep = tuple(test for test in passing if before.passed(test))
    level = {**task.level, "failing": float(len(failing)), "covering": float(len(passing))}
    checks = replace(task.checks, fail_to_pass=failing, pass_to_pass=keep)
    found = noticed(replace(task, checks=checks, level=level), tree)
    return found if isinstance(found, Rejected) else Settled(task=found, before=before)


def generator_of(category: str) -> Generator:
    """
    Raises:
        InputError: No tasks of such a category can be made.
    """
    made: Generator = registry.load("generators", category)()
    return made


@dataclass(slots=True)
class Shares:
    """Keeps any kind, and any function, from being most of a set."""

    most_of_kind: float = 0.25
    most_of_source: int = 3
    wanted: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)

    def admits(self, draft: TaskDraft) -> bool:
        """Whether there may be one more of the kind and of the source."""
        full = draft.kind and self.kinds[draft.kind] >= max(1, int(self.most_of_kind * self.wanted))
        return not full and self.sources[draft.source] < self.most_of_source

    def count(self, draft: TaskDraft) -> None:
        self.kinds[draft.kind] += 1
        self.sources[draft.source] += 1


@dataclass(slots=True)
class Metered:
    """A sandbox that counts what its runs cost. Sessions are not counted."""

    box: Sandbox
    cpu_seconds: float = 0.0
    runs: int = 0
    longest: float = 0.0
    """CPU seconds of the run that took most."""

    @property
    def level(self) -> Level:
        return self.box.level

    async def start(self) -> None:
        await self.box.start()

    async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> RunOutcome:
        outcome = await self.box.run(program, tools=tools)
        self.runs += 1
        self.cpu_seconds += outcome.cpu_seconds or 0.0
        self.longest = max(self.longest, outcome.cpu_seconds or 0.0)
        return outcome

    async def session(
        self, *, limits: Limits | None = None, files: Mapping[str, bytes] | None = None, idle_seconds: float = 600.0
    ) -> Session:
        return await self.box.session(limits=limits, files=files, idle_seconds=idle_seconds)

    async def close(self) -> None:
        await self.box.close()
