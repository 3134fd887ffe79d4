"""What the service counts, in the text format that Prometheus reads (version 0.0.4)."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds."""

_HELP = {
    "journeyman_executions_total": ("counter", "Executions that ended, by language and by how they ended."),
    "journeyman_rejected_total": ("counter", "Requests that were refused, by reason."),
    "journeyman_tool_calls_total": ("counter", "Tool calls relayed to callers, by how they ended."),
    "journeyman_sessions_opened_total": ("counter", "Sessions opened."),
    "journeyman_execution_seconds": ("histogram", "Wall time from the start of a run to its outcome, the wait not included."),
    "journeyman_executions_in_flight": ("gauge", "Executions under way."),
    "journeyman_executions_queued": ("gauge", "Requests that wait for their turn."),
    "journeyman_sessions": ("gauge", "Sessions alive."),
    "journeyman_draining": ("gauge", "1 while the service stops: it finishes what runs and takes nothing new."),
}

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters, one histogram, and gauges that are asked when somebody looks."""

    def __init__(self, gauges: Mapping[str, Callable[[], float]]) -> None:
        self._gauges = gauges
        self._counters: Counter[tuple[str, Labels]] = Counter()
        self._buckets: Counter[tuple[str, float]] = Counter()
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._seconds = 0.0
        self._ended = 0

    def count(self, name: str, **labels: str) -> None:
        self._counters[name, tuple(labels.items())] += 1

    def ended(self, language: str, outcome: str, seconds: float) -> None:
        """One execution."""
        self.count("journeyman_executions_total", language=language, outcome=outcome)
        self._buckets[language, next((edge for edge in BUCKETS if seconds <= edge), float("inf"))] += 1
        self._seconds += seconds
        self._ended += 1
        self._sums[language] += seconds

    @property
    def mean_seconds(self) -> float:
        """Of all executions so far; 1 before the first."""
        return self._seconds / self._ended if self._ended else 1.0

    def text(self) -> str:
        lines: list[str] = []
        for name, (kind, told) in _HELP.items():
            lines += [f"# HELP {name} {told}", f"# TYPE {name} {kind}"]
            if kind == "gauge":
                lines.append(f"{name} {self._gauges[name]():g}")
            elif kind == "histogram":
                lines += self._histogram(name)
            else:
                lines += [
                    f"{name}{_braces(labels)} {n}" for (known, labels), n in sorted(self._counters.items()) if known == name
                ]
        return "\n".join([*lines, ""])

    def _histogram(self, name: str) -> Iterator[str]:
        for language in sorted(self._sums):
            below = 0
            for edge in (*BUCKETS, float("inf")):
                below += self._buckets[language, edge]
                shown = "+Inf" if edge == float("inf") else f"{edge:g}"
                yield f"{name}_bucket{_braces((('language', language), ('le', shown)))} {below}"
            yield f"{name}_sum{_braces((('language', language),))} {self._sums[language]:.6f}"
            yield f"{name}_count{_braces((('language', language),))} {below}"


def _braces(labels: Labels) -> str:
    """Values are names from our own tables, so nothing needs to be escaped."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""
