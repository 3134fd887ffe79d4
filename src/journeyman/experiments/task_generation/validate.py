"""Are the tasks of a set sound? The reference passes each time, no cheat is paid, and no statement tells too much."""

import asyncio
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import Field

from journeyman import sandbox
from journeyman.core.score import Reward
from journeyman.experiments.task_generation.base import SLOWER, Metered, given_away, right_texts
from journeyman.experiments.task_generation.generate import FOLDER, JOBS, journal_lines, kept_tree
from journeyman.experiments.task_generation.statements import told_by
from journeyman.io.executors import Spread
from journeyman.io.executors.jobs import JobItem
from journeyman.io.jsonl import append_line
from journeyman.rewards.repository import verify
from journeyman.rewards.repository.cheats import attempts, place_of
from journeyman.rewards.repository.verdict import TESTS_SECONDS
from journeyman.sandbox import environments
from journeyman.sandbox.base import Limits, Program, Sandbox
from journeyman.tasks.repository import RepositoryTask, of_json
from journeyman.tasks.repository.tree import Tree

TIMES = 3
"""How often the reference must pass."""
_SPARE = 10.0
"""CPU seconds that a run of all else may take beside `SLOWER` times the reference's longest: a cheat may be an endless loop."""
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


async def validate(  # noqa: PLR0913 - what is asked, and of what
    tasks: Sequence[RepositoryTask],
    folder: Path = FOLDER,
    *,
    box: str = "auto",
    every: bool = False,
    plugins: Sequence[str] = (),
    journal: Path | None = None,
    told: Callable[[RepositoryTask, Validation], None] = lambda *_: None,
) -> Validation:
    """Examine tasks by running them.

    Args:
        folder: Where environments and the files of repositories are kept.
        every: Try every cheat on each task, instead of one of each kind.
        plugins: Of pytest, by module, that the tests need.
        journal: Where what was found of each task is kept as long as this goes on: a run that was killed goes on there.
        told: Called after each task with what was found of it.

    Raises:
        InputError: An environment or the files of a task are not there.
        SandboxError: The sandbox failed.
    """
    found = Validation(tasks=len(tasks), flaws=list(alike(tasks)))
    kept = _Kept.opened(journal, every=every, plugins=list(plugins), sandbox=box)

    def done(task: RepositoryTask, part: Validation) -> None:
        kept.add(task.id, part)
        told(task, part)

    for digest, each in _by_environment(tasks).items():
        async with _examiner(folder, digest, box, plugins=plugins, every=every) as examiner:
            if (lying := _key(digest, each)) not in kept.found:
                kept.add(lying, await examiner.lying_about(each))
            await examiner.examine([task for task in each if task.id not in kept.found], done)
        for part in (kept.found[key] for key in (lying, *(task.id for task in each))):
            found.include(part)
    kept.done()
    return found


@dataclass(slots=True)
class _Kept:
    """What was found, by task, and of all in an environment together."""

    path: Path | None
    found: dict[str, Validation]

    @classmethod
    def opened(cls, path: Path | None, **how: Any) -> "_Kept":
        """With what a killed run of the same code has found, where it asked in the same way."""
        rows = journal_lines(path, {"journeyman": version("journeyman"), **how}) if path else []
        return cls(path, {str(row["key"]): Validation.of_json(row["found"]) for row in rows})

    def add(self, key: str, found: Validation) -> None:
        self.found[key] = found
        if self.path:
            append_line(self.path, json.dumps({"key": key, "found": found.as_json()}))

    def done(self) -> None:
        if self.path:
            self.path.unlink(missing_ok=True)


def _key(environment: str, tasks: Sequence[RepositoryTask]) -> str:
    """Names what is asked of all tasks in an environment together."""
    ids = hashlib.sha256(" ".join(sorted(task.id for task in tasks)).encode())
    return f"{environment} {ids.hexdigest()[:16]}"


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
    journal: Path | None = None,
    told: Callable[[RepositoryTask, Validation], None] = lambda *_: None,
) -> Validation:
    """`validate`, where each worker takes a task at a time, and finds the folder at the same place. Where what is right can be
    read is looked for here, once for an environment. A task that took longer than it may is not known to be sound."""
    found = Validation(tasks=len(tasks), flaws=list(alike(tasks)))
    kept = _Kept.opened(journal, every=how.every, plugins=how.plugins, sandbox=how.sandbox)

    async def lying_about(digest: str, each: Sequence[RepositoryTask]) -> Validation:
        async with how.examiner(digest) as examiner:
            return await examiner.lying_about(each)

    for digest, each in _by_environment(tasks).items():
        if (lying := _key(digest, each)) not in kept.found:
            kept.add(lying, asyncio.run(lying_about(digest, each)))
        left = [task for task in each if task.id not in kept.found]
        items = (_ValidateItem(task=task.as_json(), **how.json_item()).json_item() for task in left)
        for task, row in zip(left, spread.map(validate_item, items, failed=_given_up), strict=True):
            kept.add(task.id, part := Validation.of_json(row))
            told(task, part)
        for part in (kept.found[key] for key in (lying, *(task.id for task in each))):
            found.include(part)
    kept.done()
    return found


