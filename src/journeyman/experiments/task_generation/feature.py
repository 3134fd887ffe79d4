"""Functions whose body is taken out: whoever writes them anew, from what their documentation says, makes the tests pass."""

import ast
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from journeyman.experiments.task_generation.base import MOST_COVERING, Rejected, TaskDraft, TaskSource, alternating, tested
from journeyman.experiments.task_generation.history import Commits
from journeyman.rewards.repository.suite import run_suite
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.repository import Category, RepositoryTask
from journeyman.tasks.repository.mutations import SourceFunction, functions
from journeyman.tasks.repository.rewriting import body_of, docstring, function_of, signature, without_body

LEAST_LINES = 3
"""Of a body that is worth writing."""
_TELLING = 16
"""Letters of a line of code that, said in a docstring, tells how it is done."""
_SECONDS = 30.0


class Feature:
    """A public, documented, covered function to be written; of a repository's history also what a commit added."""

    category = Category.FEATURE
    version = "1"

    def __init__(self) -> None:
        self._commits = Commits(self.category)

    def drafts(self, subject: TaskSource, chance: random.Random) -> Iterator[TaskDraft]:
        found = list[TaskDraft]()
        for path, function in subject.functions():
            if function.is_public and docstring(function) and len(body_of(subject.tree.text(path), function)) >= LEAST_LINES:
                text = subject.tree.text(path)
                source = f"{subject.tree.module_of(path)}:{function.name}"
                lines = tuple(function.lines)
                found.append(
                    TaskDraft(
                        key=f"{path}:{function.name}",
                        source=source,
                        path=path,
                        base={path: without_body(text, function)},
                        reference={path: text},
                        lines=lines,
                        told={"function": function.name},
                    )
                )
        chance.shuffle(found)
        yield from alternating(iter(found), self._commits.drafts(subject, chance))

    async def task(self, draft: TaskDraft, subject: TaskSource, box: Sandbox) -> RepositoryTask | Rejected:
        if self._commits.made(draft):
            return await self._commits.task(draft, subject, box)
        function = function_of(subject.tree.text(draft.path), draft.told["function"])
        tests = subject.covering(draft.path, draft.lines)[:MOST_COVERING]
        if function is None or not tests:
            return Rejected("no test comes by it")
        if why := _told(draft, function, subject):
            return Rejected(why)
        run = await run_suite(
            box, subject.tree.changed(draft.base), tests, seconds=subject.patience(tests, _SECONDS), plugins=subject.plugins
        )
        if run.broken:
            return Rejected("it ends the tests", run.broken)
        task = tested(draft, subject, run, tests, category=self.category, made_by=f"feature {self.version}")
        if isinstance(task, Rejected):
            return task
        lines = float(len(body_of(subject.tree.text(draft.path), function)))
        return replace(task, statement=_statement(subject, draft, function), level={**task.level, "lines": lines})


def _told(draft: TaskDraft, function: SourceFunction, subject: TaskSource) -> str:
    """Where what is to be written can be read: in its docstring, elsewhere in the repository, or in what is installed."""
    words = docstring(function)
    code = [line.strip() for line in body_of(subject.tree.text(draft.path), function)]
    if any(len(line) >= _TELLING and line in words for line in code):
        return "its docstring shows the code"
    body = _shape(function)
    for path in subject.tree.sources:
        others = functions(subject.tree.text(path))
        if any(_shape(each) == body for each in others if (path, each.name) != (draft.path, function.name)):
            return "the same stands elsewhere in the repository"
    name = function.name.rpartition(".")[2]
    for file in _defining(subject.environment.interpreter.prefix).get(name, ()):
        try:
            if any(_shape(each) == body for each in functions(file.read_text(errors="replace"))):
                return "the same is installed in its environment"
        except (SyntaxError, ValueError):
            continue
    return ""


def _shape(function: SourceFunction) -> str:
    return ast.dump(ast.Module(body=list(function.body), type_ignores=[]))


@lru_cache(maxsize=4)
def _defining(prefix: str) -> Mapping[str, tuple[Path, ...]]:
    """Files of an environment by the names of the functions in them."""
    found: dict[str, tuple[Path, ...]] = {}
    for path in sorted(Path(prefix).glob("lib/python*/site-packages/**/*.py")):
        for name in set(re.findall(r"\bdef (\w+)\(", path.read_text(errors="replace"))):
            found[name] = (*found.get(name, ()), path)
    return found


def _statement(subject: TaskSource, draft: TaskDraft, function: SourceFunction) -> str:
    module = draft.source.partition(":")[0]
    said = "\n".join(f"    {line}".rstrip() for line in docstring(function).splitlines())
    return (
        f"`{signature(function)}` in `{module}` of {subject.name} is declared and documented, and not written: whoever calls "
        f"it gets a NotImplementedError. Write it. What it does, as its documentation has it:\n\n{said}\n\n"
        "It is checked by tests that are not in the repository; those that are there must go on passing. Tests are run with "
        "`python -m pytest`."
    )
