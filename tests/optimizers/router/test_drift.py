"""A shift is found soon, no shift is seldom found, and falling back never costs more than was agreed."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.policy import Forecast
from journeyman.optimizers.router.objective import Objective
from journeyman.serving.router import Drift, ShiftDetector, fall_back


def test_false_alarms_come_no_more_often_than_was_promised() -> None:
    alarms, rng = 0, np.random.default_rng(0)
    for _ in range(200):
        watch = ShiftDetector(0.2, rate=1e-3)
        alarms += any(watch.see(value) for value in (rng.random(200) < 0.2).astype(float))
    # Once in 1,000 numbers on average: of 200 runs of 200, no more than 40 expected.
    assert alarms <= 40


def test_requests_of_another_kind_are_noticed_within_twenty_and_their_end_within_some_hundred() -> None:
    drift, rng = Drift(familiar=0.3), np.random.default_rng(1)
    usual = [0.1 if strange else 0.9 for strange in rng.random(500) < 0.05]
    for value in usual:
        drift.see(value)
    assert drift.why == ""
    for _ in range(20):
        drift.see(0.1)
    assert "unlike those" in drift.why
    for value in usual:
        drift.see(value)
    assert drift.why == ""


def test_answers_that_stay_behind_their_probability_are_noticed() -> None:
    rng = np.random.default_rng(2)
    honest, broken = Drift(familiar=0.3), Drift(familiar=0.3)
    for _ in range(1000):
        honest.learn(0.8, float(rng.random() < 0.8))
        broken.learn(0.8, float(rng.random() < 0.5))
    assert honest.why == ""
    assert broken.why == "answers are right less often than forecast, by more than 10%"


def test_a_strange_request_alone_goes_to_the_safe_worker_with_its_numbers() -> None:
    assert Drift(familiar=0.3).see(0.12) == "the request is unlike those that were learned from (0.12 below 0.30)"


def test_a_restart_forgets_nothing() -> None:
    before, after = Drift(familiar=0.3), Drift(familiar=0.3)
    for _ in range(20):
        before.see(0.0)
    after.restore(json.loads(json.dumps(before.state())))
    assert after.why == before.why != ""
    after.restore({"unfamiliar": "no state", "behind": [[1.0], True]})
    assert after.why == before.why


@pytest.mark.parametrize(("allowed", "rate"), [(0.0, 0.1), (1.0, 0.1), (0.5, 0.0)])
def test_a_watch_without_room_is_refused(allowed: float, rate: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        ShiftDetector(allowed, rate)


def offer(**costs: float | None) -> list[Forecast]:
    return [Forecast(worker=name, success=0.5, cost=cost, p50=None, p95=None) for name, cost in costs.items()]


def test_the_named_worker_answers_and_its_price_is_said() -> None:
    found = fall_back("shifted", offer(a=0.001, b=0.02), Objective(safe="b"), ("a",))
    assert found.worker == "b"
    assert found.reason == "shifted: b answers, for $0.02"


def test_a_dear_safe_worker_is_passed_over_and_the_log_says_for_what_price() -> None:
    found = fall_back("shifted", offer(a=0.001, b=0.02), Objective(safe="b", max_cost=0.005), ("b", "a"))
    assert found.worker == "a"
    assert found.reason == "shifted: a answers, for $0.001; b costs $0.02, more than the $0.005 agreed"


@given(
    st.dictionaries(st.sampled_from("abcd"), st.none() | st.floats(0, 1), min_size=1),
    st.floats(0, 1),
    st.lists(st.sampled_from("abcde"), unique=True),
    st.sampled_from(["", "a", "e"]),
    st.sets(st.sampled_from("abcd")),
)
def test_falling_back_never_exceeds_the_agreed_cost_or_the_lists(
    costs: dict[str, float | None], limit: float, singles: list[str], safe: str, deny: set[str]
) -> None:
    found = fall_back("shifted", offer(**costs), Objective(safe=safe, max_cost=limit, deny=tuple(deny)), singles)
    if found.worker:
        cost = costs[found.worker]
        assert cost is not None
        assert cost <= limit
        assert found.worker not in deny
    else:
        assert "no safe worker may be asked" in found.reason
