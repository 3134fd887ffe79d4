"""Evidence from live traffic: the formulas, that they hold at every look, and that they go on after a restart."""

import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.core.rollout_decision import FRACTIONS, Brake, level
from journeyman.core.rollout_plan import BrakePlan, Metric, RolloutPlan
from journeyman.stats.live import (
    GRID,
    BettingEvidence,
    HarmDetector,
    SampleRatio,
    Scale,
    compared,
    evidence_for,
    top_two_shares,
)

Session = tuple[float, bool, float]
sessions = st.lists(
    st.tuples(st.sampled_from([0.0, 1 / 3, 0.5, 1.0]), st.booleans(), st.sampled_from([0.01, 0.1, 0.5, 0.9])), max_size=40
)
D = (-0.1, 0.0, 0.05)


def fed(found: list[Session], differences: tuple[float, ...] = D) -> BettingEvidence:
    evidence = BettingEvidence(differences)
    for score, canary, share in found:
        evidence.add(score, canary=canary, share=share)
    return evidence


def naive(found: list[Session], d: float) -> tuple[float, float]:
    """The most that both bets have been, computed from all sessions by the formulas as they are written."""
    earlier: list[float] = []
    below, above = [1.0] * len(FRACTIONS), [1.0] * len(FRACTIONS)
    most = [1.0, 1.0]
    for score, canary, p in found:
        m = min(0.98, max(0.02, (1 + sum(earlier)) / (2 + len(earlier))))
        z = (score - m) / p if canary else -(score - m) / (1 - p)
        largest, smallest = max((1 - m) / p, m / (1 - p)), -max(m / p, (1 - m) / (1 - p))
        below = [bet * (1 + f * (d - z) / (largest - d)) for bet, f in zip(below, FRACTIONS, strict=True)]
        above = [bet * (1 + f * (z - d) / (d - smallest)) for bet, f in zip(above, FRACTIONS, strict=True)]
        most = [max(one, sum(bets) / len(bets)) for one, bets in zip(most, (below, above), strict=True)]
        if not canary:
            earlier.append(score)
    return most[0], most[1]


@given(sessions)
def test_the_bets_are_those_of_the_formula(found: list[Session]) -> None:
    evidence = fed(found)
    for d in D:
        assert (evidence.e_below(d)[0], evidence.e_above(d)[0]) == pytest.approx(naive(found, d), rel=1e-9)


@given(sessions, sessions)
def test_evidence_goes_on_after_a_restart_to_the_same_bits(before: list[Session], after: list[Session]) -> None:
    evidence = fed(before)
    again = BettingEvidence.from_state(json.loads(json.dumps(evidence.state())))
    for score, canary, share in after:
        evidence.add(score, canary=canary, share=share)
        again.add(score, canary=canary, share=share)
    assert again.state() == evidence.state()


@given(sessions, sessions)
def test_many_runs_at_once_are_each_run_alone(one: list[Session], other: list[Session]) -> None:
    both = BettingEvidence(D, runs=2)
    for first, second in zip(one, other, strict=False):
        score, canary, share = (np.asarray(each) for each in zip(first, second, strict=True))
        both.add(score, canary=canary, share=share)
    length = min(len(one), len(other))
    for at, found in enumerate((one, other)):
        alone = fed(found[:length])
        assert both.e_below(0.0)[at] == pytest.approx(alone.e_below(0.0)[0], rel=1e-12)
        assert both.difference[at] == pytest.approx(alone.difference[0], rel=1e-9, nan_ok=True)


@given(sessions)
def test_an_interval_ends_where_a_bet_was_won_and_narrows_only(found: list[Session]) -> None:
    evidence, before = BettingEvidence(), (-1.0, 1.0)
    for score, canary, share in found:
        evidence.add(score, canary=canary, share=share)
        low, high = (float(end[0]) for end in evidence.interval(0.2, 0.2))
        assert before[0] <= low
        assert high <= before[1]
        for d in GRID:
            assert (high <= d) == (evidence.e_below(d)[0] >= 5)
            assert (low >= d) == (evidence.e_above(d)[0] >= 5)
        before = low, high


