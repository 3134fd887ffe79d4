"""One verdict on an attempt."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """One named verdict."""

    name: str
    value: float | None
    """0 to 1, or `None` when the verifier could not tell."""
    evidence: str = ""
    """What the verifier found, as an API's error would say it. A reflector reads this."""
    weight: float = 1.0


def mean(rewards: Sequence[Reward]) -> float | None:
    """The weighted mean. Unknown as soon as one reward is: half a verdict is none."""
    known = [(reward.value, reward.weight) for reward in rewards if reward.value is not None]
    weight = sum(part for _, part in known)
    if len(known) < len(rewards) or not weight:
        return None
    return sum(value * part for value, part in known) / weight
