"""A playbook learned from live requests, examined on later ones: both sides answer them anew, and no tool is run.

What it may conclude is little: that a candidate is refused, that it is right on the calls that can be checked, or that nobody
can tell. Whether it is better only live sessions can say.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from journeyman import models
from journeyman.agents.attempt import Attempt, attempt_all, refusal
from journeyman.agents.replay import AskAgain, CallBudget, NamedModel, RecordedRequest, RecordedServer, Replayer
from journeyman.core.candidate import BASE
from journeyman.core.errors import InputError, ModelRefused
from journeyman.core.evaluation import Decision, Evaluation, Result, pair
from journeyman.core.format import counted
from journeyman.core.gate import BetterOnHeldOut, interval_of
from journeyman.core.playbook import Playbook
from journeyman.core.trace import average
from journeyman.experiments.agents import candidate_of
from journeyman.experiments.compare import results
from journeyman.experiments.evaluator import HeldOutEvaluator, Look, Subject
from journeyman.experiments.playbook.bullet_examination import BulletExamination, LeftOut, drawn_by, halves, retired, shown
from journeyman.experiments.playbook.recorded_tasks import EXAMINED, DrawnTasks, RecordedTask
from journeyman.experiments.settings import OWNERS, Settings, UpstreamSettings
from journeyman.io.http_server import is_loopback
from journeyman.stores.registry import GateVerdict
from journeyman.tasks.recorded import RecordedVerifier, TaskKind, is_well_formed, not_rejected

_FEWEST_FAR = 10
"""Groups of the far half, below which it tells nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminationConfig:
    """How thoroughly to look, and what is enough."""

    trials: int = 1
    """How often each side answers each request."""
    most_tasks: int = 200
    """Requests that are answered by both sides; of more, so many are drawn."""
    min_groups: int = 30
    """Groups of requests by which a gain can be shown; of fewer nobody can tell."""
    most_loss: float = 0.02
    """What may be lost of the calls that were accepted before."""
    leave_one_out: bool = True
    """Whether each new bullet is taken away once, and shown alone where that tells nothing: one may be false."""
    bullet_tasks: int = 60
    """Requests by which a bullet is judged."""
    bullet_gain: float = 0.02
    """What must be gained without a bullet for it to go."""
    alpha: float = 0.05
    """One in twenty, at most, of equal candidates may be `checked`, all looks at these requests taken together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSided:
    """How often the refused call was not made again, or the accepted one was. Nonsense passes it: it decides nothing."""

    baseline: float | None = None
    candidate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What both sides' answers show."""

    verdict: GateVerdict
    """REFUSED, CHECKED or NOT_EXAMINABLE: there is no other."""
    reason: str
    """One sentence with its numbers."""
    evaluation: Evaluation
    """Of the requests by which a gain can be shown."""
    decision: Decision
    accepted: Evaluation
    """Of the calls that were accepted before."""
    form: Evaluation
    """Of all calls whose tool's arguments are declared."""
    far: Evaluation
    """`evaluation` in the half that is farther from all that was learned from."""
    one_sided: OneSided = OneSided()


@dataclass(frozen=True, kw_only=True)
class ExaminationReport:
    """All that was found. Kept as an evaluation, it says `verdict` in the words that a release asks for."""

    conclusion: Conclusion
    playbook: Playbook
    """As it was examined: without the bullets that went."""
    kinds: Mapping[str, int] = field(default_factory=dict)
    """How many requests of each kind both sides answered."""
    share: float = 0.0
    """Of the recorded requests, how many could be examined."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Of the recorded requests, how many could not, by why."""
    bullets: tuple[LeftOut, ...] = ()
    """Each bullet that was taken away once."""
    spared: tuple[str, ...] = ()
    """Ids of new bullets that were not, as no calls were left for them."""
    calls: int = 0
    cost: float = 0.0
    """US dollars of the calls whose price is known."""
    unpriced: int = 0

    @property
    def verdict(self) -> GateVerdict:
        return self.conclusion.verdict

    @property
    def reason(self) -> str:
        return self.conclusion.reason

    @property
    def passed(self) -> bool:
        """Never: what a gate lets pass was shown on whole tasks, and not on single calls."""
        return False

    @property
    def dropped(self) -> tuple[LeftOut, ...]:
        return tuple(each for each in self.bullets if each.dropped)

    def json(self) -> dict[str, Any]:
        found, far = self.conclusion, self.conclusion.far
        return {
            "verdict": self.verdict.value,
            "reason": self.reason,
            **_numbers(found.evaluation),
            "looks": found.evaluation.looks,
            "decided_low": found.decision.low,
            "decided_high": found.decision.high,
            "level": found.decision.level,
            "clusters": len(set(found.evaluation.clusters)) or None,
            "far": _numbers(far),
            "accepted": _numbers(found.accepted),
            "form": _numbers(found.form),
            "not_rejected": asdict(found.one_sided),
            "kinds": dict(self.kinds),
            "share": self.share,
            "left_out": dict(self.left_out),
            "bullets": [asdict(each) for each in self.bullets],
            "spared": list(self.spared),
            "calls": self.calls,
            "cost": self.cost,
            "unpriced": self.unpriced,
        }

    def record(self) -> dict[str, Any]:
        return {**self.json(), "passed": self.passed, "pairs": self.conclusion.evaluation.pairs_json()}


