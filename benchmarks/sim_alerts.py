"""How often the rules of alerts fire where nothing has changed, how soon where something has, and what a look costs.

    python -m benchmarks.sim_alerts                 # some hundred days of work that never changes, looked at every five minutes
    python -m benchmarks.sim_alerts --cost          # a look at a store with 100,000 traces

The days go through the rules as they are, with counts from arrays in the place of a database's.
"""

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from journeyman.core.alert import Alert, step
from journeyman.experiments.settings import AlertSettings
from journeyman.serving.alerts.rules import Measurer
from journeyman.serving.alerts.watch import AlertMonitor, Surroundings
from journeyman.stores import open_traces
from journeyman.stores.alerts import ResourceSample
from journeyman.stores.measures import ErrorCount, LatencyQuantile, Mix, MixOf, ReleaseNews, ScoreSummary
from tests.support.alarms import trace

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(kw_only=True)
class Work:
    """Sessions at moments (seconds from the start, ascending), as `Measures` would count them."""

    at: Any
    worth: Any
    failed: Any
    slow: Any
    lengths: Any
    domains: Any

    def __post_init__(self) -> None:
        self._sums = {name: np.concatenate([[0.0], np.cumsum(getattr(self, name))]) for name in ("worth", "failed", "slow")}
        self._squares = np.concatenate([[0.0], np.cumsum(self.worth**2)])
        self._spread = {name: _cumulated(getattr(self, name)) for name in ("lengths", "domains")}

    def _between(self, since: datetime, until: datetime) -> tuple[int, int]:
        low, high = np.searchsorted(self.at, [(each - START).total_seconds() for each in (since, until)])
        return int(low), int(high)

    def errors(self, since: datetime, until: datetime) -> ErrorCount:
        low, high = self._between(since, until)
        return ErrorCount(high - low, int(self._sums["failed"][high] - self._sums["failed"][low]))

    def latency(self, since: datetime, until: datetime, bound: float) -> LatencyQuantile:
        low, high = self._between(since, until)
        slow = int(self._sums["slow"][high] - self._sums["slow"][low])
        return LatencyQuantile(high - low, slow, None if low == high else bound * (1.1 if slow > 0.05 * (high - low) else 0.9))

    def score_summary(self, since: datetime, until: datetime) -> ScoreSummary:
        low, high = self._between(since, until)
        if low == high:
            return ScoreSummary(0, 0.0, 0.0)
        mean = (self._sums["worth"][high] - self._sums["worth"][low]) / (high - low)
        square = (self._squares[high] - self._squares[low]) / (high - low)
        return ScoreSummary(high - low, float(mean), float(square - mean**2))

    def mix(self, of: MixOf, since: datetime, until: datetime) -> Mix:
        low, high = self._between(since, until)
        if of == "tools":
            return Mix({}, 0)
        spread = self._spread["lengths" if of == "length" else "domains"]
        counts = spread[high] - spread[low]
        return Mix({str(kind): float(count) for kind, count in enumerate(counts) if count}, high - low)

    def release_news(self, since: datetime) -> Sequence[ReleaseNews]:
        return ()


def _cumulated(kinds: Any) -> Any:
    table = np.zeros((len(kinds) + 1, int(kinds.max()) + 1), dtype=np.int32)
    table[np.arange(1, len(kinds) + 1), kinds] = 1
    return np.cumsum(table, axis=0, dtype=np.int32)


def work(
    chance: np.random.Generator, days: int, a_day: int, *, fails: float = 0.03, falls: float = 0.0, at_day: int = 0
) -> Work:
    """Days of which each is like the other; with `falls`, so much is lost from a day on."""
    at = np.sort(chance.uniform(0, days * 86_400, days * a_day))
    share = 0.7 - falls * (at >= at_day * 86_400)
    return Work(
        at=at,
        worth=(chance.random(len(at)) < share).astype(float),
        failed=(chance.random(len(at)) < fails).astype(float),
        slow=(chance.random(len(at)) < fails).astype(float),
        lengths=np.clip(chance.normal(8, 1.5, len(at)), 2, 19).astype(int),
        domains=chance.choice(6, len(at), p=[0.4, 0.25, 0.15, 0.1, 0.07, 0.03]),
    )


