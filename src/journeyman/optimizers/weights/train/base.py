"""What a method of training is given, and what judges the completions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from journeyman.core.score import Score
from journeyman.core.task import Task
from journeyman.core.trace import Trace
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.job import TrainingJob
from journeyman.optimizers.weights.rows import Row, TextOrMessages


class CompletionJudge(Protocol):
    """What an attempt was worth. One verdict that cannot be reached is unknown, and no exception."""

    def judge(self, attempts: Sequence[tuple[Task, Trace]]) -> list[Score]:
        """A score for each, in their order."""


class ToolEnvironment(Protocol):
    """A tool environment, in which a model in training acts over several turns. One is made for each attempt, and used again.

    Its public methods are the tools: the model is told their names, types and docstrings (with `Args:` as Google writes them).
    """

    def reset(self, task: Task) -> str | None:
        """Begin the task anew; what the model sees first besides the prompt, if anything."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrainingSetup:
    """All that a method of training needs. `model` and `tokenizer` are PEFT's and transformers'."""

    config: TrainingConfig
    """Resolved: nothing that is derived is `None` any more."""
    job: TrainingJob
    model: Any
    """The base model with a fresh or an earlier adapter on it (`peft.PeftModel`)."""
    tokenizer: Any
    tasks: Sequence[Task]
    """To train on."""
    rows: Sequence[Row]
    put: Callable[[Task], TextOrMessages]
    """How a task is put to this model."""
    judge: CompletionJudge | None
    callbacks: Sequence[Any]
    """`transformers.TrainerCallback`s: metrics, guards, validation, checkpoints."""
    environment: Callable[[], ToolEnvironment] | None = None
    """Makes the world that attempts happen in, where tasks have one (GRPO)."""


class MakeTrainer(Protocol):
    """A method: a `transformers.Trainer` that is ready to `train()`."""

    def __call__(self, work: TrainingSetup) -> Any: ...
