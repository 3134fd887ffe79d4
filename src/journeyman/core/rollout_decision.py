"""What a rollout may do next, by its evidence; and when a gateway stops an arm by itself.

The rule is pure: it is told what is known, and answers with one event, or none, and one sentence. It never sees an e-value's
level: `journeyman.stats.live` turns the evidence into bounds at the levels of the plan, and the rule compares bounds with the
plan's limits. So no sentence can contradict its interval. Only the standard library is loaded, as a gateway loads the brake.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from journeyman.core.errors import InputError
from journeyman.core.format import counted
from journeyman.core.rollout import EventKind
from journeyman.core.rollout_plan import BrakePlan, Metric, RolloutPlan

FRACTIONS = tuple(0.03 * 30 ** (at / 11) for at in range(12))
"""Bets, as fractions of the largest one that cannot ruin the bettor. Small ones find small differences, large ones find large
differences early; spreading the stake over all of them costs a factor of 12 at most."""
LARGEST = 1e300
"""What a bet grows to at most: more proves nothing more, and the next session would leave the numbers that there are."""
WATCH_ALPHA = 0.001
"""Of a watch that holds although nothing is wrong, on either side."""
WATCHES = ("labelled", "exposed")
"""Guardrails that say whether the others can be believed: whether a session was judged in time, and whether it was served. They
hold when the arms differ in either direction."""
_PRIMARY = 0.4
"""The share of `RolloutPlan.alpha` that goes to the primary metric. Guardrails share the rest equally."""
DOUBT = 4
"""Harm at so many times its level stops a ramp and a promotion."""


def is_watch(metric: Metric) -> bool:
    return metric.name in WATCHES and metric.action == "hold"


def level(plan: RolloutPlan, metric: Metric, arms: int = 1) -> float:
    """The level of one metric's harm. Those of all that can roll back, on all of so many arms, add up to `plan.alpha`."""
    if is_watch(metric):
        return WATCH_ALPHA / arms
    harmful = [each for each in plan.guardrails if not is_watch(each)]
    if metric.name == plan.primary.name:
        return plan.alpha / arms * (_PRIMARY if harmful else 1.0)
    return plan.alpha / arms * (1 - _PRIMARY) / max(1, len(harmful))


def decisive_differences(plan: RolloutPlan, metric: Metric) -> tuple[float, ...]:
    """The differences to production at which the plan asks something of a metric: where its bounds must be exact."""
    found = {-metric.tolerance + 0.0}
    if is_watch(metric):
        found.add(metric.tolerance)
    if metric.name == plan.primary.name:
        found |= {-metric.margin, 0.0, *(-worst for worst in plan.step_worst if 0 < worst < 1)}
    return tuple(sorted(found))


