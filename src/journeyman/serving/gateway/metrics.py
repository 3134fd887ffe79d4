"""What the gateway counts."""

from collections.abc import Callable

from journeyman.io.metrics import CounterMetricFamily, Families, GaugeMetricFamily, MetricsRegistry
from journeyman.serving.gateway.upstreams import BreakerState, Routes
from journeyman.serving.ingest.base import Health

SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
ADDED = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25)


class GatewayMetrics(MetricsRegistry):
    """Counters and histograms; what others know is asked when somebody looks."""

    def __init__(self, routes: Routes, health: Callable[[], Health] | None) -> None:
        super().__init__()
        self._routes = routes
        self._health = health
        self.in_flight = 0
        self.requests = self.counter(
            "journeyman_gateway_requests_total",
            "Requests that ended, by dialect, upstream and status (499: the client hung up).",
            *("dialect", "upstream", "status"),
        )
        self.refused = self.counter(
            "journeyman_gateway_refused_total", "Requests that went no further than here, by reason.", "reason"
        )
        self.seconds = self.histogram(
            "journeyman_gateway_request_seconds", "From the request to the last byte of the answer.", SECONDS, "dialect"
        )
        self.added = self.histogram(
            "journeyman_gateway_added_seconds", "Before the upstream was asked, and after its answer's end.", ADDED
        )
        self.gauge("journeyman_gateway_in_flight", "Requests under way.", lambda: self.in_flight)
        self.stored = self.counter("journeyman_otlp_stored_total", "Spans and log records that exporters were acknowledged.")
        self.failures = self.counter(
            "journeyman_gateway_upstream_failures_total",
            "Attempts that failed, by upstream and reason; also one that was made good by another.",
            *("upstream", "reason"),
        )
        self.ask(self._breakers)
        self.ask(self._intake)

    def ended(self, dialect: str, upstream: str, status: int, seconds: float) -> None:
        self.requests(dialect, upstream, status).inc()
        self.seconds(dialect).observe(seconds)

    def _breakers(self) -> Families:
        told = "1 for the state that an upstream's circuit breaker is in."
        found = GaugeMetricFamily("journeyman_gateway_breaker", told, labels=("upstream", "state"))
        for each in self._routes.all:
            now = each.breaker.state
            for state in BreakerState:
                found.add_metric((each.name, state), state is now)
        yield found

    def _intake(self) -> Families:
        if self._health is None:
            return
        health = self._health()
        for kind, name, told, value in (
            (GaugeMetricFamily, "waiting", "Things in memory that are not in the store yet.", health.waiting),
            (GaugeMetricFamily, "spilled", "Exchanges and traces in the spill file.", health.spilled),
            (CounterMetricFamily, "stored_total", "Things that went into the store.", health.stored),
            (CounterMetricFamily, "dropped_total", "Exchanges and traces that are lost.", health.dropped),
            (CounterMetricFamily, "retries_total", "Times that the store refused, and was asked again.", health.retries),
        ):
            yield kind(f"journeyman_intake_{name}", told, value)
