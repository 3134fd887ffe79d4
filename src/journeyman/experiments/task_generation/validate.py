"""Are the tasks of a set sound? The reference passes each time, no cheat is paid, and no statement tells too much."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import Field

from journeyman import sandbox
from journeyman.core.score import Reward
from journeyman.experiments.task_generation.base import SLOWER, Metered
from journeyman.experiments.task_generation.generate import FOLDER, JOBS, kept_tree
from journeyman.experiments.task_generation.statements import told_by
from journeyman.io.executors import Spread
from journeyman.io.executors.jobs import JobItem
from journeyman.rewards.repository import verify
from journeyman.rewards.repository.cheats import attempts, changed_functions, place_of
from journeyman.rewards.repository.verdict import TESTS_SECONDS
from journeyman.sandbox import environments
from journeyman.sandbox.base import Limits, Program, Sandbox
from journeyman.tasks.repository import RepositoryTask, of_json
from journeyman.tasks.repository.tree import Tree

TIMES = 3
"""How often the reference must pass."""
_SPARE = 10.0
"""Seconds of CPU that all else may take beside `SLOWER` times what the reference took: many a cheat is a loop without end."""
MOST_ALIKE = 3
"""Tasks that are made of one function by one operator."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong with a task."""

    task: str
    what: str
    """One of few: reference, empty, paid, found, leak, duplicate, unexamined; of a cheat that was paid with its name behind a
    colon."""
    evidence: str = ""


@dataclass(slots=True, kw_only=True)
class Validation:
    """What was found of a set of tasks."""

    tasks: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    """Cheats that were tried, by kind."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Attempts of whose worth nothing can be told, by kind; "reference" are those."""
    flaws: list[Flaw] = field(default_factory=list)
    runs: int = 0
    cpu_seconds: float = 0.0
    """Of the runs in sandboxes that came to an end by themselves."""

    @property
    def sound(self) -> bool:
        return not self.flaws

    def include(self, part: "Validation") -> None:
        """What was found of some of the tasks."""
        self.attempts += part.attempts
        # A kind of which all can be told stands there with its zero, and `+=` would leave that out.
        self.unknown.update(part.unknown)
        self.flaws += part.flaws
        self.runs += part.runs
        self.cpu_seconds += part.cpu_seconds

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> "Validation":
        """What `as_json` told."""
        return cls(
            tasks=told["tasks"],
            attempts=Counter(told["attempts"]),
            unknown=Counter(told["unknown"]),
            flaws=[Flaw(**flaw) for flaw in told["flaws"]],
            runs=told["runs"],
            cpu_seconds=told["cpu_seconds"],
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "tasks": self.tasks,
            "sound": self.tasks - len({flaw.task for flaw in self.flaws}),
            "attempts": dict(self.attempts),
            "unknown": dict(self.unknown),
            "flaws": [{"task": flaw.task, "what": flaw.what, "evidence": flaw.evidence} for flaw in self.flaws],
            "runs": self.runs,
            "cpu_seconds": round(self.cpu_seconds, 1),
        }


async def validate(
    tasks: Sequence[RepositoryTask],
    folder: Path = FOLDER,
    *,
    box: str = "auto",
    every: bool = False,
    plugins: Sequence[str] = (),
    told: Callable[[RepositoryTask, Validation], None] = lambda *_: None,
) -> Validation:
    """Examine tasks by running them.

    Args:
        folder: Where environments and the files of repositories are kept.
        every: Try every cheat on each task, instead of one of each kind.
        plugins: Of pytest, by module, that the tests need.
        told: Called after each task.

    Raises:
        InputError: An environment or the files of a task are not there.
        SandboxError: The sandbox failed.
    """
    found = Validation(tasks=len(tasks), flaws=list(alike(tasks)))
    for digest, each in _by_environment(tasks).items():
        async with _examiner(folder, digest, box, plugins=plugins, every=every) as examiner:
            found.flaws += await examiner.lying_about(each)
            for part in await examiner.examine(each, lambda task: told(task, found)):
                found.include(part)
            found.runs += examiner.box.runs
            found.cpu_seconds += examiner.box.cpu_seconds
    return found


class TaskExamination(JobItem):
    """How tasks are examined; as with `validate`."""

    folder: str = str(FOLDER)
    sandbox: str = "auto"
    every: bool = False
    plugins: list[str] = Field(default_factory=list)

    def examiner(self, environment: str) -> "AbstractAsyncContextManager[_Examiner]":
        return _examiner(Path(self.folder), environment, self.sandbox, plugins=self.plugins, every=self.every)


class _ValidateItem(TaskExamination):
    task: dict[str, Any]