def test_the_interval_is_the_exact_one_but_for_the_grid() -> None:
    """Bisection over all sessions, as `anytime_interval` does it, lies within the interval and less than a step inside."""
    chance = np.random.default_rng(5)
    found = [(float(chance.random() < 0.7 - 0.2 * on), on, 0.3) for on in map(bool, chance.random(800) < 0.3)]
    low, high = (float(end[0]) for end in fed(found, GRID).interval(0.05, 0.05))

    def end(refuted: Callable[[float], bool], inside: float, outside: float) -> float:
        for _ in range(30):
            middle = (inside + outside) / 2
            inside, outside = (inside, middle) if refuted(middle) else (middle, outside)
        return inside

    exact_high = end(lambda d: naive(found, d)[0] >= 20, -0.2, 0.9)
    exact_low = end(lambda d: naive(found, d)[1] >= 20, -0.2, -0.9)
    steps = dict(zip(GRID[1:], GRID, strict=False))
    assert steps[high] <= exact_high <= high
    assert low <= exact_low <= next(above for above, below in steps.items() if below == low)


def test_what_is_not_known_and_what_could_only_go_one_way_tells_nothing() -> None:
    evidence = fed([(1.0, True, 0.1), (0.0, False, 0.1)])
    before = evidence.state()
    evidence.add(math.nan, canary=True, share=0.1)
    evidence.add(0.0, canary=True, share=1.0)
    evidence.add(1.0, canary=False, share=0.0)
    assert evidence.state() == before


@pytest.mark.parametrize(
    ("score", "share"), [(1.1, 0.1), (-0.1, 0.1), (math.inf, 0.1), (0.5, 1.5), (0.5, -0.1), (0.5, math.nan)]
)
def test_a_score_or_a_share_outside_is_refused_and_changes_nothing(score: float, share: float) -> None:
    evidence = fed([(1.0, True, 0.1)])
    before = evidence.state()
    with pytest.raises(InputError, match="from 0 to 1"):
        evidence.add(score, canary=True, share=share)
    assert evidence.state() == before


def test_one_of_several_arms_is_compared_among_those_on_it_and_on_production() -> None:
    several, two = BettingEvidence(D), BettingEvidence(D)
    for score, canary in ((1.0, True), (0.0, False), (0.5, True)):
        several.add(score, canary=canary, share=0.1, production=0.4)
        two.add(score, canary=canary, share=0.2)
    assert several.e_below(0.0) == pytest.approx(two.e_below(0.0))


@pytest.mark.parametrize(
    "state", [{}, {"prior": [0.5, 2], "differences": [0.0], "bets": [[1]], "largest": [[1]], "sums": [[1]]}]
)
def test_a_state_that_is_none_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(InputError, match="state"):
        BettingEvidence.from_state(state)
    with pytest.raises(InputError):
        SampleRatio.from_state(state)
    with pytest.raises(InputError):
        HarmDetector.from_state(state)
    with pytest.raises(InputError):
        Brake.from_state(BrakePlan(), state)


def test_a_difference_that_was_not_bet_against_is_no_answer() -> None:
    with pytest.raises(InputError, match=r"against a difference of 0\.03"):
        fed([]).e_below(0.03)


# They hold at every look.

RUNS, LENGTH = 400, 1500


def scores(chance: np.random.Generator, success: np.ndarray) -> np.ndarray:
    """Three tasks a session that go well or badly together: correlation 0.3."""
    return chance.binomial(3, chance.beta(success * 7 / 3, (1 - success) * 7 / 3)) / 3


def test_equal_arms_under_a_ramp_while_production_declines_are_seldom_told_apart() -> None:
    """Means over all shares would differ: the canary's sessions are the later ones, when all is worse."""
    chance, evidence = np.random.default_rng(11), BettingEvidence((0.0,), runs=RUNS)
    for n in range(LENGTH):
        share = (0.01, 0.05, 0.1, 0.25, 0.5, 0.5)[6 * n // LENGTH]
        canary = chance.random(RUNS) < share
        evidence.add(scores(chance, np.full(RUNS, 0.75 - 0.15 * n / LENGTH)), canary=canary, share=share)
    worse, better = (evidence.e_below(0.0) >= 20).mean(), (evidence.e_above(0.0) >= 20).mean()
    assert worse <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / RUNS)
    assert better <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / RUNS)
    arm, production = evidence.means.mean(axis=0)
    assert production - arm > 0.02
    assert abs(evidence.difference.mean()) < 0.01


def test_the_interval_holds_the_true_difference_at_all_looks_and_finds_it() -> None:
    chance, runs, true = np.random.default_rng(12), 150, -0.2
    evidence, missed = BettingEvidence(runs=runs), np.zeros(runs, bool)
    for _ in range(1000):
        canary = chance.random(runs) < 0.1
        evidence.add(scores(chance, 0.7 + true * canary), canary=canary, share=0.1)
        low, high = evidence.interval(0.025, 0.025)
        missed |= (true < low) | (true > high)
    assert missed.mean() <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / runs)
    assert (evidence.interval(0.025, 0.025)[1] < 0).mean() > 0.95


