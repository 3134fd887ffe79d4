"""The pages of how it goes: the first one (better? wrong? waiting for a person?), alerts, and the system."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from journeyman.core.alert import ANYTHING, Alert, AlertRule, Silence
from journeyman.core.candidate import Kind
from journeyman.core.comparison import ComparisonState, ComparisonVerdict
from journeyman.core.errors import InputError
from journeyman.core.format import counted, money, noun, seconds
from journeyman.experiments.settings import AlertSettings, duration
from journeyman.serving.alerts.channels import NoChannel, channels
from journeyman.serving.alerts.rules import WINDOW, rules
from journeyman.serving.dashboard.charts import Chart, ChartPoint, ChartRule, Series
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.figures import VersionedCache, over_time
from journeyman.serving.dashboard.layout import ENDED, PageRenderer, encoded, name, one_line, reward, share
from journeyman.serving.dashboard.releases import latest_look, verdict_of
from journeyman.stats import share_interval
from journeyman.stores.alerts import MACHINE, ResourceSample, firing_of, pending_of
from journeyman.stores.registry import verdict_of as gate_verdict
from journeyman.stores.traces.base import AGENTS, Query, Statistics, StatisticsGroup, TraceStore

WEEK = timedelta(days=7)
EVENTS = 8
_NEEDS = 5
_NEWEST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A figure of the last week beside the week before."""

    name: str
    value: str
    beside: str
    """Its interval and its number, or why it is not known."""
    before: str
    """The week before; empty where nothing is known of it."""
    link: str
    """To the traces that it is of."""
    count: int
    """How many these are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotVerdict:
    """What was found of a slot's rollout, or of the whole project."""

    found: ComparisonVerdict
    slot: str = ""
    link: str = ""
    is_served: bool = False
    """Whether its candidate is in production since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Something that waits for a person."""

    said: str
    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    at: datetime
    what: str
    said: str
    link: str


