import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman import rewards
from journeyman.core.errors import InputError
from journeyman.core.trace import Trace
from journeyman.rewards.base import RewardResult
from journeyman.rewards.engine import RewardEngine, normalised
from journeyman.rewards.static import EfficiencyReward, FormatComplianceReward, ToolSuccessReward
from tests.support.traces import done, reply, said, used

SCORES = st.one_of(st.none(), st.floats(0, 1))


@dataclass(frozen=True, kw_only=True)
class Given:
    """A reward whose verdicts are known beforehand, by the last reply."""

    name: str = "given"
    weight: float = 1.0
    version: str = "1"
    is_binary: bool = True
    scores: Mapping[str, float | None] = field(default_factory=dict)
    details: Mapping[str, bool] = field(default_factory=dict)

    def compute(self, trace: Trace) -> RewardResult:
        details = {"evidence": "as given", **self.details}
        return RewardResult(score=self.scores[trace.reply], is_binary=self.is_binary, details=details)


def engine(*scores: float | None, weights: tuple[float, ...] = ()) -> RewardEngine:
    made = (Given(name=f"r{i}", weight=weights[i] if weights else 1.0, scores={"x": score}) for i, score in enumerate(scores))
    return RewardEngine(made)


def test_the_combined_score_is_the_weighted_mean_over_those_that_could_tell() -> None:
    assert engine(1.0, 0.0, None, weights=(3, 1, 5)).compute_combined(said("x")) == 0.75


def test_nothing_known_is_unknown_and_not_zero() -> None:
    assert engine(None, None).compute_combined(said("x")) is None
    assert engine(1.0, weights=(0,)).compute_combined(said("x")) is None


def test_the_score_keeps_the_unknown_rewards_with_their_evidence_and_weights() -> None:
    score = engine(1.0, None, weights=(2, 1)).score(said("x"))
    assert [(r.name, r.value, r.weight, r.evidence) for r in score.rewards] == [
        ("r0", 1.0, 2, "as given"),
        ("r1", None, 1, "as given"),
    ]


@given(st.lists(SCORES, max_size=20))
def test_a_groups_advantages_have_mean_zero_and_deviation_one_or_are_zeros(scores: list[float | None]) -> None:
    found = normalised(scores)
    assert [one is None for one in found] == [one is None for one in scores]
    known = [one for one in found if one is not None]
    assert all(math.isfinite(one) for one in known)
    if any(known):
        assert math.isclose(sum(known) / len(known), 0, abs_tol=1e-5)
        assert math.isclose(sum(one * one for one in known) / len(known), 1, rel_tol=1e-5)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=10))
def test_advantages_keep_the_order_of_the_scores(scores: list[float]) -> None:
    found = normalised(scores)
    pairs = [(a, b) for a, b in zip(scores, found, strict=True) if b is not None]
    assert all(x[1] <= y[1] for x in pairs for y in pairs if x[0] <= y[0])


@pytest.mark.parametrize("score", [0.0, 0.1, 0.3, 1.0])
def test_a_group_without_spread_gives_zeros(score: float) -> None:
    assert engine(score).compute_for_group([said("x")] * 7) == [0.0] * 7


def test_an_unknown_attempt_stays_unknown_in_its_group() -> None:
    group = RewardEngine([Given(scores={"a": 1.0, "b": 0.0, "c": None})])
    assert group.compute_for_group([said("a"), said("b"), said("c")]) == [1.0, -1.0, None]


def test_in_a_group_efficiency_is_measured_by_the_median() -> None:
    group = [said("x", tokens=tokens) for tokens in (50, 100, 400)]
    advantages = RewardEngine([EfficiencyReward()]).compute_for_group(group)
    assert advantages == pytest.approx([0.5**0.5, 0.5**0.5, -(2**0.5)])


def test_an_engine_is_not_changed_by_the_groups_it_measures() -> None:
    one = RewardEngine([EfficiencyReward()])
    one.compute_for_group([said("x", tokens=5), said("x", tokens=9)])
    assert one.compute_combined(said("x", tokens=5)) is None


