"""Did the tools do what they were called for?"""

from dataclasses import dataclass

from journeyman.core.trace import ToolCall, Trace
from journeyman.rewards.base import RewardResult, binary, short, unknown, version
from journeyman.tracing.base import failed


def went_well(call: ToolCall) -> bool:
    """Whether the tool did what it was called for, by its own answer: recorders often mark every call as well done."""
    return call.ok and not failed(call.result)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSuccessReward:
    """1 when no tool call stays failed; binary.

    A failed call whose tool was called again later and went well is mended: trying again is what an agent should do. Only the
    tools' own answers count, not what the agent says about them. Unknown without a tool call.
    """

    name: str = "tool_success"
    weight: float = 2.0
    mending: bool = True
    """Whether a later success mends a failure. Without it every call must go well."""

    @property
    def version(self) -> str:
        return version(1, self.mending)

    def compute(self, trace: Trace) -> RewardResult:
        calls = [step for step in trace.steps if isinstance(step, ToolCall)]
        if not calls:
            return unknown("no tool was called")
        failures, open_failures = 0, dict[str, ToolCall]()
        for call in calls:
            if not went_well(call):
                failures += 1
                open_failures[call.tool if self.mending else str(failures)] = call
            elif self.mending:
                open_failures.pop(call.tool, None)
        counts = {"calls": len(calls), "failed": failures, "unmended": len(open_failures)}
        if open_failures:
            worst = next(iter(open_failures.values()))
            return binary(False, f"{worst.tool} failed: {short(worst.result, 160) or 'no result'}", **counts)
        mended = f", {failures} after another try" if failures else ""
        return binary(True, f"all of {len(calls)} tool calls went well{mended}", **counts)
