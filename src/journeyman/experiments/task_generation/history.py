"""What a repository's own commits did, as tasks: new tests on old code say what was wrong or missing, and on new code pass."""

import ast
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from textwrap import indent

from journeyman.core.errors import InputError
from journeyman.experiments.task_generation.base import Rejected, Settled, TaskDraft, TaskSource, settled
from journeyman.rewards.repository.suite import SuiteRun
from journeyman.rewards.sabotage import names_of_tests
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.repository import Category, Checks, RepositoryTask, split_of
from journeyman.tasks.repository.mutations import functions
from journeyman.tasks.repository.rewriting import body_of, docstring, function_of, signature
from journeyman.tasks.repository.tree import Tree, git, in_tests, is_repository, is_test, read_tree

NEWEST = 600
"""Commits that are looked at, merges left out."""
MOST_FILES = 12
"""Of code that a commit may touch, and of tests: what touches more is several pieces of work."""
MOST_LINES = 600
"""Of code that a commit may add or take away."""
OTHERS = 5
"""Tests of each file that did pass before, and are asked to go on passing."""
KIND = "commit"
_SECONDS = 30.0
_TELLING = 16
"""Letters of a line of code that, said in a message, tells how it was done."""
_LEAST_WORDS = 4
_TRAILER = re.compile(r"^(signed-off-by|co-authored-by|reviewed-by|acked-by|change-id|cc|refs?|see)\b\s*:", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One that touched code and its tests."""

    sha: str
    day: str
    message: str
    code: tuple[str, ...]
    tests: tuple[str, ...]
    """Files of tests, and what lies beside them."""


class Commits:
    """Tasks of either category, or of one: what a commit mended (tests fail before it), or added (tests cannot even begin)."""

    version = "2"

    def __init__(self, category: str = "commits") -> None:
        self.category = category
        """A category alone, or all that is found."""

    @staticmethod
    def made(draft: TaskDraft) -> bool:
        """Whether a draft is one of a commit."""
        return draft.key.startswith(f"{KIND} ")

    def drafts(self, subject: TaskSource, chance: random.Random) -> Iterator[TaskDraft]:
        """The newest first: what is new is seen by the fewest models. There are none without a history."""
        if not is_repository(subject.source):
            return
        kind = "" if self.category == "commits" else KIND
        for each in commits_of(subject.source):
            yield TaskDraft(key=f"{KIND} {each.sha}", source=each.sha, kind=kind)

    async def task(self, draft: TaskDraft, subject: TaskSource, box: Sandbox) -> RepositoryTask | Rejected:
        commit = next((each for each in commits_of(subject.source) if each.sha == draft.source), None)
        if commit is None:
            return Rejected("the commit is gone")
        found = _drawn(commit, subject)
        if isinstance(found, Rejected):
            return found
        task, before = found
        done = await settled(task, before, box, plugins=subject.plugins, seconds=_SECONDS)
        if isinstance(done, Rejected):
            return done
        return self._decided(commit, done, before, subject)

    def _decided(self, commit: Commit, done: Settled, before: Tree, subject: TaskSource) -> RepositoryTask | Rejected:
        """The task in its category, where its words are fit for it."""
        task = done.task
        category = Category.FEATURE if _is_new(task.checks.fail_to_pass, done.before) else Category.BUG_FIX
        if self.category not in (category, "commits"):
            return Rejected(f"it is of another category: {category}")
        statement = _statement(commit, replace(task, category=category), before, subject.name)
        if not statement:
            return Rejected("its message says nothing, or how it was done")
        subject.keep(before)
        return replace(task, category=str(category), statement=statement)


def commits_of(source: Path) -> tuple[Commit, ...]:
    """The newest commits of a repository that touched code and tests and are of a size to be one piece of work."""
    return _commits_of(source, git(source, "rev-parse", "HEAD").decode().strip())


@lru_cache(maxsize=8)
def _commits_of(source: Path, head: str) -> tuple[Commit, ...]:
    # Nothing of a message is a NUL, and numbers of lines come with each file's name.
    form = "--format=%x00%x00%H%x00%P%x00%cs%x00%B%x00"
    told = git(source, "log", "--no-merges", f"-{NEWEST}", "--numstat", "--no-renames", "--no-ext-diff", "-z", form, head)
    found = (_commit(*record) for record in _records(told.decode(errors="replace")))
    return tuple(commit for commit in found if commit is not None)


def _records(text: str) -> Iterator[tuple[str, str, str, str, list[str]]]:
    """Hash, parents, day, message and the rows of files of each commit."""
    pattern = r"\0\0([0-9a-f]{40,64})\0([0-9a-f ]*)\0(\d{4}-\d\d-\d\d)\0([^\0]*)\0"
    starts = list(re.finditer(pattern, text))
    for match, after in zip(starts, [*starts[1:], None], strict=True):
        rows = text[match.end() : after.start() if after else len(text)].split("\0")
        yield match[1], match[2], match[3], match[4], [row.strip("\n") for row in rows if row.strip("\n")]


def _commit(sha: str, parents: str, day: str, message: str, rows: list[str]) -> Commit | None:
    touched = [row.split("\t", 2) for row in rows if row.count("\t") >= 2]
    code = [(added, gone, path) for added, gone, path in touched if path.endswith(".py") and not in_tests(path)]
    tests = [path for _, _, path in touched if in_tests(path)]
    lines = sum(int(added) + int(gone) for added, gone, _ in code if added.isdigit() and gone.isdigit())
    wanted = parents and code and any(map(is_test, tests)) and len(code) <= MOST_FILES and len(tests) <= MOST_FILES
    if not wanted or lines > MOST_LINES:
        return None
    return Commit(sha=sha, day=day, message=message, code=tuple(path for _, _, path in code), tests=tuple(tests))


def _drawn(commit: Commit, subject: TaskSource) -> tuple[RepositoryTask, Tree] | Rejected:
    """The task without what only running it tells, and the files of before."""
    try:
        before = read_tree(subject.source, commit=f"{commit.sha}^")
        after = read_tree(subject.source, commit=commit.sha)
    except InputError as error:
        return Rejected("its files cannot be read", str(error))
    reference = _changed(before, after, commit.code)
    tests = {path: text for path, text in _changed(before, after, commit.tests).items() if text is not None}
    if not reference or not _asked(tests, before):
        return Rejected("its code or its tests are the same as before")
    lines = sum(abs(_lines(after, path) - _lines(before, path)) + 1 for path in reference)
    task = RepositoryTask(
        category=Category.BUG_FIX,
        repository=subject.name,
        tree=before.digest,
        environment=subject.environment.digest,
        statement="-",
        reference=reference,
        checks=Checks(tests=tests, fail_to_pass=_asked(tests, before)),
        level={"lines": float(lines), "files": float(len(reference))},
        source=commit.sha,
        made_by=f"commits {Commits.version}",
        created=commit.day,
        license=subject.license,
        split=split_of(subject.name, commit.sha),
    )
    return task, before


def _lines(tree: Tree, path: str) -> int:
    return tree.files.get(path, b"").count(b"\n")


def _changed(before: Tree, after: Tree, paths: tuple[str, ...]) -> dict[str, str | None]:
    """Texts that differ, by path; what is no UTF-8 is left out."""
    found: dict[str, str | None] = {}
    for path in paths:
        if before.files.get(path) != after.files.get(path):
            try:
                found[path] = after.files[path].decode() if path in after.files else None
            except UnicodeDecodeError:
                continue
    return found


def _asked(tests: Mapping[str, str], before: Tree) -> tuple[str, ...]:
    """The tests that a commit wrote or changed, and some beside them."""
    found = list[str]()
    for path, text in tests.items():
        if is_test(path):
            new, known = _tests(text), _tests(before.text(path)) if path in before.files else {}
            changed = [name for name, body in new.items() if known.get(name) != body]
            others = [name for name in new if name not in changed][:OTHERS]
            found += [f"{path}::{name}" for name in (*changed, *others)]
    return tuple(found)


@lru_cache(maxsize=8)
def _tests(text: str) -> Mapping[str, str]:
    """The tests of a file, as pytest names them, and what stands in them. What one commit left is what the next one found."""
    try:
        names = set(names_of_tests(text))
        return {each.name.replace(".", "::"): ast.dump(each.node) for each in functions(text) if each.name in names}
    except (SyntaxError, ValueError):
        return {}


def _is_new(failing: tuple[str, ...], old: SuiteRun) -> bool:
    """Whether tests could not begin, as what they are of was not there."""
    if any(test not in old.became for test in failing):
        return True
    said = [old.why.get(test, "") for test in failing]
    return all(re.match(r"(AttributeError: (partially initialized )?module|ImportError|NameError)", each) for each in said)


def _statement(commit: Commit, task: RepositoryTask, before: Tree, name: str) -> str:
    """What the commit's author said of it, without what tells how, or its documentation; empty where neither says anything."""
    said, new = _said(commit, task, before), list(_declared(task, before))
    if len(re.findall(r"[A-Za-z]{2,}", said)) < _LEAST_WORDS:
        # Of what could not be called before, "Add running_median" is all that many an author says.
        documented = [each.documented for each in new if each.documented] if task.category == Category.FEATURE else []
        if not documented:
            return ""
        said = "\n\n".join(filter(None, (said, "What it does, as its documentation has it:", *documented)))
    declared = "\n".join(dict.fromkeys(each.told for each in new))
    used = f"\nTests of it use:\n{declared}\n" if declared else ""
    count = len(task.checks.fail_to_pass)
    return (
        f"This is asked of {name}:\n\n{said}\n{used}\nIt is checked by {count} tests that are not in the repository; "
        "those that are there must go on passing. Tests are run with `python -m pytest`."
    )


def _said(commit: Commit, task: RepositoryTask, before: Tree) -> str:
    telling = set(_added(task, before))
    names = {path.rpartition("/")[2] for path in (*commit.code, *commit.tests)} | {*commit.code, *commit.tests}
    kept = list[str]()
    for line in commit.message.strip().splitlines():
        plain = re.sub(r"\(?(#|gh-|GH-)\d+\)?|https?://\S+|\b[0-9a-f]{7,40}\b", "", line).rstrip(" :.,")
        leaks = any(name in line for name in names) or any(each in line or line.strip() == each for each in telling)
        if not _TRAILER.match(line.strip()) and not leaks:
            kept.append(plain)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()


def _added(task: RepositoryTask, before: Tree) -> Iterator[str]:
    """Lines of code that were not there before, and are long enough to tell."""
    for path, text in task.reference.items():
        known = set(before.text(path).splitlines()) if path in before.files else set()
        for line in (text or "").splitlines():
            if line not in known and len(line.strip()) >= _TELLING:
                yield line.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    """A new function or class."""

    told: str
    """Where it is and how it is called."""
    documented: str
    """Its docstring, indented; empty where there is none, or where that shows the code."""


def _declared(task: RepositoryTask, before: Tree) -> Iterator[_Declared]:
    """The new functions and classes that the tests call by name: what they are called is none of what is to be found out."""
    used = set[str]()
    for path in {test.partition("::")[0] for test in task.checks.fail_to_pass}:
        used |= set(re.findall(r"[A-Za-z_]\w*", task.checks.tests.get(path, "")))
    for path, text in sorted(task.reference.items()):
        if text is not None:
            known = _names(before.text(path)) if path in before.files else {}
            module = before.module_of(path)
            for name, told in _names(text).items():
                if name not in known and name in used:
                    yield _Declared(told=f"- `{module}`: `{told}`", documented=_documented(text, name))


def _documented(text: str, name: str) -> str:
    function = function_of(text, name)
    words = docstring(function) if function else ""
    if function is None or any(len(line.strip()) >= _TELLING and line.strip() in words for line in body_of(text, function)):
        return ""
    return indent(words, "    ")


def _names(text: str) -> Mapping[str, str]:
    """Functions and classes of a module that are there for others, and how each is declared."""
    try:
        tree = ast.parse(text)
        found = {each.name: signature(each) for each in functions(text) if "." not in each.name and each.is_public}
    except (SyntaxError, ValueError):
        return {}
    kinds = {node.name: f"class {node.name}" for node in tree.body if isinstance(node, ast.ClassDef)}
    return {**found, **{name: told for name, told in kinds.items() if not name.startswith("_")}}
