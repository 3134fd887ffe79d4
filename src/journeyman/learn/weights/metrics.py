"""metrics.jsonl: what a training of weights says of itself, a line for each update."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from journeyman.io.jsonl import iter_jsonl


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetrics:
    """After one update. `None` is unknown, or has no meaning for the method. Times in seconds, memory in bytes."""

    step: int
    """How many updates were made; 0 is the start."""
    of: int
    """How many are planned."""
    loss: float | None = None
    reward: float | None = None
    """Mean of what the completions in this update were worth."""
    reward_std: float | None = None
    """Its standard deviation within a group, averaged over the groups."""
    entropy: float | None = None
    """Of the policy, in nats a token."""
    kl: float | None = None
    """From the policy that training started from, as the method estimates it."""
    completion_tokens: float | None = None
    """Mean length of the completions."""
    learning_rate: float | None = None
    grad_norm: float | None = None
    """Before it is clipped."""
    ess: float | None = None
    """Effective sample size of the importance weights, as a share of the batch: 1 is on policy."""
    validation: float | None = None
    """Mean reward on the validation tasks, where this update had a look at them."""
    solved: float | None = None
    """Share of the validation tasks that were solved."""
    seconds: float | None = None
    """Wall time of the training so far, without what lay between two resumptions."""
    cpu_seconds: float | None = None
    """Processor time so far, with that of child processes."""
    peak_memory: int | None = None
    """The largest resident set of the process."""
    peak_gpu_memory: int | None = None
    tokens: int | None = None
    """That were written and learned from so far."""
    broken: tuple[str, ...] = ()
    """What was infinite or no number; its value stands as `None`."""
    more: Mapping[str, float] = field(default_factory=dict, hash=False)
    """What else the method logs, in its own words."""

    def line(self) -> str:
        return json.dumps(asdict(self), allow_nan=False) + "\n"


_NAMES = frozenset(each.name for each in fields(UpdateMetrics))


def finite(values: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The values with `None` for what is infinite or no number, and the names of those."""
    broken = tuple(sorted(name for name, value in values.items() if isinstance(value, float) and not math.isfinite(value)))
    return {name: None if name in broken else value for name, value in values.items()}, broken


def parse(line: str) -> UpdateMetrics:
    """From what `UpdateMetrics.line` wrote. Fields that a later version added are left out.

    Raises:
        ValueError: It is not that.
    """
    found = json.loads(line)
    if not isinstance(found, dict) or not isinstance(found.get("step"), int) or not isinstance(found.get("of"), int):
        raise ValueError("no update with its number")
    known = {name: value for name, value in found.items() if name in _NAMES}
    return UpdateMetrics(**{**known, "broken": tuple(found.get("broken", ()))})


def read(path: Path) -> list[UpdateMetrics]:
    """All whole lines, oldest first; a last line without its end was being written when the program was killed.

    Raises:
        InputError: A line is not what was written.
    """
    if not path.is_file():
        return []
    return [line.value for line in iter_jsonl(path, parse, what="not an update as it was written", unfinished=False)]
