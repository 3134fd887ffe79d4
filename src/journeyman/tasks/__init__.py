"""Data sets by name. Each loads what it needs when its name is said.

gsm8k     grade-school mathematics, from its files or downloaded
custom    anybody's questions with answers
humaneval, mbpp
          programming tasks with tests, which need a sandbox: loaded by `app.load_dataset`
desk      the order desk, the small world that ships with the package; its domains are its shops
MODULE:NAME
          a function of your own, which takes what `questions.custom` takes and gives a `Dataset`
"""

from dataclasses import replace

from journeyman.core import registry
from journeyman.core.errors import InputError
from journeyman.tasks.base import Dataset


def load(name: str, *, input: str = "", held_out: str = "", domain: str = "", seed: int = 0, least: int = 30) -> Dataset:
    """The data set called `name`, in its splits.

    Args:
        input: Its file; for gsm8k also the folder of its files, or nothing for a download. The desk has none.
        held_out: A file of held-out questions. Without one they are set apart from `input` by a hash of the question.
        domain: Only tasks of this domain. The desk needs one.
        seed: Other tasks at the desk. No split hangs on it.
        least: Held-out tasks that a gate needs: so many are set apart where the file has twice as many questions.

    Raises:
        InputError: There is no such data set or domain, or its file cannot be used.
    """
    if name == "desk":
        return _desk(input or held_out, domain, seed)
    if name in ("humaneval", "mbpp"):
        raise InputError(f"the tests of {name} need a sandbox to run in: load it by app.load_dataset")
    dataset = registry.load("tasks", name)(input, held_out, domain=domain, least=least)
    if not isinstance(dataset, Dataset):
        raise InputError(f"the data set {name!r} is none: it gave a {type(dataset).__name__}, and no Dataset")
    tasks = tuple(task for task in dataset.tasks if domain in ("", task.domain))
    if not tasks:
        known = ", ".join(sorted({task.domain for task in dataset.tasks}))
        raise InputError(f"the data set {name!r} has no tasks of domain {domain!r}; there are {known}")
    return replace(dataset, name=name, tasks=tasks)


def _desk(file: str, domain: str, seed: int) -> Dataset:
    from journeyman.tasks import desk

    if file:
        raise InputError(f"the desk makes its own tasks and reads no file; leave out {file}")
    return desk.load(domain, seed=seed)
