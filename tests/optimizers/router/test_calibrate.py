from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from journeyman.experiments.router.evaluation import ece
from journeyman.optimizers.router.fit import abilities, calibration, group_means, isotonic, platt
from journeyman.optimizers.router.predict import Calibration
from journeyman.stats import Floats


def overconfident(n: int) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Scores further from one half than the truth is, outcomes and folds."""
    chance = np.random.default_rng(0)
    truth = chance.uniform(0.3, 0.7, n)
    return np.clip(0.5 + 2.4 * (truth - 0.5), 0, 1), (chance.random(n) < truth).astype(float), chance.integers(0, 5, n)


@pytest.mark.parametrize("way", [platt, isotonic])
def test_scores_that_promise_too_much_are_corrected(way: Callable[[Floats, Floats], Calibration]) -> None:
    scores, outcomes, _ = overconfident(4_000)
    half = slice(0, 2_000), slice(2_000, 4_000)
    found = way(scores[half[0]], outcomes[half[0]])
    assert ece(scores[half[1]], outcomes[half[1]]) > 0.1
    assert ece(found(scores[half[1]]), outcomes[half[1]]) < 0.05


def test_few_outcomes_do_not_spoil_good_scores() -> None:
    chance = np.random.default_rng(1)
    errors = []
    for _ in range(30):
        truth = chance.uniform(0.1, 0.9, 60)
        found = calibration(truth, (chance.random(60) < truth).astype(float), chance.integers(0, 5, 60))
        errors.append(np.mean((found(truth) - truth) ** 2))
    assert np.mean(errors) < 0.01


@given(st.lists(st.tuples(st.floats(-0.5, 1.5), st.booleans()), min_size=2, max_size=60))
def test_of_two_scores_the_larger_stays_the_larger(pairs: list[tuple[float, bool]]) -> None:
    scores, outcomes = np.array([score for score, _ in pairs]), np.array([float(right) for _, right in pairs])
    found = calibration(scores, outcomes, np.arange(len(pairs)) % 3)
    said = found(np.sort(scores))
    assert (np.diff(said) >= 0).all()
    assert ((said > 0) & (said < 1)).all()


def test_groups_that_differ_by_chance_alone_have_no_mean_of_their_own() -> None:
    chance = np.random.default_rng(0)
    groups = chance.integers(0, 20, 400)
    noise = chance.standard_normal((400, 1))
    assert np.abs(group_means(noise, groups, 20)).mean() < 0.1
    shift = chance.standard_normal(20)
    found = group_means(noise + shift[groups][:, None], groups, 20)[:, 0]
    assert np.mean((found - shift) ** 2) < 0.06  # Of plain means: 1 / 20 on average, at a cost where groups do not differ.


def test_a_worker_with_one_lucky_answer_is_not_the_best() -> None:
    success = np.full((200, 2), np.nan)
    success[:, 0] = np.arange(200) % 10 < 8
    success[0, 1] = 1.0
    sure, lucky = abilities(success)
    assert sure == pytest.approx(0.8, abs=0.02)
    assert lucky < 0.95