def _given_up(item: Mapping[str, Any], why: str) -> dict[str, Any]:
    return Validation(tasks=1, flaws=[Flaw(of_json(item["task"]).id, "unexamined", why)]).as_json()


def validate_item(item: dict[str, Any]) -> dict[str, Any]:
    """What `validate_with` sends to workers: examines one task; `Validation.as_json` of it."""
    asked = _ValidateItem.read(item)
    task = of_json(asked.task)

    async def examined() -> Validation:
        async with asked.examiner(task.environment) as examiner:
            return await examiner.one(task)

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
        yield _Examiner(opened, folder, tuple(plugins), every)


@dataclass(slots=True)
class _Examiner:
    """Examines the tasks of one environment."""

    box: Sandbox
    folder: Path
    plugins: tuple[str, ...]
    every: bool
    trees: dict[str, Tree] = field(default_factory=dict)

    def tree(self, task: RepositoryTask) -> Tree:
        if task.tree not in self.trees:
            self.trees[task.tree] = kept_tree(task.tree, self.folder)
        return self.trees[task.tree]

    async def examine(self, tasks: Sequence[RepositoryTask], told: Callable[[RepositoryTask, Validation], None]) -> None:
        """Tell what was found of each, whichever was done first."""
        free = asyncio.Semaphore(JOBS)

        async def examined(task: RepositoryTask) -> None:
            async with free:
                told(task, await self.one(task))

        await asyncio.gather(*map(examined, tasks))

    async def one(self, task: RepositoryTask) -> Validation:
        """What was found of a task by itself."""
        tree, box = self.tree(task), Metered(self.box)
        found = Validation(tasks=1, flaws=[Flaw(task.id, "leak", told) for told in told_by(task, tree)])
        # Once as it is, then with a comment and so beside the reference: what does now this and now that is seen.
        right = task.right(tree)
        for left in (right, *[commented(task, tree, right)] * (TIMES - 1)):
            reward = await self._paid(task, left.files, box)
            found.unknown["reference"] += reward.value is None
            if reward.value != 1.0:
                found.flaws.append(Flaw(task.id, "reference", reward.evidence))
                break
        seconds = min(TESTS_SECONDS, _SPARE + SLOWER * box.longest)
        # Who has changed nothing at all is refused unseen.
        empty = await self._paid(task, commented(task, tree, task.start(tree)).files, box, seconds=seconds)
        if empty.value != 0.0:
            found.flaws.append(Flaw(task.id, "empty", empty.evidence))
        for attempt in attempts(task, tree, every=self.every):
            cheat = attempt.cheat
            found.attempts[cheat.kind] += 1
            reward = await self._paid(task, attempt.left, box, seconds=seconds)
            found.unknown[cheat.kind] += reward.value is None
            if reward.value:
                found.flaws.append(Flaw(task.id, f"paid: {cheat.name}", reward.evidence))
        found.runs, found.cpu_seconds = box.runs, box.cpu_seconds
        return found

    def _paid(
        self, task: RepositoryTask, left: Mapping[str, bytes], box: Sandbox, *, seconds: float = TESTS_SECONDS
    ) -> Awaitable[Reward]:
        return verify(task, self.tree(task), left, box, plugins=self.plugins, seconds=seconds)

    async def lying_about(self, tasks: Sequence[RepositoryTask]) -> Validation:
        """Where code in the sandbox can read what is right: beside what is given, or anywhere on the file system."""
        box, flaws, wanted, by_path = Metered(self.box), list[Flaw](), dict[str, str](), dict[str, set[str]]()
        for task in tasks:
            given = task.start(self.tree(task))
            for path, text in right_texts(task, given):
                name = path.removeprefix(given.root)
                # Of each file its longest function: whoever has the file has that.
                wanted[name] = max(wanted.get(name, ""), text, key=len)
                by_path.setdefault(name, set()).add(task.id)
            flaws += [Flaw(task.id, "found", f"what is right stands in {at}, which is given") for at in given_away(task, given)]
            if (at := next((other for other in given.files if ".git" in PurePosixPath(other).parts), None)) is not None:
                flaws.append(Flaw(task.id, "found", f"the history is given: {at}"))
        for name, evidence in await _searched(box, wanted):
            flaws += [Flaw(id, "found", evidence) for id in sorted(by_path.get(name, {task.id for task in tasks}))]
        return Validation(flaws=flaws, runs=box.runs, cpu_seconds=box.cpu_seconds)


def commented(task: RepositoryTask, tree: Tree, state: Tree) -> Tree:
    """A state of the repository with a comment more where the reference changes something."""
    place = place_of(task, tree)
    return state if place is None else state.changed({place.path: f"{state.text(place.path)}\n# nothing\n"})


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
