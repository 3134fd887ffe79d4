"""Pages of what is served: what is in production where and why, the rollouts that bring something into it, and the audit; and
what a model would answer with something else in its prompt."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from journeyman.core.candidate import Kind
from journeyman.core.comparison import ComparisonVerdict
from journeyman.core.errors import InputError, ReleaseError
from journeyman.core.rollout import NEXT_STATE, PRODUCTION, EventKind, Rollout
from journeyman.serving.dashboard.charts import Chart, ChartPoint, ChartRule, Series, Whisker, whiskers
from journeyman.serving.dashboard.experiments import CHOICES, COMPARED, NOT_ADMITTED, ProjectStores, marked, playbook_of
from journeyman.serving.dashboard.figures import TablePart, needed
from journeyman.serving.dashboard.layout import PageRefused, PageRenderer, encoded, id_of, name
from journeyman.serving.releases.control import Person, RolloutMove, move, slot_rows
from journeyman.serving.shadow import shadow_told
from journeyman.stores.base import EvidenceRecord
from journeyman.stores.registry import find_rollout
from journeyman.stores.traces.base import TraceStore

if TYPE_CHECKING:
    from journeyman.experiments.playground import ReplayedStep, ReplayServers, StepAnswer
    from journeyman.stores.rollouts import RolloutStore

MOST_LOOKS = 600
"""Points of the band."""
_FEWEST = 10
"""Sessions of the smaller arm, below which nothing is drawn."""

_BUTTONS = {
    EventKind.RAMP: "Next step",
    EventKind.HOLD: "Hold",
    EventKind.RESUME: "Resume",
    EventKind.PROMOTE: "Promote",
    EventKind.ROLLBACK: "Roll back",
    EventKind.CLOSE: "Close",
}
"""What a person may do to a rollout, where it can happen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """A metric of a rollout: both arms, the difference, and what it says."""

    name: str
    limit: float | None
    """The loss that is tolerated: below it is harm."""
    margin: float | None
    """The loss with which it still counts as not worse."""
    canary: int
    production: int
    difference: float
    low: float
    high: float
    whisker: Whisker
    is_primary: bool

    @property
    def says(self) -> str:
        """By the position of its interval alone."""
        # The ends are refuted themselves.
        if self.high <= -(self.limit or 0.0):
            return "harm"
        if self.low >= 0:
            return "better"
        if self.low >= -(self.margin or 0.0):
            return "holds"
        return "cannot be said yet"


