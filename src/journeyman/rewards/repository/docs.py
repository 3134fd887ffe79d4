"""Is a function documented? Every parameter is named, and examples call it, come true, and notice when it is broken."""

from collections.abc import Mapping
from typing import Any

from journeyman.core.score import Reward
from journeyman.rewards.repository.examples import lacking, run_examples
from journeyman.rewards.repository.verdict import Work, done
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.repository.rewriting import docstring, function_of, of_rows, renamed, same_but_for_docstring
from journeyman.tasks.repository.tree import Tree

REPEATS = 2
"""Times that examples must come true, and as many times that they must notice the same fault: what chance decides does not."""


class Documented:
    """Only the docstring differs, names every parameter, and its examples come true on the function and not on broken ones."""

    async def check(self, work: Work, box: Sandbox) -> Reward:
        measure = work.task.checks.measure
        path, name, module = (str(measure[key]) for key in ("path", "function", "module"))
        text = work.left.text(path) if path in work.left.files else ""
        if not same_but_for_docstring(text, work.start.text(path), name):
            return done(False, f"more than the docstring of {name} was changed, or it is no Python")
        function = function_of(text, name)
        words = docstring(function) if function else ""
        if function is None or (why := lacking(words, function)):
            return done(False, why if function else f"there is no {name}")
        original = work.tree.text(path)
        for version in (original, renamed(original), *[original] * (REPEATS - 1)):
            run = await run_examples(box, work.tree.changed({path: version}), words, module)
            if not run.good:
                return done(run.good, f"its examples do not come true: {run.why}")
        if await notices(box, work.tree, words, measure):
            return done(True, "every parameter is named, and the examples come true and notice a fault")
        return done(False, "its examples do not notice any of the faults that were put into the function")


async def notices(box: Sandbox, tree: Tree, words: str, measure: Mapping[str, Any]) -> bool:
    """Whether examples fail, each time, on any of the function's mutants."""
    path, rows = str(measure["path"]), of_rows(measure["mutants"])
    for mutant in rows:
        broken = tree.changed({path: mutant.applied(tree.text(path))})
        if await _always_fail(box, broken, words, str(measure["module"])):
            return True
    return False


async def _always_fail(box: Sandbox, tree: Tree, words: str, module: str) -> bool:
    for _ in range(REPEATS):
        if (await run_examples(box, tree, words, module)).good is not False:
            return False
    return True
