"""What is asked, in words that tell neither what is right nor where it is; in those of a user, where a model tells it."""

import difflib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from journeyman.agents.replay import CallBudget, within
from journeyman.core.errors import InputError, ModelError
from journeyman.experiments import wiring
from journeyman.experiments.task_generation.base import leaks
from journeyman.experiments.task_generation.generate import FOLDER, kept_tree
from journeyman.models.base import Model, ModelRequest, PromptMessage
from journeyman.tasks.repository import Category, RepositoryTask
from journeyman.tasks.repository.mutations import functions
from journeyman.tasks.repository.rewriting import docstring
from journeyman.tasks.repository.tree import Tree

SHORTEST, LONGEST = 40, 2000
"""Characters of a statement."""
_LONGEST_CHANGE = 6000
_HIDE_THEIR_PLACE = (Category.BUG_FIX, Category.PERFORMANCE)
_SHORTEST = 6
"""Characters that tell something."""
_SYSTEM = """You write the issue that a user of a Python package would file. You are told what is to be done, and the change.
Say what is wanted, or what goes wrong and what is expected instead, by names that users of the package know and by an example.
Never name a file, a line or what is to be changed, and quote nothing of the change. Answer with the text of the issue alone."""


@dataclass(slots=True)
class Teller:
    """Puts tasks into other words. Where those tell too much, or there are none, the plain ones stay."""

    model: Model
    folder: Path = FOLDER
    """Where the files of repositories are kept."""
    became: Counter[str] = field(default_factory=Counter)
    """How many were told in a user's words, told too much, or got no answer."""
    budget: CallBudget = field(default_factory=CallBudget)

    @classmethod
    def opened(cls, name: str, *, base_url: str = "", max_cost: float | None = None) -> "Teller":
        """
        Raises:
            ModelError: There is no such model, or it lacks a key.
            InputError: Its price is not known, and costs are limited.
        """
        wiring.check(name, base_url=base_url)
        if max_cost is not None and wiring.price(name, base_url=base_url) is None:
            raise InputError(f"a limit on cost cannot be kept: {name} has no known price; leave out --max-cost")
        budget = CallBudget(max_cost=max_cost)
        return cls(within(wiring.connect(name, base_url=base_url), budget), budget=budget)

    async def told(self, task: RepositoryTask) -> RepositoryTask:
        """The task in a user's words. The tests that decide are the same."""
        tree = kept_tree(task.tree, self.folder)
        asked = f"# Package\n{task.repository}\n\n# To be done\n{task.statement}\n\n# The change\n{_change(task, tree)}"
        messages = (PromptMessage("system", _SYSTEM), PromptMessage("user", asked))
        try:
            reply = await self.model.complete(ModelRequest(messages=messages, max_tokens=500, temperature=0.0, task_id=task.id))
        except ModelError:
            self.became["no answer"] += 1
            return task
        other = replace(task, statement=reply.text.strip(), made_by=f"{task.made_by}, told by {self.model.name}")
        if not SHORTEST <= len(other.statement) <= LONGEST or any(told_by(other, tree)):
            self.became["told too much or nothing"] += 1
            return task
        self.became["told"] += 1
        return other


def _change(task: RepositoryTask, tree: Tree) -> str:
    given, right = task.start(tree), task.right(tree)
    found: list[str] = []
    for path in task.reference:
        before = given.text(path) if path in given.files else ""
        after = right.text(path) if path in right.files else ""
        found += difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), path, path)
    return "".join(found)[:_LONGEST_CHANGE]


def told_by(task: RepositoryTask, tree: Tree) -> Iterator[str]:
    """What the statement of a task tells that it should not."""
    given, right, secrets = task.start(tree), task.right(tree), list[str]()
    for path in (path for path in task.reference if path in right.files):
        before = given.text(path) if path in given.files else ""
        # What a new function does, its documentation says, and whoever is to write it may be told.
        public = _documentation(right.text(path)) if task.category == Category.FEATURE else set()
        secrets += (line for line in _put_in(before, right.text(path)) if len(line) >= _SHORTEST and line not in public)
    return leaks(task.statement, secrets=secrets, paths=task.reference if task.category in _HIDE_THEIR_PLACE else ())


def _documentation(text: str) -> set[str]:
    """The lines of all docstrings of functions; none where it is no Python."""
    try:
        return {line.strip() for each in functions(text) for line in docstring(each).splitlines()}
    except (SyntaxError, ValueError):
        return set()


def _put_in(before: str, after: str) -> Iterator[str]:
    """Lines that are only in what comes after."""
    for line in difflib.ndiff(before.splitlines(), after.splitlines()):
        if line.startswith("+ "):
            yield line[2:].strip()
