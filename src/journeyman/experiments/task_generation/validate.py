"""Are the tasks of a set sound? The reference passes each time, no cheat is paid, and no statement tells too much."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from journeyman import sandbox
from journeyman.core.score import Reward
from journeyman.experiments.task_generation.base import Metered
from journeyman.experiments.task_generation.generate import FOLDER, JOBS, kept_tree
from journeyman.experiments.task_generation.statements import told_by
from journeyman.rewards.repository import verify
from journeyman.rewards.repository.cheats import attempts, changed_functions, place_of
from journeyman.sandbox import environments
from journeyman.sandbox.base import Limits, Program, Sandbox
from journeyman.tasks.repository import RepositoryTask
from journeyman.tasks.repository.tree import Tree

TIMES = 3
"""How often the reference must pass."""
MOST_ALIKE = 3
"""Tasks that are made of one function by one operator."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong with a task."""

    task: str
    what: str
    """One of few: reference, empty, paid, found, leak, duplicate; of a cheat that was paid with its name behind a colon."""
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
    by_environment: dict[str, list[RepositoryTask]] = defaultdict(list)
    for task in tasks:
        by_environment[task.environment].append(task)
    for digest, each in by_environment.items():
        environment = environments.opened(folder, digest)
        async with sandbox.started(box, interpreter=environment.interpreter) as opened:
            examiner = _Examiner(Metered(opened), folder, tuple(plugins), every, found)
            found.flaws += await examiner.lying_about(each)
            await examiner.examine(each, told)
            found.runs += examiner.box.runs
            found.cpu_seconds += examiner.box.cpu_seconds
    return found


@dataclass(slots=True)
class _Examiner:
    """Examines the tasks of one environment."""

    box: Metered
    folder: Path
    plugins: tuple[str, ...]
    every: bool
    found: Validation
    trees: dict[str, Tree] = field(default_factory=dict)

    def tree(self, task: RepositoryTask) -> Tree:
        if task.tree not in self.trees:
            self.trees[task.tree] = kept_tree(task.tree, self.folder)
        return self.trees[task.tree]

    async def examine(self, tasks: Sequence[RepositoryTask], told: Callable[[RepositoryTask, Validation], None]) -> None:
        free = asyncio.Semaphore(JOBS)

        async def one(task: RepositoryTask) -> None:
            async with free:
                self.found.flaws += [Flaw(task.id, "leak", told) for told in told_by(task, self.tree(task))]
                await self._tried(task)
                told(task, self.found)

        await asyncio.gather(*(one(task) for task in tasks))

    async def _tried(self, task: RepositoryTask) -> None:
        tree = self.tree(task)
        flaws, unknown = self.found.flaws, self.found.unknown
        empty = await self._paid(task, _as_given(task, tree))
        if empty.value != 0.0:
            flaws.append(Flaw(task.id, "empty", empty.evidence))
        for _ in range(TIMES):
            right = await self._paid(task, task.right(tree).files)
            unknown["reference"] += right.value is None
            if right.value != 1.0:
                flaws.append(Flaw(task.id, "reference", right.evidence))
                break
        for attempt in attempts(task, tree, every=self.every):
            cheat = attempt.cheat
            self.found.attempts[cheat.kind] += 1
            reward = await self._paid(task, attempt.left)
            unknown[cheat.kind] += reward.value is None
            if reward.value:
                flaws.append(Flaw(task.id, f"paid: {cheat.name}", reward.evidence))

    def _paid(self, task: RepositoryTask, left: Mapping[str, bytes]) -> Awaitable[Reward]:
        return verify(task, self.tree(task), left, self.box, plugins=self.plugins)

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


_SEARCH = """import io, json, os, tarfile, zipfile
texts = {path: text.encode() for path, text in json.loads(tools.wanted()).items()}
endings = {f"/{path}": path for path in texts}
for path in texts:
    folder, _, name = path.rpartition("/")
    endings[f"/{folder}/__pycache__/{name[:-3]}.".replace("//", "/")] = path
read = (".py", ".pyi", ".txt", ".md", ".rst", ".diff", ".patch", ".orig", ".rej", ".json", ".jsonl", ".ipynb", "")
packed = (".zip", ".whl", ".egg", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".body", "")
found = []

def named(path):
    ends = lambda ending: path.endswith(ending) or (ending[-1] == "." and ending in path)
    return next((each for ending, each in endings.items() if ends(ending)), None)

def look(name, data):
    for path, text in texts.items():
        if text in data:
            found.append([path, name])

def members(data):
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        yield from ((name, archive.read(name)) for name in archive.namelist() if name.endswith(".py"))
    except Exception:
        pass
    try:
        archive = tarfile.open(fileobj=io.BytesIO(data))
        yield from ((each.name, archive.extractfile(each).read()) for each in archive if each.name.endswith(".py"))
    except Exception:
        pass

for top, folders, files in os.walk("/"):
    folders[:] = [each for each in folders if os.path.join(top, each) not in ("/proc", "/sys", "/dev", os.getcwd())]
    if ".git" in folders:
        found.append(["", os.path.join(top, ".git")])
    for each in files:
        path, ending = os.path.join(top, each), os.path.splitext(each)[1].lower()
        if named(path):
            found.append([named(path), path])
        if ending not in (*read, *packed) or not os.path.isfile(path) or os.path.getsize(path) > 2**24:
            continue
        try:
            with open(path, "rb") as file:
                head = file.read(8)
                if head[:4] == b"\\x7fELF":
                    continue
                data = head + file.read()
        except OSError:
            continue
        if ending in read:
            look(path, data)
        if ending in packed and (head[:2] in (b"PK", b"\\x1f\\x8b", b"BZ", b"\\xfd7") or ending == ".tar"):
            for name, text in members(data):
                look(f"{path}: {name}", text)
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
