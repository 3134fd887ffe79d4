"""What a trained model is for, as texts to measure a file of it on."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from journeyman.agents import prompts
from journeyman.learn.weights.data import read
from journeyman.learn.weights.gguf.report import Text
from journeyman.learn.weights.job import TrainingJob as Job
from journeyman.learn.weights.rows import LabelledCompletion as Labelled
from journeyman.learn.weights.rows import Row
from journeyman.learn.weights.rows import TextOrMessages as Said
from journeyman.models.base import Dialect
from journeyman.task import Split

MOST = 64
"""Texts to measure on; how many tokens of them is the yardstick's affair."""


def of_run(job: Job) -> Iterator[Text]:
    """The rows of a training, or else the prompts of its validation tasks."""
    if job.rows.is_file():
        yield from map(said, islice(read(job.rows), MOST))
        return
    dialect: Dialect = "terse" if job.config.base_model.startswith("embedded") else "full"
    for task in job.read_tasks(Split.VALIDATION):
        yield [{"role": each.role, "content": each.content} for each in prompts.answer(task, (), dialect)]


def said(row: Row) -> Text:
    """A row as one text: the prompt and the best completion."""
    if isinstance(row, Labelled):
        return _joined(row.prompt, row.completion)
    best = max(range(len(row.completions)), key=lambda number: row.rewards[number])
    return _joined(row.prompt, row.completions[best])


def _joined(prompt: Said, completion: Said) -> Text:
    if isinstance(prompt, str) and isinstance(completion, str):
        return prompt + completion
    return [*_messages(prompt, "user"), *_messages(completion, "assistant")]


def _messages(said: Said, role: str) -> Iterable[Any]:
    return ({"role": role, "content": said},) if isinstance(said, str) else said