class OverviewPage:
    """The handler of the first page."""

    def __init__(
        self, stores: ProjectStores, traces: TraceStore, frame: PageRenderer, count: Callable[[Query], Statistics]
    ) -> None:
        """`count` gives the statistics of a query, from a moment ago where counting is dear."""
        self._stores, self._traces, self._frame, self._count = stores, traces, frame, count
        self._passed = VersionedCache[int]()

    def overview(self, request: Request, fields: Mapping[str, str]) -> Response:
        # By the hour, so that what was counted is kept for a while.
        now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        this, before = Query(since=now - WEEK, source=AGENTS), Query(since=now - 2 * WEEK, until=now - WEEK, source=AGENTS)
        found, past = self._count(this), self._count(before).all
        if is_own := not found.all.traces and not past.traces:
            # No agent did anything: what trainings attempted is all there is to show.
            this, before = replace(this, source=None), replace(before, source=None)
            found, past = self._count(this), self._count(before).all
        week = {"since": (now - WEEK).isoformat()} | ({} if is_own else {"source": AGENTS})
        rollouts = self._rollouts(now - WEEK)
        first = headline(score_verdict(past, found.all), rollouts)
        charts = [
            chart
            for chart in over_time(found.by_time, {}, this, found.every)
            if chart.title.partition(" ")[0] in ("Score", "Traces")
        ]
        return self._frame.page(
            "overview.html",
            title="Overview" if not found.all.traces else f"{first.found.title} · Overview",
            here="Overview",
            anew="/",
            is_empty=not found.all.traces and not past.traces,
            is_own=is_own,
            fixed=self._stores.fixed,
            first=first,
            stations=self._stations(found.all, week),
            tiles=tiles(found.all, past, week),
            charts=charts,
            rollouts=[each for each in rollouts if each is not first],
            address=str(request.base_url).rstrip("/"),
            newest=self._traces.page(Query(source=this.source), limit=_NEWEST).lines,
            needs=self._needs()[:_NEEDS],
            events=self._events()[:EVENTS],
        )

    def _stations(self, week: StatisticsGroup, typed: Mapping[str, str]) -> list[tuple[str, int, str]]:
        """The loop, with how much is at each of its stations."""
        playbooks, evaluations, passed = self._counted()
        return [
            (noun(week.traces, "Trace this week", "Traces this week"), week.traces, "/traces" + encoded(dict(typed))),
            ("Scored", week.rewarded, "/traces" + encoded({**typed, "scored": "yes"})),
            (noun(playbooks, "Playbook learned", "Playbooks learned"), playbooks, "/playbooks"),
            (noun(evaluations, "Evaluation"), evaluations, "/evaluations"),
            ("Passed or checked", passed, "/evaluations?gate=passed"),
            ("In production", len(self._stores.live().production), "/releases"),
        ]

    def _counted(self) -> tuple[int, int, int]:
        """Playbooks, evaluations, and those of them after which a rollout may begin."""
        registry = self._stores.registry
        version, found = self._stores.evaluations_version(), self._stores.evaluations
        passed = self._passed.get("", version, lambda: sum(gate_verdict(each).may_start for each in found()))
        return registry.count("candidates", kind=Kind.PLAYBOOK), registry.count("evaluations"), passed

    def _rollouts(self, since: datetime) -> list[SlotVerdict]:
        """What the sessions say of each open rollout, and of each that brought into production since then what is there."""
        kept, live = self._stores.rollouts, self._stores.live()
        brought = {move.rollout_id for move in live.production.values() if move.serves and move.at >= since}
        return [
            SlotVerdict(
                found=verdict_of(each, latest_look(kept, each)),
                slot=str(each.slot),
                link=f"/releases/{name(each.id)}",
                is_served=each.id in brought,
            )
            for each in self._stores.all_rollouts()
            if each.is_open or each.id in brought
        ]

    def _needs(self) -> list[Need]:
        found = [Need(said=each.says, link="/alerts") for each in self._stores.alerts.firing() if not each.acknowledged_by]
        for rollout in self._stores.live().rollouts:
            if rollout.is_held:
                said = f"{rollout.slot} is held: {one_line(rollout.events[-1].cause.reason, 120)}"
                found.append(Need(said=said, link=f"/releases/{name(rollout.id)}"))
        released = {release.candidate_id for release in self._stores.registry.releases()}
        for each in self._stores.evaluations()[:20]:
            if each.passed and each.candidate_id not in released:
                found.append(
                    Need(said=f"{each.candidate_id} passed its gate, and is not released", link=f"/evaluations/{name(each.id)}")
                )
        return list({need.said: need for need in found}.values())

    def _events(self) -> list[Happened]:
        audit = [
            Happened(at=row.at, what=row.action, said=f"{row.target}: {row.reason}", link="/audit")
            for row in self._stores.rollouts.audit(limit=EVENTS, newest=True)
        ]
        runs = [
            Happened(at=run.started_at, what=run.kind, said=f"{run.id}: {run.state.value}", link=f"/runs/{name(run.id)}")
            for run in self._stores.registry.runs(limit=EVENTS)
        ]
        return sorted([*audit, *runs], key=lambda each: each.at, reverse=True)


def headline(weeks: ComparisonVerdict, rollouts: Sequence[SlotVerdict]) -> SlotVerdict:
    """Whether it gets better: by this week beside the one before, where that says nothing by what came into production."""
    said = [each for each in rollouts if each.is_served and each.found.state is not ComparisonState.CANNOT_BE_SAID]
    return SlotVerdict(found=weeks) if weeks.state is not ComparisonState.CANNOT_BE_SAID or not said else said[-1]


def score_verdict(before: StatisticsGroup, after: StatisticsGroup) -> ComparisonVerdict:
    """Whether this week's scores are better than those of the week before.

    The interval of the difference is as wide as both intervals allow together (Newcombe's square-and-add).
    """
    count = before.rewarded + after.rewarded
    unknown = "no trace of this week has a score" if not after.rewarded else "no trace of the week before has a score"
    ends = (before.mean_reward, after.mean_reward, before.reward_low, before.reward_high, after.reward_low, after.reward_high)
    if not before.rewarded or not after.rewarded or None in ends:
        return ComparisonVerdict(unit="scored trace", count=count, withheld=unknown)
    was, now, was_low, was_high, now_low, now_high = (float(each or 0.0) for each in ends)
    gain = now - was
    return ComparisonVerdict(
        metric="score, this week beside the week before,",
        before=was,
        after=now,
        low=gain - ((now - now_low) ** 2 + (was_high - was) ** 2) ** 0.5,
        high=gain + ((now_high - now) ** 2 + (was - was_low) ** 2) ** 0.5,
        count=count,
        unit="scored trace",
        caveat="other requests may have been asked",
    )


