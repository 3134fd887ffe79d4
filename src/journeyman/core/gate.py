"""May a candidate pass, and why."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Protocol

from journeyman.core.errors import InputError
from journeyman.core.evaluation import METRICS, Decision, Evaluation, Guarded
from journeyman.core.format import counted, named

_MOST_TASKS = 1_000_000
_SMALLEST_LEVEL = 1e-9
"""Below it a look tells nothing, and arithmetic has no digits left."""


class Gate(Protocol):
    def decide(self, evaluation: Evaluation) -> Decision: ...


@dataclass(frozen=True, slots=True)
class All:
    """Gates compose; the first refusal is the answer."""

    gates: tuple[Gate, ...]

    def decide(self, evaluation: Evaluation) -> Decision:
        decisions = [gate.decide(evaluation) for gate in self.gates]
        refusals = [decision for decision in decisions if not decision.passed]
        return (refusals or decisions or [Decision(False, "no gate was asked")])[0]


@dataclass(frozen=True, slots=True)
class Guardrail:
    """What must not become worse by more than a margin, whatever is gained: cost, time or tokens."""

    metric: str
    """One of `METRICS`; less of it is better."""
    margin: float
    """The share of the baseline's mean that may be added."""

    @classmethod
    def parse(cls, said: str) -> "Guardrail":
        """`cost:10%` or `cost:0.1`.

        Raises:
            InputError: It is no such pair.
        """
        metric, _, margin = said.partition(":")
        try:
            share = float(margin.rstrip("% ")) / (100 if margin.rstrip().endswith("%") else 1)
        except ValueError:
            share = math.nan
        if metric.strip() not in METRICS or not 0 <= share < math.inf:
            raise InputError(
                f"{said!r} is no guardrail: name one of {', '.join(METRICS)} and what may be added, as in cost:10%"
            )
        return cls(metric.strip(), share)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """What every gate on held-out tasks asks for."""

    min_gain: float = 0.0
    min_tasks: int = 30
    most_unknown: float = 0.05
    """Of all tasks. Without it, breaking the verifier would be a way to win."""
    alpha: float = 0.05
    """One in twenty, at most, of candidates that are no better may pass, all looks at these tasks taken together."""
    min_clusters: int = 10
    """Where tasks come in clusters: fewer of them tell nothing of the next."""
    guardrails: tuple[Guardrail, ...] = ()
    """All of them must hold too, each at the level of the gain. Many are no more chances to pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BetterOnHeldOut(_Limits):
    """Passes when even the low end of the interval is a gain worth having. For one look at each candidate."""

    def decide(self, evaluation: Evaluation) -> Decision:
        return _decide(self, evaluation, _at_level(evaluation), kind="interval")


@dataclass(frozen=True, slots=True, kw_only=True)
class BetterAtAnyTime(_Limits):
    """The same for one who looks at a candidate after every batch of tasks and stops when it passes, without an end in sight.

    Such peeking breaks an ordinary interval: each look is another chance to be lucky. This one's interval holds at all looks at
    once, and asks for more tasks in return. `Evaluation.looks` still counts other candidates, not this one's batches.
    """

    def decide(self, evaluation: Evaluation) -> Decision:
        from journeyman.stats import anytime_interval

        if evaluation.clusters or self.guardrails:
            what = "tasks in clusters" if evaluation.clusters else "guardrails"
            return Decision(False, f"the any-time gate cannot judge {what}; say how many tasks are planned, or look once")
        return _decide(self, evaluation, anytime_interval, kind="any-time interval")


@dataclass(frozen=True, slots=True, kw_only=True)
class BetterAsPlanned(_Limits):
    """The same for one who looks after every batch, stops when it passes, and says before how many tasks there will be at most.

    Group-sequential: early looks ask for much, the last for little more than an only one would. It takes six tenths of the
    tasks of `BetterAtAnyTime` (`benchmarks/sim_sequential.py`), and knows clusters and guardrails.
    """

    planned_tasks: int

    def decide(self, evaluation: Evaluation) -> Decision:
        tasks, planned = evaluation.tasks, self.planned_tasks
        if tasks > planned:
            reason = f"{tasks} tasks were compared, and {planned} were planned: a plan that grows is another chance to be lucky"
            return Decision(False, f"{reason}; give the first {planned}, or plan anew with fresh ones", planned_tasks=planned)
        kind = f"interval at {tasks} of {planned} planned tasks"
        decision = _decide(self, evaluation, _at_level(evaluation), kind=kind)
        return replace(decision, planned_tasks=planned)


def _at_level(evaluation: Evaluation) -> Callable[[Sequence[float], float], tuple[float, float]]:
    from journeyman.stats import bootstrap_interval, cluster_interval

    if clusters := evaluation.clusters:
        return lambda differences, alpha: cluster_interval(differences, clusters, alpha)
    return bootstrap_interval


def _decide(
    gate: _Limits,
    evaluation: Evaluation,
    interval: Callable[[Sequence[float], float], tuple[float, float]],
    *,
    kind: str,
) -> Decision:
    from journeyman.stats import planned_level, spent

    gain, left_out, too_little = evaluation.gain, _contaminated(evaluation), _too_little(gate, evaluation)
    if gain is None or too_little:
        return Decision(False, too_little + left_out)
    alpha = spent(gate.alpha, evaluation.looks + 1)
    if isinstance(gate, BetterAsPlanned):
        alpha = planned_level(alpha, evaluation.tasks / gate.planned_tasks)
        if alpha < _SMALLEST_LEVEL:
            return Decision(False, f"{evaluation.tasks} tasks are too few to tell anything of the {gate.planned_tasks} planned")
    low, high = bounded(evaluation, lambda differences: interval(differences, alpha))
    found = (
        f"gain {gain:+.3f} on {evaluation.tasks} tasks{_families(evaluation)}, {_percent(1 - alpha)} {kind} "
        f"{low:+.3f} to {high:+.3f}{_look(evaluation.looks)}{_worst(evaluation)}"
    )
    guarded = tuple(_guarded(each, gate, evaluation, alpha) for each in gate.guardrails)
    broken = [each for each in guarded if not each.passed]
    if low > gate.min_gain:
        reason = f"{found}; {evaluation.wins} better, {evaluation.losses} worse{_chosen(evaluation)}"
    else:
        reason = f"{found}, whose low end is not above {gate.min_gain:+.3f}{_broken(evaluation)}"
        if evaluation.unknown_attempts and interval(evaluation.differences, alpha)[0] > gate.min_gain:
            reason += "; it hangs on the attempts without a verdict: judge them, or attempt those tasks again"
    reason += "".join(f"; {'but ' if broken else ''}{_said(each)}" for each in broken or guarded)
    passed = low > gate.min_gain and not broken
    return Decision(passed, f"{reason}{left_out}", low=low, high=high, level=1 - alpha, guarded=guarded)


def _too_little(gate: _Limits, evaluation: Evaluation) -> str:
    """Why nothing can be told of so little; empty where there is enough."""
    tasks, unknown, families = evaluation.tasks, evaluation.unknown, len(set(evaluation.clusters))
    if unknown > gate.most_unknown * (tasks + unknown):
        return f"{unknown} of {tasks + unknown} tasks could not be compared, and at most {gate.most_unknown:.0%} may be unknown"
    if tasks < max(1, gate.min_tasks):
        return f"{tasks} held-out tasks were compared, and {gate.min_tasks} are needed"
    if families and families < gate.min_clusters:
        return (
            f"{tasks} held-out tasks of {counted(families, 'cluster')} were compared, and {gate.min_clusters} clusters "
            "are needed: so few tell nothing of the next"
        )
    return ""


def _guarded(guardrail: Guardrail, gate: _Limits, evaluation: Evaluation, alpha: float) -> Guarded:
    from journeyman.stats import highest_increase

    known = [pair for pair in evaluation.pairs if guardrail.metric in pair.metrics]
    found = Guarded(metric=guardrail.metric, margin=guardrail.margin, unknown=evaluation.tasks - len(known))
    if found.unknown > gate.most_unknown * evaluation.tasks:
        return found
    before, after = ([pair.metrics[guardrail.metric][side] for pair in known] for side in (0, 1))
    bound = highest_increase(before, after, [pair.cluster or pair.task_id for pair in known], alpha)
    return replace(
        found,
        baseline=sum(before) / len(known),
        candidate=sum(after) / len(known),
        bound=bound,
        passed=bound is not None and bound <= guardrail.margin,
    )


def _said(found: Guarded) -> str:
    allowed = f"where {_share(found.margin)} is allowed"
    if found.baseline is None or found.candidate is None:
        return f"{found.metric} is not known of {counted(found.unknown, 'task')}, {allowed}"
    if found.change is None:
        return f"{found.metric} was 0 and is {found.candidate:.3g}, {allowed}"
    end = "and nothing bounds it" if found.bound is None else f"at most {_share(found.bound)}"
    return f"{found.metric} {_share(found.change)}, {end}, {allowed}"


def _share(share: float) -> str:
    return f"{100 * share:+.1f} %"


def interval_of(evaluation: Evaluation, alpha: float = 0.05) -> tuple[float, float]:
    """Of the gain, for one look, whatever the attempts without a verdict were worth."""
    interval = _at_level(evaluation)
    return bounded(evaluation, lambda differences: interval(differences, alpha))


def bounded(evaluation: Evaluation, interval: Callable[[Sequence[float]], tuple[float, float]]) -> tuple[float, float]:
    """An interval of the gain that holds whatever the attempts without a verdict were worth."""
    if not evaluation.unknown_attempts:
        return interval(evaluation.differences)
    worst, best = evaluation.bounds
    return interval(worst)[0], interval(best)[1]


def _families(evaluation: Evaluation) -> str:
    return f" in {counted(len(set(evaluation.clusters)), 'cluster')}" if evaluation.clusters else ""


def _worst(evaluation: Evaluation) -> str:
    missing = evaluation.unknown_attempts
    return f" with {counted(missing, 'attempt')} without a verdict at 0 and at 1" if missing else ""


def _percent(level: float) -> str:
    """With two digits behind the point, or as many more as tell it from certainty."""
    digits = 2
    while level < 1 and round(100 * level, digits) >= 100:
        digits += 1
    return f"{100 * level:.{digits}f}".rstrip("0").rstrip(".") + " %"


def _look(before: int) -> str:
    return f" at look number {before + 1} at these tasks" if before else ""


def _chosen(evaluation: Evaluation) -> str:
    """What is left of the gain of the best of several that were tried on the same tasks."""
    if not evaluation.looks:
        return ""
    left = f"{evaluation.gain_shrunk:+.3f} of the gain is left"
    return f"; {left} when it is shrunk for the choice among {evaluation.looks + 1}"


def _broken(evaluation: Evaluation) -> str:
    return f"; it broke {named(evaluation.broken)}" if evaluation.broken else ""


def _contaminated(evaluation: Evaluation) -> str:
    found = evaluation.contaminated
    return f"; {len(found)} more held-out tasks were trained on and do not count: {named(found)}" if found else ""


# Before anything is spent: what can pass at all.


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEvaluation:
    """What an evaluation of tasks that are right or wrong can show, by what is known or assumed before."""

    changed: float
    """The share of tasks that one side has right and the other wrong."""
    gate: BetterOnHeldOut = BetterOnHeldOut()
    """Who will decide."""
    looks: int = 0
    """How often the tasks were looked at before."""
    clusters: tuple[float, ...] = ()
    """The share of the tasks that each cluster has; empty where each task stands alone."""
    apart: float = 0.0
    """By how much the gain differs between clusters, as a standard deviation."""

    @property
    def alpha(self) -> float:
        """Of the look that is planned."""
        from journeyman.stats import spent

        return spent(self.gate.alpha, self.looks + 1)

    def power(self, gain: float, tasks: int) -> float:
        """How likely the gate lets a true gain pass, by the normal approximation to its intervals."""
        from journeyman.stats import degrees_of_freedom, students_quantile

        if gain > self.changed:
            return self.power(self.changed, tasks)
        if tasks < self.gate.min_tasks or 0 < len(self.clusters) < max(2, self.gate.min_clusters):
            return 0.0
        spread = (self.changed - gain**2) / tasks + self.apart**2 * sum(share**2 for share in self.clusters)
        mean = gain * tasks / (tasks + 1)
        drawn = math.sqrt(((tasks * self.changed + 1) / (tasks + 1) - mean**2) / tasks)
        low = mean - NormalDist().inv_cdf(1 - self.alpha / 2) * drawn
        if count := len(self.clusters):
            beyond = students_quantile(1 - self.alpha / 2, degrees_of_freedom(self.clusters))
            low = min(low, gain * count / (count + 1) - beyond * math.sqrt(spread + 1 / (count + 1) ** 2))
        return NormalDist().cdf((low - self.gate.min_gain) / math.sqrt(max(spread, 1e-12)))

    def least_gain(self, tasks: int, power: float = 0.8) -> float | None:
        """The least gain that so many tasks show so often, to a thousandth; `None` where they show none."""
        found = (gain / 1000 for gain in range(1, math.floor(1000 * self.changed) + 1))
        return next((gain for gain in found if self.power(gain, tasks) >= power), None)

    def tasks_needed(self, gain: float, power: float = 0.8) -> int | None:
        """The least number of tasks that shows it so often; `None` where a million do not, as of few clusters."""
        low, high = 0, 1
        while self.power(gain, high) < power:
            low, high = high, 2 * high
            if high > _MOST_TASKS:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.power(gain, middle) >= power else (middle, high)
        return high
