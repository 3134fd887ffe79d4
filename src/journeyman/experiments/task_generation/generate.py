"""From a repository to a file of tasks: drafts are tried in an order that the seed decides, and what was tried is kept."""

import asyncio
import hashlib
import json
import random
import re
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from collections.abc import Generator as Generating
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from journeyman import sandbox
from journeyman.core.errors import InputError
from journeyman.experiments.task_generation.base import (
    Generator,
    Metered,
    Rejected,
    Shares,
    TaskDraft,
    TaskSource,
    generator_of,
    given_away,
    is_stub,
    keep_tree,
    reference_paid,
    right_texts,
    settled,
    tree_file,
)
from journeyman.io.atomic import write_text
from journeyman.io.executors import Spread, jobs
from journeyman.io.executors.jobs import JobItem
from journeyman.io.files import read_json
from journeyman.io.jsonl import append_line, iter_jsonl, json_object
from journeyman.rewards.repository.suite import SUITE_SECONDS, Steady, SuiteRun, steady
from journeyman.sandbox import environments
from journeyman.sandbox.base import Sandbox
from journeyman.tasks import repository
from journeyman.tasks.repository import RepositoryTask
from journeyman.tasks.repository.foreign import check_format, read_foreign
from journeyman.tasks.repository.tree import Tree, read_tree

FOLDER = Path(".journeyman/environments")
"""Where environments and the files of repositories are kept, in the project."""
JOBS = 2
_UNMEASURED = Steady(passing=(), flaky=(), failing=(), cpu_seconds=0.0, run=SuiteRun())


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentOptions:
    """How a repository's environment is made."""

    folder: Path = FOLDER
    commit: str = ""
    """Of the repository; empty is what is checked out last."""
    extra: tuple[str, ...] = ()
    """Packages that its tests need besides those that it names, as pip takes them."""
    python: str = ""
    """Another Python than this one, such as 3.12."""
    plugins: tuple[str, ...] = ()
    """Of pytest, by module, that its tests need."""
    sandbox: str = "auto"
    tests: bool = True
    """Whether its tests are run. Tasks that are made of commits alone do not need it: they run what a commit touched."""


async def prepare(
    source: Path, options: EnvironmentOptions = EnvironmentOptions(), *, said: Callable[[str], None] = lambda _: None
) -> TaskSource:
    """Make a repository's environment, run its tests three times there where they are asked for, and keep its files.

    Raises:
        InputError: There are no tests, none passes, or something of it cannot be had here.
        SandboxError: The sandbox failed.
    """
    tree = read_tree(source, commit=options.commit)
    if not tree.tests:
        packed = "; a source package often leaves them out: name a clone of its repository" if source.is_file() else ""
        raise InputError(f"{source} has no tests (test_*.py or *_test.py); tasks are checked with a repository's own{packed}")
    needs = environments.needs_of(tree.files, source.resolve().name)
    environment = environments.build(options.folder, needs, extra=options.extra, python=options.python, said=said)
    suite = await _measured(tree, environment, options, said) if options.tests else _UNMEASURED
    if options.tests:
        _check(source, suite)
    subject = TaskSource(
        name=needs.name,
        tree=tree,
        environment=environment,
        suite=suite,
        source=source,
        license=needs.license,
        plugins=options.plugins,
        sandbox=options.sandbox,
    )
    subject.keep(tree)
    return subject


async def _measured(
    tree: Tree, environment: environments.VirtualEnvironment, options: EnvironmentOptions, said: Callable[[str], None]
) -> Steady:
    """What its tests do, three times."""
    said(f"running its {len(tree.tests)} files of tests three times")
    async with sandbox.started(options.sandbox, interpreter=environment.interpreter) as box:
        return await steady(box, tree, plugins=options.plugins)


def _check(source: Path, suite: Steady) -> None:
    """Raise an `InputError` where no task could be checked with these tests."""
    if suite.run.broken:
        outcome = suite.run.outcome
        if outcome is not None and outcome.limit in ("cpu", "wall"):
            raise InputError(
                f"the tests of {source} take more than {SUITE_SECONDS / 60:g} minutes, so no task can be checked by them"
            )
        raise InputError(f"the tests of {source} cannot be run: {suite.run.broken[-600:]}")
    if not suite.passing:
        why = next(iter(suite.run.why.values()), "nothing was collected").strip().splitlines()
        counts = f"{len(suite.failing)} fail, {len(suite.flaky)} do now this and now that"
        raise InputError(f"no test of {source} passes ({counts}); the first says: {why[-1] if why else ''}")


