"""Is the work done? Tests that failed pass, those that passed still do, and their passing is believed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from journeyman.core.score import Reward
from journeyman.rewards.checks import Check, run_checks
from journeyman.rewards.repository.suite import SuiteRun, limits_for, run_suite
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.repository import RepositoryTask
from journeyman.tasks.repository.tree import Tree, in_tests, place_of_test, without_tests

NAME = "repository"
TESTS_SECONDS = 120.0
"""Of CPU time that tests may take on what somebody made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What somebody made of a task."""

    task: RepositoryTask
    tree: Tree
    """What the task was made of."""
    start: Tree
    """What was given."""
    left: Tree
    """What is examined of what was left: see `RepositoryTask.taken`."""
    right: Tree
    """With the reference."""
    plugins: tuple[str, ...] = ()
    """Of pytest, that the environment's tests need."""
    seconds: float = TESTS_SECONDS
    """Of CPU time that its tests may take."""

    @classmethod
    def of(cls, task: RepositoryTask, tree: Tree, left: Mapping[str, bytes], **more: Any) -> "Work":
        """Of what somebody left; `more` is what else has a default."""
        return cls(task=task, tree=tree, start=task.start(tree), left=task.taken(tree, left), right=task.right(tree), **more)


class CategoryCheck(Protocol):
    """What tasks of a category are checked by. One of one's own is named `module:Class` and made without arguments."""

    async def check(self, work: Work, box: Sandbox) -> Reward:
        """1 where the work is done, 0 where it is not, `None` where that cannot be told; and why.

        Raises:
            SandboxError: The sandbox itself failed.
        """


def done(good: bool | None, evidence: str) -> Reward:
    """The verdict on a piece of work."""
    return Reward(name=NAME, value=None if good is None else float(good), evidence=evidence)


class TestsPass:
    """The task's tests decide: run once as they are, and, where all pass, held against runs in which they must fail."""

    async def check(self, work: Work, box: Sandbox) -> Reward:
        task = work.task
        if work.left.files == work.start.files:
            return done(False, "nothing was changed that may be changed")
        named = (*task.checks.fail_to_pass, *task.checks.pass_to_pass)
        run = await run_suite(box, task.examined(work.tree, work.left), named, seconds=work.seconds, plugins=work.plugins)
        if why := failing(run, named):
            return done(False, why)
        return await believed(work, box)


def failing(run: SuiteRun, tests: Sequence[str]) -> str:
    """Which tests did not pass, and why; empty where all did."""
    if run.broken:
        return run.broken
    bad = [test for test in tests if not run.passed(test)]
    if not bad:
        return ""
    told = run.why.get(bad[0]) or run.why.get(bad[0].partition("::")[0]) or run.became.get(bad[0], "it was not run")
    return f"{len(bad)} of {len(tests)} tests did not pass, {bad[0]}: {told}"


async def believed(work: Work, box: Sandbox) -> Reward:
    """Whether passing says anything: the same tests, with what they expect changed by lot, must fail, beside the reference."""
    limits = limits_for(work.left, work.seconds)
    checks = checks_of(work.task, work.task.examined(work.tree, work.right))
    # One after the other: whoever fakes results fakes them in the first file.
    for check in (replace(each, plugins=work.plugins) for each in checks):
        (result,) = await run_checks(box, [check], files=code_of(work.left), reference=code_of(work.right), limits=limits)
        if not result.passed:
            return done(result.passed, result.evidence)
    wanted = work.task.checks
    return done(True, f"{len(wanted.fail_to_pass)} tests that failed pass, and {len(wanted.pass_to_pass)} still do")


def checks_of(task: RepositoryTask, right: Tree) -> list[Check]:
    """The files in which the tests that decide stand, each without the others: those that failed, if any did."""
    wanted = {*task.checks.fail_to_pass, *task.checks.pass_to_pass}
    of_author = {path: data for path, data in right.files.items() if in_tests(path) or not path.endswith(".py")}
    # What lies in a package beside its code is looked for where the code is imported from.
    of_author |= {path.removeprefix(right.root): data for path, data in of_author.items() if not in_tests(path)}
    found: list[Check] = []
    for path in named_files(task.checks.fail_to_pass or task.checks.pass_to_pass):
        names = {name for where, name in map(place_of_test, wanted) if where == path}
        beside = {name: data for name, data in of_author.items() if name != path}
        text = without_tests(right.text(path), names, only=True)
        found.append(Check(name=path, kind="pytest", text=text, file=path, beside=beside))
    return found


def code_of(tree: Tree) -> dict[str, bytes]:
    """The code without tests, where tests import it from."""
    return {
        path.removeprefix(tree.root): data for path, data in tree.files.items() if path.endswith(".py") and not in_tests(path)
    }


def named_files(tests: Sequence[str]) -> list[str]:
    """The files that test functions are in."""
    return list(dict.fromkeys(test.partition("::")[0] for test in tests))
