"""How far the people agree who judged the same traces, and on which they do not."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from journeyman.core.feedback import SUCCESS, Feedback
from journeyman.core.reward import Source, source_of
from journeyman.stores.traces.base import RECORDER, Label
from journeyman.stores.traces.labels import said

Value = bool | float | str
_TOLD = 100
"""Traces on which people differ that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelAgreement:
    """Of two people, or of all, on what several of them judged by one metric."""

    metric: str
    people: tuple[str, ...]
    traces: int
    """Judged by two of them or more."""
    agreed: int
    """Of these, how many all who judged it judged alike."""
    measure: str
    """Cohen's κ of two on good and bad, else Krippendorff's α."""
    value: float | None
    """`None` where the traces are too few, and where all always said the same one thing."""
    low: float | None
    high: float | None
    """Ends of its 95 % interval."""
    apart: tuple[str, ...]
    """Traces on which they differ, the latest judged last; a hundred at most."""

    @property
    def sentence(self) -> str:
        """The same on pages, in commands and in JSON: never a number without its interval and its n."""
        from journeyman.stats.agreement import FEWEST

        if self.traces < FEWEST:
            return f"too few to say: {self.traces} judged by several, {FEWEST} are needed"
        if self.value is None or self.low is None or self.high is None:
            return f"cannot be said: all {self.traces} were judged the same, as chance alone would"
        return f"{self.measure} {self.value:.2f} ({self.low:.2f} … {self.high:.2f}) on {self.traces}"

    def json(self) -> Mapping[str, Any]:
        return {**asdict(self), "people": list(self.people), "apart": list(self.apart), "sentence": self.sentence}


def agreed(labels: Iterable[Label], words: Iterable[Feedback]) -> Sequence[LabelAgreement]:
    """How far people agree: all who judged by one metric, and of good and bad every two. Those with the most in common come
    first, and of good and bad before other metrics.

    Args:
        labels: Oldest first.
        words: Numbers and names that people gave, of those that count.
    """
    by_trace: defaultdict[str, defaultdict[str, dict[str, Value]]] = defaultdict(lambda: defaultdict(dict))
    people = {who: each for who, each in said(labels).items() if source_of(who) is Source.PERSON and who != RECORDER}
    for who, judged in people.items():
        for id, good in judged.items():
            by_trace[SUCCESS][id][who] = good
    spans: dict[str, float] = {}
    for word in words:
        told: Value | None = word.value if word.value is not None else word.text
        if told is not None:
            by_trace[word.metric][word.target][word.rater or "person"] = told
            if word.value is not None:
                low, high = word.scale
                spans[word.metric] = max(spans.get(word.metric, 0.0), high - low, abs(word.value))
    found = [_of_two(*pair, people) for pair in combinations(sorted(people), 2) if people[pair[0]].keys() & people[pair[1]]]
    found.sort(key=lambda each: -each.traces)
    several = [_of_all(metric, judged, spans.get(metric)) for metric, judged in by_trace.items()]
    all_of_them = sorted((each for each in several if each.traces), key=lambda each: (each.metric != SUCCESS, -each.traces))
    return [*(each for each in all_of_them if len(each.people) > 2 or each.metric != SUCCESS), *found]


def _of_two(one: str, other: str, words: Mapping[str, Mapping[str, bool]]) -> LabelAgreement:
    # Whoever only lists traces need not wait for numpy.
    from journeyman.stats.agreement import FEWEST, cohens_kappa, kappa_interval

    both = [id for id in words[one] if id in words[other]]
    first, second = [words[one][id] for id in both], [words[other][id] for id in both]
    enough = len(both) >= FEWEST
    low, high = (kappa_interval(first, second) if enough else None) or (None, None)
    apart = [id for id in both if words[one][id] != words[other][id]]
    return LabelAgreement(
        metric=SUCCESS,
        people=(one, other),
        traces=len(both),
        agreed=len(both) - len(apart),
        measure="Cohen's κ",
        value=cohens_kappa(first, second) if enough else None,
        low=low,
        high=high,
        apart=tuple(apart[-_TOLD:]),
    )


def _of_all(metric: str, judged: Mapping[str, Mapping[str, Value]], span: float | None) -> LabelAgreement:
    from journeyman.stats.agreement import FEWEST, alpha_interval, krippendorffs_alpha

    several = {id: said for id, said in judged.items() if len(said) > 1}
    if any(isinstance(each, str) for said in several.values() for each in said.values()):
        span = None
    apart = [id for id, said in several.items() if len(set(said.values())) > 1]
    enough = len(several) >= FEWEST
    low, high = (alpha_interval(list(several.values()), span) if enough else None) or (None, None)
    return LabelAgreement(
        metric=metric,
        people=tuple(sorted({who for said in several.values() for who in said})),
        traces=len(several),
        agreed=len(several) - len(apart),
        measure="Krippendorff's α",
        value=krippendorffs_alpha(list(several.values()), span) if enough else None,
        low=low,
        high=high,
        apart=tuple(apart[-_TOLD:]),
    )
