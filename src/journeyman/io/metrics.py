"""What a server counts, for Prometheus: a registry of its own, in the text format (version 0.0.4)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

__all__ = ["CONTENT_TYPE", "CounterMetricFamily", "Families", "GaugeMetricFamily", "MetricsRegistry"]

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
Families = Iterable[CounterMetricFamily | GaugeMetricFamily]
M = TypeVar("M", Counter, Histogram)
# When a counter was made is when the server started, which is no news.
disable_created_metrics()  # type: ignore[no-untyped-call]


class MetricsRegistry:
    """Counters, histograms and gauges of one server; another in the same process has its own.

    A counter or histogram is had by calling what is given here with the values of its labels, in their order. What that gives
    is kept, so that to count takes less than a microsecond.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()

    def counter(self, name: str, told: str, *labels: str) -> Callable[..., Counter]:
        return _by_labels(Counter(name, told, labels, registry=self._registry), labels)

    def histogram(self, name: str, told: str, edges: Sequence[float], *labels: str) -> Callable[..., Histogram]:
        return _by_labels(Histogram(name, told, labels, registry=self._registry, buckets=edges), labels)

    def gauge(self, name: str, told: str, value: Callable[[], float]) -> None:
        """One that is asked when somebody looks."""
        Gauge(name, told, registry=self._registry).set_function(value)

    def ask(self, families: Callable[[], Families]) -> None:
        """Several, of which others know, asked when somebody looks."""
        self._registry.register(_Asked(families))

    def ask_late(self, families: Callable[[], Families]) -> None:
        """The same, of which it costs to ask what there is: that is not done before somebody looks."""
        self._registry.register(_AskedLate(families))

    def own_process(self) -> None:
        """What this process takes of the machine: `process_cpu_seconds_total`, `process_resident_memory_bytes` …"""
        ProcessCollector(registry=self._registry)

    def text(self) -> str:
        return generate_latest(self._registry).decode()


@dataclass(frozen=True, eq=False)
class _Asked:
    collect: Callable[[], Families]


class _AskedLate(_Asked):
    def describe(self) -> Families:
        return ()


def _by_labels(metric: M, labels: Sequence[str]) -> Callable[..., M]:
    return cache(metric.labels) if labels else lambda: metric
