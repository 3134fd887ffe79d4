"""What work in a repository is worth: by running it, in the repository's own environment."""

from collections.abc import Mapping, Sequence

from journeyman.core import registry
from journeyman.core.errors import InputError
from journeyman.core.score import Reward
from journeyman.rewards.repository.verdict import CategoryCheck, Work
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.repository import RepositoryTask
from journeyman.tasks.repository.tree import Tree


def check_of(category: str) -> CategoryCheck:
    """What tasks of a category are checked by.

    Raises:
        InputError: There is no such category.
    """
    made: CategoryCheck = registry.load("categories", category)()
    return made


async def verify(
    task: RepositoryTask, tree: Tree, left: Mapping[str, bytes], box: Sandbox, *, plugins: Sequence[str] = ()
) -> Reward:
    """Whether the work is done.

    Args:
        tree: The files that the task starts from.
        left: All files as the agent left them.
        box: A sandbox in the task's environment.

    Raises:
        InputError: The files are not those that the task was made of.
        SandboxError: The sandbox itself failed.
    """
    if tree.digest != task.tree:
        raise InputError(f"the task {task.id} starts from the files {task.tree}, and these are {tree.digest}")
    return await check_of(task.category).check(Work.of(task, tree, left, plugins), box)
