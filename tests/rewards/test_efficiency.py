import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.rewards.static import EfficiencyReward
from tests.support.traces import done, reply, said, used


def test_within_the_budget_is_one_and_twice_of_it_a_half() -> None:
    reward = EfficiencyReward(tokens=100)
    assert reward.compute(said("x", tokens=30)).score == 1.0
    assert reward.compute(said("x", tokens=200)).score == 0.5


def test_tokens_and_calls_count_alike() -> None:
    found = EfficiencyReward(tokens=100, calls=1).compute(said("x", "y", tokens=50))
    assert (found.score, found.is_binary) == (0.75, False)


def test_what_was_not_counted_is_left_out() -> None:
    assert EfficiencyReward(tokens=100, calls=4).compute(done(reply("x"), used("a"))).score == 1.0
    assert EfficiencyReward(tokens=100).compute(said("x")).score is None


def test_without_a_budget_or_without_work_it_is_unknown() -> None:
    assert EfficiencyReward().compute(said("x", tokens=10)).score is None
    assert EfficiencyReward(calls=3).compute(done()).score is None


def test_a_budget_that_is_set_is_not_replaced_by_the_groups_median() -> None:
    group = EfficiencyReward(calls=1).for_group([said("a", "b", tokens=1), said("a", "b", tokens=3)])
    assert (group.calls, group.tokens) == (1, 4.0)


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.floats(1, 1e9))
def test_more_tokens_never_earn_more(a: int, b: int, budget: float) -> None:
    reward = EfficiencyReward(tokens=budget)
    small, large = (reward.compute(said("x", tokens=tokens)).score for tokens in sorted((a, b)))
    assert small is not None
    assert large is not None
    assert 0 < large <= small <= 1


@pytest.mark.parametrize("changed", [EfficiencyReward(tokens=5), EfficiencyReward(calls=5)])
def test_the_version_knows_the_budgets(changed: EfficiencyReward) -> None:
    assert changed.version != EfficiencyReward().version