def fired(work: Any, looks: Iterable[datetime], *, anew: bool = True) -> list[tuple[str, datetime]]:
    """Which rules fired when, as a monitor would see it."""
    measurer, before, found = Measurer(AlertSettings()), dict[str, Alert](), list[tuple[str, datetime]]()
    for now in looks:
        if anew:
            # Else they are not counted again before a while of the real clock.
            measurer._slow = None
        for each in measurer.found(work, now, (), list(before.values())):
            after = step(measurer.rules[each.rule], before.get(each.fingerprint), each, now)
            if after is not None:
                before[each.fingerprint] = after
                if after.change == "firing":
                    found.append((f"{each.rule} {each.subject}".strip(), now))
    return found


def looks(first: float, last: float, every: float) -> Iterable[datetime]:
    for number in range(int((last - first) * 86_400 / every)):
        yield START + timedelta(days=first, seconds=number * every)


def near(seed: int, days: int = 5) -> None:
    print(f"error rate and latency, {days} days, a look every 30 seconds: firings a day")
    for fails in (0.01, 0.02, 0.03, 0.04):
        for a_day in (5760, 28_800, 115_200):
            made = work(np.random.default_rng(seed), days + 3, a_day, fails=fails)
            told = Counter(name for name, _ in fired(made, looks(3, days + 3, 30), anew=False))
            shown = {name: round(told[name] / days, 1) for name in ("error_rate", "latency", "burn 1x 3d/6h")}
            print(f"  {fails:.0%} fail and are slow, {a_day / 288:5.0f} in five minutes: {shown}", flush=True)


def unchanged(days: int, seed: int) -> None:
    print(f"nothing changes, {days} days, a look every five minutes: firings")
    for a_day in (200, 1000, 5000):
        told = fired(work(np.random.default_rng(seed), days + 8, a_day), looks(8, days + 8, 300))
        print(f"  {a_day:5} sessions a day: ", _counted(told, "quality", "drift"), flush=True)


def _counted(told: Iterable[tuple[str, datetime]], *rules: str) -> dict[str, int] | str:
    return dict(Counter(name for name, _ in told if name.startswith(rules))) or "none"


def changed(seed: int, runs: int = 20) -> None:
    print(f"quality falls from 0.70, {runs} runs, a look every 15 minutes: told within 36 hours, hours (median)")
    for a_day in (500, 1000, 5000):
        for falls in (0.03, 0.05, 0.1, 0.2):
            hours = []
            for run in range(runs):
                made = work(np.random.default_rng([seed, run]), 11, a_day, falls=falls, at_day=9)
                told = [at for name, at in fired(made, looks(9, 10.5, 900)) if name == "quality"]
                hours += [(told[0] - START - timedelta(days=9)).total_seconds() / 3600] if told else []
            median = f"{np.median(hours):.1f}" if hours else "-"
            print(f"  {a_day:5} a day, -{falls:.2f}: {len(hours)} of {runs}, {median}", flush=True)


def cost(count: int) -> None:
    chance, now = np.random.default_rng(0), datetime.now(UTC)
    with tempfile.TemporaryDirectory() as folder:
        url, began = f"sqlite:///{folder}/journeyman.db", time.perf_counter()
        with open_traces(url) as store:
            for first in range(0, count, 2000):
                store.add(
                    trace(
                        f"t{n}",
                        now - timedelta(days=8) * float(chance.random()),
                        session=f"s{n // 2}",
                        reward=float(chance.random() < 0.7),
                        error="ModelError: 500" if chance.random() < 0.03 else None,
                        tokens=int(chance.lognormal(6, 1)),
                    )
                    for n in range(first, min(first + 2000, count))
                )
        print(f"{count:,} traces of eight days written in {time.perf_counter() - began:.0f} s")
        around = Surroundings(look=lambda at: [ResourceSample(at=at, host="h", memory=0.5)], channels={})
        monitor = AlertMonitor(url, Path(folder), AlertSettings(), around)
        for number in range(4):
            began, busy = time.perf_counter(), time.process_time()
            monitor.once()
            print(f"look {number + 1}: {time.perf_counter() - began:.3f} s, {time.process_time() - busy:.3f} s of CPU")
        monitor.close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cost", action="store_true", help="what a look costs, instead")
    options.add_argument("--traces", type=int, default=100_000)
    options.add_argument("--days", type=int, default=300)
    options.add_argument("--seed", type=int, default=7)
    given = options.parse_args()
    if given.cost:
        cost(given.traces)
    else:
        near(given.seed)
        unchanged(given.days, given.seed)
        changed(given.seed)


if __name__ == "__main__":
    main()