_LOWEST = 10
"""Sessions of a candidate that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRow:
    """A session that a candidate did badly in."""

    arm: str
    score: float
    calls: int
    trace_id: str
    """Of its first call."""
    title: str


class ReleasePages:
    """The handlers of these pages."""

    def __init__(self, stores: ProjectStores, traces: TraceStore, frame: PageRenderer, who: Callable[[Request], str]) -> None:
        self._stores, self._traces, self._frame, self._who = stores, traces, frame, who

    def releases(self, request: Request, fields: Mapping[str, str]) -> Response:
        """What is in production, since when, and why; and every rollout."""
        kept = self._stores.rollouts
        live = self._stores.live()
        history = {str(slot): kept.slot_history(slot) for slot in live.production}
        part = TablePart.of(self._stores.all_rollouts()[::-1], fields.get("after", ""), total=len(self._stores.all_rollouts()))
        return self._frame.page(
            "releases.html",
            title="Releases",
            anew="/releases",
            fixed=self._stores.fixed,
            slots=slot_rows(live),
            history=history,
            rollouts=[(each, verdict_of(each, latest_look(kept, each))) for each in part.rows],
            part=part,
            count=len(live.production),
        )

    def rollout(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Whether to go on, to wait, or to go back."""
        return self._rollout(self._found(request.path_params["name"]))

    def _rollout(self, found: Rollout, problem: str = "") -> Response:
        kept = self._stores.rollouts
        looks = kept.evidence_history(found.id, limit=MOST_LOOKS)
        last = looks[-1] if looks else None
        verdict = verdict_of(found, last)
        return self._frame.page(
            "rollout.html",
            HTTPStatus.CONFLICT if problem else HTTPStatus.OK,
            title=f"{verdict.title} · {found.slot}",
            here="Releases",
            anew="" if problem else f"/releases/{name(found.id)}",
            rollout=found,
            shadow=shadow_told(kept, found),
            verdict=verdict,
            last=last,
            metrics=metric_rows(found, last),
            chart=band(found, looks),
            assigned=kept.assigned_by_arm(found.id),
            lowest=[row for arm in found.arms for row in self._lowest(found, arm.name)],
            wanted={**found.shares, PRODUCTION: 1 - sum(found.shares.values())},
            buttons=[(kind.value, said) for kind, said in _BUTTONS.items() if _can(found, kind)],
            is_open=bool(self._stores.release_tokens),
            problem=problem,
        )

    def _lowest(self, found: Rollout, arm: str) -> Iterator[LowRow]:
        """The candidate's sessions that a person should read first."""
        metric = found.plan.primary.name
        for score, session in self._stores.rollouts.lowest(found.id, metric, arm, limit=_LOWEST):
            trace_id = session.calls[0].trace_id
            line = self._traces.line(trace_id)
            yield LowRow(arm=arm, score=score, calls=len(session.calls), trace_id=trace_id, title=line.title if line else "")

    def act(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Let something happen to a rollout, as the command does; back to its page."""
        found = self._found(fields.get("rollout", ""))
        kinds = {kind.value: kind for kind in _BUTTONS}
        if fields.get("kind") not in kinds:
            raise InputError(f"kind: one of {', '.join(kinds)}")
        if not self._stores.admits(fields):
            return self._rollout(found, NOT_ADMITTED)
        try:
            wanted = RolloutMove(
                kind=kinds[fields["kind"]], by=Person(f"person:{self._who(request)}", fields.get("reason", ""))
            )
            move(self._stores.rollouts, found, wanted)
        except (InputError, ReleaseError) as error:
            return self._rollout(found, str(error))
        return RedirectResponse(f"/releases/{name(found.id)}", status_code=HTTPStatus.SEE_OTHER)

    def audit(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Who changed what, when and why."""
        kept = self._stores.rollouts
        after = fields.get("after", "")
        part = TablePart.of(kept.audit(limit=needed(after), newest=True)[::-1], after)
        return self._frame.page("audit.html", title="Audit", part=part, broken=kept.verify())

    def _found(self, text: str) -> Rollout:
        try:
            return find_rollout(self._stores.all_rollouts(), id_of(text))
        except InputError as error:
            raise PageRefused(HTTPStatus.NOT_FOUND, str(error)) from None


def _can(rollout: Rollout, kind: EventKind) -> bool:
    if kind is EventKind.RAMP and rollout.step >= len(rollout.plan.steps):
        return False
    several = len(rollout.going) > 1 and kind is EventKind.PROMOTE
    return not several and kind in NEXT_STATE[rollout.state]


# One step asked again.

_CHOSEN = ("server", "model", "playbook")
NO_SERVER = "No model can be asked from here: these pages are not served beside a gateway that knows one which speaks so."


class PlaygroundPage:
    """A recorded step, sent again with another playbook or to another model. It costs the project's money, so whoever sends has
    a release token; what it may cost stands there before."""

    def __init__(
        self,
        stores: ProjectStores,
        traces: TraceStore,
        frame: PageRenderer,
        who: Callable[[Request], str],
        servers: "ReplayServers | None",
    ) -> None:
        self._stores, self._traces, self._frame, self._who, self._servers = stores, traces, frame, who, servers
        self._turn = Lock()

    def playground(self, request: Request, fields: Mapping[str, str]) -> Response:
        """A step beside what was answered when it was asked again, and the form to ask."""
        if not fields.get("trace"):
            return self._frame.page("playground.html", title="Playground", step=None)
        return self._shown(self._step(fields), fields)

    def _shown(self, step: "ReplayedStep", fields: Mapping[str, str], problem: str = "") -> Response:
        chosen = self._chosen(step, fields)
        after = self._answered(step, fields.get("answer", ""))
        before = step.then()
        try:
            asked, most = self._asked(step, chosen)
        except InputError as error:
            problem, asked, most = problem or str(error), None, None
        verdict = f"{after.judged.partition(':')[0]} · " if after is not None and after.value in (0, 1) else ""
        return self._frame.page(
            "playground.html",
            HTTPStatus.BAD_REQUEST if problem else HTTPStatus.OK,
            title=f"{verdict}Step {step.number} · Playground",
            here="Playground",
            step=step,
            before=before,
            after=after,
            words=marked(before.text, after.text) if after else marked(before.text, ""),
            cut=max(len(before.text), len(after.text) if after else 0) > COMPARED,
            asked=asked,
            most=most,
            chosen=chosen,
            servers=self._servers.speaking(step.request) if self._servers else (),
            playbooks=[each.id for each in self._stores.registry.candidates(kind=Kind.PLAYBOOK, limit=CHOICES)],
            is_open=bool(self._stores.release_tokens),
            problem=problem,
            no_server=NO_SERVER,
        )

    def send(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Ask, keep what comes, and show it."""
        from journeyman.experiments.playground import ReplayServers

        step = self._step(fields)
        if not self._stores.admits(fields):
            raise PageRefused(HTTPStatus.FORBIDDEN, NOT_ADMITTED)
        chosen = self._chosen(step, fields)
        if not isinstance(self._servers, ReplayServers) or not chosen["server"]:
            raise InputError(NO_SERVER)
        step = self._with(step, chosen)
        ask = self._servers.asker(step.request, chosen["server"], chosen["model"])
        if not self._turn.acquire(blocking=False):
            raise PageRefused(HTTPStatus.CONFLICT, "Another step is being asked again just now: wait for its answer.")
        try:
            found = asyncio.run(
                step.send(ask, id=f"playground-{uuid4().hex}", by=self._who(request), clock=lambda: datetime.now(UTC))
            )
        finally:
            self._turn.release()
        found = self._servers.cleaned(found)
        self._traces.add([found])
        at = {"trace": name(step.trace.id), "step": str(step.number), **chosen, "answer": found.id}
        return RedirectResponse("/playground" + encoded(at), status_code=HTTPStatus.SEE_OTHER)

    def _step(self, fields: Mapping[str, str]) -> "ReplayedStep":
        # What asks models is for who looks at one step.
        from journeyman.experiments.playground import ReplayedStep

        trace = self._traces.get(id_of(fields.get("trace", "")))
        if trace is None:
            raise PageRefused(HTTPStatus.NOT_FOUND, "There is no such trace, or it was pruned.")
        number = fields.get("step", "")
        if number and not (number.isascii() and number.isdigit() and len(number) < 8):
            raise InputError(f"step: {number[:20]!r} is no number of a step")
        return ReplayedStep.of(trace, int(number) if number else None)

    def _chosen(self, step: "ReplayedStep", fields: Mapping[str, str]) -> Mapping[str, str]:
        """Who is asked, for which model, with which playbook: as typed, else as it was recorded."""
        there = self._servers.speaking(step.request) if self._servers else ()
        usual = {"server": there[0] if there else "", "model": step.call.model, "playbook": ""}
        return {each: fields.get(each, "").strip() or usual[each] for each in _CHOSEN}

    def _asked(self, step: "ReplayedStep", chosen: Mapping[str, str]) -> "tuple[ReplayedStep, float | None]":
        """The step as it would be sent, and what it may cost."""
        step = self._with(step, chosen)
        if self._servers is None or not chosen["server"]:
            return step, None
        return step, step.most(self._servers.asker(step.request, chosen["server"], chosen["model"]))

    def _with(self, step: "ReplayedStep", chosen: Mapping[str, str]) -> "ReplayedStep":
        if not chosen["playbook"]:
            return step
        candidate = self._stores.registry.candidate(chosen["playbook"]).candidate
        if candidate.kind is not Kind.PLAYBOOK:
            raise InputError(f"playbook: {candidate.id} is a {candidate.kind}")
        return step.showing(playbook_of(candidate), candidate.id)

    def _answered(self, step: "ReplayedStep", id: str) -> "StepAnswer | None":
        from journeyman.experiments.playground import asked_of, sent

        trace = self._traces.get(id_of(id)) if id else None
        if trace is None or asked_of(trace) != (step.trace.id, step.number):
            return None
        return sent(trace)


# What its evidence says.


def _metrics(last: EvidenceRecord | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """By name; of several candidates, those of the first that has some."""
    told = {} if last is None else last.summary.get("metrics", {})
    for metric, each in told.items():
        if isinstance(each, Mapping) and "difference" in each:
            yield metric, each
        elif isinstance(each, Mapping):
            yield from ((name, found) for name, found in each.items() if isinstance(found, Mapping) and "difference" in found)
            return


def _known(each: Mapping[str, Any]) -> bool:
    return all(isinstance(each.get(name), int | float) for name in ("difference", "low", "high")) and each["low"] < each["high"]


def metric_rows(rollout: Rollout, last: EvidenceRecord | None) -> list[MetricRow]:
    """The primary metric first, then what it must not harm; those that are known."""
    plan = rollout.plan
    limits = {each.name: each.tolerance for each in (plan.primary, *plan.guardrails)}
    margins = {**limits, plan.primary.name: plan.primary.margin}
    found = [(metric, each) for metric, each in _metrics(last) if _known(each)]
    found.sort(key=lambda each: each[0] != plan.primary.name)
    ends = [(each["low"], each["difference"], each["high"]) for _, each in found]
    drawn = whiskers(ends, [None if (limit := limits.get(metric)) is None else -limit for metric, _ in found])
    return [
        MetricRow(
            name=metric,
            limit=limits.get(metric),
            margin=margins.get(metric),
            canary=each["canary"],
            production=each["production"],
            difference=each["difference"],
            low=each["low"],
            high=each["high"],
            whisker=whisker,
            is_primary=metric == plan.primary.name,
        )
        for (metric, each), whisker in zip(found, drawn, strict=True)
    ]


def latest_look(kept: "RolloutStore", rollout: Rollout) -> EvidenceRecord | None:
    """What its test last came to, without the state to go on from, which is large."""
    return next(iter(kept.evidence_history(rollout.id, limit=1)), None)


def verdict_of(rollout: Rollout, last: EvidenceRecord | None) -> ComparisonVerdict:
    """What its sessions say of the primary metric."""
    each = dict(_metrics(last)).get(rollout.plan.primary.name)
    if each is None:
        return ComparisonVerdict(unit="session", withheld="nobody has compared its sessions yet")
    count = int(each["canary"]) + int(each["production"])
    if not _known(each):
        return ComparisonVerdict(
            unit="session", count=count, withheld="sessions of before and those of now contradict each other"
        )
    return ComparisonVerdict(
        metric=rollout.plan.primary.name,
        gained=float(each["difference"]),
        low=each["low"],
        high=each["high"],
        count=count,
        unit="session",
        ends_excluded=True,
        harm=rollout.plan.primary.margin or None,
        withheld="" if min(each["canary"], each["production"]) else "one side has no session yet",
        caveat=f"{each['canary']} of them with the candidate",
    )


def band(rollout: Rollout, looks: Sequence[EvidenceRecord]) -> Chart | None:
    """The difference and its any-time interval, by sessions; `None` while there are too few."""
    primary = rollout.plan.primary
    points = []
    for look in looks:
        each = dict(_metrics(look)).get(primary.name)
        if each is None or not _known(each) or min(each["canary"], each["production"]) < _FEWEST:
            continue
        says = f"after {each['canary'] + each['production']} sessions: {_points(each['difference'])} "
        says += f"({_points(each['low'])} … {_points(each['high'])})"
        x = float(each["canary"] + each["production"])
        points.append(ChartPoint(x=x, y=each["difference"], low=each["low"], high=each["high"], says=says))
    if len(points) < 2:
        return None
    limit = (ChartRule(at=-primary.margin, name="not worse"),) if primary.margin else ()
    return Chart(
        title=f"Gain in {primary.name}, points, by sessions",
        says=points[-1].says,
        series=(Series(name="candidate − production", points=tuple(points)),),
        label=_points,
        x_label="{:.0f}".format,
        rules=(ChartRule(at=0.0, name="no difference", style="zero"), *limit),
        note="This band holds at every moment: look as often as you like. Dotted: above it, it is not worse.",
    )


def _points(difference: float) -> str:
    said = f"{100 * difference:+.0f}".replace("-", "−")
    return "0" if said in ("+0", "−0") else said
