"""The rules that stand ready, and what each finds: by counts that the database makes, and by a look at the machine."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from journeyman.core.alert import Alert, AlertRule, Measurement, Severity
from journeyman.core.format import counted
from journeyman.experiments.settings import AlertSettings, duration
from journeyman.stats.live import share_low
from journeyman.stores.alerts import ResourceSample
from journeyman.stores.measures import ErrorCount, Measures

WINDOW = timedelta(minutes=5)
"""For error rate and latency."""
TOLD_FOR = timedelta(days=1)
"""After which what happened to a release is no news any more."""
_SLOW = 0.05
"""The 95th percentile is above a bound where more than this share is."""
STORE = "store"
_NEWS = {"rollback": "rollback", "drop": "rollback", "hold": "hold", "decline": "decay"}
"""Which rule is about what happens to releases."""


def rules(settings: AlertSettings) -> Mapping[str, AlertRule]:
    """By name, in the order in which they are shown."""
    hold, repeat = duration(settings.hold_for), duration(settings.repeat)
    share = f"{settings.error_rate:.0%}"
    most = f"{settings.resources:.0%}"
    slow = f"{settings.latency_ms:,.0f} ms"
    found = (
        AlertRule(name="error_rate", says=f"of conversations begun in five minutes, more than {share} failed"),
        AlertRule(name="latency", says=f"of calls of models in five minutes, 5 of 100 took more than {slow}"),
        AlertRule(name="resources", says=f"more than {most} of processors, memory, memory of the GPU or disk is used"),
        AlertRule(name="burn", says=f"errors use up their budget of {share} too fast", hold=timedelta(0)),
        AlertRule(name=STORE, says="the monitor cannot reach the store"),
        AlertRule(name="rollback", says="a candidate was taken back", hold=timedelta(0)),
        AlertRule(name="hold", says="a rollout is held", severity=Severity.TICKET, hold=timedelta(0)),
        AlertRule(name="decay", says="what was promoted has become worse than its rollout showed", hold=timedelta(0)),
    )
    once = frozenset(_NEWS.values())
    held = (each if each.name in once | {"burn"} else replace(each, hold=hold) for each in found)
    return {each.name: each if each.name in once else replace(each, repeat=repeat) for each in held}


class Measurer:
    """Finds what all rules but that of the store say at a moment."""

    def __init__(self, settings: AlertSettings) -> None:
        self._settings = settings
        self.rules = rules(settings)

    def found(
        self, measures: Measures, now: datetime, sample: ResourceSample | None, before: Iterable[Alert]
    ) -> Iterator[Measurement]:
        """
        Args:
            before: Alerts that go on. Of those that nothing is found of any more it is found that they are over.
        """
        seen = set()
        for each in (
            self._error_rate(measures, now),
            self._latency(measures, now),
            *self._resources(sample),
            *self._burns(measures, now),
            *self._releases(measures, now),
        ):
            seen.add(each.fingerprint)
            yield each
        for alert in before:
            if alert.is_open and alert.fingerprint not in seen and alert.rule != STORE:
                over = "it is over" if alert.rule in _NEWS.values() else "it is watched no longer"
                yield Measurement(rule=alert.rule, subject=alert.subject, slot=alert.slot, breached=False, says=over)

    def _error_rate(self, measures: Measures, now: datetime) -> Measurement:
        found = measures.errors(now - WINDOW, now)
        bound, told = self._settings.error_rate, {"conversations": found.traces, "failed": found.failed}
        said = f"{found.failed} of {counted(found.traces, 'conversation')} of the last five minutes failed"
        breached = self._exceeds(found, bound)
        return Measurement(rule="error_rate", breached=breached, value=found.share, bound=bound, says=said, evidence=told)

    def _exceeds(self, found: ErrorCount, bound: float) -> bool | None:
        """Whether too many fail: by the share where there are many, and where there are few, by what is shown at least."""
        if not found.traces:
            return None
        if found.traces < self._settings.least_requests:
            return share_low(found.failed, found.traces) > bound
        return found.failed > bound * found.traces

    def _latency(self, measures: Measures, now: datetime) -> Measurement:
        bound = self._settings.latency_ms
        found = measures.latency(now - WINDOW, now, bound / 1000)
        value = None if found.seconds is None else found.seconds * 1000
        said = f"of {counted(found.calls, 'call')} of the last five minutes 95 of 100 took up to {value or 0:,.0f} ms"
        said = said if found.calls else "of no call of a model of the last five minutes the time is known"
        breached = self._exceeds(ErrorCount(found.calls, found.slow), _SLOW)
        told = {"calls": found.calls, "slow": found.slow}
        return Measurement(rule="latency", breached=breached, value=value, bound=bound, says=said, evidence=told)

    def _resources(self, sample: ResourceSample | None) -> Iterator[Measurement]:
        named = {"cpu": "processors", "memory": "memory", "gpu_memory": "memory of the GPU", "disk": "disk"}
        for name, words in named.items():
            used: float | None = getattr(sample, name, None)
            host = sample.host if sample is not None else ""
            said = f"how much of the {words} is used cannot be told" if used is None else f"{used:.0%} of the {words} is used"
            yield Measurement(
                rule="resources",
                subject=f"{name} on {host}" if host else name,
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
            shown, still = self._exceeds(over, bound), None if not lately.traces else (lately.share or 0) > bound
            breached = False if shown is False or still is False else None if shown is None or still is None else True
            said = (
                f"{over.failed} of {counted(over.traces, 'conversation')} failed in {long}, {lately.failed} of {lately.traces} "
                f"in {short}: {factor:g} times what the budget of {budget:.0%} allows is {bound:.0%}"
            )
            yield Measurement(
                rule="burn",
                subject=f"{factor:g}x {long}/{short}",
                breached=breached,
                value=over.share,
                bound=bound,
                says=said,
                severity=Severity(severity),
                evidence={"long": over._asdict(), "short": lately._asdict()},
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
