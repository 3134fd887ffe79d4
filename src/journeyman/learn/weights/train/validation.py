"""Validation: the model in training answers them greedily, and its answers are judged."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from trl.models.utils import unwrap_model_for_generation

from journeyman.learn.weights.train.base import TrainingSetup
from journeyman.learn.weights.train.decoding import generate
from journeyman.learn.weights.train.masks import RowEncoder
from journeyman.learn.weights.train.merged import merged
from journeyman.learn.weights.train.sampling import attempt
from journeyman.score import Score
from journeyman.task import Task

BATCH = 32
"""Prompts decoded together, at most."""


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """What the model in training is worth on the validation tasks."""

    reward: float | None
    """Mean of the known scores; `None` when none could be told."""
    solved: float | None
    """Share of those tasks whose score is 1."""


def validate(trainer: Any, work: TrainingSetup, tasks: Sequence[Task]) -> ValidationResult:
    """Answer the tasks and judge the answers. Training goes on afterwards as though there had been no look.

    With several processes each of them answers, since a sharded model answers only with all its parts; the first one judges,
    and the others are told.
    """
    with _same_chance():
        answers = _answer(trainer, work, tasks)
        results: list[Any] = [None]
        if trainer.is_world_process_zero() and work.judge is not None:
            attempts = [
                (task, attempt(task, work.put(task), answer, id=f"validation/{task.id}", model=work.config.base_model))
                for task, answer in zip(tasks, answers, strict=True)
            ]
            results = [_mean_reward(work.judge.judge(attempts))]
    if trainer.args.world_size > 1:
        torch.distributed.broadcast_object_list(results, src=0)
    return results[0] or ValidationResult(None, None)


def _mean_reward(scores: Sequence[Score]) -> ValidationResult:
    known = [total for total in (score.total for score in scores) if total is not None]
    if not known:
        return ValidationResult(None, None)
    return ValidationResult(sum(known) / len(known), sum(total >= 1.0 for total in known) / len(known))


def _answer(trainer: Any, work: TrainingSetup, tasks: Sequence[Task]) -> list[str]:
    encode = RowEncoder(work.tokenizer).prompt
    prompts = [encode(work.put(task)) for task in tasks]
    # By length, for little padding.
    order = sorted(range(len(prompts)), key=lambda each: len(prompts[each]))
    answers = [""] * len(prompts)
    limit = work.config.max_completion_tokens or 512
    with _decoding(trainer) as model:
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            output = generate(model, work.tokenizer, [prompts[n] for n in batch], limit)
            for each, answer in zip(batch, work.tokenizer.batch_decode(output, skip_special_tokens=True), strict=True):
                answers[each] = answer
    return answers


@contextmanager
def _decoding(trainer: Any) -> Iterator[Any]:
    """The model as it answers: whole, without dropout, without gradients."""
    wrapped = trainer.model_wrapped
    training = wrapped.training
    with torch.no_grad(), _whole(trainer) as model:
        model.eval()
        try:
            yield model
        finally:
            wrapped.train(training)


@contextmanager
def _whole(trainer: Any) -> Iterator[Any]:
    """The model without what spreads it over several processes."""
    wrapped, accelerator = trainer.model_wrapped, trainer.accelerator
    if trainer.is_deepspeed_enabled:
        with unwrap_model_for_generation(wrapped, accelerator) as model:
            yield model
    elif trainer.is_fsdp_enabled:
        with FullyShardedDataParallel.summon_full_params(wrapped, recurse=False):
            yield accelerator.unwrap_model(wrapped)
    else:
        model = accelerator.unwrap_model(wrapped)
        with merged(model):
            yield model


@contextmanager
def _same_chance() -> Iterator[None]:
    """Random states are afterwards what they were."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
