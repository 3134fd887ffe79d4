"""The program that trains weights: rows or tasks and a config in, an adapter and a report out.

It runs in a process of its own (`python -m journeyman.experiments.weights RUN`), so that running out of memory is a failed
job and not a dead platform, and so that `accelerate launch`, Ray and a shell script are the same to it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from journeyman.core.score import Score
from journeyman.core.task import Task
from journeyman.core.trace import Trace
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.job import TrainingJob
from journeyman.optimizers.weights.rows import Row, TextOrMessages

# What a method of training is given, and what judges the completions.


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


def trainer_arguments(work: TrainingSetup) -> dict[str, Any]:
    """What the trainers of all methods are told alike. Logs and checkpoints are the business of callbacks."""
    import torch

    config, cpu = work.config, not torch.cuda.is_available()
    return {
        "output_dir": str(work.job.checkpoints),
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": "linear",
        "seed": config.seed,
        "bf16": bool(config.use_bf16),
        "activation_checkpointing": bool(config.gradient_checkpointing),
        "use_cpu": cpu,
        "dataloader_pin_memory": not cpu,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
    }
