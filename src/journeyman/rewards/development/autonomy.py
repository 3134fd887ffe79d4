"""Autonomy: how much it did by itself, and how little of that led nowhere.

    autonomy = decisions / (decisions + questions) · (1 - wasted / decisions)

A decision is a tool call that asks nobody. A question is a call of a tool that asks a person, or a reply that ends in a
question mark and is followed by no step but another model call: the agent stopped and waited. Wasted is a call that failed and
either repeats an earlier failure word for word, or was never followed by a success of the same tool.
"""

from dataclasses import dataclass

from journeyman.rewards.base import RewardResult
from journeyman.rewards.development.work import Work, unknown
from journeyman.trace import ModelCall, Step, ToolCall, Trace

ASKING = frozenset({"ask", "ask_user", "ask_human", "ask_question", "request_clarification", "clarify", "human_input"})
"""Names of tools that ask a person, lower-case."""


@dataclass(frozen=True, slots=True)
class Autonomy:
    """How much it did by itself: decisions taken, questions asked, failures overcome."""

    asking: frozenset[str] = ASKING
    name: str = "autonomy"

    def compute(self, work: Work) -> RewardResult:
        """Unknown when the trace shows neither a decision nor a question."""
        calls = [step for step in work.trace.steps if isinstance(step, ToolCall)]
        decisions = [call for call in calls if call.tool.lower() not in self.asking]
        questions = len(calls) - len(decisions) + _spoken(work.trace)
        if not decisions and not questions:
            return unknown("the trace shows no tool call and no question")
        failed, retried, wasted = _failures(decisions)
        useful = 1 - wasted / len(decisions) if decisions else 0.0
        score = useful * len(decisions) / (len(decisions) + questions)
        told = f"{len(decisions)} decisions, {questions} questions, {failed} failures, {retried} overcome, {wasted} wasted"
        counts = {"decisions": len(decisions), "questions": questions, "failures": failed, "overcome": retried}
        return RewardResult(score=score, details={"evidence": told, **counts, "wasted": wasted})


def _spoken(trace: Trace) -> int:
    """The replies in which the agent stopped and asked."""
    following: tuple[Step | None, ...] = (*trace.steps[1:], None)
    return sum(
        isinstance(step, ModelCall) and step.reply.rstrip().endswith("?") and (after is None or isinstance(after, ModelCall))
        for step, after in zip(trace.steps, following, strict=False)
    )


def _failures(calls: list[ToolCall]) -> tuple[int, int, int]:
    """How many calls failed, were overcome later, and were wasted."""
    last_success = {call.tool: place for place, call in enumerate(calls) if call.ok}
    seen: set[tuple[str, str]] = set()
    failed, overcome, wasted = 0, 0, 0
    for place, call in enumerate(calls):
        if call.ok:
            continue
        failed += 1
        mended = last_success.get(call.tool, -1) > place
        repeated = (call.tool, call.arguments) in seen
        seen.add((call.tool, call.arguments))
        overcome += mended
        wasted += repeated or not mended
    return failed, overcome, wasted
