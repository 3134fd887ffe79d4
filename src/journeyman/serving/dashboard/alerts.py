"""Pages of what must be known now, and of whether the place holds: alerts, silences, and the machine's resources."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from journeyman.core.alert import ANYTHING, Alert, AlertRule, Silence
from journeyman.core.errors import InputError
from journeyman.core.format import counted
from journeyman.experiments.settings import AlertSettings, duration
from journeyman.serving.alerts.channels import NoChannel, channels
from journeyman.serving.alerts.rules import WINDOW, rules
from journeyman.serving.dashboard.charts import Chart, ChartPoint, ChartRule, Series
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.layout import ENDED, PageRenderer, encoded, name, share, short
from journeyman.stores.alerts import MACHINE, ResourceSample, firing_of, pending_of

HISTORY = 100
"""Changes of alerts that are shown."""
WATCHED_FOR = timedelta(hours=24)
_STEP = timedelta(minutes=5)
"""Of a chart of resources: the highest of what was seen in it is drawn."""
_LATE = timedelta(minutes=2)
"""After which nobody can be said to measure: a look is taken every 15 seconds."""
_RESOURCES = {"cpu": "Processors", "memory": "Memory", "gpu": "GPU", "gpu_memory": "Memory of the GPU", "disk": "Disk"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemCheck:
    """One thing that the system's page can say yes or no to."""

    is_well: bool | None
    """`None` is not known."""
    said: str


