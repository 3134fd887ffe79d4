"""The text format that Prometheus reads (version 0.0.4)."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4"
Labels = tuple[tuple[str, str], ...]


class Histogram:
    """Counts of values below edges, their sum and number."""

    __slots__ = ("count", "counts", "edges", "sum")

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.sum = 0.0
        self.count = 0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.edges, value)] += 1
        self.sum += value
        self.count += 1

    def lines(self, name: str, labels: Labels = ()) -> Iterator[str]:
        below = 0
        for edge, count in zip((*self.edges, float("inf")), self.counts, strict=True):
            below += count
            shown = "+Inf" if edge == float("inf") else f"{edge:g}"
            yield sample(f"{name}_bucket", (*labels, ("le", shown)), below)
        yield f"{name}_sum{braces(labels)} {self.sum:.6f}"
        yield sample(f"{name}_count", labels, below)


def heading(name: str, kind: str, told: str) -> list[str]:
    return [f"# HELP {name} {told}", f"# TYPE {name} {kind}"]


def sample(name: str, labels: Labels, value: float) -> str:
    # Counters beyond a million must not be rounded, as `:g` would.
    return f"{name}{braces(labels)} {int(value) if value == int(value) else value}"


def braces(labels: Labels) -> str:
    """Values are names from our own tables and settings, which hold neither quotes nor line ends."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""