def kept_tree(digest: str, folder: Path = FOLDER) -> Tree:
    """The files that a task starts from.

    Raises:
        InputError: They are not here.
    """
    path = tree_file(digest, folder)
    if not path.exists():
        raise InputError(f"the files {digest} are not in {folder}; `journeyman tasks environment build REPO` brings them there")
    return Tree.unpack(path)


def workplaces(folder: Path, box: str, beside: tuple[str, ...] = ()) -> tuple[Callable[[str], Tree], Callable[[str], Sandbox]]:
    """What gives the files of a digest, and a sandbox in the environment of one.

    Args:
        box: The kind of sandbox, by name.
        beside: Folders that are shown in it, too.
    """

    def open_sandbox(digest: str) -> Sandbox:
        interpreter = environments.opened(folder, digest).interpreter
        return sandbox.load(box, interpreter=replace(interpreter, beside=beside))

    return lambda digest: kept_tree(digest, folder), open_sandbox


@dataclass(slots=True)
class Yield:
    """What became of the drafts of a category."""

    wanted: int
    tried: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    tasks: list[RepositoryTask] = field(default_factory=list)
    cpu_seconds: float = 0.0
    """Of all that ran in the sandbox for it now; what an earlier run had tried cost nothing."""

    def count(self, results: Iterable[tuple[TaskDraft, RepositoryTask | Rejected]], shares: Shares) -> None:
        """What became of drafts, in their order, whichever was done first."""
        for draft, result in results:
            if len(self.tasks) == self.wanted or not shares.admits(draft):
                continue
            self.tried += 1
            if isinstance(result, Rejected):
                self.reasons[result.reason] += 1
            else:
                shares.count(draft)
                self.tasks.append(result)

    def as_json(self) -> dict[str, Any]:
        return {"wanted": self.wanted, "made": len(self.tasks), "tried": self.tried, "fell": dict(self.reasons.most_common())}


Words = Callable[[RepositoryTask], Awaitable[RepositoryTask]]
"""Gives the same task, asked for in other words."""


async def generate(
    subject: TaskSource,
    wanted: Mapping[str, int],
    path: Path,
    *,
    seed: int = 0,
    words: Words | None = None,
    told: Callable[[str, Yield], None] = lambda *_: None,
) -> dict[str, Yield]:
    """Make tasks of a repository and write them to a file. What a killed run has tried is not tried again.

    Args:
        wanted: How many, by category.
        words: Puts each task into other words.
        told: Called with each draft's category and what has become of the category so far.

    Raises:
        InputError: There is no such category.
        SandboxError: The sandbox failed.
    """
    generators = {category: generator_of(category) for category in wanted}
    journal = _Journal.opened(path, subject, seed, generators, words)
    found = {category: Yield(number) for category, number in wanted.items()}
    async with sandbox.started(subject.sandbox, interpreter=subject.environment.interpreter) as opened:
        for category, generator in generators.items():
            drafts = _drafts(generator, subject, seed)
            shares, box = Shares(wanted=wanted[category]), Metered(opened)
            while group := list(islice((draft for draft in drafts if shares.admits(draft)), JOBS)):
                results = await asyncio.gather(*(journal.tried(draft, generator, subject, box) for draft in group))
                found[category].count(zip(group, results, strict=True), shares)
                found[category].cpu_seconds = box.cpu_seconds
                told(category, found[category])
                if len(found[category].tasks) >= wanted[category]:
                    break
    repository.write(path, [task for each in found.values() for task in each.tasks])
    journal.done()
    return found


def generate_with(  # noqa: PLR0913 - what `generate` takes, and the workers
    spread: Spread,
    subject: TaskSource,
    wanted: Mapping[str, int],
    path: Path,
    *,
    seed: int = 0,
    words: Words | None = None,
    told: Callable[[str, Yield], None] = lambda *_: None,
) -> dict[str, Yield]:
    """`generate`, where each worker tries a draft at a time, and finds the folder of the environments at the same place. The
    file is the same: what is counted is decided here, in the order of the drafts. One that took longer than it may is no task.

    Raises:
        InputError: A category is a class of one's own.
    """
    generators = {jobs.known("generators", category): generator_of(category) for category in wanted}
    journal = _Journal.opened(path, subject, seed, generators, words)
    found = {category: Yield(number) for category, number in wanted.items()}
    place = _keep_subject(subject)
    for category, generator in generators.items():
        shares = Shares(wanted=wanted[category])
        drafts = (draft for draft in _drafts(generator, subject, seed) if shares.admits(draft))
        with closing(journal.tried_by(spread, drafts, category, place)) as results:
            for draft, result, cpu_seconds in results:
                found[category].count([(draft, result)], shares)
                found[category].cpu_seconds += cpu_seconds
                told(category, found[category])
                if len(found[category].tasks) >= wanted[category]:
                    break
    repository.write(path, [task for each in found.values() for task in each.tasks])
    journal.done()
    _subject_file(Path(place["folder"]), place["subject"]).unlink(missing_ok=True)
    return found