def validate_with(
    spread: Spread,
    tasks: Sequence[RepositoryTask],
    how: TaskExamination,
    *,
    told: Callable[[RepositoryTask], None] = lambda _: None,
) -> Validation:
    """`validate`, where each worker takes a task at a time, and finds the folder at the same place. Where what is right can be
    read is looked for here, once for an environment. A task that took longer than it may is not known to be sound."""
    found = Validation(tasks=len(tasks), flaws=list(alike(tasks)))

    async def lying(digest: str, each: Sequence[RepositoryTask]) -> None:
        async with how.examiner(digest) as examiner:
            found.flaws += await examiner.lying_about(each)
            found.runs += examiner.box.runs
            found.cpu_seconds += examiner.box.cpu_seconds

    for digest, each in _by_environment(tasks).items():
        asyncio.run(lying(digest, each))
        items = (_ValidateItem(task=task.as_json(), **how.json_item()).json_item() for task in each)
        for task, part in zip(each, spread.map(validate_item, items, failed=_given_up), strict=True):
            found.include(Validation.of_json(part))
            told(task)
    return found


def _given_up(item: Mapping[str, Any], why: str) -> dict[str, Any]:
    return Validation(tasks=1, flaws=[Flaw(of_json(item["task"]).id, "unexamined", why)]).as_json()


def validate_item(item: dict[str, Any]) -> dict[str, Any]:
    """What `validate_with` sends to workers: examines one task; `Validation.as_json` of it."""
    asked = _ValidateItem.read(item)
    task = of_json(asked.task)

    async def examined() -> Validation:
        async with asked.examiner(task.environment) as examiner:
            (found,) = await examiner.examine([task], lambda _: None)
            found.tasks, found.runs, found.cpu_seconds = 1, examiner.box.runs, examiner.box.cpu_seconds
            return found

    return asyncio.run(examined()).as_json()


def _by_environment(tasks: Sequence[RepositoryTask]) -> Mapping[str, list[RepositoryTask]]:
    found: dict[str, list[RepositoryTask]] = defaultdict(list)
    for task in tasks:
        found[task.environment].append(task)
    return found


@asynccontextmanager
async def _examiner(
    folder: Path, environment: str, box: str, *, plugins: Sequence[str], every: bool
) -> AsyncIterator["_Examiner"]:
    interpreter = environments.opened(folder, environment).interpreter
    async with sandbox.started(box, interpreter=interpreter) as opened:
        yield _Examiner(Metered(opened), folder, tuple(plugins), every)


@dataclass(slots=True)
class _Examiner:
    """Examines the tasks of one environment."""

    box: Metered
    folder: Path
    plugins: tuple[str, ...]
    every: bool
    trees: dict[str, Tree] = field(default_factory=dict)

    def tree(self, task: RepositoryTask) -> Tree:
        if task.tree not in self.trees:
            self.trees[task.tree] = kept_tree(task.tree, self.folder)
        return self.trees[task.tree]

    async def examine(self, tasks: Sequence[RepositoryTask], told: Callable[[RepositoryTask], None]) -> list[Validation]:
        """What was found of each, in their order, whichever was done first."""
        free = asyncio.Semaphore(JOBS)

        async def one(task: RepositoryTask) -> Validation:
            async with free:
                found = Validation(flaws=[Flaw(task.id, "leak", told) for told in told_by(task, self.tree(task))])
                await self._tried(task, found)
                told(task)
                return found

        return await asyncio.gather(*(one(task) for task in tasks))

    async def _tried(self, task: RepositoryTask, found: Validation) -> None:
        tree, flaws, unknown = self.tree(task), found.flaws, found.unknown
        took = 0.0
        for _ in range(TIMES):
            metered = Metered(self.box)
            right = await self._paid(task, task.right(tree).files, metered)
            took = max(took, metered.cpu_seconds)
            unknown["reference"] += right.value is None
            if right.value != 1.0:
                flaws.append(Flaw(task.id, "reference", right.evidence))
                break
        seconds = min(TESTS_SECONDS, _SPARE + SLOWER * took)
        empty = await self._paid(task, _as_given(task, tree), seconds=seconds)
        if empty.value != 0.0:
            flaws.append(Flaw(task.id, "empty", empty.evidence))
        for attempt in attempts(task, tree, every=self.every):
            cheat = attempt.cheat
            found.attempts[cheat.kind] += 1
            reward = await self._paid(task, attempt.left, seconds=seconds)
            unknown[cheat.kind] += reward.value is None
            if reward.value:
                flaws.append(Flaw(task.id, f"paid: {cheat.name}", reward.evidence))

    def _paid(
        self, task: RepositoryTask, left: Mapping[str, bytes], box: Sandbox | None = None, *, seconds: float = TESTS_SECONDS
    ) -> Awaitable[Reward]:
        return verify(task, self.tree(task), left, box or self.box, plugins=self.plugins, seconds=seconds)

    async def lying_about(self, tasks: Sequence[RepositoryTask]) -> list[Flaw]:
        """Where code in the sandbox can read what is right: beside what is given, or anywhere on the file system."""
        flaws, wanted, by_path = list[Flaw](), dict[str, str](), dict[str, set[str]]()
        for task in tasks:
            given = task.start(self.tree(task))
            for path, text in _right_texts(task, self.tree(task)):
                name = path.removeprefix(given.root)
                # Of each file its longest function: whoever has the file has that.
                wanted[name] = max(wanted.get(name, ""), text, key=len)
                by_path.setdefault(name, set()).add(task.id)
                if (at := next((other for other, data in given.files.items() if text.encode() in data), None)) is not None:
                    flaws.append(Flaw(task.id, "found", f"what is right stands in {at}, which is given"))
            if (at := next((other for other in given.files if ".git" in PurePosixPath(other).parts), None)) is not None:
                flaws.append(Flaw(task.id, "found", f"the history is given: {at}"))
        for name, evidence in await _searched(self.box, wanted):
            flaws += [Flaw(id, "found", evidence) for id in sorted(by_path.get(name, {task.id for task in tasks}))]
        return flaws


