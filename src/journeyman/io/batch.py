"""How much to do at once, by how long it took before."""

from dataclasses import dataclass

_MORE = 2
"""What was quick for a few need not be so for many."""


@dataclass(slots=True, kw_only=True)
class BatchSize:
    """As many as take about so many seconds, and at most twice as many as were done at once before."""

    size: int
    """For the next time."""
    seconds: float
    smallest: int = 1
    largest: int

    def learn(self, count: int, took: float) -> None:
        """So many were done at once, in so many seconds."""
        fits = _MORE * count if _MORE * took <= self.seconds else int(count * self.seconds / took)
        self.size = max(self.smallest, min(fits, self.largest))
