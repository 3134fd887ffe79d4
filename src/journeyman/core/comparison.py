"""What a comparison came to, in the one sentence that the page, the command, the JSON and the title of a tab all say.

    BETTER: success 0.65 → 0.81, +0.15 (+0.03 … +0.29) on 51 tasks

The state is read off the interval alone, so a sentence cannot contradict its numbers; where there is no interval, nothing is
said but why.
"""

import operator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from journeyman.core.format import counted


class ComparisonState(StrEnum):
    BETTER = "BETTER"
    """All of the interval is above 0."""
    WORSE = "WORSE"
    """All of it is below 0."""
    NOT_WORSE = "NOT WORSE"
    """All of it is above what would be harm."""
    NOT_YET = "NOT YET"
    """The interval holds both."""
    CANNOT_BE_SAID = "CANNOT BE SAID"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonVerdict:
    """A candidate against what it would replace, on one metric of which more is better."""

    metric: str = "success"
    before: float | None = None
    """The baseline's mean; `None` is unknown."""
    after: float | None = None
    gained: float | None = None
    """The estimate of the gain, where it is not the difference of two means."""
    low: float | None = None
    high: float | None = None
    """Ends of the interval of the gain, by which it was decided."""
    count: int = 0
    unit: str = "task"
    """What was counted: a task, or a session."""
    ends_excluded: bool = False
    """Whether the gain is strictly between the ends, as where each end is itself refuted."""
    harm: float | None = None
    """The loss that would be harm: above 0, in units of the metric. Without it nothing is ever "not worse"."""
    withheld: str = ""
    """Why nothing can be said, whatever the numbers; empty where something can."""
    caveat: str = ""

    @property
    def gain(self) -> float | None:
        if self.gained is not None:
            return self.gained
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def state(self) -> ComparisonState:
        if self.withheld or self.low is None or self.high is None or self.gain is None:
            return ComparisonState.CANNOT_BE_SAID
        above = operator.ge if self.ends_excluded else operator.gt
        if above(self.low, 0):
            return ComparisonState.BETTER
        if above(0, self.high):
            return ComparisonState.WORSE
        if self.harm is not None and above(self.low, -self.harm):
            return ComparisonState.NOT_WORSE
        return ComparisonState.NOT_YET

    @property
    def sentence(self) -> str:
        if self.state is ComparisonState.CANNOT_BE_SAID:
            return f"{self.state}: {self.withheld or self._missing}"
        means = "" if self.before is None or self.after is None else f" {self.before:.2f} → {self.after:.2f},"
        found = f"{self.state}: {self.metric}{means} {signed(self.gain)}"
        found += f" ({signed(self.low)} … {signed(self.high)}) on {counted(self.count, self.unit)}"
        return f"{found}; {self.caveat}" if self.caveat else found

    @property
    def title(self) -> str:
        """The sentence for the title of a tab."""
        gain = self.gain
        return str(self.state) if self.state is ComparisonState.CANNOT_BE_SAID else f"{self.state} {signed(gain)}"

    def json(self) -> dict[str, Any]:
        return {"state": self.state.value, "sentence": self.sentence}

    @property
    def _missing(self) -> str:
        if not self.count:
            return f"no {self.unit} was compared"
        return f"{counted(self.count, self.unit)} {'is' if self.count == 1 else 'are'} too few for an interval"


def signed(value: float | None) -> str:
    """+0.15, −0.03 with the sign for it; ? where it is unknown."""
    if value is None:
        return "?"
    return f"{value:+.2f}".replace("-", "−")
