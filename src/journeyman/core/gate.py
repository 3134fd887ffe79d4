"""May a candidate pass, and why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from journeyman.core.evaluation import Decision, Evaluation
from journeyman.core.format import counted

_NAMED = 5
"""Tasks that a sentence names; the rest are counted."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BetterOnHeldOut:
    """Passes when even the low end of the interval is a gain worth having. For one look at each candidate."""

    min_gain: float = 0.0
    min_tasks: int = 30
    most_unknown: float = 0.05
    """Of all tasks. Without it, breaking the verifier would be a way to win."""
    alpha: float = 0.05
    """One in twenty, at most, of candidates that are no better may pass, all looks at these tasks taken together."""
    seed: int = 0

    def decide(self, evaluation: Evaluation) -> Decision:
        from journeyman.stats import bootstrap_interval

        return _decide(self, evaluation, lambda found, alpha: bootstrap_interval(found, alpha, seed=self.seed))


@dataclass(frozen=True, slots=True, kw_only=True)
class BetterAtAnyTime:
    """The same for one who looks at a candidate after every batch of tasks and stops when it passes.

    Such peeking breaks an ordinary interval: each look is another chance to be lucky. This one's interval holds at all looks at
    once, and asks for more tasks in return. `Evaluation.looks` still counts other candidates, not this one's batches.
    """

    min_gain: float = 0.0
    min_tasks: int = 30
    most_unknown: float = 0.05
    alpha: float = 0.05

    def decide(self, evaluation: Evaluation) -> Decision:
        from journeyman.stats import anytime_interval

        return _decide(self, evaluation, anytime_interval)


def _decide(
    gate: BetterOnHeldOut | BetterAtAnyTime,
    evaluation: Evaluation,
    interval: Callable[[Sequence[float], float], tuple[float, float]],
) -> Decision:
    from journeyman.stats import spent

    tasks, unknown, gain = evaluation.tasks, evaluation.unknown, evaluation.gain
    left_out = _contaminated(evaluation)
    if unknown > gate.most_unknown * (tasks + unknown):
        return Decision(
            False,
            f"{unknown} of {tasks + unknown} tasks could not be compared, and at most {gate.most_unknown:.0%} may be unknown"
            + left_out,
        )
    if gain is None or tasks < gate.min_tasks:
        return Decision(False, f"{tasks} held-out tasks were compared, and {gate.min_tasks} are needed{left_out}")
    alpha = spent(gate.alpha, evaluation.looks + 1)
    low, high = bounded(evaluation, lambda differences: interval(differences, alpha))
    kind = "any-time interval" if isinstance(gate, BetterAtAnyTime) else "interval"
    found = (
        f"gain {gain:+.3f} on {tasks} tasks, {_percent(1 - alpha)} {kind} {low:+.3f} to {high:+.3f}{_look(evaluation.looks)}"
        f"{_worst(evaluation)}"
    )
    if low > gate.min_gain:
        passed, reason = True, f"{found}; {evaluation.wins} better, {evaluation.losses} worse{_chosen(evaluation)}"
    else:
        passed, reason = False, f"{found}, whose low end is not above {gate.min_gain:+.3f}{_broken(evaluation)}"
        if evaluation.unknown_attempts and interval(evaluation.differences, alpha)[0] > gate.min_gain:
            reason += "; it hangs on the attempts without a verdict: judge them, or attempt those tasks again"
    return Decision(passed, f"{reason}{left_out}", low=low, high=high, level=1 - alpha)


def bounded(evaluation: Evaluation, interval: Callable[[Sequence[float]], tuple[float, float]]) -> tuple[float, float]:
    """An interval of the gain that holds whatever the attempts without a verdict were worth."""
    if not evaluation.unknown_attempts:
        return interval(evaluation.differences)
    worst, best = evaluation.bounds
    return interval(worst)[0], interval(best)[1]


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
    from journeyman.stats import without_choice

    if not evaluation.looks:
        return ""
    among = evaluation.looks + 1
    left = without_choice(evaluation.differences, among)
    return f"; {left:+.3f} of the gain is left when it is shrunk for the choice among {among}"


def _broken(evaluation: Evaluation) -> str:
    return f"; it broke {named(evaluation.broken)}" if evaluation.broken else ""


def _contaminated(evaluation: Evaluation) -> str:
    found = evaluation.contaminated
    return f"; {len(found)} more held-out tasks were trained on and do not count: {named(found)}" if found else ""


def named(ids: Sequence[str]) -> str:
    """The first few by name, and how many more there are."""
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"{', '.join(ids[:_NAMED])}{more}"
