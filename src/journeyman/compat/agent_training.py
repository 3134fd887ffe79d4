"""Names that users of an earlier training system for development agents know, so that what they wrote for it goes on working.

    from journeyman.compat.agent_training import RewardComponent

    class CustomReward(RewardComponent):
        def calculate(self, input_data):
            return 1.0 if input_data["tests_passed"] else 0.0

It is named as any reward is: `journeyman score traces.jsonl --rewards my_rewards:CustomReward`.
"""

import re
from abc import abstractmethod
from typing import Any, ClassVar

from journeyman.core.trace import Trace
from journeyman.rewards.base import BaseReward, RewardResult, soft
from journeyman.rewards.development import work_of


class RewardComponent(BaseReward):
    """What a reward of that system begins with: one function from what is known of an attempt to a number from 0 to 1."""

    weight: float = 1.0
    _word: ClassVar[re.Pattern[str]] = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

    @property
    def name(self) -> str:  # type: ignore[override]
        """`custom_reward`, of a class CustomReward."""
        return self._word.sub("_", type(self).__name__).lower()

    @abstractmethod
    def calculate(self, input_data: dict[str, Any]) -> float:
        """The value of one attempt.

        Args:
            input_data: task (what was asked), output (the last word), files (texts that its tools wrote, by path), tools (each
                with name, arguments, result, ok), tests_passed (whether a check found it right; None where none did), cost,
                tokens, seconds and error; None where one is not known.
        """

    def compute(self, trace: Trace) -> RewardResult:
        """`calculate`, as every reward is asked."""
        value = self.calculate(input_data(trace))
        return soft(value, f"{type(self).__name__} gave {value}")


def input_data(trace: Trace) -> dict[str, Any]:
    """What such a reward is given of an attempt."""
    tokens = (trace.input_tokens, trace.output_tokens)
    return {
        "task": trace.query,
        "output": trace.reply,
        "files": dict(work_of(trace).after),
        "tools": [{"name": t.tool, "arguments": t.arguments, "result": t.result, "ok": t.ok} for t in trace.tool_calls],
        "tests_passed": trace.verdict.good,
        "cost": trace.cost,
        "tokens": None if None in tokens else sum(each or 0 for each in tokens),
        "seconds": trace.seconds,
        "error": trace.error,
        "trace": trace,
    }