def _numbers(found: Evaluation) -> dict[str, Any]:
    low, high = interval_of(found) if found.pairs else (None, None)
    return {
        "tasks": found.tasks,
        "unknown": found.unknown,
        "baseline": found.baseline,
        "candidate": found.candidate,
        "gain": found.gain,
        "low": low,
        "high": high,
    }


# What answers show: pure.


def conclude(
    tasks: Sequence[RecordedTask],
    before: Sequence[Attempt],
    after: Sequence[Attempt],
    *,
    config: ExaminationConfig | None = None,
    looks: int = 0,
    contaminated: tuple[str, ...] = (),
) -> Conclusion:
    """What the attempts of baseline and candidate at the same recorded requests may conclude.

    Args:
        looks: How often these requests had been looked at before.
        contaminated: Those that one of the two was learned from; they are not among the tasks.
    """
    config = config or ExaminationConfig()
    of = {each.task.id: each for each in tasks}

    def paired(wanted: Callable[[RecordedTask], bool], score: Callable[[Attempt], float | None]) -> Evaluation:
        def side(attempts: Sequence[Attempt]) -> list[Result]:
            meant = [each for each in attempts if each.task.id in of and wanted(of[each.task.id])]
            return [replace(result, score=score(each)) for result, each in zip(results(meant), meant, strict=True)]

        return pair(side(before), side(after), looks=looks)

    examined = replace(paired(lambda each: each.kind in EXAMINED, _total), contaminated=contaminated)
    gate = BetterOnHeldOut(min_tasks=config.min_groups, alpha=config.alpha)
    found = Conclusion(
        verdict=GateVerdict.NOT_EXAMINABLE,
        reason="",
        evaluation=examined,
        decision=gate.decide(examined),
        accepted=paired(lambda each: each.kind is TaskKind.ACCEPTED, _total),
        form=_known(paired(lambda each: True, lambda each: _number(is_well_formed(each.task, each.trace)))),
        far=paired(lambda each: each.kind in EXAMINED and each.far, _total),
        one_sided=OneSided(baseline=_one_sided(before), candidate=_one_sided(after)),
    )
    verdict, reason = _verdict(found, config)
    return replace(found, verdict=verdict, reason=reason)


def _verdict(found: Conclusion, config: ExaminationConfig) -> tuple[GateVerdict, str]:
    if why := _refusal(found, config):
        return GateVerdict.REFUSED, why
    if found.decision.low is None:
        kinds = " and ".join(kind.value for kind in EXAMINED)
        return GateVerdict.NOT_EXAMINABLE, f"not examinable by requests of the kinds {kinds}: {found.decision.reason}"
    if not found.decision.passed:
        return GateVerdict.REFUSED, f"no gain is shown: {found.decision.reason}"
    return (
        GateVerdict.CHECKED,
        f"right on the calls that can be checked, and no more is known: {found.decision.reason}{_far(found.far)}",
    )


def _refusal(found: Conclusion, config: ExaminationConfig) -> str:
    """Why nobody should see it; empty where nothing speaks against it."""
    lost = -interval_of(found.accepted)[1] if found.accepted.pairs else 0.0
    if lost > config.most_loss:
        return (
            f"calls that were accepted are no longer made: {found.accepted.baseline:.3f} before and "
            f"{found.accepted.candidate:.3f} with it on {counted(found.accepted.tasks, 'request')}, "
            f"a loss of at least {lost:.3f}"
        )
    if found.form.pairs and interval_of(found.form)[1] < 0:
        return (
            f"arguments are worse in form: {found.form.baseline:.3f} as declared before and {found.form.candidate:.3f} with it "
            f"on {counted(found.form.tasks, 'request')}"
        )
    far = found.far
    groups = len(set(far.clusters) or {each.task_id for each in far.pairs})
    if found.decision.passed and groups >= _FEWEST_FAR and far.gain is not None and far.gain <= 0:
        return (
            f"it gains only on requests like those that it was learned from: {found.evaluation.gain:+.3f} on all "
            f"{found.evaluation.tasks}, and {far.gain:+.3f} on the {far.tasks} that are farther away"
        )
    return ""


