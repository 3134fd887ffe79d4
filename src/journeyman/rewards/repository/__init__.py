"""What work in a repository is worth: by running it, in the repository's own environment."""

from collections.abc import Mapping, Sequence
from enum import Enum

from journeyman.core import registry
from journeyman.core.errors import InputError
from journeyman.core.score import Reward
from journeyman.rewards.repository.verdict import TESTS_SECONDS, CategoryCheck, TestsPass, Work
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.repository import RepositoryTask
from journeyman.tasks.repository.tree import Tree


def check_of(category: str) -> CategoryCheck:
    """What tasks of a category are checked by.

    One of one's own that is but a name, `module:Categories.MEMBER` of an `Enum`, is checked by the task's tests.

    Raises:
        InputError: There is no such category.
    """
    found = registry.load("categories", category)
    if isinstance(found, Enum):
        return TestsPass()
    made: CategoryCheck = found()
    return made


async def verify(
    task: RepositoryTask,
    tree: Tree,
    left: Mapping[str, bytes],
    box: Sandbox,
    *,
    plugins: Sequence[str] = (),
    seconds: float = TESTS_SECONDS,
) -> Reward:
    """Whether the work is done.

    Args:
        tree: The files that the task starts from.
        left: All files as the agent left them.
        box: A sandbox in the task's environment.
        plugins: Of pytest, by module, that its tests need.
        seconds: Of CPU time that its tests may take, each time they are run.

    Raises:
        InputError: The files are not those that the task was made of.
        SandboxError: The sandbox itself failed.
    """
    if tree.digest != task.tree:
        raise InputError(f"the task {task.id} starts from the files {task.tree}, and these are {tree.digest}")
    return await check_of(task.category).check(Work.of(task, tree, left, plugins=tuple(plugins), seconds=seconds), box)
