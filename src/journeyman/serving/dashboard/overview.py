"""The first page: is it getting better, is anything wrong, and what needs a person."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response

from journeyman.core.candidate import Kind
from journeyman.core.comparison import ComparisonVerdict
from journeyman.core.format import counted, money, seconds
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.figures import SharedCache, over_time
from journeyman.serving.dashboard.layout import ENDED, PageRenderer, encoded, name, one_line, reward, share
from journeyman.serving.dashboard.releases import verdict_of
from journeyman.stats import share_interval
from journeyman.stores.registry import verdict_of as gate_verdict
from journeyman.stores.traces.base import Query, Statistics, StatisticsGroup, TraceStore

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
        self._known = SharedCache[tuple[int, int, int]]()

    def overview(self, request: Request, fields: Mapping[str, str]) -> Response:
        # By the hour, so that what was counted is kept for a while.
        now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        week = {"since": (now - WEEK).isoformat()}
        this, before = Query(since=now - WEEK), Query(since=now - 2 * WEEK, until=now - WEEK)
        found, past = self._count(this), self._count(before).all
        verdict = score_verdict(past, found.all)
        charts = [
            chart
            for chart in over_time(found.by_time, {}, this, found.every)
            if chart.title.partition(" ")[0] in ("Score", "Traces")
        ]
        return self._frame.page(
            "overview.html",
            title="Overview" if not found.all.traces else f"{verdict.title} · Overview",
            here="Overview",
            anew="/",
            is_empty=not found.all.traces and not past.traces,
            verdict=verdict,
            stations=self._stations(found.all, week),
            tiles=tiles(found.all, past, week),
            charts=charts,
            rollouts=self._open(),
            address=str(request.base_url).rstrip("/"),
            newest=self._traces.page(Query(), limit=_NEWEST).lines,
            needs=self._needs()[:_NEEDS],
            events=self._events()[:EVENTS],
        )

    def _stations(self, week: StatisticsGroup, typed: Mapping[str, str]) -> list[tuple[str, int, str]]:
        """The loop, with how much is at each of its stations."""
        playbooks, evaluations, passed = self._known.get("stations", self._counted).value
        return [
            ("Traces this week", week.traces, "/traces" + encoded(dict(typed))),
            ("Scored", week.rewarded, "/traces" + encoded({**typed, "scored": "yes"})),
            ("Playbooks learned", playbooks, "/playbooks"),
            ("Evaluations", evaluations, "/evaluations"),
            ("Passed or checked", passed, "/evaluations?gate=passed"),
            ("In production", len(self._stores.rollouts.live().production), "/releases"),
        ]

    def _counted(self) -> tuple[int, int, int]:
        """Playbooks, evaluations, and those of them after which a rollout may begin."""
        registry = self._stores.registry
        found = registry.evaluations()
        passed = sum(gate_verdict(each).may_start for each in found)
        return registry.count("candidates", kind=Kind.PLAYBOOK), len(found), passed

    def _open(self) -> list[tuple[str, ComparisonVerdict, str]]:
        """What the sessions of each open rollout say."""
        kept = self._stores.rollouts
        return [
            (str(each.slot), verdict_of(each, kept.evidence(each.id)), f"/releases/{name(each.id)}")
            for each in kept.live().rollouts
        ]

    def _needs(self) -> list[Need]:
        found = [Need(said=each.says, link="/alerts") for each in self._stores.alerts.firing() if not each.acknowledged_by]
        for rollout in self._stores.rollouts.live().rollouts:
            if rollout.is_held:
                said = f"{rollout.slot} is held: {one_line(rollout.events[-1].cause.reason, 120)}"
                found.append(Need(said=said, link=f"/releases/{name(rollout.id)}"))
        released = {release.candidate_id for release in self._stores.registry.releases()}
        for each in self._stores.registry.evaluations(limit=20):
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
        known = group.traces and group.unpriced < group.model_calls
        return money(group.cost) + ("+" if group.unpriced else "") if known else ""

    low, high = share_interval(week.traces, week.errors, week.errors)
    scored = f"{reward(week.reward_low)} … {reward(week.reward_high)} · {week.rewarded:,} scored"
    unpriced = f"{counted(week.unpriced, 'call')} without a price" if week.unpriced else counted(week.model_calls, "model call")
    told: Sequence[tuple[str, str, str, str, dict[str, str], int]] = (
        ("Score", reward(week.mean_reward), scored if week.rewarded else "nothing is scored",
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