class AlertPages:
    """The handlers of these pages."""

    def __init__(self, stores: ProjectStores, frame: PageRenderer, who: Callable[[Request], str]) -> None:
        self._stores, self._frame, self._who = stores, frame, who

    # Alerts.

    def alerts(self, request: Request, fields: Mapping[str, str]) -> Response:
        """What fires, what is watched, and who was told."""
        kept, now = self._stores.alerts, datetime.now(UTC)
        latest = kept.latest().values()
        firing, told = firing_of(latest), channels(self._stores.alert_settings)
        return self._frame.page(
            "alerts.html",
            title=f"{counted(len(firing), 'alert')} firing · Alerts" if firing else "Alerts",
            here="Alerts",
            anew="/alerts",
            firing=firing,
            pending=pending_of(latest),
            rules=[(rule, [each for each in latest if each.rule == rule.name]) for rule in self._rules().values()],
            silences=kept.silences(now),
            waiting=kept.undelivered(),
            history=kept.history(limit=HISTORY),
            severities=_severities(self._stores.alert_settings),
            channels=told,
            deaf=[each.why for each in told.values() if isinstance(each, NoChannel)],
            traces=_traces,
        )

    def _rules(self) -> Mapping[str, AlertRule]:
        return rules(self._stores.alert_settings)

    def act(self, request: Request, fields: Mapping[str, str]) -> Response:
        """See to an alert, keep it quiet, or lift a silence; back to the page."""
        kept, now, why = self._stores.alerts, datetime.now(UTC), fields.get("reason", "").strip()
        match fields.get("what"):
            case "ack":
                kept.acknowledge(self._known(fields.get("alert", "")), self._who(request), now)
            case "silence":
                alert = self._known(fields.get("alert", ""))
                try:
                    length = duration(fields.get("for", "") or "1h")
                except ValueError as error:
                    raise InputError(f"for: {error}") from None
                about = alert.subject or alert.slot or ANYTHING
                kept.silence(Silence.begun(alert.rule, about, length, (self._who(request), why), now))
            case "lift":
                kept.lift(fields.get("silence", ""), self._who(request), now)
            case _:
                raise InputError("what: one of ack, silence, lift")
        return RedirectResponse("/alerts", status_code=HTTPStatus.SEE_OTHER)

    def _known(self, fingerprint: str) -> Alert:
        found = self._stores.alerts.latest().get(fingerprint)
        if found is None:
            raise InputError(f"alert: there is none {fingerprint[:40]!r}")
        return found

    # The machine.

    def system(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Whether what is shown can be trusted, and whether it will hold."""
        kept, now = self._stores.alerts, datetime.now(UTC)
        samples = kept.samples(now - WATCHED_FOR)
        machine = [each for each in samples if each.process == MACHINE]
        newest = {(each.host, each.process): each for each in samples}
        checks = list(self._checks(machine[-1] if machine else None, now))
        ill = [each for each in checks if each.is_well is False]
        return self._frame.page(
            "system.html",
            title=f"{ill[0].said} · System" if ill else "System",
            here="System",
            anew="/system",
            checks=checks,
            charts=[
                each
                for host in sorted({each.host for each in machine})
                for each in resource_charts([one for one in machine if one.host == host], self._stores.alert_settings.resources)
            ],
            processes=[each for (_, process), each in sorted(newest.items()) if process != MACHINE],
        )

    def _checks(self, last: ResourceSample | None, now: datetime) -> Iterator[SystemCheck]:
        kept = self._stores.alerts
        if last is None:
            yield SystemCheck(is_well=None, said="Nobody has measured in the last day: journeyman monitor does")
        else:
            age = now - last.at
            ago = f"{age.total_seconds():,.0f} seconds ago" if age < _LATE else f"at {last.at:%Y-%m-%d %H:%M} UTC"
            yield SystemCheck(is_well=age < _LATE, said=f"The monitor last measured {ago}, on {last.host}")
        firing, waiting = kept.firing(), kept.undelivered()
        yield SystemCheck(is_well=not firing, said=f"{counted(len(firing), 'alert')} firing" if firing else "No alert fires")
        if waiting:
            yield SystemCheck(is_well=False, said=f"{counted(len(waiting), 'message')} still to be told to a channel")
        health = self._stores.health() if self._stores.health is not None else None
        if health is not None:
            lost = f"{counted(health.dropped, 'record')} lost since the start: memory and spill file were full"
            yield SystemCheck(is_well=not health.dropped, said=lost if health.dropped else "No record was lost since the start")
            late = f"{counted(health.waiting, 'record')} not in the store yet, {health.spilled:,} of them in the spill file"
            late = late if health.waiting else "Nothing waits for the store"
            yield SystemCheck(is_well=health.error is None, said=health.error or late)
        yield SystemCheck(is_well=True, said=f"The store answers, and holds {short(kept.size())}B")


def _severities(settings: AlertSettings) -> Mapping[str, str]:
    """Of each rule; of burn rates each pair of windows has its own."""
    burn = ", ".join(dict.fromkeys(severity for *_, severity in settings.burn))
    return {name: rule.severity.value for name, rule in rules(settings).items()} | {"burn": burn}


def _traces(alert: Alert) -> str:
    """The address of what an alert counts, or is about; empty where that is no page."""
    if alert.rule in ("rollback", "hold") and alert.evidence.get("rollout"):
        return f"/releases/{name(str(alert.evidence['rollout']))}"
    if alert.rule not in ("error_rate", "latency", "burn"):
        return ""
    told = alert.evidence
    since = str(told.get("since") or (alert.at - WINDOW).isoformat())
    until = str(told.get("until") or alert.at.isoformat())
    return "/traces" + encoded({"since": since, "until": until, **({} if alert.rule == "latency" else {"error": ENDED})})


def resource_charts(samples: Sequence[ResourceSample], bound: float) -> Iterator[Chart]:
    """How much of each resource of a machine was used, in steps of five minutes; none of what nobody could tell."""
    for field, title in _RESOURCES.items():
        seen: dict[datetime, list[float]] = {}
        for each in samples:
            if (used := getattr(each, field)) is not None:
                seen.setdefault(_begin(each.at), []).append(used)
        if not seen:
            continue
        steps = range((max(seen) - min(seen)) // _STEP + 1)
        points = tuple(_point(min(seen) + step * _STEP, seen) for step in steps)
        yield Chart(
            title=f"{title}, share used, on {samples[0].host}",
            says=f"{title}: {points[-1].says}",
            series=(Series(name=title, points=points),),
            label=share,
            x_label=_clock,
            rules=(ChartRule(at=bound, name="alert"),),
            low=0.0,
            high=1.0,
            note="The highest of each five minutes. Dotted: where the alert begins.",
        )


_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)


def _begin(at: datetime) -> datetime:
    return _ORIGIN + (at - _ORIGIN) // _STEP * _STEP


def _point(begin: datetime, seen: Mapping[datetime, Sequence[float]]) -> ChartPoint:
    highest = max(seen[begin]) if begin in seen else None
    return ChartPoint(x=float((begin - _ORIGIN) // _STEP), y=highest, says=f"{begin:%H:%M}: {share(highest)}")


def _clock(step: float) -> str:
    return f"{_ORIGIN + int(step) * _STEP:%H:%M}"
