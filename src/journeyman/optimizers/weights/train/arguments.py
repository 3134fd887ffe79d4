"""A config in the words of TRL's GRPO, online and offline alike."""

import math
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import torch
from trl import GRPOConfig

from journeyman.core.errors import InputError, MissingExtra
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.job import TrainingJob
from journeyman.optimizers.weights.rows import TextOrMessages
from journeyman.optimizers.weights.train import distributed
from journeyman.optimizers.weights.train.base import TrainingSetup
from journeyman.optimizers.weights.train.masks import RowEncoder

CLIP_HIGH = 0.28
"""How far a ratio may rise where `clip` is 0.2: what is unlikely may become likelier a little faster (DAPO, "clip-higher")."""


def online(work: TrainingSetup, tasks: int) -> GRPOConfig:
    """Settings of GRPO on fresh completions of so many tasks."""
    config = work.config
    passes = _passes(config)
    prompts = _batch(config) * passes * distributed.world_size() // _generations(config)
    steps = config.max_steps or max(1, math.ceil(config.num_epochs * tasks / prompts)) * passes
    return GRPOConfig(**common(work, steps), steps_per_generation=passes * _accumulation(config), **_generation(config))


def common(work: TrainingSetup, steps: int) -> dict[str, Any]:
    """What GRPO is told alike for fresh and for recorded completions."""
    config = work.config
    return {
        **every(config, work.job),
        "per_device_train_batch_size": _each(config),
        "gradient_accumulation_steps": _accumulation(config),
        "num_generations": _generations(config),
        "max_completion_length": config.max_completion_tokens,
        "temperature": config.temperature,
        "beta": config.beta or 0.0,
        "epsilon": config.clip,
        "epsilon_high": config.clip * CLIP_HIGH / 0.2,
        "loss_type": "dapo",
        "max_steps": steps,
    }


def every(config: TrainingConfig, job: TrainingJob) -> dict[str, Any]:
    """What the trainers of all methods are told alike. Logs and checkpoints are the business of callbacks."""
    cpu = not torch.cuda.is_available()
    return {
        "output_dir": str(job.checkpoints),
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


def repeats(settings: GRPOConfig, tasks: int) -> int:
    """How often tasks must stand in a data set for at least one batch."""
    return math.ceil(int(settings.generation_batch_size) / int(settings.num_generations) / tasks)


def encoder(work: TrainingSetup) -> Callable[[TextOrMessages], list[int]]:
    return RowEncoder(work.tokenizer).prompt


def _generation(config: TrainingConfig) -> dict[str, Any]:
    """Who writes: vLLM beside the training on a GPU, or transformers.

    Raises:
        InputError: vLLM is asked for where there is no GPU.
        MissingExtra: It is not installed.
    """
    gpu, installed = torch.cuda.is_available(), find_spec("vllm") is not None
    if config.generation == "vllm" and not gpu:
        raise InputError("vLLM writes completions on a GPU, and there is none here: leave generation at auto")
    if config.generation == "vllm" and not installed:
        raise MissingExtra("vllm is missing: pip install vllm, or leave generation at auto")
    if config.generation == "transformers" or not (gpu and installed):
        return {}
    room = (config.max_prompt_tokens or 0) + (config.max_completion_tokens or 0)
    return {"use_vllm": True, "vllm_mode": "colocate", "vllm_max_model_length": room if config.max_prompt_tokens else None}


def _passes(config: TrainingConfig) -> int:
    """Updates made on completions that were written together: as few as hold whole groups."""
    return _generations(config) // math.gcd(_batch(config), _generations(config))


def _batch(config: TrainingConfig) -> int:
    return _each(config) * _accumulation(config)


def _each(config: TrainingConfig) -> int:
    return config.per_device_batch_size or _generations(config)


def _accumulation(config: TrainingConfig) -> int:
    return config.gradient_accumulation_steps or 1


def _generations(config: TrainingConfig) -> int:
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