# What is known.


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmEvidence:
    """A metric of one arm beside production: what `journeyman.stats.live.compared` makes of the evidence."""

    canary: int
    """Sessions of the arm whose score is known."""
    production: int
    difference: float
    """The arm minus production, within the bounds."""
    low: float
    """The difference is above it, at the level of a promotion, at all looks at once."""
    high: float
    """The difference is below it, at the level of harm, at all looks at once."""
    high_doubt: float
    """The same as of now, at `DOUBT` times the level: what stops a ramp."""
    e_harm: float = 1.0
    """The most that a bet on harm beyond the tolerance has ever become: 1 at the beginning."""
    e_promote: float = 1.0
    """The same of a bet on what a promotion must show."""

    @property
    def known(self) -> bool:
        """Not when the sessions of before and those of now say different things, or a number is none."""
        return self.low <= self.high and math.isfinite(self.difference)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioFound:
    """How sessions fell on the arms, beside how they were drawn."""

    e_value: float
    canary: int
    expected: float
    """How many of them the shares would have given the canary."""
    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """All that is known of one arm of a rollout when something is to be decided. What is not known holds it."""

    step: int
    """The step of the plan that it is at, from 0."""
    sessions: int
    """Since that step began, of all arms."""
    hours: float
    """Likewise."""
    days: float
    """Since the rollout began."""
    metrics: Mapping[str, ArmEvidence | None] = field(default_factory=dict)
    """Of the primary metric and each guardrail; `None`, or not there, is unknown."""
    ratio: RatioFound | None = None
    brakes: Sequence[str] = ()
    """The gateways whose brake is on for this arm."""
    ill: str = ""
    """What is wrong with production itself, such as its own brake."""
    stale: str = ""
    """Why the evidence cannot be decided on now: too old, no resources."""
    held: str = ""
    """Why it is held already; nothing grows until somebody resumes it."""
    checked: bool = False
    """The gate could only examine a part of the candidate: it is promoted as better, never as not worse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutVerdict:
    """What is to happen, and why."""

    event: EventKind | None
    """`None`: go on as it is."""
    reason: str
    """One sentence with its numbers."""
    metric: str = ""
    """Which decided it, where one did."""
    share: float | None = None
    """Of the next step, where it ramps."""
    arm: str = ""
    """Of several, the one that is taken out or promoted."""


# The rule.


def decide(plan: RolloutPlan, seen: Observed) -> RolloutVerdict:
    """What is to happen to a rollout of one candidate that is in its canary, or held.

    What makes the evidence unbelievable comes before what the evidence says: production that is ill itself, sessions that do
    not fall as drawn, labels that are missing on one side. Then harm; then what is unknown, which holds; then promotion; the
    end of the time, which never promotes; and the next step.
    """
    return _asked(plan, _decide(plan, seen))


def decide_arms(plan: RolloutPlan, seen: Mapping[str, Observed]) -> RolloutVerdict:
    """The same of those candidates of a rollout that are still on their way, by their arms.

    Each is judged as if it were alone, at its part of the levels. One that harms is taken out and the others go on; when all
    do it is a rollback. What holds one holds all. Promoted is the candidate whose primary metric is the best, once it may be:
    one that may be while another looks better waits for that other to be shown as well, to fall behind, or to be taken out.
    A step is gone up by all together.
    """
    if len(seen) == 1:
        return decide(plan, next(iter(seen.values())))
    found = {arm: _decide(plan, each) for arm, each in seen.items()}
    kinds = {arm: verdict.event for arm, verdict in found.items()}
    if harmful := [arm for arm, kind in kinds.items() if kind is EventKind.ROLLBACK]:
        if len(harmful) == len(found):
            return RolloutVerdict(event=EventKind.ROLLBACK, reason=_together(found))
        return _of_arm(harmful[0], found[harmful[0]], event=EventKind.DROP)
    if held := [arm for arm, kind in kinds.items() if kind is EventKind.HOLD]:
        same = len({verdict.reason for verdict in found.values()}) == 1
        return found[held[0]] if same else _of_arm(held[0], found[held[0]])
    best = max(seen, key=lambda arm: _difference(plan, seen[arm]))
    if kinds[best] is EventKind.PROMOTE:
        return _asked(plan, _of_arm(best, found[best]))
    if EventKind.RAMP in kinds.values() and None not in kinds.values():
        share = next(verdict.share for verdict in found.values() if verdict.share is not None)
        return RolloutVerdict(event=EventKind.RAMP, reason=_together(found), share=share)
    waits = f"{best} looks best and is not shown yet; " if EventKind.PROMOTE in kinds.values() else ""
    return RolloutVerdict(event=None, reason=waits + _together(found))


def _difference(plan: RolloutPlan, seen: Observed) -> float:
    """How much better than production a candidate looks by the primary metric; the least where nothing is known."""
    found = _of(seen, plan.primary)
    return found.difference if found is not None and found.known else -math.inf


def _of_arm(arm: str, verdict: RolloutVerdict, **more: Any) -> RolloutVerdict:
    return replace(verdict, arm=arm, reason=f"{arm}: {verdict.reason}", **more)


def _together(found: Mapping[str, RolloutVerdict]) -> str:
    return "; ".join(f"{arm}: {verdict.reason}" for arm, verdict in found.items())


def _decide(plan: RolloutPlan, seen: Observed) -> RolloutVerdict:
    """What is to happen, whoever promotes."""
    if found := _stopped(plan, seen):
        return found
    waits = seen.held or seen.stale or _unknown(plan, seen)
    if not waits and (found := _promoted(plan, seen)):
        return found
    if seen.days >= plan.max_days:
        return _ended(plan, seen, waits)
    if waits:
        return RolloutVerdict(event=EventKind.HOLD, reason=waits)
    return _ramped(plan, seen)


def decide_holdback(plan: RolloutPlan, seen: Observed) -> RolloutVerdict:
    """The same after a promotion, while some sessions stay on what was there before: back, or concluded when the time is over.

    Args:
        seen: With the days since the promotion.
    """
    if found := _stopped(plan, seen):
        return found
    if waits := seen.held or seen.stale or _unknown(plan, seen):
        return RolloutVerdict(event=None, reason=waits)
    said = _said(plan.primary, _of(seen, plan.primary))
    if seen.days >= plan.holdback_days:
        return RolloutVerdict(
            event=EventKind.CONCLUDE, reason=f"{_days(plan.holdback_days)} of holdback showed no harm: {said}"
        )
    return RolloutVerdict(event=None, reason=f"no harm so far: {said}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """What mirrored requests have come to."""

    pairs: int = 0
    """Sessions in which production and the candidate answered the same request, and both answers are on record."""
    spent: float = 0.0
    """US dollars, as far as they are known."""
    unpriced: int = 0
    """Answers of which it is not known what they cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedShadow:
    """All that is known of a rollout whose requests are mirrored."""

    mirrored: Mirrored
    failed: int
    """Of the sessions, those in which the candidate failed hard."""
    brake: bool
    """Whether these are too many."""
    worse: str = ""
    """Why a reward says that it is worse; empty where none does."""
    days: float = 0.0
    """Since the rollout began."""


