"""A reward of one's own."""

import pytest

from journeyman.core.trace import Trace
from journeyman.rewards.base import BaseReward, RewardResult
from journeyman.rewards.engine import RewardEngine
from tests.support.traces import said


class Says(BaseReward):
    name = "says"

    def __init__(self, word: str) -> None:
        self.word = word

    def compute(self, trace: Trace) -> RewardResult:
        return RewardResult(score=float(self.word in trace.reply), is_binary=True)


class SaysNot(Says):
    def compute(self, trace: Trace) -> RewardResult:
        return RewardResult(score=float(self.word not in trace.reply), is_binary=True)


def test_a_name_and_compute_are_all_that_a_reward_of_ones_own_needs() -> None:
    engine = RewardEngine([Says("blue")])
    assert (engine.compute_combined(said("a blue mug")), engine.get_binary_label(said("a mug"))) == (1.0, False)
    with pytest.raises(TypeError, match="compute"):
        BaseReward()  # type: ignore[abstract]


def test_its_version_changes_with_its_code_and_its_settings_and_with_nothing_else() -> None:
    assert Says("blue").version == Says("blue").version
    assert len({Says("blue").version, Says("red").version, SaysNot("blue").version}) == 3


def test_without_a_source_no_kept_verdict_is_its_own() -> None:
    typed = type("Typed", (Says,), {"__module__": "nowhere"})
    assert typed("blue").version != typed("blue").version
