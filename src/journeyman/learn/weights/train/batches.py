"""Batches of GRPO, without the rows and columns that change neither loss nor gradient."""

from collections.abc import Mapping
from typing import Any

import torch


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
