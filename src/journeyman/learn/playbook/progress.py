"""How far a training run is, and what it has cost: sums over merged batches."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from journeyman.trace import ModelCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What the calls of one role took."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    uncounted: int = 0
    """Calls whose tokens the provider did not count; they are not in the sums."""
    cost: float = 0.0
    """US dollars of the calls with a known price."""
    unpriced: int = 0
    """Calls without a known price: with any, `cost` is a lower bound."""

    @classmethod
    def of(cls, calls: Iterable[ModelCall]) -> "Spent":
        found = list(calls)
        return cls(
            calls=len(found),
            input_tokens=sum(call.input_tokens or 0 for call in found),
            output_tokens=sum(call.output_tokens or 0 for call in found),
            uncounted=sum(call.input_tokens is None or call.output_tokens is None for call in found),
            cost=sum(call.cost or 0.0 for call in found),
            unpriced=sum(call.cost is None for call in found),
        )

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    @property
    def unknown(self) -> int:
        """Calls of which it is not known what they cost."""
        return max(self.uncounted, self.unpriced)

    def json(self) -> dict[str, Any]:
        """The cost is unknown, and said to be, when a call had no price."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | ({"cost": None} if self.unpriced else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Attempts and how they went."""

    attempts: int = 0
    correct: int = 0
    wrong: int = 0
    unknown: int = 0
    """Attempts that broke off or could not be verified: neither right nor wrong."""

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    @property
    def accuracy(self) -> float | None:
        """Of the attempts that could be verified; `None` when there were none."""
        known = self.correct + self.wrong
        return self.correct / known if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Everything that adds up. A run's is the sum of its batches'."""

    attempts: Tally = Tally()
    by_epoch: Mapping[str, Tally] = field(default_factory=dict)
    by_domain: Mapping[str, Tally] = field(default_factory=dict)
    helpful: int = 0
    harmful: int = 0
    neutral: int = 0
    unusable: int = 0
    """Reflections whose text could not be used."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Insights that were not taken, by reason."""
    added: int = 0
    incremented: int = 0
    retired: int = 0
    generator: Spent = Spent()
    reflector: Spent = Spent()
    seconds: float = 0.0

    def __add__(self, other: "Progress") -> "Progress":
        return Progress(**{f.name: _add(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})

    @property
    def extracted(self) -> int:
        return self.helpful + self.harmful + self.neutral

    @property
    def cost(self) -> float:
        """US dollars, at least."""
        return self.generator.cost + self.reflector.cost

    @property
    def unknown_costs(self) -> int:
        """Calls of which it is not known what they cost: with any, `cost` is a lower bound and no limit can be kept."""
        return self.generator.unknown + self.reflector.unknown


def _add(one: Any, other: Any) -> Any:
    if isinstance(one, Mapping):
        return {
            key: _add(one[key], other[key]) if key in one and key in other else one.get(key, other.get(key))
            for key in {**one, **other}
        }
    return one + other
