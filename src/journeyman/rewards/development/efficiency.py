"""Efficiency: what the work cost, against a budget.

    efficiency = passed · mean over known resources of min(1, budget / used)

Cheap work that does not work is worth nothing; where the checks gave no verdict, `passed` is left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields

from journeyman.rewards.base import RewardResult
from journeyman.rewards.development.work import Work, unknown
from journeyman.sandbox.base import MIB
from journeyman.trace import ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one task may use without a reduction."""

    tokens: float = 20_000
    """Into the models and out of them."""
    calls: float = 20
    """Of models and tools."""
    cpu_seconds: float = 10
    """All runs in the sandbox together."""
    wall_seconds: float = 30
    """Likewise."""
    peak_memory: float = 256 * MIB
    """Bytes, of the largest run."""


@dataclass(frozen=True, slots=True)
class DevelopmentEfficiency:
    """Time, memory, tokens and calls against a budget."""

    budget: Budget = Budget()
    name: str = "efficiency"

    def compute(self, work: Work) -> RewardResult:
        """Unknown when nothing was run and no model was called."""
        used = _used(work)
        known = {name: value for name, value in used.items() if value is not None}
        if not known:
            return unknown("nothing was run and no model was called")
        shares = {name: min(1.0, getattr(self.budget, name) / value) if value else 1.0 for name, value in known.items()}
        passed = 1.0 if work.passed is None else work.passed
        score = passed * sum(shares.values()) / len(shares)
        over = [f"{name} {known[name]:g} of {getattr(self.budget, name):g}" for name in shares if shares[name] < 1]
        told = f"over budget: {', '.join(over)}" if over else f"within budget: {', '.join(known)}"
        return RewardResult(score=score, details={"evidence": told, "used": used})


def _used(work: Work) -> dict[str, float | None]:
    """By the names of the budget's fields."""
    trace = work.trace
    into, out = trace.input_tokens, trace.output_tokens
    calls = len(trace.calls) + sum(isinstance(step, ToolCall) for step in trace.steps)
    memory = [outcome.peak_memory for outcome in work.outcomes]
    found = {
        "tokens": into + out if trace.calls and into is not None and out is not None else None,
        "calls": calls or None,
        "cpu_seconds": _sum(outcome.cpu_seconds for outcome in work.outcomes),
        "wall_seconds": _sum(outcome.wall_seconds for outcome in work.outcomes),
        "peak_memory": max((each for each in memory if each is not None), default=None) if None not in memory else None,
    }
    return {each.name: found[each.name] for each in fields(Budget)}


def _sum(values: Iterable[float | None]) -> float | None:
    """`None` when there is nothing to add, or one part is unknown."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if known and len(known) == len(found) else None
