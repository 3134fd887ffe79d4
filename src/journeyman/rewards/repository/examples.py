"""Examples in docstrings, and what a docstring must have beside them."""

import ast
import doctest
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from journeyman.rewards.repository.suite import reported
from journeyman.rewards.unit_tests import TIME, ended_by
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.repository.mutations import SourceFunction
from journeyman.tasks.repository.rewriting import (
    looks_at_code,
    parameters,
)
from journeyman.tasks.repository.tree import Tree

EXAMPLES_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamplesRun:
    """What became of examples."""

    good: bool | None
    """Whether all were run to their end and came true; `None` where the machine was too busy to tell."""
    why: str = ""
    out_of_time: bool = False


async def run_examples(box: Sandbox, tree: Tree, words: str, module: str) -> ExamplesRun:
    """Run the examples of a docstring in the names of a module.

    Raises:
        SandboxError: The sandbox itself failed.
    """
    outcome, told = await reported(box, tree, "examples", f"{words!r}, module={module!r}", seconds=EXAMPLES_SECONDS)
    try:
        (text,) = told
        found = json.loads(text)
        tried, failed, why = int(found["tried"]), int(found["failed"]), str(found["why"])
    except (ValueError, TypeError, KeyError, AttributeError):
        said = f"they did not come to their end: {ended_by(outcome)}\n{outcome.stderr[-300:]}"
        good = None if outcome.limit == "wall" else False
        return ExamplesRun(good=good, why=said, out_of_time=outcome.limit in TIME)
    return ExamplesRun(good=outcome.ok and tried > 0 and not failed, why=why)


def examples_of(words: str) -> list[doctest.Example]:
    """Those that are run: what is to be skipped is none."""
    try:
        found = doctest.DocTestParser().get_examples(words)
    except ValueError:
        return []
    return [each for each in found if not each.options.get(doctest.SKIP)]


def lacking(words: str, function: SourceFunction) -> str:
    """What a docstring lacks, by its text alone; empty where it is whole."""
    if not words:
        return "there is no docstring"
    if missing := unnamed(words, function):
        return f"it does not name {', '.join(missing)}"
    name, found = function.name.rpartition(".")[2], examples_of(words)
    try:
        if not any(_names(each.source, name) for each in found):
            return f"no example calls {name}"
        if looked := next(filter(None, (looks_at_code(each.source) for each in found)), ""):
            return f"an example looks at code instead of running it: {looked}"
    except (SyntaxError, ValueError) as error:
        return f"an example is no Python: {error}"
    return ""


def unnamed(words: str, function: SourceFunction) -> list[str]:
    """Parameters that a docstring does not name outside of its examples."""
    try:
        prose = "".join(part for part in doctest.DocTestParser().parse(words) if isinstance(part, str))
    except ValueError:
        prose = words
    return [name for name in parameters(function) if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", prose)]


def _names(source: str, name: str) -> bool:
    return any(
        (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)
        for node in ast.walk(ast.parse(source))
    )


def completed(words: str, missing: Sequence[str]) -> str:
    """A docstring that names the parameters that it did not."""
    return f"{words}\n\nParameters: {', '.join(missing)}." if missing else words