@given(sessions, st.sampled_from(["not_worse", "better"]))
def test_what_is_told_to_the_rule_lies_within_its_bounds(found: list[Session], require: str) -> None:
    plan = RolloutPlan(primary=Metric(name="success", require=require, tolerance=0.01))  # type: ignore[arg-type]  # one of the two
    evidence = evidence_for(plan, plan.primary)
    for score, canary, share in found:
        evidence.add(score, canary=canary, share=share)
    (told,) = compared(evidence, plan, plan.primary)
    assert (told.high <= -0.01) == (told.e_harm >= 1 / level(plan, plan.primary))
    least = -0.05 if require == "not_worse" else 0.0
    assert (told.low >= least) == (told.e_promote >= 1 / plan.alpha_promote)
    if told.known:
        assert told.low <= told.difference <= told.high


def test_the_levels_of_all_that_can_roll_back_add_up_to_the_plans() -> None:
    plan = RolloutPlan()
    harmful = [plan.primary, *(each for each in plan.guardrails if each.name != "labelled")]
    assert sum(level(plan, each) for each in harmful) == pytest.approx(plan.alpha)
    assert level(plan, plan.primary) == pytest.approx(0.02)
    assert level(plan, plan.primary, arms=2) == pytest.approx(0.01)
    assert level(RolloutPlan(guardrails=()), plan.primary) == pytest.approx(0.05)


# Sample ratio.


def test_sample_ratio_is_the_dirichlet_multinomial_one_of_each_share_multiplied() -> None:
    chance, ratio = np.random.default_rng(3), SampleRatio(3)
    counts: dict[tuple[float, ...], list[int]] = {}
    for n in range(300):
        shares: tuple[float, ...] = ((0.9, 0.05, 0.05), (0.5, 0.25, 0.25))[n % 2]
        arm = int(chance.choice(3, p=shares))
        ratio.add(arm, shares)
        counts.setdefault(shares, [0, 0, 0])[arm] += 1
    log = 0.0
    for shares, found in counts.items():
        log += math.lgamma(100) - math.lgamma(100 + sum(found))
        for theta, k in zip(shares, found, strict=True):
            log += math.lgamma(100 * theta + k) - math.lgamma(100 * theta) - k * math.log(theta)
    assert ratio.state()["log"][0] == pytest.approx(log, abs=1e-9)
    (told,) = ratio.found(1)
    assert (told.sessions, told.canary) == (300, sum(found[1] for found in counts.values()))
    assert told.expected == pytest.approx(150 * 0.05 + 150 * 0.25)


def test_a_wrong_ratio_is_found_and_a_right_one_is_not() -> None:
    chance, runs = np.random.default_rng(4), 300
    wrong, right = SampleRatio(runs=runs), SampleRatio(runs=runs)
    for _ in range(2000):
        wrong.add(chance.random(runs) < 0.05, (0.9, 0.1))
        right.add(chance.random(runs) < 0.1, (0.9, 0.1))
    assert np.mean([each.e_value >= 1000 for each in wrong.found()]) > 0.98
    assert np.mean([each.e_value >= 1000 for each in right.found()]) <= 0.005


def test_sample_ratio_goes_on_after_a_restart_to_the_same_bits() -> None:
    ratio = SampleRatio()
    for n in range(60):
        if n == 30:
            again = SampleRatio.from_state(json.loads(json.dumps(ratio.state())))
        for each in (ratio, again) if n >= 30 else (ratio,):
            each.add(n % 3 == 0, (0.9, 0.1) if n < 20 or n > 50 else (0.7, 0.3))
    assert again.state() == ratio.state()


@pytest.mark.parametrize(("arm", "shares"), [(0, (0.5, 0.4)), (1, (1.0, 0.0)), (0, (0.5, 0.3, 0.2)), (0, (1.5, -0.5))])
def test_shares_that_cannot_be_are_refused(arm: int, shares: tuple[float, ...]) -> None:
    with pytest.raises(InputError):
        SampleRatio().add(arm, shares)


# After a promotion.


def test_the_detector_is_that_of_the_formula_and_goes_on_after_a_restart() -> None:
    chance, detector, m = np.random.default_rng(6), HarmDetector(0.7), np.zeros(12)
    for n in range(200):
        score = float(chance.random() < 0.5)
        m = (1 + m) * (1 + np.asarray(FRACTIONS) * (0.67 - score) / 0.33)
        if n == 100:
            detector = HarmDetector.from_state(json.loads(json.dumps(detector.state())))
        detector.add(score)
    assert detector.level[0] == pytest.approx(m.mean())
    assert detector.alarmed[0]
    assert detector.sessions == 200


