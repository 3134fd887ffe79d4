"""The rules that stand ready, and what each finds: by counts that the database makes, and by a look at the machine."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, get_args

from journeyman.core.alert import Alert, AlertRule, AlertState, Measurement, Severity
from journeyman.core.format import counted
from journeyman.experiments.settings import AlertSettings, duration
from journeyman.stores.alerts import ResourceSample
from journeyman.stores.base import utc
from journeyman.stores.measures import ErrorCount, Measures, MixOf

WINDOW = timedelta(minutes=5)
"""For error rate and latency."""
TOLD_FOR = timedelta(days=1)
"""After which what happened to a release is no news any more."""
RECENT, BEFORE = timedelta(days=1), timedelta(days=7)
"""For quality and drift: the last day beside the week before it."""
_OVER = 0.8
DRIFT = 0.2
"""Of the stability index: a change that is no small one, by convention."""
_LEAST = 100
"""Sessions below which neither is told."""
_SURE, _MANY_LOOKS = 1.645, 4.0
"""Standard errors: of one look in 20, and of one in 30,000, as it is looked very often."""
_LONGEST = timedelta(minutes=5)
_SLOW = 0.05
"""The 95th percentile is above a bound where more than this share is."""
STORE, RESOURCES = "store", "resources"
_NEWS = {"rollback": "rollback", "drop": "rollback", "hold": "hold", "decline": "decay"}
"""Which rule is about what happens to releases."""


def rules(settings: AlertSettings) -> Mapping[str, AlertRule]:
    """By name, in the order in which they are shown."""
    hold, repeat = duration(settings.hold_for), duration(settings.repeat)
    share, most = _percent(settings.error_rate), _percent(settings.resources)
    slow, points = f"{settings.latency_ms:,.0f} ms", 100 * settings.degradation
    found = (
        AlertRule(name="error_rate", says=f"of conversations begun in five minutes, more than {share} failed"),
        AlertRule(name="latency", says=f"of model calls in five minutes, the 95th percentile is above {slow}"),
        AlertRule(name=RESOURCES, says=f"more than {most} of processors, memory, GPU memory or disk is in use"),
        AlertRule(name="burn", says=f"errors use up their budget of {share} too fast", hold=timedelta(0)),
        AlertRule(
            name="quality",
            says=f"sessions are shown to be worth {points:.3g} points less than those of the week before",
        ),
        AlertRule(
            name="drift", says="what is asked is shown to be another mix than in the week before", severity=Severity.TICKET
        ),
        AlertRule(name=STORE, says="the monitor cannot reach the store"),
        AlertRule(name="rollback", says="a candidate was taken back", hold=timedelta(0)),
        AlertRule(name="hold", says="a rollout is held", severity=Severity.TICKET, hold=timedelta(0)),
        AlertRule(name="decay", says="what was promoted has become worse than its rollout showed", hold=timedelta(0)),
    )
    once = frozenset(_NEWS.values())
    held = (each if each.name in once | {"burn"} else replace(each, hold=hold) for each in found)
    return {each.name: each if each.name in once else replace(each, repeat=repeat) for each in held}


def _percent(share: float) -> str:
    """Also of less than one."""
    return f"{100 * share:.3g}%"


def _above(found: ErrorCount, bound: float) -> bool:
    """All is too much whatever the bound: above it there is nothing."""
    return found.failed > bound * found.traces or found.failed >= found.traces > 0


def _counted_in(since: datetime, until: datetime) -> dict[str, Any]:
    """The window that was counted."""
    return {"since": utc(since).isoformat(), "until": utc(until).isoformat()}


class Measurer:
    """Finds what all rules but that of the store say at a moment."""

    def __init__(self, settings: AlertSettings) -> None:
        self._settings = settings
        self._slow: tuple[datetime, datetime, Sequence[Measurement]] | None = None
        self.rules = rules(settings)

    def found(
        self, measures: Measures, now: datetime, samples: Iterable[ResourceSample], before: Iterable[Alert]
    ) -> Iterator[Measurement]:
        """
        Args:
            samples: The newest of each machine. What fires of one that is not among them goes on.
            before: Alerts that go on. Of those that nothing is found of any more it is found that they are over.
        """
        before, seen = list(before), set[str]()
        firing = {each.rule for each in before if each.state is AlertState.FIRING}
        for each in (
            self._error_rate(measures, now, firing="error_rate" in firing),
            self._latency(measures, now, firing="latency" in firing),
            *(found for sample in samples for found in self._resources(sample)),
            *self._burns(measures, now),
            *self._releases(measures, now),
            *self._trends(measures, now),
        ):
            seen.add(each.fingerprint)
            yield each
        for alert in before:
            if alert.is_open and alert.fingerprint not in seen and alert.rule not in (STORE, RESOURCES):
                over = "it is over" if alert.rule in _NEWS.values() else "it is watched no longer"
                yield Measurement(
                    rule=alert.rule,
                    subject=alert.subject,
                    slot=alert.slot,
                    breached=False,
                    says=over,
                    severity=alert.severity,
                )

    def _error_rate(self, measures: Measures, now: datetime, *, firing: bool) -> Measurement:
        found = measures.errors(now - WINDOW, now)
        bound, told = self._settings.error_rate, _counted_in(now - WINDOW, now)
        told |= {"conversations": found.traces, "failed": found.failed}
        said = f"{found.failed} of {counted(found.traces, 'conversation')} of the last five minutes failed"
        breached = self._exceeds(found, bound, firing=firing)
        return Measurement(rule="error_rate", breached=breached, value=found.share, bound=bound, says=said, evidence=told)

    def _exceeds(self, found: ErrorCount, bound: float, *, firing: bool = False) -> bool | None:
        """Whether too many fail: where there are few, by what is shown at least; where there are many, by the share, as long as
        half of the bound is shown. What fires is over below four fifths of the bound: else chance would have it come and go."""
        if not found.traces:
            return None
        bound *= _OVER if firing else 1.0
        if found.traces < self._settings.least_requests:
            return share_low(found.failed, found.traces) > bound
        return _above(found, bound) and share_low(found.failed, found.traces, 0.05) > bound / 2

    def _latency(self, measures: Measures, now: datetime, *, firing: bool) -> Measurement:
        bound = self._settings.latency_ms
        found = measures.latency(now - WINDOW, now, bound / 1000)
        value = None if found.seconds is None else found.seconds * 1000
        said = f"of {counted(found.calls, 'model call')} of the last five minutes the 95th percentile is {value or 0:,.0f} ms"
        said = said if found.calls else "no model call of the last five minutes has a known time"
        breached = self._exceeds(ErrorCount(found.calls, found.slow), _SLOW, firing=firing)
        told = {"calls": found.calls, "slow": found.slow, **_counted_in(now - WINDOW, now)}
        return Measurement(rule="latency", breached=breached, value=value, bound=bound, says=said, evidence=told)

    def _resources(self, sample: ResourceSample) -> Iterator[Measurement]:
        named = {"cpu": "processors", "memory": "memory", "gpu_memory": "GPU memory", "disk": "disk"}
        for name, words in named.items():
            used: float | None = getattr(sample, name)
            said = f"how much of {words} is in use is not known" if used is None else f"{used:.0%} of {words} in use"
            yield Measurement(
                rule=RESOURCES,
                subject=f"{name} on {sample.host}",
                breached=None if used is None else used > self._settings.resources,
                value=used,
                bound=self._settings.resources,
                says=said,
            )

    def _burns(self, measures: Measures, now: datetime) -> Iterator[Measurement]:
        budget = self._settings.error_rate
        for factor, long, short, severity in self._settings.burn:
            over, lately = (measures.errors(now - duration(window), now) for window in (long, short))
            bound = min(1.0, factor * budget)
            # The long window says that it is so, and the short one that it still is.
            shown, still = self._exceeds(over, bound), None if not lately.traces else _above(lately, bound)
            breached = False if shown is False or still is False else None if shown is None or still is None else True
            allowed = "the budget" if factor == 1 else f"{factor:g} times the budget of {_percent(budget)}"
            said = (
                f"{over.failed} of {counted(over.traces, 'conversation')} failed in {long}, {lately.failed} of {lately.traces} "
                f"in {short}; the bound is {_percent(bound)}, {allowed}"
            )
            yield Measurement(
                rule="burn",
                subject=f"{factor:g}x {long}/{short}",
                breached=breached,
                value=over.share,
                bound=bound,
                says=said,
                severity=Severity(severity),
                evidence={"long": over._asdict(), "short": lately._asdict(), **_counted_in(now - duration(long), now)},
            )

    def _trends(self, measures: Measures, now: datetime) -> Sequence[Measurement]:
        """Counted over a week: not again before twenty times as long has passed as it took."""
        if self._slow is None or not self._slow[0] <= now < self._slow[1]:
            began = monotonic()
            found = [self._quality(measures, now), *(self._drift(measures, now, each) for each in get_args(MixOf))]
            self._slow = (now, now + min(_LONGEST, 20 * timedelta(seconds=monotonic() - began)), found)
        return self._slow[2]

    def _quality(self, measures: Measures, now: datetime) -> Measurement:
        """Worse by more than is tolerated, as 95 of 100 intervals would have it, and worse at all at a level that stands many
        looks. What is no longer worse by so much is over; in between nothing changes."""
        since, tolerance = now - RECENT, self._settings.degradation
        before, lately = measures.score_summary(since - BEFORE, since), measures.score_summary(since, now)
        told = {"before": before._asdict(), "now": lately._asdict()}
        if min(before.sessions, lately.sessions) < _LEAST:
            said = f"too few sessions have a score: {lately.sessions:,} of the last day, {before.sessions:,} of the week before"
            return Measurement(rule="quality", breached=None, bound=-tolerance, says=said, evidence=told)
        apart = lately.mean - before.mean
        error = math.sqrt(before.variance / before.sessions + lately.variance / lately.sessions)
        shown = apart + _SURE * error < -tolerance and apart + _MANY_LOOKS * error < 0
        low, high = apart - _MANY_LOOKS * error, apart + _MANY_LOOKS * error
        said = f"{counted(lately.sessions, 'session')} of the last day were worth {lately.mean:.3f}"
        return Measurement(
            rule="quality",
            breached=True if shown else False if apart > -tolerance else None,
            value=apart,
            bound=-tolerance,
            says=f"{said}, {before.sessions:,} of the week before {before.mean:.3f}: "
            f"{apart:+.3f}, between {low:+.3f} and {high:+.3f}",
            evidence={**told, "low": low, "high": high},
        )

    def _drift(self, measures: Measures, now: datetime, of: MixOf) -> Measurement:
        since = now - RECENT
        before, lately = measures.mix(of, since - BEFORE, since), measures.mix(of, since, now)
        index, low = stability_low(before.counts, lately.counts, (before.sessions, lately.sessions))
        few = min(before.sessions, lately.sessions) < _LEAST
        named = {"length": "how long requests are", "domain": "which domains are asked", "tools": "which tools are used"}
        sure = f"{index:.2f}, {max(0.0, low):.2f} of it for sure"
        said = f"{named[of]}: the stability index of the last day and the week before is {sure}"
        return Measurement(
            rule="drift",
            subject=of,
            breached=None if few or DRIFT / 2 < low <= DRIFT else low > DRIFT,
            value=None if few else index,
            bound=DRIFT,
            says=f"{named[of]}: too few sessions to tell" if few else said,
            evidence={"before": before._asdict(), "now": lately._asdict()},
        )

    def _releases(self, measures: Measures, now: datetime) -> Sequence[Measurement]:
        said = {"rollback": "was rolled back", "drop": "lost a candidate", "hold": "is held", "decline": "has declined"}
        return [
            Measurement(
                rule=_NEWS[each.kind],
                subject=f"{each.about}#{each.number}",
                slot=each.slot,
                breached=True,
                says=f"{each.about} {said[each.kind]}: {each.reason}",
                evidence={"rollout": each.about, "actor": each.actor, "at": each.at.isoformat()},
            )
            for each in measures.release_news(now - TOLD_FOR)
        ]


# What few requests show. Without NumPy, which a process that only watches need not carry.


def share_low(count: int, total: int, alpha: float = 0.01) -> float:
    """The low end of the exact interval (Clopper and Pearson) of a share: so many of so many, and no more than `alpha` of all
    samples would show as many where the share is below it."""
    low, high = 0.0, count / total if total else 0.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if _at_least(count, total, middle) > alpha else (middle, high)
    return low


def stability_low(before: Mapping[str, float], now: Mapping[str, float], sessions: tuple[int, int]) -> tuple[float, float]:
    """The population stability index of two spreads over kinds, and what of it is left when as much is taken off as chance
    would show in 999 of 1,000 cases where nothing has changed.

    Args:
        sessions: Behind each, which are independent.
    """
    kinds = sorted(before.keys() | now.keys())
    if len(kinds) < 2 or not min(sessions):
        return 0.0, 0.0
    # Half a one more in each cell: one that was empty must not count for infinitely much.
    shares = [
        [(spread.get(kind, 0.0) * number / (sum(spread.values()) or 1) + 0.5) / (number + 0.5 * len(kinds)) for kind in kinds]
        for spread, number in ((before, sessions[0]), (now, sessions[1]))
    ]
    index = sum((b - a) * math.log(b / a) for a, b in zip(*shares, strict=True))
    free = len(kinds) - 1
    # The quantile of chi-square, by Wilson and Hilferty.
    chance = free * (1 - 2 / (9 * free) + 3.09 * math.sqrt(2 / (9 * free))) ** 3
    return index, index - chance * (1 / sessions[0] + 1 / sessions[1])


def _at_least(count: int, total: int, share: float) -> float:
    """The chance of as many or more of so many."""
    if not 0 < share < 1:
        return float(share >= 1 or count == 0)
    each = (
        math.lgamma(total + 1)
        - math.lgamma(k + 1)
        - math.lgamma(total - k + 1)
        + k * math.log(share)
        + (total - k) * math.log1p(-share)
        for k in range(count, total + 1)
    )
    return sum(map(math.exp, each))