def _as_given(task: RepositoryTask, tree: Tree) -> Mapping[str, bytes]:
    """What was given, with a comment: who has changed nothing at all is refused unseen."""
    given, place = task.start(tree), place_of(task, tree)
    return given.files if place is None else given.changed({place.path: f"{given.text(place.path)}\n# nothing\n"}).files


def _right_texts(task: RepositoryTask, tree: Tree) -> Iterator[tuple[str, str]]:
    """Functions of the reference that are otherwise in what is given, by file."""
    given, right = task.start(tree), task.right(tree)
    for path in (path for path in task.reference if path.endswith(".py") and path in given.files and path in right.files):
        for text in changed_functions(given.text(path), right.text(path)).values():
            yield path, text


_SEARCH = """import bz2, io, json, lzma, os, stat, zipfile, zlib
texts = {path: text.encode() for path, text in json.loads(tools.wanted()).items()}
read = (".py", ".pyi", ".txt", ".md", ".rst", ".diff", ".patch", ".orig", ".rej", ".json", ".jsonl", ".ipynb", ".tar", "")
packed = (".zip", ".whl", ".egg", ".tgz", ".gz", ".bz2", ".xz", ".body", "")
unpackers = {b"\\x1f\\x8b": lambda: zlib.decompressobj(31), b"BZ": bz2.BZ2Decompressor, b"\\xfd7": lzma.LZMADecompressor}
found, most = [], 2**27

def stem(name):
    return name.partition(".")[0]

endings = {}
for path in texts:
    folder, _, name = f"/{path}".rpartition("/")
    endings.setdefault(stem(name), []).append((path, f"/{path}", f"{folder}/__pycache__/{name[:-3]}."))

def look(name, data):
    for path, text in texts.items():
        if text in data:
            found.append([path, name])

def unpacked(data):
    if data[:2] == b"PK":
        archive = zipfile.ZipFile(io.BytesIO(data))
        for name in archive.namelist():
            if name.endswith(".py"):
                yield f": {name}", archive.read(name)
    # What a tar holds stands in it as it is.
    while new := unpackers.get(data[:2]):
        one = new()
        yield "", one.decompress(data, most)
        data = one.unused_data

for top, folders, files in os.walk("/"):
    folders[:] = [each for each in folders if os.path.join(top, each) not in ("/proc", "/sys", "/dev", os.getcwd())]
    if ".git" in folders:
        found.append(["", os.path.join(top, ".git")])
    for each in files:
        path, ending = os.path.join(top, each), os.path.splitext(each)[1].lower()
        for wanted, source, compiled in endings.get(stem(each), ()):
            if path.endswith(source) or compiled in path:
                found.append([wanted, path])
        if ending not in read and ending not in packed:
            continue
        try:
            there = os.stat(path)
            if not stat.S_ISREG(there.st_mode) or there.st_size > 2**24:
                continue
            with open(path, "rb") as file:
                head = file.read(8)
                if head[:4] == b"\\x7fELF":
                    continue
                data = head + file.read()
        except OSError:
            continue
        if ending in read:
            look(path, data)
        if ending in packed:
            try:
                for member, text in unpacked(data):
                    look(path + member, text)
            except Exception:
                continue
tools.found(json.dumps(found))
"""


async def _searched(box: Sandbox, texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """Which texts stand in files that a sandbox shows, or have another copy there, and where."""
    told: list[str] = []

    async def wanted(_: Mapping[str, Any]) -> str:
        return json.dumps(dict(texts))

    async def found(arguments: Mapping[str, Any]) -> None:
        told.append(str(arguments["0"]))

    if not texts:
        return []
    limits = Limits(cpu_seconds=300, wall_seconds=900)
    outcome = await box.run(Program(code=_SEARCH, limits=limits), tools={"wanted": wanted, "found": found})
    if not told:
        raise RuntimeError(f"the search came to no end: {outcome.stderr[-300:]}")
    return [(path, f"what is right can be read in the sandbox: {place}") for path, place in json.loads(told[0])]


def alike(tasks: Sequence[RepositoryTask]) -> Iterator[Flaw]:
    """Those that are one too many of a function and an operator."""
    seen = Counter[tuple[str, str, str]]()
    for task in tasks:
        key = (task.repository, task.source, task.made_by)
        seen[key] += 1
        if seen[key] > MOST_ALIKE:
            yield Flaw(task.id, "duplicate", f"{seen[key]} tasks of {task.source} by {task.made_by}")
