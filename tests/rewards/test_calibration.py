import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, cohen_kappa_score, roc_auc_score

from journeyman.rewards.calibration import (
    ISOTONIC_FROM,
    Floats,
    Guarantee,
    Isotonic,
    Platt,
    auc,
    brier,
    calibrated,
    calibrator,
    ece,
    estimate,
    examples_needed,
    kappa,
    platt,
    select,
)

pytestmark = pytest.mark.training

BOTH = st.lists(st.tuples(st.integers(0, 10), st.booleans()), min_size=2, max_size=40).filter(
    lambda rows: len({label for _, label in rows}) == 2
)


def arrays(rows: list[tuple[int, bool]]) -> tuple[Floats, Floats]:
    return np.array([score / 10 for score, _ in rows]), np.array([float(label) for _, label in rows])


@given(BOTH)
def test_auc_and_brier_and_kappa_are_those_of_scikit_learn(rows: list[tuple[int, bool]]) -> None:
    scores, labels = arrays(rows)
    assert auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores))
    assert brier(scores, labels) == pytest.approx(brier_score_loss(labels, scores))
    assert kappa(scores, labels) == pytest.approx(cohen_kappa_score(labels > 0.5, scores >= 0.5))


def test_auc_of_one_kind_of_label_is_not_defined() -> None:
    assert np.isnan(auc(np.array([0.1, 0.9]), np.array([1.0, 1.0])))


def test_a_calibrated_coin_has_little_calibration_error_and_a_boaster_much() -> None:
    rng = np.random.default_rng(0)
    chances = rng.random(4000)
    labels = (rng.random(4000) < chances).astype(float)
    assert ece(chances, labels) < 0.04
    assert ece(np.sqrt(chances), labels) > 0.1


@given(BOTH)
def test_calibration_never_turns_an_order_round(rows: list[tuple[int, bool]]) -> None:
    scores, labels = arrays(rows)
    probabilities = platt(scores, labels)(np.sort(scores))
    assert (np.diff(probabilities) >= -1e-12).all()
    assert ((probabilities > 0) & (probabilities < 1)).all()


def test_a_score_that_points_the_wrong_way_calibrates_to_a_constant() -> None:
    scores, labels = np.linspace(0, 1, 200), np.linspace(1, 0, 200).round()
    assert platt(scores, labels).slope == pytest.approx(0.0, abs=1e-6)


def test_many_labels_are_calibrated_without_assuming_a_shape() -> None:
    rng = np.random.default_rng(1)
    scores = rng.random(3 * ISOTONIC_FROM)
    labels = (rng.random(len(scores)) < np.where(scores > 0.5, 0.9, 0.2)).astype(float)
    found = calibrated(scores, labels)
    assert isinstance(found, Isotonic)
    assert found(np.array([0.1, 0.9])) == pytest.approx([0.2, 0.9], abs=0.07)


def test_a_calibrator_is_read_as_it_was_written() -> None:
    for made in (Platt(1.5, -0.25), Isotonic((0.0, 0.5, 1.0), (0.1, 0.1, 0.8))):
        assert calibrator(json.loads(json.dumps(made.json()))) == made


@pytest.mark.parametrize(
    "data",
    [
        {"kind": "oracle"},
        {"kind": "platt", "slope": "1", "offset": 0},
        {"kind": "platt", "slope": float("nan"), "offset": 0},
        {"kind": "isotonic", "scores": [0, 1], "probabilities": [1, 0]},
        {"kind": "isotonic", "scores": [0], "probabilities": [0, 1]},
        {"kind": "isotonic", "scores": [], "probabilities": []},
    ],
)
def test_what_is_no_calibrator_is_refused(data: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        calibrator(data)


def test_attempts_at_one_task_are_no_independent_evidence() -> None:
    rng = np.random.default_rng(2)
    scores = np.repeat(rng.random(20), 10)
    labels = np.repeat((rng.random(20) < 0.5).astype(float), 10)
    of_tasks = estimate(auc, scores, labels, [str(place // 10) for place in range(200)])
    of_attempts = estimate(auc, scores, labels, [str(place) for place in range(200)])
    assert of_tasks.high - of_tasks.low > 2 * (of_attempts.high - of_attempts.low)
    assert of_tasks.low <= of_tasks.value <= of_tasks.high


def test_the_interval_of_a_calibration_error_holds_the_error() -> None:
    rng = np.random.default_rng(3)
    chances = rng.random(100)
    labels = (rng.random(100) < chances).astype(float)
    found = estimate(ece, chances, labels, [str(place) for place in range(100)], inflated=True)
    assert 0 <= found.low <= found.value <= found.high


@given(st.integers(0, 60), st.integers(1, 60), st.sampled_from([0.8, 0.9, 0.95]), st.sampled_from([0.8, 0.9, 0.99]))
def test_what_is_shown_is_what_the_exact_bound_says(wrong: int, said: int, least: float, confidence: float) -> None:
    promise = Guarantee(least=least, confidence=confidence)
    wrong = min(wrong, said)
    chance = sum(math.comb(said, k) * promise.risk**k * least ** (said - k) for k in range(wrong + 1))
    assert promise.is_shown(wrong, said) == (chance <= 1 - confidence + 1e-12)
    assert promise.is_shown(wrong, said) == (promise.upper(wrong, said) <= promise.risk + 1e-9)
    assert promise.upper(wrong, said) >= wrong / said
    assert not (promise.is_shown(wrong, said) and promise.is_refuted(wrong, said))


def test_how_many_it_takes_is_what_the_binomial_says() -> None:
    assert Guarantee().least_said() == 22
    assert Guarantee(least=0.95).least_said() == 45
    assert Guarantee().least_said(0.1) is None
    assert not Guarantee().is_shown(0, 0)


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=120))
def test_what_is_selected_was_shown_and_holds_the_surest(rows: list[tuple[int, bool]]) -> None:
    ranks, right = np.array([rank / 50 for rank, _ in rows]), np.array([good for _, good in rows], np.bool_)
    found = select(ranks, right, Guarantee())
    needed = examples_needed(ranks, right, Guarantee())
    assert needed is None or needed >= 22
    if found is None:
        return
    among = ranks <= found.share
    assert (found.said, found.wrong) == (among.sum(), (among & ~right).sum())
    assert Guarantee().is_shown(found.wrong, found.said)


@pytest.mark.parametrize("count", [40, 120])
@pytest.mark.parametrize("surest", [0.0, 0.4, 1.0])
def test_a_promise_is_broken_in_no_more_draws_than_it_says(count: int, surest: float) -> None:
    """A tenth and a hair are wrong among what could be said, and three tenths of the rest: any word is a broken promise."""
    chance = np.random.default_rng(7)
    broken = 0
    for _ in range(400):
        ranks = chance.random(count)
        right = chance.random(count) >= np.where(ranks < surest, 0.1001, 0.3)
        broken += select(ranks, right, Guarantee()) is not None
    # Four standard deviations of 400 draws at a tenth.
    assert broken / 400 <= 0.1 + 4 * (0.1 * 0.9 / 400) ** 0.5


def test_where_the_surest_are_right_they_may_be_said_and_the_others_not() -> None:
    chance = np.random.default_rng(1)
    ranks = chance.random(100)
    found = select(ranks, ranks < 0.6, Guarantee())
    assert found is not None
    assert 0.5 < found.share < 0.67
