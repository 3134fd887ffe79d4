"""Several processes that train together, as `accelerate launch` starts them: what each does, and what they agree on.

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


def processes() -> int:
    """How many train together, as `accelerate launch` and `torchrun` tell each of them."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def spread(trainer: Any) -> bool:
    """Whether no process has the whole model (FSDP, DeepSpeed)."""
    return bool(trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled)


def join() -> None:
    """Find the others. Needed before anything else here, and before a trainer, which would wait for less long."""
    if processes() > 1:
        PartialState(cpu=not torch.cuda.is_available(), timeout=PATIENCE)


def first() -> bool:
    """Whether this is the process that writes files."""
    return processes() == 1 or bool(PartialState().is_main_process)


def wait() -> None:
    """Until all have come this far."""
    if processes() > 1:
        PartialState().wait_for_everyone()


def share(items: Sequence[T]) -> Sequence[T]:
    """This process's part of the items; `gathered` puts the parts back into one, in their order."""
    if processes() == 1:
        return items
    each = -(-len(items) // processes())
    start = PartialState().process_index * each
    return items[start : start + each]


def gathered(items: Sequence[T]) -> list[T]:
    """Those of all processes, the first one's first."""
    return list(items) if processes() == 1 else list(gather_object(list(items)))


def agreed(value: T) -> T:
    """What the first process has, in all of them: those that decide by it decide alike."""
    if processes() == 1:
        return value
    found = [value]
    broadcast_object_list(found)
    return found[0]