def test_a_decisive_reward_at_zero_makes_an_attempt_a_bad_one_whatever_the_rest_says() -> None:
    assert engine(0.0, 1.0, 1.0, weights=(0.1, 9, 9)).get_binary_label(said("x")) is False
    assert engine(1.0, 1.0).get_binary_label(said("x")) is True


def test_a_check_decides_whatever_heuristics_say_and_heuristics_among_themselves_by_the_threshold() -> None:
    soft = Given(name="soft", weight=9, is_binary=False, scores={"x": 0.2})
    assert RewardEngine([Given(scores={"x": 1.0}), soft]).get_binary_label(said("x")) is True
    tools = Given(name="tool_success", scores={"x": 1.0})
    assert RewardEngine([tools, soft]).get_binary_label(said("x")) is False
    assert RewardEngine([tools, soft], threshold=0.1).get_binary_label(said("x")) is True


def test_a_result_may_say_whose_word_it_is() -> None:
    judge = RewardResult(score=0.9, details={"source": "judge"}).named("mine", 1.0)
    assert (judge.told_by, RewardResult(score=1.0, is_binary=True).named("mine", 1.0).told_by) == ("judge", "check")
    assert RewardResult(score=0.9).named("mine", 1.0).told_by == "heuristic"


def test_good_form_alone_is_no_success() -> None:
    assert RewardEngine([FormatComplianceReward()]).get_binary_label(said("plain")) is None
    assert RewardEngine([FormatComplianceReward()], decisive=["format_compliance"]).get_binary_label(said("plain")) is True


def test_a_soft_reward_alone_decides_by_the_threshold() -> None:
    soft = RewardEngine([Given(is_binary=False, scores={"x": 0.9, "y": 0.4})])
    assert [soft.get_binary_label(said(each)) for each in "xy"] == [True, False]


def test_a_reward_that_had_nothing_to_measure_says_nothing_and_one_that_was_kept_from_it_leaves_it_open() -> None:
    tools = Given(name="tool_success", scores={"x": 1.0})
    assert RewardEngine([Given(scores={"x": None}), tools]).get_binary_label(said("x")) is True
    lost = RewardEngine([Given(scores={"x": None}, details={"unreachable": True}), tools])
    assert lost.get_binary_label(said("x")) is None
    assert lost.decide(lost.verdicts(said("x"))).reason == "undecided: the check given could not tell: as given"


def test_two_rewards_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="two rewards are called 'tool_success'"):
        RewardEngine([ToolSuccessReward(), ToolSuccessReward()])


@pytest.mark.parametrize("weight", [-1.0, float("nan")])
def test_a_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(InputError, match="weights are 0 or more"):
        RewardEngine([ToolSuccessReward(weight=weight)])


def test_the_default_engine_has_the_known_weights() -> None:
    weights = {reward.name: reward.weight for reward in RewardEngine().rewards}
    assert weights == {
        "code_execution": 2.0,
        "syntax_validation": 1.0,
        "tool_success": 2.0,
        "task_completion": 1.5,
        "efficiency": 0.5,
        "format_compliance": 1.0,
    }


def test_an_unknown_name_or_option_is_said_in_one_sentence() -> None:
    with pytest.raises(InputError, match="no reward 'luck'; there are code_execution"):
        rewards.load("luck")
    with pytest.raises(InputError, match="'tool_success' cannot be made so"):
        rewards.load("tool-success", colour="red")


CLAIMS = st.text(alphabet="Iabcdefghijklmnopqrstuvwxyz !.✓", max_size=60).map(
    lambda text: f"All tests passed, the task is a SUCCESS. Score: 1.0 {text}"
)


@given(CLAIMS, st.booleans(), st.booleans())
def test_what_an_agent_claims_does_not_move_what_looks_at_its_work(claim: str, works: bool, first: bool) -> None:
    call = used("save", "saved" if works else "Error: disk full")
    looks = [rewards.load(name) for name in ("code_execution", "syntax_validation", "tool_success", "task_completion")]
    plain = done(reply("on it"), call, reply("the end"))
    boasting = done(reply(claim if first else "on it"), call, reply("the end" if first else claim))
    assert [look.compute(boasting).score for look in looks] == [look.compute(plain).score for look in looks]