def mirrored_out(plan: RolloutPlan, seen: Mirrored) -> str:
    """Why nothing more is mirrored; empty while it is."""
    if seen.spent >= plan.shadow_budget:
        return f"the budget of ${plan.shadow_budget:g} is spent (${seen.spent:.4g})"
    if seen.unpriced and plan.shadow_unpriced == "stop":
        what = f"what {counted(seen.unpriced, 'mirrored answer')} cost is not known, so no budget can be kept"
        return f'{what}; shadow_unpriced = "go_on" mirrors all the same'
    return "enough were compared" if seen.pairs >= plan.shadow_pairs else ""


def decide_shadow(plan: RolloutPlan, seen: ObservedShadow) -> RolloutVerdict:
    """What is to happen to a rollout before anybody is served its candidate: harm ends it, enough pairs without any begin the
    first step, and too few, where no more can come, are a person's to judge."""
    has = f"{seen.mirrored.pairs:,} of {counted(plan.shadow_pairs, 'mirrored session')}"
    spent = f"{seen.failed:,} failed, ${seen.mirrored.spent:.4g} spent"
    if seen.brake:
        return _harmful(plan, f"the brake: more than {plan.brake.failures:.0%} of mirrored sessions fail ({has}, {spent})")
    if seen.worse:
        return _harmful(plan, seen.worse)
    if seen.mirrored.pairs >= plan.shadow_pairs:
        reason = f"the first step, after {has} showed no harm: {spent}"
        return RolloutVerdict(event=EventKind.RAMP, reason=reason, share=plan.steps[0])
    over = f"{_days(plan.max_days)} are over" if seen.days >= plan.max_days else mirrored_out(plan, seen.mirrored)
    if over:
        return RolloutVerdict(event=EventKind.HOLD, reason=f"{over}, with {has} ({spent}); ramp or close it")
    return RolloutVerdict(event=None, reason=f"{has}: {spent}")


