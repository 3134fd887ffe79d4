"""The tasks that weights are trained on, chosen by, and examined on."""

import hashlib
from dataclasses import replace

from journeyman import app, training
from journeyman.errors import InputError
from journeyman.learn.weights.config import TrainingConfig
from journeyman.task import Split, Task
from journeyman.tasks.base import Dataset, Verifier


def load(config: TrainingConfig, held_out: int) -> Dataset:
    """The data set of a config, cut to what is asked for.

    Tasks for validation are the data set's own where it has some, else a part of its training tasks, chosen by a hash.

    Raises:
        InputError: There is no such data set, or it has no tasks to train on.
    """
    if config.dataset_name == "desk":
        from journeyman.tasks import desk

        sizes = {Split.TRAIN: config.num_examples, Split.VALIDATION: config.validation, Split.HELD_OUT: held_out}
        return desk.load(config.domain, sizes=sizes, seed=config.seed)
    found = app.load_dataset(_named(config))
    train, validation = _apart(found.split(Split.TRAIN), found.split(Split.VALIDATION), config.validation)
    if not train:
        raise InputError(f"the data set {config.dataset_name!r} has no training tasks")
    return replace(found, tasks=(*train[: config.num_examples], *validation, *found.split(Split.HELD_OUT)[:held_out]))


def verifier(config: TrainingConfig) -> Verifier:
    """What verifies the tasks of a config, without the tasks."""
    if config.dataset_name == "desk":
        from journeyman.tasks.desk.verify import Desk

        return Desk()
    return app.load_dataset(_named(config), bare=True).verifier


def _named(config: TrainingConfig) -> training.TrainingConfig:
    return training.TrainingConfig(
        dataset_name=config.dataset_name, input_path=config.input_path, domain=config.domain, seed=config.seed
    )


def _apart(train: tuple[Task, ...], validation: tuple[Task, ...], wanted: int) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    if validation or not wanted:
        return train, validation[:wanted]
    # At most a fifth: few tasks are better learned from than looked at.
    by_hash = sorted(train, key=lambda task: hashlib.sha256(task.question.encode()).hexdigest())
    chosen = {task.id for task in by_hash[: min(wanted, len(train) // 5)]}
    kept = tuple(task for task in train if task.id not in chosen)
    return kept, tuple(replace(task, split=Split.VALIDATION) for task in train if task.id in chosen)
