"""Intervals: that they cover what they say they cover, and stay put."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from journeyman import stats
from journeyman.stats import (
    anytime_interval,
    bootstrap_interval,
    cluster_interval,
    cohens_kappa,
    e_value,
    highest_increase,
    planned_level,
    spent,
    students_quantile,
    without_choice,
)
from journeyman.stats.agreement import alpha_interval, kappa_interval, krippendorffs_alpha

differences = st.lists(st.sampled_from([-1.0, -0.5, -1 / 3, 0.0, 1 / 3, 0.5, 1.0]), min_size=1, max_size=40)


def draws(chance: np.random.Generator, tasks: int, wins: float, losses: float) -> list[float]:
    return list(chance.choice([1.0, -1.0, 0.0], size=tasks, p=[wins, losses, 1 - wins - losses]))


@given(differences)
def test_the_same_differences_give_the_same_interval_in_any_order(found: list[float]) -> None:
    assert bootstrap_interval(found) == bootstrap_interval(sorted(found))
    assert anytime_interval(found) == pytest.approx(anytime_interval(sorted(found)), abs=1e-6)


@given(differences)
def test_intervals_stay_between_minus_one_and_one_and_hold_the_order(found: list[float]) -> None:
    for interval in (bootstrap_interval, anytime_interval):
        low, high = interval(found, 0.05)
        wide_low, wide_high = interval(found, 0.001)
        assert -1 <= wide_low <= low <= high <= wide_high <= 1


@pytest.mark.parametrize("interval", [bootstrap_interval, anytime_interval])
@pytest.mark.parametrize("tasks", [1, 5, 30, 500])
def test_no_difference_at_all_is_no_gain(interval: type, tasks: int) -> None:
    low, high = interval([0.0] * tasks)
    assert low < 0 < high


def test_without_tasks_nothing_is_known() -> None:
    assert bootstrap_interval([]) == anytime_interval([]) == (-1.0, 1.0)


def test_four_lucky_tasks_of_thirty_are_no_proof() -> None:
    """A sign test gives them one in sixteen; the plain bootstrap would say that they are significant."""
    assert bootstrap_interval([1.0] * 4 + [0.0] * 26)[0] <= 0


def test_thirds_that_cancel_are_exactly_zero() -> None:
    found = [1 / 3, 1 / 3, 1 / 3, -1.0] * 30
    assert bootstrap_interval(found)[0] < 0 < bootstrap_interval(found)[1]


@pytest.mark.training
@pytest.mark.parametrize(("tasks", "wins", "losses"), [(10, 0.3, 0.15), (30, 0.05, 0.05), (60, 0.25, 0.25), (200, 0.1, 0.02)])
def test_the_95_percent_interval_covers_the_truth_in_94_percent_at_least(tasks: int, wins: float, losses: float) -> None:
    chance = np.random.default_rng(7)
    covered = 0
    for _ in range(400):
        low, high = bootstrap_interval(draws(chance, tasks, wins, losses))
        covered += low - 1e-9 <= wins - losses <= high + 1e-9
    # Two standard errors of 400 simulations below 94 %.
    assert covered >= 400 * (0.94 - 2 * 0.0119)


def test_what_is_counted_out_is_what_every_resample_gives() -> None:
    """Three tasks, so an urn of eight: all 512 ways to draw three of them with replacement."""
    found = [1.0, 0.5, -0.5]
    means = sorted(sum(drawn) / 3 for drawn in itertools.product([*found, *found, 1.0, -1.0], repeat=3))
    for tail in (0.01, 0.05, 0.2):
        beyond = math.ceil(tail * len(means) - 1e-9) - 1
        assert bootstrap_interval(found, 2 * tail) == pytest.approx((means[beyond], means[-1 - beyond]))


@pytest.mark.parametrize("values", [[-1.0, 0.0, 1.0], [-0.75, 0.25, 1.0], [0.1, 0.3, -0.2]])
@pytest.mark.parametrize("alpha", [0.05, 0.05 / 9])
def test_scores_between_the_points_of_a_grid_get_the_interval_of_those_on_it(
    values: list[float], alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = np.random.default_rng(4).choice(values, 60).tolist()
    counted = bootstrap_interval(found, alpha)
    monkeypatch.setattr(stats, "_LARGEST_DENOMINATOR", 0)
    assert counted == pytest.approx(bootstrap_interval(found, alpha), abs=0.025)


def test_attempts_in_any_numbers_get_the_interval_that_a_million_resamples_give() -> None:
    """Five attempts on one side and seven on the other: no small denominator, at the level of look 20."""
    chance = np.random.default_rng(5)
    found = chance.binomial(5, 0.7, 40) / 5 - chance.binomial(7, 0.5, 40) / 7
    urn = np.concatenate([found, found, [1.0, -1.0]])
    means = np.concatenate([urn[chance.integers(len(urn), size=(50_000, 40))].mean(axis=1) for _ in range(20)])
    alpha = spent(0.05, 20)
    drawn = np.quantile(means, [alpha / 2, 1 - alpha / 2])
    assert bootstrap_interval(found.tolist(), alpha) == pytest.approx(drawn, abs=0.006)


@pytest.mark.parametrize("degrees", [1.4, 2, 9, 47.5, 10_000])
@pytest.mark.parametrize("chance", [0.9, 0.975, 1 - 0.0125 / 100])
def test_students_quantiles_are_those_of_the_tables(degrees: float, chance: float) -> None:
    assert students_quantile(chance, degrees) == pytest.approx(student.ppf(chance, degrees), rel=1e-3)


def test_families_alike_in_size_have_one_degree_of_freedom_less_than_they_are_many() -> None:
    values, clusters = [1.0, 0.0, -1.0, 0.0] * 8, [str(n // 4) for n in range(32)]
    assert stats._of_clusters(values, clusters)[2] == pytest.approx(7)
    alone = [str(n) for n in range(32)]
    assert stats._of_clusters(values, alone)[1] == pytest.approx(np.var(values, ddof=1) / 32)


def test_the_variance_over_families_is_the_quadratic_forms() -> None:
    """Against the matrices themselves, with families of unlike sizes."""
    sizes = np.array([40, 1, 2, 30, 7])
    clusters = np.repeat(np.arange(5), sizes)
    values = np.random.default_rng(1).choice([-1.0, 0.0, 1.0], 80)
    shares, sums = sizes / 80, np.bincount(clusters, values)
    weights = np.diag(1 / (1 - shares))
    centre = np.eye(5) - np.outer(shares, np.ones(5))
    form = centre.T @ weights @ centre
    spread = form * sizes.astype(float) ** 2
    mean, variance, degrees, count = stats._of_clusters(values.tolist(), [str(each) for each in clusters])
    assert mean == pytest.approx(values.mean())
    assert count == 5
    assert variance == pytest.approx(sums @ form @ sums / 80**2)
    assert degrees == pytest.approx(np.trace(spread) ** 2 / np.trace(spread @ spread))


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=30), st.integers(1, 6))
def test_clusters_never_make_the_interval_narrower(found: list[float], families: int) -> None:
    low, high = bootstrap_interval(found)
    wide_low, wide_high = cluster_interval(found, [str(n % families) for n in range(len(found))])
    assert -1 <= wide_low <= low <= high <= wide_high <= 1


def test_planned_looks_as_often_as_one_likes_add_up_to_the_level() -> None:
    """A Brownian motion in 2,000 steps crosses a boundary a little more seldom than one that is followed at each moment."""
    chance, steps = np.random.default_rng(8), 2_000
    paths = chance.normal(size=(4_000, steps)).cumsum(axis=1) / math.sqrt(steps)
    shares = np.arange(1, steps + 1) / steps
    levels = [planned_level(0.05, share) for share in shares]
    asked = np.array([-student.ppf(level / 2, 1e9) if level > 1e-300 else math.inf for level in levels])
    crossed = (paths > asked * np.sqrt(shares)).any(axis=1).mean()
    assert 0.02 - 2 * 0.0022 <= crossed <= 0.025 + 2 * 0.0025
    assert planned_level(0.05, 1.0) == pytest.approx(0.025)


def test_one_cluster_tells_nothing_of_the_next() -> None:
    assert cluster_interval([1.0] * 100, ["one"] * 100) == (-1.0, 1.0)


def test_an_increase_is_bounded_as_fieller_bounds_a_ratio() -> None:
    chance = np.random.default_rng(6)
    before = chance.gamma(4.0, 0.01, 100)
    after = before * chance.normal(1.05, 0.1, 100)
    bound = highest_increase(before.tolist(), after.tolist(), [str(n) for n in range(100)])
    assert bound is not None
    left = after - (1 + bound) * before
    at = left.mean() + student.ppf(0.975, 99) * left.std(ddof=1) / 10
    assert at == pytest.approx(0, abs=1e-6)
    assert after.mean() / before.mean() - 1 < bound < 0.1


def test_what_took_nothing_before_bounds_no_increase() -> None:
    ids = [str(n) for n in range(50)]
    assert highest_increase([0.0] * 50, [0.0] * 49 + [1.0], ids) is None
    assert highest_increase([1.0], [1.0], ids[:1]) is None


@given(st.integers(1, 24), st.lists(st.floats(-1, 1), min_size=1, max_size=60), st.sampled_from([0.05, 0.05 / 100]))
def test_to_swap_the_sides_swaps_the_counted_interval(denominator: int, drawn: list[float], alpha: float) -> None:
    found = [round(value * denominator) / denominator for value in drawn]
    low, high = bootstrap_interval(found, alpha)
    assert bootstrap_interval([-value for value in found], alpha) == pytest.approx((-high, -low))


def test_the_e_value_grows_with_the_gain_and_shrinks_without_one() -> None:
    chance = np.random.default_rng(1)
    assert e_value(draws(chance, 400, 0.35, 0.15)) > 1000
    assert e_value(draws(chance, 400, 0.2, 0.4)) < 0.1
    assert e_value([]) == pytest.approx(1.0)


def test_the_e_value_is_fair() -> None:
    """Under no gain its mean is 1: this is what makes it evidence."""
    outcomes = [(1.0, 0.3), (-1.0, 0.3), (0.0, 0.4)]
    mean = 0.0
    for a, p in outcomes:
        for b, q in outcomes:
            for c, r in outcomes:
                mean += p * q * r * e_value([a, b, c])
    assert mean == pytest.approx(1.0)


def test_an_e_value_never_overflows() -> None:
    assert math.isfinite(e_value([1.0] * 100_000))


def test_the_anytime_interval_is_where_the_bet_fails() -> None:
    found = draws(np.random.default_rng(2), 300, 0.4, 0.1)
    low, _ = anytime_interval(found, 0.05)
    assert e_value(found, low) == pytest.approx(40, rel=1e-3)


@pytest.mark.training
def test_the_anytime_interval_covers_the_truth_at_all_looks_at_once() -> None:
    chance = np.random.default_rng(3)
    missed = 0
    for _ in range(200):
        found = draws(chance, 300, 0.25, 0.25)
        looks = (anytime_interval(found[:tasks]) for tasks in range(10, 301, 10))
        missed += any(not low <= 0 <= high for low, high in looks)
    assert missed <= 10


def test_all_looks_ever_cost_less_than_alpha() -> None:
    one_sided = sum(spent(0.05, look) / 2 for look in range(1, 100_000))
    assert spent(0.05, 1) == 0.05
    assert one_sided < 0.05


def test_agreement_beyond_chance_is_cohens_own_kind_of_sum() -> None:
    """20 yes together, 15 no together, 5 and 10 apart: the textbook's 0.4."""
    one = [True] * 25 + [False] * 25
    other = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    assert cohens_kappa(one, other) == pytest.approx(0.4)