async def _made(generator: Generator, draft: TaskDraft, subject: TaskSource, box: Sandbox) -> RepositoryTask | Rejected:
    """What becomes of a draft: a task only where an agent that gave its reference would be paid."""
    found = await generator.task(draft, subject, box)
    if isinstance(found, Rejected):
        return found
    # What is made of a commit starts from the files of before it.
    own = found.tree == subject.tree.digest
    tree = subject.tree if own else kept_tree(found.tree, subject.environment.folder.parent)
    given = found.start(tree)
    if (at := next(given_away(found, given), None)) is not None:
        return Rejected("what is right stands elsewhere in the repository", at)
    if (right := [text for _, text in right_texts(found, given)]) and all(map(is_stub, right)):
        return Rejected("a function that does nothing is right")
    return await reference_paid(found, tree, box, plugins=subject.plugins)


def _drafts(generator: Generator, subject: TaskSource, seed: int) -> Iterator[TaskDraft]:
    return generator.drafts(subject, random.Random(f"{seed} {subject.tree.digest} {generator.category}"))


_SUBJECT, _DRAFT = TypeAdapter(TaskSource), TypeAdapter(TaskDraft)


class _DraftItem(JobItem):
    category: str
    draft: dict[str, Any]
    folder: str
    subject: str
    """The digest of what is known of the repository, which lies in the folder."""
    sandbox: str


def _keep_subject(subject: TaskSource) -> Mapping[str, str]:
    """Lay what is known of a repository beside its environment, for workers; where it is, as `_DraftItem` has it."""
    folder = subject.environment.folder.parent
    # The files lie there already, by their digest; how the tests ended, nobody asks for any more.
    suite = replace(subject.suite, run=replace(subject.suite.run, outcome=None))
    said = _SUBJECT.dump_json(replace(subject, tree=Tree({}), suite=suite))
    digest = hashlib.sha256(said).hexdigest()[:16]
    file = _subject_file(folder, digest)
    file.parent.mkdir(exist_ok=True)
    write_text(file, json.dumps({"tree": subject.tree.digest, "subject": said.decode()}))
    return {"folder": str(folder), "subject": digest, "sandbox": subject.sandbox}


def _subject_file(folder: Path, digest: str) -> Path:
    return folder / "subjects" / f"{digest}.json"


@lru_cache(maxsize=4)
def _kept_subject(folder: Path, digest: str) -> TaskSource:
    kept = read_json(_subject_file(folder, digest))
    found: TaskSource = _SUBJECT.validate_json(kept["subject"])
    return replace(
        found, tree=kept_tree(kept["tree"], folder), environment=environments.opened(folder, found.environment.digest)
    )


def draft_item(item: dict[str, Any]) -> dict[str, Any]:
    """What `generate_with` sends to workers: tries a draft; the task or why it is none, and the CPU seconds that it took."""
    asked = _DraftItem.read(item)
    if not re.fullmatch("[0-9a-f]{16}", asked.subject):
        raise InputError("the item of a job cannot be used: subject: it is no digest")
    generator, draft = generator_of(jobs.known("generators", asked.category)), _DRAFT.validate_python(asked.draft)
    subject = _kept_subject(Path(asked.folder), asked.subject)

    async def tried() -> dict[str, Any]:
        async with sandbox.started(asked.sandbox, interpreter=subject.environment.interpreter) as opened:
            box = Metered(opened)
            return {**_row(await _made(generator, draft, subject, box)), "cpu_seconds": box.cpu_seconds}

    return asyncio.run(tried())


