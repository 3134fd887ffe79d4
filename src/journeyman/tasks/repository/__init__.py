"""Work in a repository, as a task that is checked by running it.

A task is a state of a repository (`tree`, by digest) with some files changed (`base`), words that say what is to be done, and
what must hold afterwards. What is right (`reference`) and the tests that decide (`checks`) never reach the agent.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError
from journeyman.core.task import Split, Task
from journeyman.io.atomic import write_text
from journeyman.io.files import read_object
from journeyman.io.jsonl import Unusable, iter_jsonl, json_object
from journeyman.tasks.repository.tree import Tree, in_tests, place_of_test, without_tests

HELD_OUT_SHARE = 0.3
"""Of the functions and commits that tasks are made of."""


class Category(StrEnum):
    """What kind of work a task is. One's own have a name of their own."""

    BUG_FIX = "bug_fix"
    FEATURE = "feature"
    REFACTOR = "refactor"
    TEST = "test"
    DOCS = "docs"
    ARCHITECTURE = "architecture"
    PERFORMANCE = "performance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What must hold of a repository after the work. Nobody who attempts the task sees it."""

    tests: Mapping[str, str] = field(default_factory=dict)
    """Files of tests, and what lies beside them, by path: laid over whatever the agent left there."""
    fail_to_pass: tuple[str, ...] = ()
    """Tests (`file::Class::test`) that fail before the work and pass after it."""
    pass_to_pass: tuple[str, ...] = ()
    """Tests that pass before it and after it."""
    measure: Mapping[str, Any] = field(default_factory=dict)
    """What else its category asks for, in the words of the category's check: mutants, bounds, contracts, workloads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryTask:
    """One piece of work in a repository."""

    category: str
    repository: str
    """Its name, such as `toolz`: what tasks have in common, so that they go well or badly together."""
    tree: str
    """The digest of the files that it starts from, before `base` is laid over them."""
    environment: str
    """The digest of the environment that it is checked in."""
    statement: str
    """What is to be done, in words. It tells neither the place nor what is right."""
    base: Mapping[str, str | None] = field(default_factory=dict)
    """Files as the agent finds them, where they differ from the tree; of `None` there is none."""
    reference: Mapping[str, str | None] = field(default_factory=dict)
    """Files, laid over those that the agent finds, with which every check holds."""
    checks: Checks = Checks()
    may_change: tuple[str, ...] = ("*.py",)
    """Patterns of paths. Whatever else an agent changes is not taken over; nor are tests, but for tasks that ask for some."""
    level: Mapping[str, float] = field(default_factory=dict)
    """How hard it looks: `lines` and `files` of the reference, failing and covering tests."""
    source: str = ""
    """Of what it was made: a function (`module:name`) or a commit. Tasks of the same one are in the same split."""
    made_by: str = ""
    """The generator, its version, and its seed."""
    created: str = ""
    """The date of the commit that it was made of, as YYYY-MM-DD: what a model may have seen in training is older."""
    license: str = ""
    split: Split = Split.TRAIN

    @property
    def id(self) -> str:
        """Made of all that the task is, but not of the split."""
        told = {key: value for key, value in asdict(self).items() if key != "split"}
        return f"t-{hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]}"

    def start(self, tree: Tree) -> Tree:
        """What the agent is given: without the tests that fail and are to pass, or it would be told what is wrong."""
        given = tree.changed(self.base)
        return given.changed({path: without_tests(given.text(path), names) for path, names in self._hidden(given).items()})

    def _hidden(self, given: Tree) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for test in self.checks.fail_to_pass:
            path, name = place_of_test(test)
            if path in given.files:
                found.setdefault(path, set()).add(name)
        return {path: frozenset(names) for path, names in found.items()}

    def examined(self, tree: Tree, state: Tree) -> Tree:
        """A state of the repository as it is examined: with every test as its author left it, and the task's own."""
        kept = {path: data for path, data in state.files.items() if not in_tests(path)}
        return Tree(kept | {path: data for path, data in tree.files.items() if in_tests(path)}).changed(dict(self.checks.tests))

    def right(self, tree: Tree) -> Tree:
        """With the reference."""
        return self.start(tree).changed(self.reference)

    def taken(self, tree: Tree, left: Mapping[str, bytes]) -> Tree:
        """What is checked of what an agent left: the files that it may change, and of everything else what it was given."""
        given = self.start(tree).files
        touched = {path for path in (*left, *given) if left.get(path) != given.get(path) and self.allows(path)}
        kept = {path: data for path, data in given.items() if path not in touched}
        return Tree(kept | {path: left[path] for path in touched if path in left})

    def allows(self, path: str) -> bool:
        """Whether a path may be changed."""
        return any(fnmatch(path, pattern) for pattern in self.may_change) and (
            self.category == Category.TEST or not in_tests(path)
        )

    def task(self) -> Task:
        """As the trainer takes it."""
        return Task(
            id=self.id,
            question=self.statement,
            answer=json.dumps({"repository_task": self.id}),
            domain=self.category,
            split=self.split,
            cluster=self.repository,
        )

    def as_json(self) -> dict[str, Any]:
        """One line of a file of tasks."""
        return {"id": self.id, **asdict(self)}