@pytest.mark.parametrize("judged", [[], [True], [False] * 7])
def test_agreement_is_not_known_when_both_always_say_the_same_one_thing(judged: list[bool]) -> None:
    assert cohens_kappa(judged, judged) is None


def test_who_always_says_yes_agrees_by_chance_alone() -> None:
    assert cohens_kappa([True] * 4, [True, False, True, True]) == 0


def test_two_who_never_agree_are_below_chance() -> None:
    assert cohens_kappa([True, False], [False, True]) == -1


def test_agreement_needs_the_same_things_judged_by_both() -> None:
    with pytest.raises(ValueError, match="2 judgements of one and 1"):
        cohens_kappa([True, False], [True])


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=40))
def test_agreement_does_not_ask_who_came_first_nor_which_word_is_yes(pairs: list[tuple[bool, bool]]) -> None:
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    found = cohens_kappa(one, other)
    assert found == cohens_kappa(other, one) == cohens_kappa([not a for a in one], [not b for b in other])
    assert found is None or -1 <= found <= 1
    assert (found == 1) == (one == other and len(set(one)) == 2)


def test_the_best_of_ten_that_are_alike_is_reported_as_it_truly_is() -> None:
    chance = np.random.default_rng(0)
    measured, shrunk = [], []
    for _ in range(400):
        tries = chance.choice([1.0, -1.0, 0.0], size=(10, 100), p=[0.23, 0.18, 0.59])
        best = tries[tries.mean(axis=1).argmax()].tolist()
        measured.append(float(np.mean(best)))
        shrunk.append(without_choice(best, 10))
    assert np.mean(measured) > 0.13
    assert np.mean(shrunk) == pytest.approx(0.05, abs=0.015)


