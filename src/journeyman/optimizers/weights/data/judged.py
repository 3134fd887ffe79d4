"""What rows are made of: traces, and what is known of their worth."""

from dataclasses import dataclass

from journeyman.core.score import Experience
from journeyman.core.task import Split
from journeyman.core.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTrace:
    """A trace with the verdicts on it. `None` is unknown."""

    trace: Trace
    said: bool | None = None
    """Whether it went well, in a person's or its recorder's word."""
    worth: float | None = None
    """The mean of its rewards, 0 to 1."""
    proposed: bool | None = None
    """What an auto-labeler says."""
    split: Split | None = None

    @classmethod
    def of(cls, trace: Trace) -> "JudgedTrace":
        """By what stands on the trace itself."""
        value = trace.raw.get("split")
        split = Split(value) if value in tuple(Split) else None
        return cls(trace=trace, said=trace.label, worth=trace.worth, split=split)

    @classmethod
    def of_experience(cls, experience: Experience) -> "JudgedTrace":
        return cls(
            trace=experience.trace,
            said=experience.trace.label,
            worth=experience.score.total,
            split=experience.task.split,
        )

    @property
    def reward(self) -> float | None:
        """For a group: the mean of the rewards; where that is unknown, the word that was said, as 1 or 0."""
        if self.worth is not None:
            return self.worth
        return None if self.said is None else float(self.said)


@dataclass(frozen=True, slots=True)
class LabelVerdict:
    """A label, and by what rule."""

    good: bool
    rank: int
    """Of two verdicts on the same completion, the one of lower rank holds."""


def verdict(judged: JudgedTrace, threshold: float, *, proposals: bool) -> LabelVerdict | None:
    """A person's word first, then the mean reward against a threshold, then, where asked, the auto-labeler's; `None` where
    nobody knows."""
    if judged.said is not None:
        return LabelVerdict(judged.said, 0)
    if judged.worth is not None:
        return LabelVerdict(judged.worth >= threshold, 1)
    if proposals and judged.proposed is not None:
        return LabelVerdict(judged.proposed, 2)
    return None


def exclusion_reason(judged: JudgedTrace) -> str | None:
    """Why nobody may learn from it."""
    if judged.split is Split.HELD_OUT or judged.trace.held_out:
        return "attempts at held-out tasks, from which nobody may learn"
    if judged.split is Split.VALIDATION:
        return "attempts at validation tasks, which are to choose by"
    return None
