"""The tasks that weights are trained on, chosen by, and examined on."""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from journeyman.agents import answer
from journeyman.core.errors import InputError
from journeyman.core.task import Split, Task, content
from journeyman.experiments import wiring
from journeyman.experiments.playbook import config as training
from journeyman.models.base import Dialect
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.data import read
from journeyman.optimizers.weights.gguf.contents import Text
from journeyman.optimizers.weights.job import TrainingJob
from journeyman.optimizers.weights.rows import LabelledCompletion, Row, TextOrMessages
from journeyman.tasks.base import Dataset, Verifier

log = logging.getLogger(__name__)

_LONG = 24
"""Characters of a question that stands nowhere by chance."""


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
    found = wiring.load_dataset(_named(config))
    train, validation = _apart(found.split(Split.TRAIN), found.split(Split.VALIDATION), config.validation)
    if not train:
        raise InputError(f"the data set {config.dataset_name!r} has no training tasks")
    return replace(found, tasks=(*train[: config.num_examples], *validation, *found.split(Split.HELD_OUT)[:held_out]))


def learnable(rows: Sequence[Row], dataset: Dataset) -> list[Row]:
    """The rows that may be learned from when the best checkpoint is chosen by these tasks, and the adapter examined on them.

    Raises:
        InputError: One is an attempt at a held-out task, or all are attempts at validation tasks.
    """
    splits = {(task.domain, task.id): task.split for task in dataset.tasks}
    found = [splits.get((row.source.get("domain", ""), row.source.get("task", ""))) for row in rows]
    if Split.HELD_OUT in found:
        task = rows[found.index(Split.HELD_OUT)].source["task"]
        raise InputError(
            f"row {found.index(Split.HELD_OUT) + 1} is of the task {task}, which is held out: nobody may learn from it"
        )
    asked = {content(task.question): task.id for task in dataset.split(Split.HELD_OUT)}
    for number, row in enumerate(rows, start=1):
        if task := _held_out(row, asked):
            raise InputError(f"row {number} asks what the task {task} asks, which is held out: nobody may learn from it")
    kept = [row for row, split in zip(rows, found, strict=True) if split is not Split.VALIDATION]
    if rows and not kept:
        raise InputError("all rows are of tasks by which the best checkpoint is chosen: set validation to 0")
    if len(kept) < len(rows):
        log.warning("%d of %d rows are left out: they are of tasks to choose by", len(rows) - len(kept), len(rows))
    return kept


def _held_out(row: Row, asked: Mapping[str, str]) -> str:
    """The id of the held-out task whose question a row holds: as it is, or in the words around it where it is long enough."""
    texts = [content(text) for text in said_by_user(row)]
    found = (asked[text] for text in texts if text in asked)
    long = (id for question, id in asked.items() if len(question) >= _LONG and any(question in text for text in texts))
    return next(found, "") or next(long, "")


def said_by_user(row: Row) -> list[str]:
    """What a row asks: the messages of the user, or its whole prompt where that is plain text."""
    if isinstance(row.prompt, str):
        return [row.prompt]
    return [str(message.get("content") or "") for message in row.prompt if message.get("role") == "user"]


def verifier(config: TrainingConfig) -> Verifier:
    """What verifies the tasks of a config, without the tasks."""
    if config.dataset_name == "desk":
        from journeyman.tasks.desk.world import Desk

        return Desk()
    return wiring.load_dataset(_named(config), bare=True).verifier


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


# What a trained model is for, as texts to measure a file of it on.

MOST = 64
"""Texts to measure on; how many tokens of them is the yardstick's affair."""


def of_run(job: TrainingJob) -> Iterator[Text]:
    """The rows of a training, or else the prompts of its validation tasks."""
    if job.rows.is_file():
        yield from map(said, islice(read(job.rows), MOST))
        return
    dialect: Dialect = "terse" if job.config.base_model.startswith("embedded") else "full"
    for task in job.read_tasks(Split.VALIDATION):
        yield [{"role": each.role, "content": each.content} for each in answer.answer(task, (), dialect)]


def said(row: Row) -> Text:
    """A row as one text: the prompt and the best completion."""
    if isinstance(row, LabelledCompletion):
        return _joined(row.prompt, row.completion)
    best = max(range(len(row.completions)), key=lambda number: row.rewards[number])
    return _joined(row.prompt, row.completions[best])


def _joined(prompt: TextOrMessages, completion: TextOrMessages) -> Text:
    if isinstance(prompt, str) and isinstance(completion, str):
        return prompt + completion
    return [*_messages(prompt, "user"), *_messages(completion, "assistant")]


def _messages(said: TextOrMessages, role: str) -> Iterable[Any]:
    return ({"role": role, "content": said},) if isinstance(said, str) else said