async def import_rows(
    format: str,
    rows: Path,
    path: Path,
    options: EnvironmentOptions = EnvironmentOptions(),
    *,
    clone: Path | None = None,
    said: Callable[[str], None] = lambda _: None,
) -> Yield:
    """Make tasks of rows that others wrote: those of which running them shows what they say.

    Args:
        format: One of `tasks.repository.foreign.FORMATS`.
        clone: The repository that the rows are of.
        said: Told of each row that is none.

    Raises:
        InputError: The file, or a row of it, cannot be used, or the environment cannot be made.
        SandboxError: The sandbox failed.
    """
    check_format(format, clone)
    needs = environments.PackageNeeds(name=format, version="0", requirements=())
    if clone is not None:
        needs = environments.needs_of(read_tree(clone, commit=options.commit).files, clone.resolve().name)
    environment = environments.build(options.folder, needs, extra=options.extra, python=options.python, said=said)
    found = Yield(wanted=0)
    async with sandbox.started(options.sandbox, interpreter=environment.interpreter) as box:
        for each in read_foreign(format, rows, environment=environment.digest, clone=clone, commit=options.commit):
            found.wanted = found.tried = found.tried + 1
            done = await settled(each.task, each.tree, box, plugins=options.plugins)
            result = done if isinstance(done, Rejected) else done.task
            if not isinstance(result, Rejected):
                result = await reference_paid(result, each.tree, box, plugins=options.plugins)
            if isinstance(result, Rejected):
                found.reasons[result.reason] += 1
                said(f"{each.task.source}: {result.reason}. {result.evidence.strip()[:200]}")
            else:
                keep_tree(each.tree, options.folder)
                found.tasks.append(result)
    if not found.tasks:
        raise InputError(f"none of the {found.tried} rows of {rows} is a task that holds here; the reasons stand above")
    repository.write(path, found.tasks)
    return found


def journal_lines(path: Path, head: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a run that was killed has kept, a line each, where it began with the same head; else the journal begins anew."""
    if path.exists():
        # What a kill left half-written is tried again.
        lines = [line.value for line in iter_jsonl(path, json_object, bad=lambda *_: None)]
        if lines and lines[0] == head:
            return lines[1:]
        path.unlink()
    append_line(path, json.dumps(head, sort_keys=True))
    return []


@dataclass(slots=True)
class _Journal:
    """What was tried, a line each, beside the file that is to be written."""

    path: Path
    known: dict[str, RepositoryTask | Rejected]
    words: Words | None

    @classmethod
    def opened(
        cls, path: Path, subject: TaskSource, seed: int, generators: Mapping[str, Generator], words: Words | None
    ) -> "_Journal":
        versions = {name: each.version for name, each in generators.items()}
        of = {"tree": subject.tree.digest, "environment": subject.environment.digest}
        head = {**of, "seed": seed, "versions": versions, "words": words is not None, "paid": True}
        place = path.with_name(f".{path.name}.tried")
        return cls(place, {str(each["key"]): _result(each) for each in journal_lines(place, head)}, words)

    async def tried(
        self, draft: TaskDraft, generator: Generator, subject: TaskSource, box: Sandbox
    ) -> RepositoryTask | Rejected:
        key = f"{generator.category} {draft.key}"
        if key not in self.known:
            found = await _made(generator, draft, subject, box)
            if self.words is not None and not isinstance(found, Rejected):
                found = await self.words(found)
            self._keep(key, found)
        return self.known[key]

    def tried_by(
        self, spread: Spread, drafts: Iterator[TaskDraft], category: str, place: Mapping[str, Any]
    ) -> Generating[tuple[TaskDraft, RepositoryTask | Rejected, float], None, None]:
        """What became of drafts, in their order, and what each took; those that are known are not tried again."""
        drawn: deque[TaskDraft] = deque()

        def items() -> Iterator[dict[str, Any]]:
            for draft in drafts:
                drawn.append(draft)
                if f"{category} {draft.key}" not in self.known:
                    yield _DraftItem(category=category, draft=_DRAFT.dump_python(draft, mode="json"), **place).json_item()

        def known() -> Iterator[tuple[TaskDraft, RepositoryTask | Rejected, float]]:
            while drawn and (key := f"{category} {drawn[0].key}") in self.known:
                yield drawn.popleft(), self.known[key], 0.0

        rows = spread.map(draft_item, items(), failed=lambda _, why: {"rejected": [_GIVEN_UP, why]})
        for row in rows:
            yield from known()
            found = _result(row)
            if self.words is not None and not isinstance(found, Rejected):
                found = asyncio.run(_told(self.words, found))
            draft = drawn.popleft()
            self._keep(f"{category} {draft.key}", found)
            yield draft, found, row.get("cpu_seconds", 0.0)
        yield from known()

    def _keep(self, key: str, found: RepositoryTask | Rejected) -> None:
        append_line(self.path, json.dumps({"key": key, **_row(found)}))
        self.known[key] = found

    def done(self) -> None:
        self.path.unlink(missing_ok=True)


_GIVEN_UP = "it was given up"


async def _told(words: Words, task: RepositoryTask) -> RepositoryTask:
    return await words(task)


def _row(found: RepositoryTask | Rejected) -> dict[str, Any]:
    return {"rejected": [found.reason, found.evidence[:300]]} if isinstance(found, Rejected) else {"task": found.as_json()}


def _result(row: Mapping[str, Any]) -> RepositoryTask | Rejected:
    return repository.of_json(row["task"]) if "task" in row else Rejected(*row["rejected"])
