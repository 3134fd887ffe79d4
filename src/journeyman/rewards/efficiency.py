"""What did it take?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Self

from journeyman.core.trace import ModelCall, ToolCall, Trace, total
from journeyman.rewards.base import RewardResult, soft, unknown, version


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyReward:
    """The share of a budget that was needed: for tokens and for calls min(1, budget / used), and the mean of the two; soft.

    To stay below the budget earns nothing more: an agent is not paid for doing less than the task needs. What was not counted
    is left out. Unknown without a budget, and for an attempt that did nothing. In a group the budget that is not set is the
    group's median.
    """

    name: str = "efficiency"
    weight: float = 0.5
    tokens: float | None = None
    """In and out, of the whole attempt."""
    calls: float | None = None
    """Of models and tools."""

    @property
    def version(self) -> str:
        return version(1, self.tokens, self.calls)

    def for_group(self, traces: Sequence[Trace]) -> Self:
        """The same reward with what the group's attempts needed, in the median, for the budgets that are not set."""
        tokens = [used for used in map(_tokens, traces) if used]
        calls = [used for used in map(_calls, traces) if used]
        return replace(
            self,
            tokens=median(tokens) if self.tokens is None and tokens else self.tokens,
            calls=median(calls) if self.calls is None and calls else self.calls,
        )

    def compute(self, trace: Trace) -> RewardResult:
        used = {"calls": (_calls(trace), self.calls), "tokens": (_tokens(trace), self.tokens)}
        known = {what: (spent, budget) for what, (spent, budget) in used.items() if spent and budget is not None}
        if not known:
            return unknown("no budget was given, or nothing was counted", is_binary=False)
        parts = [min(1.0, budget / spent) for spent, budget in known.values()]
        evidence = ", ".join(f"{spent} {what} of a budget of {budget:g}" for what, (spent, budget) in known.items())
        return soft(sum(parts) / len(parts), evidence)


def _tokens(trace: Trace) -> int | None:
    return total((trace.input_tokens, trace.output_tokens))


def _calls(trace: Trace) -> int:
    return sum(isinstance(step, ModelCall | ToolCall) for step in trace.steps)
