"""What breaks first at 10^6 sessions a day and 10^9 spans a month, from costs that were measured.

    python -m benchmarks.sim_scale
    python -m benchmarks.sim_scale --sessions 100000 --spans 100000000 --gateways 4 --json

A day is gone through by the minute: load follows a day's curve (a peak of `--peak` times the mean) with noise, each part does
what a core of it can, and what it cannot waits. A part is broken where its load is above what it can do over the whole day, so
that what waits grows for ever; it is late where the longest wait in the peak is over a minute. Costs are CPU seconds for one,
from LOG.md, with the date of the entry; what was not measured stands there as none and is not reckoned with. It is a
reckoning, and no load test.
"""

import argparse
import json
import math
import random
from dataclasses import dataclass, replace
from typing import Any

DAYS = 30
LATE = 60.0


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part that works through what comes to it."""

    name: str
    per_day: float
    """How many of its things come in a day."""
    seconds: float
    """Of a core, for one."""
    cores: float
    source: str

    @property
    def use(self) -> float:
        """The share of its cores that it needs over the day."""
        return self.per_day * self.seconds / (86_400 * self.cores)

    def waits(self, peak: float, rng: random.Random) -> float:
        """The longest that something waits in a day, in seconds, where the day begins with nothing waiting."""
        backlog = longest = 0.0
        for minute in range(1440):
            curve = 1 + (peak - 1) * math.sin(2 * math.pi * (minute - 480) / 1440)
            came = max(0.0, curve) * self.per_day / 1440 * rng.lognormvariate(-0.02, 0.2)
            backlog = max(0.0, backlog + came * self.seconds - 60 * self.cores)
            longest = max(longest, backlog / self.cores)
        return longest


@dataclass(frozen=True, kw_only=True)
class Plan:
    sessions: float = 1e6
    """In a day."""
    spans: float = 1e9
    """In a month of 30 days."""
    requests: float = 8.0
    """Of a session."""
    gateways: int = 2
    span_bytes: float = 0.0
    """On disk, with indexes; from `bench_retention`."""
    trace_bytes: float = 0.0
    prune_seconds: float = 0.0
    """For one row."""


def parts(plan: Plan) -> list[Part]:
    requests, spans, n = plan.sessions * plan.requests, plan.spans / DAYS, plan.gateways
    return [
        Part(name="gateway, passing on", per_day=requests, seconds=0.32e-3, cores=n, source="2026-11-24, 32 connections"),
        Part(name="gateway's recorder, requests", per_day=requests, seconds=0.41e-3, cores=n, source="2026-11-24"),
        Part(name="telemetry, taken", per_day=spans, seconds=23e-6, cores=n, source="2026-11-24"),
        Part(name="recorder, spans stored", per_day=spans, seconds=91e-6, cores=n, source="2026-11-24"),
        Part(name="recorder, spans made traces", per_day=spans, seconds=370e-6, cores=n, source="2026-11-24, 300 to 440 us"),
        Part(name="recorder, all of it", per_day=1, seconds=0.41e-3 * requests + 461e-6 * spans, cores=n, source="the three"),
        Part(name="monitor, a rollout open", per_day=plan.sessions, seconds=308e-6, cores=1, source="2026-11-24"),
        Part(
            name="monitor, its comparisons", per_day=plan.sessions, seconds=5e-3, cores=1, source="2026-11-23, 5 ms a session"
        ),
    ]


def stores(plan: Plan, months: int) -> dict[str, float | None]:
    """Disk after so many months, what statistics of all of it take, and how long it takes to forget one."""
    traces = plan.sessions * DAYS
    tera = (plan.spans * plan.span_bytes + traces * plan.trace_bytes) * months / 1e12
    forgetting = (plan.spans + traces) * plan.prune_seconds / 3600
    return {
        "disk_tb": tera or None,
        # 0.1 s of CPU for statistics of 100,000 traces (2026-11-21).
        "statistics_of_all_seconds": traces * months / 1e5 * 0.109,
        "forget_a_month_hours": forgetting or None,
    }


def found(plan: Plan, peak: float, months: int) -> dict[str, Any]:
    rng = random.Random(0)
    rows: list[dict[str, Any]] = []
    for part in parts(plan):
        # What is reckoned together comes all day long.
        evenly = replace(part, per_day=86_400.0, seconds=part.seconds / 86_400) if part.per_day == 1 else part
        waits = evenly.waits(peak, rng)
        state = "broken" if part.use > 1 else "late" if waits > LATE else "holds"
        rows.append(
            {"part": part.name, "use": part.use, "peak": part.use * peak, "waits": waits, "state": state, "cost": part.source}
        )
    rows.sort(key=lambda row: -row["use"])
    return {"parts": rows, "months": months, **stores(plan, months)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", type=float, default=1e6)
    parser.add_argument("--spans", type=float, default=1e9)
    parser.add_argument("--requests", type=float, default=8.0)
    parser.add_argument("--gateways", type=int, default=2)
    parser.add_argument("--peak", type=float, default=2.5)
    parser.add_argument("--months", type=int, default=3)
    parser.add_argument("--span-bytes", type=float, default=0.0, help="from bench_retention")
    parser.add_argument("--trace-bytes", type=float, default=0.0)
    parser.add_argument("--prune-us", type=float, default=0.0, help="for a row")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    plan = Plan(
        sessions=options.sessions,
        spans=options.spans,
        requests=options.requests,
        gateways=options.gateways,
        span_bytes=options.span_bytes,
        trace_bytes=options.trace_bytes,
        prune_seconds=options.prune_us / 1e6,
    )
    result = found(plan, options.peak, options.months)
    if options.json:
        print(json.dumps(result))
        return 0
    print(f"{'part':30} {'use':>6} {'peak':>6} {'waits':>9}  state")
    for row in result["parts"]:
        print(f"{row['part']:30} {row['use']:6.0%} {row['peak']:6.0%} {row['waits']:7.0f} s  {row['state']:7} {row['cost']}")
    for name in ("disk_tb", "statistics_of_all_seconds", "forget_a_month_hours"):
        print(f"{name:30} {'not measured' if result[name] is None else f'{result[name]:.1f}'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