def test_a_release_that_declines_is_noticed_and_one_that_stays_is_not() -> None:
    chance, runs = np.random.default_rng(7), 200
    falls, stays = HarmDetector(0.7, runs=runs), HarmDetector(0.7, runs=runs)
    for n in range(1500):
        falls.add(scores(chance, np.full(runs, 0.7 if n < 1000 else 0.5)))
        stays.add(scores(chance, np.full(runs, 0.7)))
        if n == 999:
            assert falls.alarmed.mean() < 0.03
    assert falls.alarmed.mean() > 0.98
    assert stays.alarmed.mean() < 0.03


@pytest.mark.parametrize(("mean", "tolerance"), [(0.02, 0.03), (1.1, 0.0), (math.nan, 0.0)])
def test_a_detector_of_nothing_is_refused(mean: float, tolerance: float) -> None:
    with pytest.raises(InputError, match="above 0 and below 1"):
        HarmDetector(mean, tolerance=tolerance)


# The brake of a gateway.


def test_the_brake_is_on_after_five_sessions_when_all_fail_and_stays_on() -> None:
    brake = Brake(BrakePlan())
    assert [brake.add(failed=True) for _ in range(6)] == [False] * 4 + [True] * 2
    assert brake.add(failed=False)


@given(st.lists(st.booleans(), max_size=60), st.integers(0, 60))
def test_the_brake_is_that_of_the_formula_and_goes_on_after_a_restart(failures: list[bool], at: int) -> None:
    plan = BrakePlan(failures=0.3, alpha=0.05)
    brake, wealth, tripped = Brake(plan), [1.0] * 12, False
    for n, failed in enumerate(failures):
        if n == at:
            brake = Brake.from_state(plan, json.loads(json.dumps(brake.state())))
        wealth = [bet * (1 + f * (failed - 0.3) / 0.3) for bet, f in zip(wealth, FRACTIONS, strict=True)]
        tripped = tripped or (n >= 2 and sum(wealth) / 12 >= 20)
        assert brake.add(failed=failed) == tripped


def test_a_brake_at_its_own_bound_is_seldom_on() -> None:
    chance = np.random.default_rng(8)
    on = 0
    for _ in range(300):
        brake = Brake(BrakePlan())
        on += [brake.add(failed=bool(failed)) for failed in chance.random(300) < 0.2][-1]
    assert on <= 6


# Scales.


def test_latency_and_cost_are_scored_from_what_production_took() -> None:
    before = np.exp(np.random.default_rng(9).normal(0, 1.2, 20_000))
    scale = Scale.of(before.tolist())
    assert np.mean([scale.over(each) for each in before]) == pytest.approx(0.95, abs=0.001)
    assert (scale.log_scaled(scale.p5), scale.log_scaled(scale.p95)) == pytest.approx((1.0, 0.0))
    assert (scale.capped(0.0), scale.capped(1e300), scale.log_scaled(0.0), scale.log_scaled(1e300)) == (1.0, 0.0, 1.0, 0.0)
    for score in (scale.over, scale.log_scaled, scale.capped):
        found = [score(each) for each in sorted(before)]
        assert found == sorted(found, reverse=True)
        assert 0 <= found[-1] <= found[0] <= 1


@given(st.lists(st.floats(0, 1e9), min_size=100, max_size=120))
def test_any_measurements_make_a_scale_or_a_sentence(before: list[float]) -> None:
    if max(before) <= 0:
        with pytest.raises(InputError, match="not all of them 0"):
            Scale.of(before)
        return
    scale = Scale.of(before)
    for each in (0.0, before[0], 1e12):
        assert all(0 <= score(each) <= 1 for score in (scale.over, scale.log_scaled, scale.capped))


@pytest.mark.parametrize("before", [[1.0] * 99, [math.nan] * 100, [-1.0] * 100, [math.inf] * 100])
def test_measurements_that_make_no_scale_are_refused(before: list[float]) -> None:
    with pytest.raises(InputError):
        Scale.of(before)


# Several arms.


def test_the_best_arms_are_looked_at_most_and_nobody_falls_below_the_floor() -> None:
    shares = top_two_shares([(70, 30), (60, 40), (90, 10), (85, 15)], chance=np.random.default_rng(10))
    assert sum(shares) == pytest.approx(1)
    assert shares[0] >= 0.5
    assert min(shares[1:]) >= 0.1
    assert max(shares[1:]) == shares[2]
    with pytest.raises(InputError, match="cannot have a share"):
        top_two_shares([(1, 1)] * 7, chance=np.random.default_rng(10))
