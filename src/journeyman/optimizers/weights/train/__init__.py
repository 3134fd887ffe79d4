"""The program that trains weights: rows or tasks and a config in, an adapter and a report out.

It runs in a process of its own (`python -m journeyman.experiments.weights RUN`), so that running out of memory is a failed
job and not a dead platform, and so that `accelerate launch`, Ray and a shell script are the same to it.
"""

from collections.abc import Callable, Mapping, Sequence
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
    from transformers import TrainingArguments

    config, cpu = work.config, not torch.cuda.is_available()
    # Transformers 5 had it by its former name at first.
    names = ("activation_checkpointing", "gradient_checkpointing")
    checkpointing = next(name for name in names if name in TrainingArguments.__dataclass_fields__)
    return {
        "output_dir": str(work.job.checkpoints),
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": "linear",
        "seed": config.seed,
        "bf16": bool(config.use_bf16),
        checkpointing: bool(config.gradient_checkpointing),
        "use_cpu": cpu,
        "dataloader_pin_memory": not cpu,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
    }


# A config in the words of TRL's GRPO, on fresh and on recorded completions alike.

CLIP_HIGH = 0.28
"""How far a ratio may rise where `clip` is 0.2: what is unlikely may become likelier a little faster (DAPO, "clip-higher")."""


def grpo_arguments(work: TrainingSetup, steps: int) -> dict[str, Any]:
    """What GRPO is told alike for fresh and for recorded completions."""
    config = work.config
    return {
        **trainer_arguments(work),
        "per_device_train_batch_size": config.per_device_batch_size or generations_of(config),
        "gradient_accumulation_steps": config.gradient_accumulation_steps or 1,
        "num_generations": generations_of(config),
        "max_completion_length": config.max_completion_tokens,
        "temperature": config.temperature,
        "beta": config.beta or 0.0,
        "epsilon": config.clip,
        "epsilon_high": config.clip * CLIP_HIGH / 0.2,
        "loss_type": "dapo",
        "max_steps": steps,
    }


def generations_of(config: TrainingConfig) -> int:
    """Completions of one prompt that are compared."""
    return config.num_generations or 8


# Batches of GRPO, without the rows and columns that change neither loss nor gradient.


def drop_zero_advantages(inputs: Mapping[str, Any], *, alone: bool = True) -> dict[str, Any]:
    """A batch of GRPO without completions whose advantage is 0, and without padding that all others share.

    Where the loss is a sum over tokens, divided by a number that is kept, both leave loss and gradient as they were. At least
    one completion stays.

    Args:
        inputs: TRL's: `prompt_ids` and `prompt_mask` (rows × prompt tokens, padded on the left), `advantages` (rows), and
            `completion_ids`, `completion_mask` and others (rows × completion tokens, padded on the right).
        alone: Not with other processes: of those TRL gathers a number for each completion, so that all must stay.
    """
    import torch

    useful = (inputs["advantages"] != 0) | (not alone)
    useful[0] |= not useful.any()
    rows = len(useful)
    batch = {
        name: value[useful] if isinstance(value, torch.Tensor) and value.dim() and len(value) == rows else value
        for name, value in inputs.items()
    }
    prompt, completion = (batch[name].any(dim=0).nonzero() for name in ("prompt_mask", "completion_mask"))
    first = int(prompt[0]) if len(prompt) else 0
    last = int(completion[-1]) + 1 if len(completion) else 1
    for name, value in batch.items():
        if name in ("prompt_ids", "prompt_mask"):
            batch[name] = value[:, first:]
        elif isinstance(value, torch.Tensor) and value.dim() == 2 and value.size(1) == inputs["completion_ids"].size(1):
            batch[name] = value[:, :last]
    return batch