def test_a_gain_is_shrunk_down_to_nothing_and_a_loss_not_at_all() -> None:
    assert without_choice([1.0] * 40, 10) == 1.0, "what never varies was not chosen by chance"
    assert without_choice([1.0, -1.0, 1.0, -1.0, 1.0], 50) == 0.0
    assert without_choice([-1.0, 0.0, 1.0, -1.0], 10) == -0.25
    assert without_choice([1.0, 0.0], 1) == 0.5


RELIABILITY = {
    "a": "123321412...",
    "b": "1233224125.3",
    "c": ".3332342251.",
    "d": "12332441251.",
}
"""Four observers of twelve units, with gaps: K. Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), C."""


def test_agreement_of_several_is_the_textbooks() -> None:
    units = [{who: int(said[at]) for who, said in RELIABILITY.items() if said[at] != "."} for at in range(12)]
    assert krippendorffs_alpha(units) == pytest.approx(0.743, abs=5e-4)
    assert krippendorffs_alpha(units, span=4) == pytest.approx(0.849, abs=5e-4)
    low, high = alpha_interval(units) or (1.0, 0.0)
    assert -1 <= low < 0.743 < high <= 1
    assert alpha_interval(units[::-1]) == (low, high)
    # As 40,000 draws of single units find it.
    assert (low, high) == pytest.approx((0.365, 0.937), abs=0.03)
    one, other = [True] * 40 + [False] * 20, [True] * 33 + [False] * 20 + [True] * 7
    assert kappa_interval(one, other) == pytest.approx((0.215, 0.692), abs=0.03)


