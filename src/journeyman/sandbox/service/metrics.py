"""What the service counts."""

from collections.abc import Callable

from journeyman.io.metrics import MetricsRegistry

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds."""


class ServiceMetrics(MetricsRegistry):
    """Counters, one histogram, and gauges that are asked when somebody looks."""

    def __init__(
        self,
        *,
        in_flight: Callable[[], float],
        queued: Callable[[], float],
        sessions: Callable[[], float],
        draining: Callable[[], float],
    ) -> None:
        super().__init__()
        self._ended, self._sum = 0, 0.0
        self.executions = self.counter(
            "journeyman_executions_total", "Executions that ended, by language and by how they ended.", "language", "outcome"
        )
        self.rejected = self.counter("journeyman_rejected_total", "Requests that were refused, by reason.", "reason")
        self.tool_calls = self.counter(
            "journeyman_tool_calls_total", "Tool calls relayed to callers, by how they ended.", "outcome"
        )
        self.sessions_opened = self.counter("journeyman_sessions_opened_total", "Sessions opened.")
        self.seconds = self.histogram(
            "journeyman_execution_seconds",
            "Wall time from the start of a run to its outcome, the wait not included.",
            BUCKETS,
            "language",
        )
        self.gauge("journeyman_executions_in_flight", "Executions under way.", in_flight)
        self.gauge("journeyman_executions_queued", "Requests that wait for their turn.", queued)
        self.gauge("journeyman_sessions", "Sessions alive.", sessions)
        self.gauge("journeyman_draining", "1 while the service stops: it finishes what runs and takes nothing new.", draining)

    def ended(self, language: str, outcome: str, seconds: float) -> None:
        """One execution."""
        self.executions(language, outcome).inc()
        self.seconds(language).observe(seconds)
        self._ended, self._sum = self._ended + 1, self._sum + seconds

    @property
    def mean_seconds(self) -> float:
        """Of all executions so far; 1 before the first."""
        return self._sum / self._ended if self._ended else 1.0