def _stopped(plan: RolloutPlan, seen: Observed) -> RolloutVerdict | None:
    """By a brake, because nothing can be believed, or by harm."""
    if seen.ill:
        both = f", and so is the canary ({counted(len(seen.brakes), 'brake')} on)" if seen.brakes else ""
        return RolloutVerdict(event=EventKind.HOLD, reason=f"production itself is ill: {seen.ill}{both}")
    if seen.brakes:
        where = ", ".join(seen.brakes)
        reason = f"the brake is on in {where}: more than {plan.brake.failures:.0%} of the canary's sessions fail"
        return _harmful(plan, reason)
    ratio = seen.ratio
    if ratio and ratio.e_value >= 1 / WATCH_ALPHA:
        reason = (
            f"sessions do not fall as they are drawn: {ratio.canary:,} of {ratio.sessions:,} came to the canary, and "
            f"{ratio.expected:,.0f} are expected (e-value {_e(ratio.e_value)}, {1 / WATCH_ALPHA:,.0f} holds); look at "
            "what loses them before anything is compared"
        )
        return RolloutVerdict(event=EventKind.HOLD, reason=reason)
    return _harm(plan, seen)


def _harm(plan: RolloutPlan, seen: Observed) -> RolloutVerdict | None:
    """Watches first: where they differ, what they cover is not evidence of harm."""
    tripped = [watch for watch in plan.guardrails if is_watch(watch) and _differs(watch, _of(seen, watch))]
    for metric in (plan.primary, *plan.guardrails):
        found = _of(seen, metric)
        covered = any(metric.window_seconds > 0 or watch.window_seconds == 0 for watch in tripped)
        if found is None or is_watch(metric) or covered or found.high > -metric.tolerance:
            continue
        reason = (
            f"{metric.name} is worse on the canary: {_estimate(found)} points, below {_points(found.high)} whenever one looks, "
            f"where {_points(-metric.tolerance)} is tolerated (e-value {_e(found.e_harm)}, {_counts(found)})"
        )
        return _harmful(plan, reason, metric)
    for watch in tripped:
        return RolloutVerdict(event=EventKind.HOLD, reason=_watched(watch, _of(seen, watch)), metric=watch.name)
    return None


def _harmful(plan: RolloutPlan, reason: str, metric: Metric | None = None) -> RolloutVerdict:
    name = metric.name if metric else ""
    if plan.on_harm == "hold" or (metric and metric.action == "hold"):
        return RolloutVerdict(event=EventKind.HOLD, reason=f"{reason}; the plan holds on harm", metric=name)
    return RolloutVerdict(event=EventKind.ROLLBACK, reason=reason, metric=name)


def _differs(watch: Metric, found: ArmEvidence | None) -> bool:
    return found is not None and (found.high <= -watch.tolerance or found.low >= watch.tolerance)


def _watched(watch: Metric, found: ArmEvidence | None) -> str:
    what = {"labelled": "sessions are judged in time", "exposed": "sessions are served"}[watch.name]
    return (
        f"{watch.name} differs between the arms, so other differences may be made by it: "
        f"{what} {_said(watch, found)}; mend that, then resume"
    )


def _unknown(plan: RolloutPlan, seen: Observed) -> str:
    """Why nothing may be decided; empty where all is known."""
    if seen.ratio is None:
        return "it is not known how sessions fell on the arms"
    for metric in (plan.primary, *plan.guardrails):
        found = _of(seen, metric)
        if found is None:
            return f"nothing is known of {metric.name}, and the plan asks for it"
        if not found.known:
            return (
                f"{metric.name} changed in the course of the rollout: at some time it was above {_points(found.low)} points "
                f"beside production, at another below {_points(found.high)}; no one number is true of it"
            )
    return ""


