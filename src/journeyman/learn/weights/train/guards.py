"""Guards: rules that stop a training which no longer learns what it should. Each reads the last updates, and none has a state.

A guard that stops a run says why in one sentence, and until when the run was good.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from journeyman.learn.weights.config import TrainingConfig
from journeyman.learn.weights.metrics import Update

WINDOW = 8
"""Updates that a rule averages over: one bad batch stops nothing."""


@dataclass(frozen=True, slots=True)
class Stop:
    reason: str
    """One sentence."""
    good_until: int
    """The last update that shows no sign of it."""


Guard = Callable[[Sequence[Update], TrainingConfig], str | None]


def best(updates: Iterable[Update]) -> Update | None:
    """The first update with the highest validation reward; `None` where there was no look."""
    looked = [each for each in updates if each.validation is not None]
    return max(looked, key=lambda each: (each.validation or 0.0, -each.step), default=None)


def worth_keeping(updates: Sequence[Update], steps: Sequence[int]) -> set[int]:
    """Which checkpoints a run may still end with: the best, or without looks the newest that a guard would call good."""
    if found := best(updates):
        return {found.step}
    good = [step for step in steps if step <= updates[-1].step - WINDOW] if updates else []
    return {*good[-1:], *(step for step in steps if updates and step > updates[-1].step - WINDOW)}


def verdict(updates: Sequence[Update], config: TrainingConfig) -> Stop | None:
    """What the first guard says that would stop the run."""
    for guard in GUARDS:
        if reason := guard(updates, config):
            last = updates[-1].step
            return Stop(reason, last - 1 if guard is not_a_number else max(0, last - WINDOW))
    return None


def not_a_number(updates: Sequence[Update], config: TrainingConfig) -> str | None:
    last = updates[-1]
    found = [name for name in last.broken if name in ("loss", "grad_norm")]
    if not found:
        return None
    what = {"loss": "the loss", "grad_norm": "the gradient"}[found[0]]
    return f"{what} was no number at update {last.step}: lower the learning rate from {config.learning_rate:g}"


GUARDS: tuple[Guard, ...] = (not_a_number,)
_ = fmean
