import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from journeyman.core.errors import InputError
from journeyman.rewards.utility import Runs, Utility, WeightedSumReward, explain, lint, spearman


def pool(seed: int = 0) -> Runs:
    """Three workers, of which the better one is the slower."""
    chance = np.random.default_rng(seed)
    workers = ("quick", "middle", "sound")
    each = 200
    rates, waits = np.repeat([0.5, 0.7, 0.9], each), np.repeat([0.3, 2.0, 6.0], each)
    return Runs(
        workers=tuple(np.repeat(workers, each).tolist()),
        success=(chance.random(3 * each) < rates).astype(float),
        cost=np.full(3 * each, 0.001),
        seconds=waits * chance.lognormal(0, 0.3, 3 * each),
        subtasks=np.ones(3 * each),
    )


def test_the_documented_reward_is_told_to_prefer_speed() -> None:
    report = lint(WeightedSumReward(), pool())
    assert report.shares[0].term == "latency"
    assert (report.preferred, report.most_accurate) == ("quick", "sound")
    assert (report.with_accuracy, report.with_speed) == pytest.approx((-1.0, 1.0))
    assert "the latency term alone explains" in report.warnings[0]
    assert any("it prefers quick" in warning and "sound" in warning for warning in report.warnings)


def test_with_latency_in_seconds_the_same_reward_has_nothing_to_be_warned_of() -> None:
    report = lint(WeightedSumReward(gamma_latency=0.01 / 1000), pool())
    assert (report.preferred, report.warnings) == ("sound", ())


def test_the_default_utility_lets_success_decide() -> None:
    report = lint(Utility.of(pool(), seconds_per_success=60.0), pool())
    assert (report.preferred, report.warnings) == ("sound", ())
    assert report.shares[0].term == "success"


def test_shares_add_up_to_one_and_the_largest_comes_first() -> None:
    shares = explain(WeightedSumReward(), pool())
    assert sum(share.share for share in shares) == pytest.approx(1.0)
    assert [share.size for share in shares] == sorted((share.size for share in shares), reverse=True)


def test_a_term_that_never_varies_explains_nothing() -> None:
    assert {share.term: share.r2 for share in explain(WeightedSumReward(), pool())}["subtasks"] is None


def test_what_is_not_known_is_assumed_or_left_out_and_counted_and_nothing_known_is_refused() -> None:
    seen = pool()
    seen.seconds[:5], seen.success[2:10] = np.nan, np.nan
    report = lint(WeightedSumReward(), seen)
    assert (report.runs, report.skipped, report.assumed) == (592, 8, 2)
    seen.seconds[:] = np.nan
    with pytest.raises(InputError, match="cannot be told of a single run"):
        lint(WeightedSumReward(), seen)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=20))
def test_ranks_correlate_as_scipy_says_ties_included(pairs: list[tuple[int, int]]) -> None:
    one, other = ([float(value) for value in side] for side in zip(*pairs, strict=True))
    found = spearman(one, other)
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(float(spearmanr(one, other).statistic))