def _doubted(plan: RolloutPlan, seen: Observed) -> str:
    """The metric that may be worse, and why; empty where none is."""
    for metric in (plan.primary, *plan.guardrails):
        found = _of(seen, metric)
        if found and not is_watch(metric) and found.high_doubt <= -metric.tolerance:
            doubt = f"below {_points(found.high_doubt)} at {DOUBT} times the level"
            return f"{metric.name} may be worse: {_said(metric, found)}, {doubt}"
    return ""


def _promoted(plan: RolloutPlan, seen: Observed) -> RolloutVerdict | None:
    found, least, primary = _of(seen, plan.primary), _needed(plan, seen), plan.primary
    if found is None or found.low < least or _doubted(plan, seen) or min(found.canary, found.production) < plan.min_sessions:
        return None
    what = "better than production" if least == 0 else f"not worse than production by {_points(-least, sign=False)} points"
    reason = f"{primary.name} is {what}: {_said(primary, found)}, e-value {_e(found.e_promote)}, {_counts(found)}"
    return RolloutVerdict(event=EventKind.PROMOTE, reason=reason, metric=primary.name)


def _asked(plan: RolloutPlan, verdict: RolloutVerdict) -> RolloutVerdict:
    """A promotion, where a person is asked for it."""
    if verdict.event is not EventKind.PROMOTE or plan.promote == "automatic":
        return verdict
    return replace(verdict, event=EventKind.HOLD, reason=f"{verdict.reason}; the plan asks a person to promote it")


def _needed(plan: RolloutPlan, seen: Observed) -> float:
    """What the low end must reach for a promotion."""
    return 0.0 if seen.checked or plan.primary.require == "better" else -plan.primary.margin


def _ended(plan: RolloutPlan, seen: Observed, waits: str) -> RolloutVerdict:
    event = EventKind.ROLLBACK if plan.on_end == "rollback" else EventKind.HOLD
    then = "the plan ends in a rollback" if plan.on_end == "rollback" else "promote it, roll it back, or close it"
    reason = f"{_days(plan.max_days)} are over without a verdict: {waits or _missing(plan, seen)}; {then}"
    return RolloutVerdict(event=event, reason=reason)


def _ramped(plan: RolloutPlan, seen: Observed) -> RolloutVerdict:
    found, step = _of(seen, plan.primary), min(seen.step, len(plan.steps) - 1)
    missing = _missing(plan, seen)
    if found is None or step + 1 == len(plan.steps):
        return RolloutVerdict(event=None, reason=missing)
    here, worst = _percent(plan.steps[step]), plan.step_worst[step]
    if doubt := _doubted(plan, seen):
        return RolloutVerdict(event=None, reason=f"stays at {here}: {doubt}")
    if seen.sessions < plan.step_sessions[step] or seen.hours < plan.step_hours[step]:
        sessions, hours = counted(plan.step_sessions[step], "session"), f"{plan.step_hours[step]:g} h"
        has = f"{seen.sessions:,} of {sessions} and {seen.hours:.1f} of {hours}"
        return RolloutVerdict(event=None, reason=f"the step at {here} has {has}; {missing}")
    if found.low < -worst:
        reason = f"stays at {here}: {_said(plan.primary, found)}, and {_points(-worst)} is asked for; {missing}"
        return RolloutVerdict(event=None, reason=reason)
    share = plan.steps[step + 1]
    reason = (
        f"from {here} to {_percent(share)} after {counted(seen.sessions, 'session')} and {seen.hours:.1f} h: "
        f"{_said(plan.primary, found)}, no harm shown"
    )
    return RolloutVerdict(event=EventKind.RAMP, reason=reason, share=share)


def _missing(plan: RolloutPlan, seen: Observed) -> str:
    """What a promotion still wants."""
    found, least = _of(seen, plan.primary), _needed(plan, seen)
    if found is None:
        return f"nothing is known of {plan.primary.name}"
    if found.low < least:
        return f"{_said(plan.primary, found)}, and a promotion wants {_points(least)} at least ({_counts(found)})"
    if min(found.canary, found.production) < plan.min_sessions:
        return f"a promotion wants {plan.min_sessions} sessions of each arm, and there are {_counts(found)}"
    return _doubted(plan, seen) or _said(plan.primary, found)


