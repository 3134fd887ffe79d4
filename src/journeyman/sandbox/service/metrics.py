"""What the service counts, in the text format that Prometheus reads (version 0.0.4)."""

from collections import Counter
from collections.abc import Callable, Mapping

from journeyman.exposition import Histogram, Labels, heading, sample

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


class Metrics:
    """Counters, one histogram, and gauges that are asked when somebody looks."""

    def __init__(self, gauges: Mapping[str, Callable[[], float]]) -> None:
        self._gauges = gauges
        self._counters: Counter[tuple[str, Labels]] = Counter()
        self._seconds: dict[str, Histogram] = {}

    def count(self, name: str, **labels: str) -> None:
        self._counters[name, tuple(labels.items())] += 1

    def ended(self, language: str, outcome: str, seconds: float) -> None:
        """One execution."""
        self.count("journeyman_executions_total", language=language, outcome=outcome)
        self._seconds.setdefault(language, Histogram(BUCKETS)).add(seconds)

    @property
    def mean_seconds(self) -> float:
        """Of all executions so far; 1 before the first."""
        ended = sum(each.count for each in self._seconds.values())
        return sum(each.sum for each in self._seconds.values()) / ended if ended else 1.0

    def text(self) -> str:
        lines: list[str] = []
        for name, (kind, told) in _HELP.items():
            lines += heading(name, kind, told)
            if kind == "gauge":
                lines.append(sample(name, (), self._gauges[name]()))
            elif kind == "histogram":
                for language, seconds in sorted(self._seconds.items()):
                    lines += seconds.lines(name, (("language", language),))
            else:
                lines += [sample(name, labels, n) for (known, labels), n in sorted(self._counters.items()) if known == name]
        return "\n".join([*lines, ""])
