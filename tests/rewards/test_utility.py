from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.core.policy import Outcome
from journeyman.rewards.utility import Runs, Utility, WeightedSumReward, compute_reward, total


@dataclass
class Executed:
    success: bool | float | None = True
    total_cost: float | None = 2.0
    total_latency_ms: float | None = 1200.0
    outputs: Mapping[str, Any] = field(default_factory=lambda: {"read": "text", "draw": "", "say": "done"})


def runs(*rows: tuple[str, float | None, float | None, float | None]) -> Runs:
    return Runs.of((name, Outcome(success=success, cost=cost, seconds=seconds)) for name, success, cost, seconds in rows)


def test_the_documented_reward_is_computed_as_documented() -> None:
    assert compute_reward(Executed()) == pytest.approx(10 - 0.1 * 2 - 0.01 * 1200 + 0.1 * 2)
    assert compute_reward(Executed(success=False), alpha=5, beta=1, gamma_latency=0, shaped_reward=2) == pytest.approx(-2 + 4)


@pytest.mark.parametrize("missing", ["success", "total_cost", "total_latency_ms"])
def test_the_documented_reward_of_what_is_not_known_is_refused(missing: str) -> None:
    without: dict[str, Any] = {missing: None}
    with pytest.raises(InputError, match=f"has no {missing}"):
        compute_reward(Executed(**without))


def test_words_of_the_operator_become_the_exchange_they_say() -> None:
    seen = runs(("a", 1.0, 0.02, 2.0), ("b", 1.0, 0.04, 4.0), ("c", 1.0, 0.06, 6.0))
    utility = Utility.of(seen, dollars_per_success=0.5, seconds_per_success=60)
    # Half a dollar, or a minute, outweighs just one success, as long as nothing is clipped.
    priced, waited = runs(("x", 1.0, 0.25, 0.0)), runs(("x", 1.0, 0.0, 30.0))
    assert total(utility, priced)[0] == pytest.approx(0.5)
    assert total(utility, waited)[0] == pytest.approx(0.5)


def test_references_are_the_medians_of_what_is_known() -> None:
    utility = Utility.of(runs(("a", 1.0, 1.0, None), ("b", 1.0, None, 3.0), ("c", 1.0, 9.0, 5.0)))
    assert (utility.cost_reference, utility.seconds_reference) == (5.0, 4.0)


def test_an_unknown_cost_counts_as_the_reference_and_is_counted_or_makes_the_utility_unknown() -> None:
    seen = runs(("a", 1.0, 2.0, 1.0), ("a", 1.0, None, 1.0))
    assumed = Utility.of(seen)
    assert total(assumed, seen)[1] == total(assumed, seen)[0]
    assert assumed.assumed(seen) == {"cost": 1, "latency": 0}
    refusing = Utility(cost_reference=2.0, seconds_reference=1.0, refuse_unknown=True)
    assert np.isnan(total(refusing, seen)).tolist() == [False, True]


def test_what_nobody_judged_has_no_utility() -> None:
    assert np.isnan(total(Utility(), runs(("a", None, 0.1, 1.0))))[0]


def test_a_pool_whose_costs_nobody_knows_is_valued_without_them_unless_a_price_was_named() -> None:
    seen = runs(("a", 1.0, None, 1.0))
    assert total(Utility.of(seen), seen)[0] == pytest.approx(0.9)
    with pytest.raises(InputError, match="no run has a known cost"):
        Utility.of(seen, dollars_per_success=1.0)
    with pytest.raises(InputError, match="must be above 0"):
        Utility.of(seen, seconds_per_success=0.0)


amounts = st.floats(0, 1e6)


@given(amounts, amounts, st.floats(0, 1))
def test_failure_never_beats_success_at_the_same_price_and_all_lies_within_the_bounds(
    cost: float, seconds: float, success: float
) -> None:
    utility = Utility(cost_reference=0.5, seconds_reference=3.0)
    low, high = utility.bounds
    worth = total(utility, runs(("a", success, cost, seconds), ("a", 0.0, cost, seconds)))
    assert low - 1e-9 <= worth[1] <= worth[0] <= high + 1e-9
    assert worth[1] <= 0
    assert ((utility.unit(worth) >= 0) & (utility.unit(worth) <= 1)).all()


def test_failing_fast_is_best_under_the_documented_reward_and_not_under_the_utility() -> None:
    slow, quick = ("good", 1.0, 0.001, 30.0), ("bad", 0.0, 0.001, 0.1)
    seen = runs(slow, quick)
    assert total(WeightedSumReward(), seen).argmax() == 1
    assert total(Utility.of(seen), seen).argmax() == 0


def test_executed_plans_are_seen_with_their_critical_path_in_seconds() -> None:
    seen = Runs.executed([("a", Executed())])
    assert (seen.seconds[0], seen.cost[0], seen.subtasks[0]) == (1.2, 2.0, 2.0)