def tiles(week: StatisticsGroup, before: StatisticsGroup, typed: Mapping[str, str]) -> list[Tile]:
    """Score, errors, cost and latency."""

    def errors(group: StatisticsGroup) -> str:
        return share(group.errors / group.traces) if group.traces else ""

    def cost(group: StatisticsGroup) -> str:
        if not group.model_calls or group.cost is None:
            return ""
        return money(group.cost) + ("+" if group.unpriced else "")

    low, high = share_interval(week.traces, week.errors, week.errors)
    scored = f"{reward(week.reward_low)} … {reward(week.reward_high)} · {week.rewarded:,} scored"
    thumbs = f" · {week.good:,} good, {week.bad:,} bad by label" if week.good or week.bad else ""
    unpriced = f"{counted(week.unpriced, 'call')} without a price" if week.unpriced else counted(week.model_calls, "model call")
    told: Sequence[tuple[str, str, str, str, dict[str, str], int]] = (
        ("Score", reward(week.mean_reward), scored if week.rewarded else "nothing is scored" + thumbs,
         reward(before.mean_reward) if before.rewarded else "", {"scored": "yes"}, week.rewarded),
        ("Ended in an error", errors(week) or "unknown", f"{share(low)} … {share(high)} · {week.errors:,} of {week.traces:,}",
         errors(before), {"error": ENDED}, week.errors),
        ("Cost", cost(week) or "unknown", unpriced, cost(before), {}, week.traces),
        ("Latency, p95", seconds(week.p95_seconds), f"median {seconds(week.median_seconds)}",
         seconds(before.p95_seconds) if before.p95_seconds is not None else "", {}, week.traces),
    )  # fmt: skip
    return [
        Tile(name=title, value=value, beside=beside, before=past, link="/traces" + encoded({**typed, **more}), count=count)
        for title, value, beside, past, more, count in told
    ]


# What must be known now, and whether the place holds: alerts, silences, and the machine's resources.


HISTORY = 100
"""Changes of alerts that are shown."""
WATCHED_FOR = timedelta(hours=24)
_STEP = timedelta(minutes=30)
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
        since = now - WATCHED_FOR
        highest, newest = kept.highest_samples(since, _STEP), kept.newest_samples(since)
        machines = [each for each in newest if each.process == MACHINE]
        checks = list(self._checks(machines[-1] if machines else None, now))
        ill = [each for each in checks if each.is_well is False]
        return self._frame.page(
            "system.html",
            title=f"{ill[0].said} · System" if ill else "System",
            here="System",
            anew="/system",
            checks=checks,
            charts=[
                each
                for host in sorted({each.host for each in machines})
                for each in resource_charts([one for one in highest if one.host == host], self._stores.alert_settings.resources)
            ],
            processes=sorted((one for one in newest if one.process != MACHINE), key=lambda one: (one.host, one.process)),
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
        yield SystemCheck(is_well=True, said=f"The store answers, and holds {kept.size() / 1e6:,.1f} MB")


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
    """How much of each resource of a machine was used, in steps of half an hour; none of what nobody could tell."""
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
            note="The highest of each half hour. Dotted: where the alert begins.",
        )


_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)


def _begin(at: datetime) -> datetime:
    return _ORIGIN + (at - _ORIGIN) // _STEP * _STEP


def _point(begin: datetime, seen: Mapping[datetime, Sequence[float]]) -> ChartPoint:
    highest = max(seen[begin]) if begin in seen else None
    return ChartPoint(x=float((begin - _ORIGIN) // _STEP), y=highest, says=f"{begin:%H:%M}: {share(highest)}")


def _clock(step: float) -> str:
    return f"{_ORIGIN + int(step) * _STEP:%H:%M}"