def _far(far: Evaluation) -> str:
    if far.gain is None:
        return ""
    low, high = interval_of(far)
    return f"; on the half that is farther from what was learned from {far.gain:+.3f}, {low:+.3f} to {high:+.3f}"


def _total(attempt: Attempt) -> float | None:
    return attempt.score.total


def _number(said: bool | None) -> float | None:
    return None if said is None else float(said)


def _known(found: Evaluation) -> Evaluation:
    """Without the answers that make no such call: there is no form to speak of."""
    pairs = tuple(replace(each, baseline_unknown=0.0, candidate_unknown=0.0) for each in found.pairs)
    return replace(found, pairs=pairs, unknown_attempts=0, unknown=0, only_baseline=(), only_candidate=())


def _one_sided(attempts: Sequence[Attempt]) -> float | None:
    said = [not_rejected(each.task, each.trace) for each in attempts if each.score.total is not None]
    return average([float(each) for each in said if each is not None])


# The examination itself: who is asked what, and how often.


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """Lets a playbook and a baseline answer recorded requests anew."""

    evaluator: HeldOutEvaluator
    ask: AskAgain
    budget: CallBudget = field(default_factory=CallBudget)
    """That of `ask`: the examination is planned so that it is kept."""
    config: ExaminationConfig = ExaminationConfig()
    done: Callable[[int], None] = lambda _: None
    """Is told after each answer how many calls were made."""

    async def examine(self, drawn: DrawnTasks, playbook: Playbook, baseline: Playbook, *, id: str) -> ExaminationReport:
        """Find a bullet that does harm, examine the rest, and keep what was found.

        Args:
            drawn: The later requests, of which neither side has learned.
            id: Of the run or command; part of the evaluation's.

        Raises:
            InputError: The playbook holds no bullet, or was learned from all of these requests.
            ModelRefused: The model said no for good to every request of a side.
        """
        if candidate_of(playbook) is None:
            raise InputError("the playbook holds no bullet that may be shown, so there is nothing to examine")
        tasks = self._chosen(drawn.tasks)
        answers, rest = _Answers(self, id), playbook
        bullets, spared = tuple[LeftOut, ...](), tuple[str, ...]()
        if self.config.leave_one_out and tasks:
            half, other = halves(tasks)
            looking = self._bullets(half, playbook, baseline, answers, reserved=2 * len(tasks))
            bullets, spared = await looking.found(), tuple(looking.spared)
            if any(each.dropped for each in bullets):
                # What chose the bullets cannot also judge those that are left.
                rest, tasks = retired(playbook, [each for each in bullets if each.dropped]), other
        candidate, against = candidate_of(rest), candidate_of(baseline)
        subject = Subject(
            candidate=candidate.id if candidate else BASE,
            baseline=against.id if against else BASE,
            tasks=[each.task for each in tasks],
            settings={"ask": self.ask.name, "config": asdict(self.config), "requests": _asked(tasks)},
            deterministic=self.ask.deterministic,
            trained_on=playbook.trained_on | baseline.trained_on,
            learned=candidate,
        )

        async def measure(look: Look) -> ExaminationReport:
            meant = [tasks[row] for row in look.rows(subject.tasks)]
            before, after = [await answers.of(side, meant) for side in (baseline, rest)]
            found = conclude(meant, before, after, config=self.config, looks=look.before, contaminated=look.contaminated)
            return ExaminationReport(
                conclusion=found,
                playbook=rest,
                kinds=dict(Counter(each.kind.value for each in meant)),
                share=drawn.share,
                left_out=drawn.left_out,
                bullets=bullets,
                spared=spared,
                calls=self.budget.calls,
                cost=self.budget.cost,
                unpriced=self.budget.unpriced,
            )

        return await self.evaluator.evaluate(subject, measure, id=id, records=lambda report: [(subject.baseline, report)])

    def _chosen(self, drawn: Sequence[RecordedTask]) -> list[RecordedTask]:
        """Those that both sides answer: as many as may be, and among them those by which a gain can be shown."""
        most, left = self.config.most_tasks, self.budget.left
        if left is not None:
            most = min(most, left // (2 * self.config.trials))
        known = [each for each in drawn if each.kind is not TaskKind.UNVERIFIABLE]
        known.sort(key=lambda each: drawn_by(each.task.id))
        showing = [each for each in known if each.kind in EXAMINED]
        others = [each for each in known if each.kind not in EXAMINED]
        # A quarter is for what must not be lost, where there is so much of it.
        room = max(most - len(others), most - most // 4)
        chosen = {each.task.id for each in [*showing[:room], *others][:most]}
        return [each for each in drawn if each.task.id in chosen]

    def _bullets(
        self, tasks: Sequence[RecordedTask], playbook: Playbook, baseline: Playbook, answers: "_Answers", *, reserved: int
    ) -> BulletExamination:
        return BulletExamination(
            playbook=playbook,
            baseline=baseline,
            tasks=tasks,
            answers=answers,
            trials=self.config.trials,
            most=self.config.bullet_tasks,
            least_gain=self.config.bullet_gain,
            alpha=self.config.alpha,
            left=None if self.budget.left is None else self.budget.left - reserved * self.config.trials,
        )


class _Answers:
    """Attempts at recorded requests, each made once: what a bullet is judged by counts for the whole as well."""

    def __init__(self, examination: Examination, id: str) -> None:
        self._examination, self._id = examination, id
        self._known: dict[tuple[str, int, str], Attempt] = {}

    async def of(self, playbook: Playbook, tasks: Sequence[RecordedTask]) -> list[Attempt]:
        """All trials of a side, one after the other.

        Raises:
            ModelRefused: The model said no for good to all of them.
        """
        candidate = candidate_of(playbook)
        named = candidate.id if candidate else BASE
        agent = Replayer(
            ask=self._examination.ask,
            requests={each.task.id: each.request for each in tasks},
            choose=lambda task: shown(playbook, task),
            candidate_id=named,
        )
        found: list[Attempt] = []
        for trial in range(self._examination.config.trials):
            missing = [each.task for each in tasks if (named, trial, each.task.id) not in self._known]
            made = await attempt_all(
                agent,
                missing,
                RecordedVerifier(),
                prefix=f"{self._id}/examination/{named}/{trial}",
                clock=self._examination.evaluator.clock,
                done=lambda _: self._examination.done(self._examination.budget.calls),
            )
            if reason := refusal(made):
                raise ModelRefused(f"{reason}. Nothing could be examined: every request met with this")
            self._known |= {(named, trial, each.task.id): each for each in made}
            found += [self._known[named, trial, each.task.id] for each in tasks]
        return found


def _asked(tasks: Sequence[RecordedTask]) -> list[str]:
    """Who was asked what, but for the words, which the tasks hold."""
    told = {f"{each.request.model} {each.request.base_url} {sorted(each.request.parameters.items())}" for each in tasks}
    return sorted(told)


# Who is asked, by names.


def asker(
    settings: Settings, *, model: str = "", budget: CallBudget | None = None, environment: Mapping[str, str] | None = None
) -> RecordedServer | NamedModel:
    """Who answers recorded requests anew: the server that answered then, or a model that somebody names.

    A server is sent the key that the settings say for its address, and the makers of the two APIs their own; no other server is
    sent any.

    Args:
        model: As a user types it. One over HTTP is asked in chat completions, with the tools of the request.
        environment: Where keys stand; that of the process without one.
    """
    env = os.environ if environment is None else environment
    place, budget = settings.context.place, budget or CallBudget()
    parsed = models.parse(model) if model else None
    if parsed is None or parsed.kind not in models.OVER_HTTP:
        if parsed is not None:
            return NamedModel(models.load(model), budget=budget)
        return RecordedServer(key=lambda request: key_of(request, settings.upstreams, env), place=place, budget=budget)
    client = models.load(model)
    url = str(getattr(client, "base_url", models.HOME))
    key = env.get(models.KEY, "") if parsed.kind == "openai" else ""
    return RecordedServer(
        key=lambda _: key,
        aim=lambda request: request.of_model(parsed.rest, url),
        name=client.name,
        place=place,
        budget=budget,
    )


def is_own(request: RecordedRequest, upstreams: Mapping[str, UpstreamSettings]) -> bool:
    """Whether the server that answered is one of the project's, of this machine or of the makers of the two APIs. What a trace
    says of an address is nobody's word on who may read what this project learned."""
    ours = request.base_url.rstrip("/") in {each.base_url.rstrip("/") for each in upstreams.values()}
    return ours or is_loopback(urlsplit(request.base_url).hostname or "") or bool(_key_of_maker(request.base_url))


def key_of(request: RecordedRequest, upstreams: Mapping[str, UpstreamSettings], env: Mapping[str, str]) -> str:
    """The key of the server that answered. What a trace says of an address is nobody's word on where a key may go."""
    known = upstreams.get(request.upstream)
    if known is not None and known.base_url.rstrip("/") == request.base_url.rstrip("/"):
        return env.get(known.key_env, "").strip() if known.key_env else ""
    return env.get(_key_of_maker(request.base_url), "").strip()


def _key_of_maker(url: str) -> str:
    """The variable with the key of one of the makers of the two APIs; empty for any other address."""
    parts = urlsplit(url)
    return next((name for name, host in OWNERS.items() if parts.scheme == "https" and parts.hostname == host), "")
