"""Distributed training: several processes, as `accelerate launch` starts them, and what they gather and broadcast.

Alone, nothing of this does anything.
"""

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

T = TypeVar("T")

PATIENCE = timedelta(hours=2)
"""For which the others wait while one is still at work, on its share of the sampling."""


def world_size() -> int:
    """How many train together, as `accelerate launch` and `torchrun` tell each of them."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_sharded(trainer: Any) -> bool:
    """Whether no process has the whole model (FSDP, DeepSpeed)."""
    return bool(trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled)


def initialise() -> None:
    """Find the others. Needed before anything else here, and before a trainer, which would wait for less long."""
    if world_size() > 1:
        PartialState(cpu=not torch.cuda.is_available(), timeout=PATIENCE)


def is_main_process() -> bool:
    """Whether this is the process that writes files."""
    return world_size() == 1 or bool(PartialState().is_main_process)


def barrier() -> None:
    """Wait until all processes have come this far."""
    if world_size() > 1:
        PartialState().wait_for_everyone()


def shard(items: Sequence[T]) -> Sequence[T]:
    """This process's part of the items; `gather` puts the parts back into one, in their order."""
    if world_size() == 1:
        return items
    each = -(-len(items) // world_size())
    start = PartialState().process_index * each
    return items[start : start + each]


def gather(items: Sequence[T]) -> list[T]:
    """Those of all processes, the first one's first."""
    return list(items) if world_size() == 1 else list(gather_object(list(items)))


def broadcast(value: T) -> T:
    """What the first process has, in all of them: those that decide by it decide alike."""
    if world_size() == 1:
        return value
    holder = [value]
    broadcast_object_list(holder)
    return holder[0]
