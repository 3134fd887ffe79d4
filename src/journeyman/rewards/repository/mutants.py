"""Are tests worth something? They pass on the code as it is, and notice the faults that the tests before them noticed."""

import ast
import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from journeyman.core.score import Reward
from journeyman.rewards.repository.suite import SuiteRun, run_suite
from journeyman.rewards.repository.verdict import TESTS_SECONDS, Work, done, failing
from journeyman.rewards.sabotage import names_of_tests
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.repository.mutations import functions
from journeyman.tasks.repository.rewriting import looks_at_code, of_rows, renamed
from journeyman.tasks.repository.tree import Tree, is_test

REPEATS = 3
"""Times that new tests must pass on the code as it is."""
LEAST_KILLED = 0.8
"""Of the faults that the tests before noticed."""
MOST_CPU = 10.0
"""Times what the tests before took."""
MUTANT_SECONDS = 20.0
"""That tests may take on broken code, which may be a loop without end."""
_AT_ONCE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """What somebody wrote: files of tests, and which tests in them are new."""

    files: Mapping[str, str]
    new: tuple[str, ...]
    why: str = ""
    """Why it is not even run."""


class MutantsKilled:
    """New tests pass three times on the code as it is, and once with other local names; 80 of 100 faults make some fail."""

    async def check(self, work: Work, box: Sandbox) -> Reward:
        measure = work.task.checks.measure
        written = _written(work)
        if written.why:
            return done(False, written.why)
        path = str(measure["path"])
        plain = work.start.changed(dict(written.files))
        runs = await self._on_the_original(work, box, plain, path, written)
        if why := next(filter(None, runs), ""):
            return done(False, why)
        mutants = of_rows(measure["mutants"])
        random.SystemRandom().shuffle(mutants)
        text, free = work.start.text(path), asyncio.Semaphore(_AT_ONCE)

        async def killed(number: int) -> bool | None:
            async with free:
                broken = plain.changed({path: mutants[number].applied(text)})
                run = await run_suite(box, broken, written.new, seconds=MUTANT_SECONDS, plugins=work.plugins)
                waited = run.outcome is not None and run.outcome.limit == "wall"
                return None if waited else bool(failing(run, written.new))

        found = await asyncio.gather(*map(killed, range(len(mutants))))
        return _counted(found, len(written.new))

    async def _on_the_original(self, work: Work, box: Sandbox, plain: Tree, path: str, written: _Written) -> list[str]:
        """Why the tests do not count, for each thing that they must do without a fault in the code."""
        named = (*written.new, *work.task.checks.pass_to_pass)
        before = await _run(work, box, work.right, tuple(map(str, work.task.checks.measure["removed"])))
        first = await _run(work, box, plain, named)
        if why := failing(first, named):
            return [f"on the code as it is, {why}"]
        found = [_dearer(first, before)]
        for _ in range(REPEATS - 1):
            if why := failing(await _run(work, box, plain, written.new), written.new):
                return [f"not each time on the code as it is: {why}"]
        other = plain.changed({path: renamed(work.start.text(path))})
        why = failing(await _run(work, box, other, written.new), written.new)
        return [*found, f"with other names of local variables, {why}" if why else ""]


def _counted(killed: Sequence[bool | None], tests: int) -> Reward:
    """The verdict on faults that were noticed, were not, and of which that could not be told."""
    sure, unknown, least = killed.count(True), killed.count(None), LEAST_KILLED * len(killed)
    said = f"{tests} new tests pass and notice {sure} of {len(killed)} faults"
    if sure >= least or sure + unknown < least:
        return done(sure >= least, said)
    return done(None, f"{said}; the machine was too busy to tell it of {unknown}")


async def _run(work: Work, box: Sandbox, tree: Tree, tests: tuple[str, ...]) -> SuiteRun:
    return await run_suite(box, tree, tests, seconds=TESTS_SECONDS, plugins=work.plugins)


def _dearer(run: SuiteRun, before: SuiteRun) -> str:
    """Why tests take too long; empty where they do not, or where that cannot be told."""
    spent = [each.outcome.cpu_seconds if each.outcome else None for each in (run, before)]
    if spent[0] is None or spent[1] is None or spent[0] <= MOST_CPU * spent[1]:
        return ""
    return f"they take {spent[0]:.1f} s of CPU, and those before took {spent[1]:.1f} s"


def _written(work: Work) -> _Written:
    """What of what was left counts: files of tests alone, in which those that were there stand as they stood."""
    files = {path: work.left.text(path) for path in work.left.files if is_test(path) and path.endswith(".py")}
    changed = {path: text for path, text in files.items() if work.start.files.get(path) != work.left.files[path]}
    if gone := sorted(path for path in work.start.tests if path not in files):
        return _Written(files={}, new=(), why=f"{gone[0]} is gone")
    new = list[str]()
    for path, text in sorted(changed.items()):
        try:
            now, was = _bodies(text), _bodies(work.start.text(path)) if path in work.start.files else {}
            names, looked = names_of_tests(text), looks_at_code(_only_new(text, work, path))
        except (SyntaxError, ValueError, RecursionError) as error:
            return _Written(files={}, new=(), why=f"{path} is no Python: {error}")
        if other := next((name for name, body in was.items() if now.get(name) != body), ""):
            return _Written(files={}, new=(), why=f"{path}::{other} was there, and is not as it was")
        if looked:
            return _Written(files={}, new=(), why=f"{path} looks at code instead of running it: {looked}")
        new += [f"{path}::{name.replace('.', '::')}" for name in names if name not in was]
    return _Written(files=changed, new=tuple(new), why="" if new else "there is no new test")


def _only_new(text: str, work: Work, path: str) -> str:
    """A file without the statements that its author already had in it."""
    known = {ast.dump(node) for node in ast.parse(work.start.text(path)).body} if path in work.start.files else set()
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if ast.dump(node) not in known]
    return ast.unparse(tree)


def _bodies(text: str) -> dict[str, str]:
    """Each test of a file, and what it does."""
    names = set(names_of_tests(text))
    return {each.name: ast.dump(each.node) for each in functions(text) if each.name in names}
