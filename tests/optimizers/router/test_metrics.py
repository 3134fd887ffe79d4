"""The papers' figures, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.experiments.router import evaluation

WEAK = [1.0, 0.0, 0.0, 1.0]
STRONG = [1.0, 1.0, 1.0, 0.0]


def test_the_curve_runs_from_the_weak_models_quality_to_the_strong_ones() -> None:
    shares, quality = evaluation.strong_share_curve([0.1, 0.9, 0.8, 0.0], WEAK, STRONG)
    assert shares.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert quality.tolist() == [0.5, 0.75, 1.0, 1.0, 0.75]


def test_a_router_that_says_the_same_of_all_recovers_half_the_gap_at_half_the_calls() -> None:
    assert evaluation.apgr([0.3] * 4, WEAK, STRONG) == pytest.approx(0.5)
    assert evaluation.cpt([0.3] * 4, WEAK, STRONG, 0.5) == pytest.approx(50)
    assert evaluation.cpt([0.3] * 4, WEAK, STRONG, 0.8) == pytest.approx(80)


def test_an_oracle_passes_one_where_the_weak_model_knows_something_the_strong_does_not() -> None:
    gaps = np.subtract(STRONG, WEAK)
    # PGR is 0, 1, 2, 2, 1 at 0, 25, 50, 75 and 100 % of the calls: by trapezoids over the tenths as by hand.
    by_hand = np.interp(evaluation.SHARES, [0, 0.25, 0.5, 0.75, 1], [0, 1, 2, 2, 1])
    assert evaluation.apgr(gaps, WEAK, STRONG) == pytest.approx(np.trapezoid(by_hand, evaluation.SHARES))
    assert evaluation.cpt(gaps, WEAK, STRONG, 0.8) == pytest.approx(20)
    assert evaluation.cpt(gaps, WEAK, STRONG, 0.0) == 0


@given(st.permutations(range(8)), st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=8, max_size=8))
def test_the_order_of_the_rows_does_not_matter(order: list[int], scores: list[float]) -> None:
    weak, strong = np.array([0, 0, 1, 0, 1, 0, 0, 1.0]), np.array([1, 1, 1, 0, 0, 1, 1, 1.0])
    given_order, other = np.array(scores), np.array(order)
    here = evaluation.apgr(given_order, weak, strong)
    assert evaluation.apgr(given_order[other], weak[other], strong[other]) == pytest.approx(here)
    assert evaluation.risk_coverage(given_order[other], weak[other])[1] == pytest.approx(
        evaluation.risk_coverage(given_order, weak)[1]
    )


def test_without_a_gap_there_is_nothing_to_recover() -> None:
    with pytest.raises(ValueError, match="not better"):
        evaluation.apgr([1, 2], [1, 1], [1, 0])


def test_the_hull_leaves_out_what_a_mixture_beats() -> None:
    costs, qualities = evaluation.hull([1, 2, 3, 4, 5], [0.5, 0.55, 0.9, 0.8, 1.0])
    assert costs.tolist() == [1, 3, 5]
    assert qualities.tolist() == [0.5, 0.9, 1.0]


def test_aiq_is_the_mean_height_of_the_hull() -> None:
    # Trapezoids by hand: (0.5 + 0.9)/2 * 2 + (0.9 + 1.0)/2 * 2 over 4 dollars.
    assert evaluation.aiq([1, 2, 3, 4, 5], [0.5, 0.55, 0.9, 0.8, 1.0]) == pytest.approx(3.3 / 4)
    # Beyond the last corner quality stays.
    assert evaluation.aiq([1, 3], [0.5, 0.9], (1, 5)) == pytest.approx((1.4 + 1.8) / 4)
    # Half of the cheapest one's price answers half of the requests.
    assert evaluation.aiq([1, 3], [0.5, 0.9], (0, 1)) == pytest.approx(0.25)
    assert evaluation.aiq([2.0], [0.7]) == pytest.approx(0.7)


@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 1)), min_size=1, max_size=12))
def test_the_hull_is_above_every_point_and_never_falls(points: list[tuple[float, float]]) -> None:
    costs, qualities = np.array(points).T
    at, height = evaluation.hull(costs, qualities)
    assert (np.diff(at) > 0).all()
    assert (np.diff(height) > 0).all()
    for cost, quality in points:
        assert np.interp(cost, at, height) >= quality - 1e-9


def test_saving_is_told_at_the_quality_of_the_single_model_or_not_at_all() -> None:
    assert evaluation.saving([1, 2, 4], [0.6, 0.9, 0.95], 4, 0.9) == pytest.approx(0.5)
    assert evaluation.saving([1, 2], [0.6, 0.7], 4, 0.9) is None


def test_calibration_by_hand() -> None:
    # Two bins: 0.2, 0.2 with outcomes 0, 1 (gap 0.3) and 0.9, 0.9 with 1, 1 (gap 0.1), half of the weight each.
    assert evaluation.ece([0.2, 0.2, 0.9, 0.9], [0, 1, 1, 1]) == pytest.approx(0.2)
    assert evaluation.brier([0.2, 0.2, 0.9, 0.9], [0, 1, 1, 1]) == pytest.approx((0.04 + 0.64 + 0.01 + 0.01) / 4)
    assert evaluation.ece([1.0, 0.0], [1, 0]) == 0


def test_an_unknown_outcome_does_not_count() -> None:
    assert evaluation.brier([0.5, 0.9], [1, np.nan]) == pytest.approx(0.25)
    with pytest.raises(ValueError, match="no outcome"):
        evaluation.ece([0.5], [np.nan])


def test_risk_falls_where_confidence_is_earned() -> None:
    coverage, risk = evaluation.risk_coverage([0.9, 0.8, 0.1], [1, 1, 0])
    assert coverage == pytest.approx([1 / 3, 2 / 3, 1])
    assert risk == pytest.approx([0, 0, 1 / 3])
