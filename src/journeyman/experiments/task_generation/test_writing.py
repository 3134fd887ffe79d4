"""Functions whose tests are taken out: whoever writes some anew must notice the faults that those noticed."""

import ast
import random
from collections.abc import Iterator

from journeyman.experiments.task_generation.base import Rejected, TaskDraft, TaskSource
from journeyman.rewards.repository.suite import run_suite
from journeyman.rewards.repository.verdict import failing, named_files
from journeyman.rewards.unit_tests import TIME
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.repository import Category, Checks, RepositoryTask, split_of
from journeyman.tasks.repository.mutations import SourceFunction, functions
from journeyman.tasks.repository.rewriting import as_rows, function_of, looks_at_code, mutants, renamed, signature
from journeyman.tasks.repository.tree import TESTS, place_of_test, without_tests

LEAST_MUTANTS = 4
"""That the tests noticed which are taken out."""
MOST_MUTANTS = 6
TRIED = 10
OTHERS = 10
"""Tests of the same files that stay, and must go on passing."""
FILES_OF_TESTS = tuple(pattern for each in TESTS for pattern in (each, f"*/{each}"))
_SECONDS = 10.0
"""Of computing that tests may take on other code, at most."""


class TestWriting:
    """Tests of one function, where there are some that call it and none of the others."""

    category = Category.TEST
    version = "1"

    def drafts(self, subject: TaskSource, chance: random.Random) -> Iterator[TaskDraft]:
        public = [(path, each) for path, each in subject.functions() if each.is_public]
        names = {each.name.rpartition(".")[2] for _, each in public}
        called = _called(subject, names)
        chance.shuffle(public)
        for path, function in public:
            last = function.name.rpartition(".")[2]
            covering = subject.covering(path, tuple(function.lines))
            removed = sorted(test for test in covering if called.get(test) == {last})
            if removed:
                base = _without(subject, removed)
                yield TaskDraft(
                    key=f"{path}:{function.name}",
                    source=f"{subject.tree.module_of(path)}:{function.name}",
                    path=path,
                    base=base,
                    reference={each: subject.tree.text(each) for each in base},
                    told={"function": function.name, "removed": "\n".join(removed), "seed": str(chance.getrandbits(64))},
                )

    async def task(self, draft: TaskDraft, subject: TaskSource, box: Sandbox) -> RepositoryTask | Rejected:
        text, name = subject.tree.text(draft.path), draft.told["function"]
        function, removed = function_of(text, name), tuple(draft.told["removed"].splitlines())
        if function is None:
            return Rejected("there is no such function")
        tried = mutants(text, name, random.Random(draft.told["seed"]))[:TRIED]
        if len(tried) < LEAST_MUTANTS:
            return Rejected("too little in it can be broken")
        why = _looking(subject, removed) or await self._fails(subject, box, draft.path, renamed(text), removed)
        if why:
            return Rejected("its tests look at the code", why)
        killed = list[dict[str, object]]()
        for number, mutant in enumerate(tried):
            if len(killed) == MOST_MUTANTS or len(killed) + len(tried) - number < LEAST_MUTANTS:
                break
            if await self._fails(subject, box, draft.path, mutant.applied(text), removed):
                killed += as_rows([mutant])
        if len(killed) < LEAST_MUTANTS:
            return Rejected("its tests notice too few faults")
        return self._made(draft, subject, function, killed)

    @staticmethod
    async def _fails(subject: TaskSource, box: Sandbox, path: str, text: str, tests: tuple[str, ...]) -> str:
        """Why tests fail where a file is another; empty where they pass, and where they only take too long."""
        seconds = subject.patience(tests, _SECONDS)
        run = await run_suite(box, subject.tree.changed({path: text}), tests, seconds=seconds, plugins=subject.plugins)
        out_of_time = run.outcome is not None and run.outcome.limit in TIME
        return "" if out_of_time else failing(run, tests)

    def _made(
        self, draft: TaskDraft, subject: TaskSource, function: SourceFunction, killed: list[dict[str, object]]
    ) -> RepositoryTask:
        removed = tuple(draft.told["removed"].splitlines())
        files = set(named_files(removed))
        stay = [test for test in subject.suite.passing if test.partition("::")[0] in files and test not in removed]
        measure = {"path": draft.path, "function": function.name, "removed": list(removed), "mutants": killed}
        lines = sum(str(draft.reference[path]).count("\n") - str(each).count("\n") for path, each in draft.base.items())
        return RepositoryTask(
            category=self.category,
            repository=subject.name,
            tree=subject.tree.digest,
            environment=subject.environment.digest,
            statement=_statement(subject, draft, function),
            base=draft.base,
            reference=draft.reference,
            checks=Checks(pass_to_pass=tuple(stay[:OTHERS]), measure=measure),
            may_change=FILES_OF_TESTS,
            level={"lines": float(lines), "files": float(len(files)), "failing": float(len(killed))},
            source=draft.source,
            made_by=f"test {self.version}",
            license=subject.license,
            split=split_of(subject.name, draft.source),
        )


def _called(subject: TaskSource, names: set[str]) -> dict[str, set[str]]:
    """By test which of the names of the package's functions stand in it."""
    found: dict[str, set[str]] = {}
    for path in subject.tree.tests:
        try:
            tests = functions(subject.tree.text(path))
        except (SyntaxError, ValueError):
            continue
        for test in tests:
            said = {node.id for node in ast.walk(test.node) if isinstance(node, ast.Name)}
            said |= {node.attr for node in ast.walk(test.node) if isinstance(node, ast.Attribute)}
            found[f"{path}::{test.name.replace('.', '::')}"] = said & names
    return found


def _looking(subject: TaskSource, removed: tuple[str, ...]) -> str:
    """With what tests read code instead of running it; empty where they do not."""
    for test in removed:
        path, _, name = test.partition("::")
        function = function_of(subject.tree.text(path), name.replace("::", "."))
        if function is not None and (found := looks_at_code(ast.unparse(function.node))):
            return found
    return ""


def _without(subject: TaskSource, removed: list[str]) -> dict[str, str | None]:
    """The files of tests as they are given."""
    found: dict[str, str | None] = {}
    for path in named_files(removed):
        gone = {name for where, name in map(place_of_test, removed) if where == path}
        found[path] = without_tests(subject.tree.text(path), gone)
    return found


def _statement(subject: TaskSource, draft: TaskDraft, function: SourceFunction) -> str:
    module = draft.source.partition(":")[0]
    return (
        f"`{signature(function)}` in `{module}` of {subject.name} has no tests of its own. Write some, as functions `test_…` "
        "in files `test_*.py` of the repository, there or new. They must pass on the code as it is, and fail where somebody "
        "breaks the function: what it gives is to be compared with what is right, also at its edges. They run the code and do "
        "not read its text. Tests that are there stay as they are, and code outside of tests is not taken over. Tests are run "
        "with `python -m pytest`."
    )