# In words.


def _of(seen: Observed, metric: Metric) -> ArmEvidence | None:
    return seen.metrics.get(metric.name)


def _said(metric: Metric, found: ArmEvidence | None) -> str:
    if found is None or not (found.canary or found.production):
        return f"nothing is known of {metric.name}"
    if not (found.canary and found.production):
        return f"nothing is known of {metric.name} on {'production' if found.canary else 'the canary'}"
    interval = f"from {_points(found.low)} to {_points(found.high)} whenever one looks"
    return f"{metric.name} {_estimate(found)} points, {interval}"


def _estimate(found: ArmEvidence) -> str:
    return _points(round(found.difference, 3))


def _points(difference: float, *, sign: bool = True) -> str:
    text = f"{100 * difference:+.4g}" if sign else f"{100 * difference:.4g}"
    return "0" if float(text) == 0 else text


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _days(days: float) -> str:
    return f"{days:g} day{'' if days == 1 else 's'}"


def _e(value: float) -> str:
    return f"{value:,.0f}" if value < 1e6 else f"{value:.0e}"


def _counts(found: ArmEvidence) -> str:
    return f"{found.canary:,} canary and {found.production:,} production sessions"


# In the gateway, by itself.


class Brake:
    """Stops an arm of which too many sessions fail hard, without a store, a monitor or anybody to compare with.

    A bet of 1, spread over `FRACTIONS`, that more than the share `failures` of sessions fails: each multiplies a part by
    1 + f·(x - b)/b with x = 1 for a failure and 0 else. Where no more than b fail, the chance that it ever reaches 1/alpha
    is at most alpha (Ville), looking after each. The one-sample test of Waudby-Smith and Ramdas, "Estimating means of
    bounded random variables by betting" (JRSS-B 86, 2024). Once on it stays on. When all fail it takes five sessions at the
    default plan.
    """

    __slots__ = ("_bet", "_least", "_lost", "_threshold", "_won", "sessions", "tripped")

    def __init__(self, plan: BrakePlan) -> None:
        self._won = tuple(1 + each * (1 - plan.failures) / plan.failures for each in FRACTIONS)
        self._lost = tuple(1 - each for each in FRACTIONS)
        self._threshold, self._least = len(FRACTIONS) / plan.alpha, plan.least_sessions
        self._bet = [1.0] * len(FRACTIONS)
        self.sessions, self.tripped = 0, False

    def add(self, *, failed: bool) -> bool:
        """One session more; whether the brake is on."""
        self.sessions += 1
        growth = self._won if failed else self._lost
        self._bet = [min(LARGEST, bet * each) for bet, each in zip(self._bet, growth, strict=True)]
        if not self.tripped and sum(self._bet) >= self._threshold and self.sessions >= self._least:
            self.tripped = True
        return self.tripped

    def state(self) -> dict[str, Any]:
        """For JSON."""
        return {"bet": list(self._bet), "sessions": self.sessions, "tripped": self.tripped}

    @classmethod
    def from_state(cls, plan: BrakePlan, state: Mapping[str, Any]) -> Self:
        """Goes on as if it had never stopped.

        Raises:
            InputError: It is not what `state` gave.
        """
        brake = cls(plan)
        try:
            brake._bet = [float(each) for each in state["bet"]]
            brake.sessions, brake.tripped = int(state["sessions"]), bool(state["tripped"])
        except (KeyError, TypeError, ValueError):
            raise InputError("this is no state of a brake; begin a new one") from None
        if len(brake._bet) != len(FRACTIONS):
            raise InputError(f"a brake's state has {len(FRACTIONS)} bets, not {len(brake._bet)}; begin a new one")
        return brake