def test_the_agreement_on_many_things_takes_little_memory() -> None:
    one, other = ([at % each % 2 > 0 for at in range(20_000)] for each in (2, 3))
    apart: list[dict[str, float]] = [{"a": at / 5_000, "b": at * 7 % 5_000 / 5_000} for at in range(5_000)]
    tracemalloc.start()
    assert kappa_interval(one, other) is not None
    assert alpha_interval(apart, span=1) is not None
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 60e6


def test_agreement_of_several_is_not_known_where_nobody_differs_and_of_things_that_one_alone_judged() -> None:
    assert (
        krippendorffs_alpha([]) is krippendorffs_alpha([{"a": True}] * 9) is krippendorffs_alpha([{"a": 1, "b": 1}] * 9) is None
    )
    assert alpha_interval([]) is alpha_interval([{"a": 0.5, "b": 0.5}] * 9, span=1) is kappa_interval([True], [True]) is None


def test_a_handful_on_which_two_always_agreed_is_no_proof() -> None:
    judged = [True, False] * 5
    low, high = kappa_interval(judged, judged) or (1.0, 0.0)
    assert low < 0.6
    assert high == pytest.approx(1.0)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=10, max_size=40))
def test_an_interval_of_agreement_lies_within_its_bounds_and_holds_the_estimate(pairs: list[tuple[bool, bool]]) -> None:
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    found, interval = cohens_kappa(one, other), kappa_interval(one, other)
    assert (found is None) is (interval is None)
    if found is not None and interval is not None:
        assert -1 <= interval[0] <= interval[1] <= 1
        assert interval[0] <= found + 0.1
        assert found - 0.1 <= interval[1]