def split_of(repository: str, source: str) -> Split:
    """By what a task is made of alone: a function or commit that is learned from is in no examination."""
    drawn = int.from_bytes(hashlib.sha256(f"{repository}\0{source}".encode()).digest()[:4], "big") / 2**32
    return Split.HELD_OUT if drawn < HELD_OUT_SHARE else Split.TRAIN


def write(path: Path, tasks: Iterable[RepositoryTask]) -> None:
    """A file of tasks, whole or not at all: the same tasks are the same bytes."""
    write_text(path, "".join(line(task) for task in tasks))


def line(task: RepositoryTask) -> str:
    return json.dumps(task.as_json(), ensure_ascii=False, sort_keys=True) + "\n"


def read(path: Path) -> tuple[RepositoryTask, ...]:
    """
    Raises:
        InputError: It cannot be read, or a line is no task, or is one that was changed by hand: file and line are named.
    """
    found = tuple(row.value for row in iter_jsonl(path, _of_text, missing="`journeyman tasks generate` writes one"))
    if not found:
        raise InputError(f"{path} holds no task; `journeyman tasks generate` writes some")
    return found


def _of_text(text: str) -> RepositoryTask:
    return of_json(json_object(text))


def of_json(row: Mapping[str, Any]) -> RepositoryTask:
    """
    Raises:
        Unusable: It is no task.
    """
    known = {each.name for each in fields(RepositoryTask)}
    if strange := sorted(set(row) - known - {"id"}):
        raise Unusable(f"no task of a repository: there is no {strange[0]!r}; there are {', '.join(sorted(known))}")
    lacking = [name for name in ("category", "repository", "tree", "environment", "statement") if not _text(row.get(name))]
    if lacking:
        raise Unusable(f"no task of a repository: {lacking[0]!r} is a text that is missing")
    values = {key: value for key, value in row.items() if key != "id"}
    try:
        values["checks"] = _checks(values.get("checks", {}))
        values["base"], values["reference"] = _files(values, "base"), _files(values, "reference")
        values["may_change"] = tuple(map(str, values.get("may_change", ("*.py",))))
        values["split"] = Split(values.get("split", Split.TRAIN))
        task = RepositoryTask(**values)
    except (TypeError, ValueError, AttributeError) as error:
        raise Unusable(f"no task of a repository: {error}") from None
    if row.get("id", task.id) != task.id:
        raise Unusable(
            f"the task {row['id']!r} was changed after it was made; what is changed needs an id of its own: leave it out"
        )
    return task


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _files(values: Mapping[str, Any], key: str) -> dict[str, str | None]:
    found = dict(values.get(key, {}))
    for path, text in found.items():
        if not isinstance(text, str | None) or path.startswith("/") or ".." in path.split("/"):
            raise Unusable(f"no task of a repository: {key} holds texts by relative path, and {path!r} is none")
    return found


def _checks(row: Mapping[str, Any]) -> Checks:
    return Checks(
        tests={str(path): str(text) for path, text in dict(row.get("tests", {})).items()},
        fail_to_pass=tuple(map(str, row.get("fail_to_pass", ()))),
        pass_to_pass=tuple(map(str, row.get("pass_to_pass", ()))),
        measure=dict(row.get("measure", {})),
    )


def clustered(
    tasks: Sequence[RepositoryTask], least: int, *, examined: Sequence[RepositoryTask] | None = None
) -> tuple[Task, ...]:
    """The tasks, each with what it goes well or badly together with.

    That is its repository, where there are enough of them to speak of the next one. With fewer, nothing is said of other
    repositories, and what tasks of these have in common is the function or commit that they were made of.

    Args:
        examined: Those that an examination is made of, where that is not all.
    """
    few = len({task.repository for task in (tasks if examined is None else examined)}) < least
    return tuple(
        replace(task.task(), cluster=f"{task.repository} {task.source or task.id}") if few else task.task() for task in tasks
    )


def stats_file(path: Path) -> Path:
    """Where it is kept, beside a file of tasks, what became of the candidates when it was made."""
    return path.with_name(f"{path.name.removesuffix('.jsonl')}.stats.json")


def made_of(path: Path) -> Mapping[str, Any]:
    """What is kept there; nothing where nothing is."""
    return read_object(stats_file(path)) if stats_file(path).exists() else {}


def counts(tasks: Iterable[RepositoryTask]) -> dict[str, dict[str, int]]:
    """By category: tasks, those held out, the functions and commits they are made of, and how many tests fail in the middle
    one."""
    by_category: dict[str, list[RepositoryTask]] = {}
    for task in tasks:
        by_category.setdefault(task.category, []).append(task)
    return {
        category: {
            "tasks": len(each),
            "held_out": sum(task.split is Split.HELD_OUT for task in each),
            "sources": len({task.source for task in each}),
            "median_failing": sorted(len(task.checks.fail_to_pass) for task in each)[len(each) // 2],
        }
        for category, each in by_category.items()
    }
