"""What the gateway counts, in the text format that Prometheus reads."""

from collections import Counter
from collections.abc import Callable, Iterator

from journeyman.exposition import Histogram, heading, sample
from journeyman.gateway.breaker import State
from journeyman.gateway.upstreams import Routes
from journeyman.intake.base import Health

SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
ADDED = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25)


class Metrics:
    """Counters and histograms; what others know is asked when somebody looks."""

    def __init__(self, routes: Routes, health: Callable[[], Health] | None) -> None:
        self._routes = routes
        self._health = health
        self.requests: Counter[tuple[str, str, int]] = Counter()
        """By dialect, upstream and status; 499 where the client hung up first, as elsewhere."""
        self.failures: Counter[tuple[str, str]] = Counter()
        """By upstream and reason: each attempt, also one that was made good by another."""
        self.refused: Counter[str] = Counter()
        self.seconds: dict[str, Histogram] = {}
        self.added = Histogram(ADDED)
        self.in_flight = 0
        self.spans = 0
        """Spans and log records that were acknowledged."""

    def ended(self, dialect: str, upstream: str, status: int, seconds: float) -> None:
        self.requests[dialect, upstream, status] += 1
        histogram = self.seconds.get(dialect)
        if histogram is None:
            histogram = self.seconds[dialect] = Histogram(SECONDS)
        histogram.add(seconds)

    def text(self) -> str:
        return "\n".join([*self._requests(), *self._upstreams(), *self._intake(), ""])

    def _requests(self) -> Iterator[str]:
        name = "journeyman_gateway_requests_total"
        yield from heading(name, "counter", "Requests that ended, by dialect, upstream and status (499: the client hung up).")
        for (dialect, upstream, status), n in sorted(self.requests.items()):
            yield sample(name, (("dialect", dialect), ("upstream", upstream), ("status", str(status))), n)
        name = "journeyman_gateway_refused_total"
        yield from heading(name, "counter", "Requests that went no further than here, by reason.")
        for reason, n in sorted(self.refused.items()):
            yield sample(name, (("reason", reason),), n)
        name = "journeyman_gateway_request_seconds"
        yield from heading(name, "histogram", "From the request to the last byte of the answer.")
        for dialect, histogram in sorted(self.seconds.items()):
            yield from histogram.lines(name, (("dialect", dialect),))
        name = "journeyman_gateway_added_seconds"
        yield from heading(name, "histogram", "Before the upstream was asked, and after its answer's end.")
        yield from self.added.lines(name)
        yield from heading("journeyman_gateway_in_flight", "gauge", "Requests under way.")
        yield sample("journeyman_gateway_in_flight", (), self.in_flight)
        yield from heading("journeyman_otlp_stored_total", "counter", "Spans and log records that exporters were acknowledged.")
        yield sample("journeyman_otlp_stored_total", (), self.spans)

    def _upstreams(self) -> Iterator[str]:
        name = "journeyman_gateway_upstream_failures_total"
        yield from heading(name, "counter", "Attempts that failed, by upstream and reason.")
        for (upstream, reason), n in sorted(self.failures.items()):
            yield sample(name, (("upstream", upstream), ("reason", reason)), n)
        name = "journeyman_gateway_breaker"
        yield from heading(name, "gauge", "1 for the state that an upstream's circuit breaker is in.")
        for each in self._routes.all:
            now = each.breaker.state
            for state in State:
                yield sample(name, (("upstream", each.name), ("state", state)), state is now)

    def _intake(self) -> Iterator[str]:
        if self._health is None:
            return
        health = self._health()
        for name, kind, told, value in (
            ("waiting", "gauge", "Things in memory that are not in the store yet.", health.waiting),
            ("spilled", "gauge", "Exchanges and traces in the spill file.", health.spilled),
            ("stored_total", "counter", "Things that went into the store.", health.stored),
            ("dropped_total", "counter", "Exchanges and traces that are lost.", health.dropped),
            ("retries_total", "counter", "Times that the store refused, and was asked again.", health.retries),
        ):
            yield from heading(f"journeyman_intake_{name}", kind, told)
            yield sample(f"journeyman_intake_{name}", (), value)
