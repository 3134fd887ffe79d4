"""What each says of which traces, and how far people who labelled the same ones agree."""

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


def said(labels: Iterable[Label]) -> dict[str, dict[str, bool]]:
    """The word of each on each trace, by who and trace: the latest, where it was not taken back. Labels come oldest first."""
    found: dict[str, dict[str, bool]] = {}
    for label in labels:
        if label.good is None:
            found.get(label.who, {}).pop(label.trace_id, None)
        else:
            found.setdefault(label.who, {})[label.trace_id] = label.good
    return found


def agreed(labels: Iterable[Label]) -> Sequence[Agreement]:
    """Every two people who labelled the same traces, those with the most in common first. Labels come oldest first."""
    words = said(labels)
    words.pop(AUTO, None)
    found = []
    for one, other in combinations(sorted(words), 2):
        both = sorted(words[one].keys() & words[other].keys())
        first, second = [words[one][id] for id in both], [words[other][id] for id in both]
        if both:
            same = sum(map(bool.__eq__, first, second))
            found.append(Agreement(people=(one, other), traces=len(both), agreed=same, kappa=cohens_kappa(first, second)))
    return sorted(found, key=lambda each: -each.traces)
