"""One verdict on an attempt."""

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
