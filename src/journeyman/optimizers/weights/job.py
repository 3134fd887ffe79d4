"""A training of weights on the disk: what goes into the program, and what comes out of it.

runs/<id>/
    config.json         the settings as resolved
    tasks.jsonl         the tasks to train on and to validate by, a line each; never a held-out one
    rows.jsonl          the rows to train on, where there were any
    metrics.jsonl       a line for each update
    checkpoints/        step-00010 and so on, each whole: adapter, optimizer, random states
    tensorboard/        what TensorBoard reads
    adapter/            what was learned, in PEFT's form, and `adapter.json`
    report.json         how the program ended
    log.txt             what the program printed
    run.json            how what it learned is to be proven; the training program does not read it
    launch.yaml         how `accelerate` starts it, where it runs in several processes
    pipeline.json       what a pipeline is to do with it, where it is part of one
    result.json         what the gate made of it, when all is over
    deployments.jsonl   where it was deployed, and whether against the gate
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError
from journeyman.core.task import Split, Task
from journeyman.io.jsonl import iter_jsonl
from journeyman.optimizers.weights.config import TrainingConfig


class Ended(StrEnum):
    """How the program ended."""

    FINISHED = "finished"
    """All updates were made."""
    EARLY = "early"
    """The validation reward did not rise any more; the best checkpoint is the adapter."""
    GUARDED = "guarded"
    """A guard stopped it; the last good checkpoint is the adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingReport:
    """What the program found. Times in seconds, memory in bytes; `None` is unknown."""

    ended: Ended
    reason: str
    """One sentence."""
    steps: int
    """Updates made."""
    kept_step: int
    """The update after which the adapter was as it is now; 0 for the start."""
    seconds: float
    cpu_seconds: float
    peak_memory: int | None
    """The largest resident set of the process."""
    peak_gpu_memory: int | None
    parameters: int
    """Of the base model."""
    trained: int
    """Of the adapter."""
    tokens: int
    """That were written and learned from."""
    validation_before: float | None
    """Mean reward on the validation tasks."""
    validation_after: float | None

    def json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """The folder of one training."""

    folder: Path

    @property
    def config(self) -> TrainingConfig:
        return TrainingConfig.of(self._read("config.json"))

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks.jsonl"

    @property
    def rows(self) -> Path:
        return self.folder / "rows.jsonl"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def adapter(self) -> Path:
        return self.folder / "adapter"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def report(self) -> TrainingReport | None:
        """How it ended; `None` while it has not."""
        if not (self.folder / "report.json").is_file():
            return None
        fields = self._read("report.json")
        return TrainingReport(**{**fields, "ended": Ended(fields["ended"])})

    def read_tasks(self, split: Split) -> list[Task]:
        """The tasks of a split; none where the file is missing."""
        return [task for task in _tasks(self.tasks) if task.split is split] if self.tasks.is_file() else []

    def _read(self, name: str) -> Mapping[str, Any]:
        path = self.folder / name
        try:
            value: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"{path} is missing: this is not the folder of a training of weights") from None
        except ValueError as error:
            raise InputError(f"{path} is not what was written: {error}") from None
        return value


def task_lines(tasks: Iterable[Task]) -> Iterator[str]:
    """Tasks as lines of JSON.

    Raises:
        InputError: One is held out.
    """
    for task in tasks:
        if task.split is Split.HELD_OUT:
            raise InputError(f"the task {task.id} is held out: no weights may learn from it")
        yield json.dumps(asdict(task), ensure_ascii=False) + "\n"


def _tasks(path: Path) -> Iterator[Task]:
    return (line.value for line in iter_jsonl(path, _task, what="not a task as it was written"))


def _task(line: str) -> Task:
    fields = json.loads(line)
    return Task(**{**fields, "split": Split(fields["split"])})
