"""How far people who labelled the same traces agree."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from journeyman.stats import cohens_kappa
from journeyman.stores.traces.base import AUTO, Label


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Of two people on what both labelled."""

    people: tuple[str, str]
    traces: int
    agreed: int
    kappa: float | None
    """Cohen's; `None` when both always said the same one thing."""


def agreed(labels: Iterable[Label]) -> Sequence[Agreement]:
    """Every two people who labelled the same traces, those with the most in common first. Labels come oldest first."""
    said: dict[str, dict[str, bool]] = {}
    for label in labels:
        if label.who == AUTO:
            continue
        if label.good is None:
            said.get(label.who, {}).pop(label.trace_id, None)
        else:
            said.setdefault(label.who, {})[label.trace_id] = label.good
    found = []
    for one, other in combinations(sorted(said), 2):
        both = sorted(said[one].keys() & said[other].keys())
        first, second = [said[one][id] for id in both], [said[other][id] for id in both]
        if both:
            same = sum(map(bool.__eq__, first, second))
            found.append(Agreement(people=(one, other), traces=len(both), agreed=same, kappa=cohens_kappa(first, second)))
    return sorted(found, key=lambda each: -each.traces)
