import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.experiments.router.evaluation import ece
from journeyman.models.embedders import Vectors
from journeyman.optimizers.router.fit import RouterFitConfig, fit
from journeyman.stats import Floats
from tests.optimizers.router.worlds import QUICK, directions, questions, specialists, table
from tests.support.examples import examples

pytestmark = pytest.mark.training


def test_workers_that_are_good_at_different_things_are_told_apart() -> None:
    chance = np.random.default_rng(0)
    vectors, outcomes, truth = specialists(chance, 700)
    fitted = fit(table(outcomes[:500]), vectors[:500], QUICK)
    chosen = fitted.forecast(vectors[500:], [f"request {at}" for at in range(200)], [""] * 200).success.argmax(1)
    assert truth[500:][np.arange(200), chosen].mean() > 0.75  # Either alone: about 0.5.


@pytest.mark.parametrize("rows", [12, 40, 150])
def test_rows_that_tell_nothing_leave_the_best_single_worker(rows: int) -> None:
    abilities = np.array([0.3, 0.5, 0.55, 0.7])
    lost = []
    for seed in range(6):
        chance = np.random.default_rng(seed)
        outcomes = (chance.random((rows, 4)) < abilities).astype(np.float64)
        fitted = fit(table(outcomes), directions(chance, rows), QUICK, seed)
        fresh = directions(chance, 200)
        chosen = fitted.forecast(fresh, ["request"] * 200, [""] * 200).success.argmax(1)
        lost.append(abilities[outcomes.mean(0).argmax()] - abilities[chosen].mean())
    assert np.mean(lost) < 0.01


def test_two_rows_are_enough_for_a_ranking_and_not_for_more() -> None:
    fitted = fit(table(np.array([[1.0, 0.0], [1.0, 0.0]])), directions(np.random.default_rng(0), 2))
    said = fitted.forecast(directions(np.random.default_rng(1), 5), ["a"] * 5, [""] * 5)
    assert (said.success[:, 0] > said.success[:, 1]).all()
    assert (said.success == said.success[0]).all()
    assert said.success.max() < 1


def test_types_count_where_they_are_known_and_harm_nobody_where_they_are_not() -> None:
    chance = np.random.default_rng(3)
    types = [("code", "prose")[at] for at in chance.integers(0, 2, 400)]
    right = np.array([[0.9, 0.4] if type == "code" else [0.4, 0.9] for type in types])
    vectors = directions(chance, 400)
    fitted = fit(table((chance.random((400, 2)) < right).astype(np.float64), types=types), vectors, QUICK)
    code, prose, unseen = fitted.forecast(vectors[:3], ["x", "x", "x"], ["code", "prose", "poetry"]).success
    assert code[0] - code[1] > 0.3
    assert prose[1] - prose[0] > 0.3
    assert abs(unseen[0] - unseen[1]) < 0.2


def test_one_known_outcome_a_row_is_enough_to_learn_who_is_good_at_what() -> None:
    chance = np.random.default_rng(5)
    vectors, outcomes, truth = specialists(chance, 1_400)
    asked = chance.integers(0, 2, 1_200)
    seen = np.where(np.arange(2) == asked[:, None], outcomes[:1_200], np.nan)
    said = fit(table(seen), vectors[:1_200], QUICK).forecast(vectors[1_200:], ["request"] * 200, [""] * 200)
    assert truth[1_200:][np.arange(200), said.success.argmax(1)].mean() > 0.7


def test_what_was_never_measured_stays_unknown_and_who_was_never_judged_is_left_out() -> None:
    chance = np.random.default_rng(0)
    success = (chance.random((60, 3)) < 0.5).astype(np.float64)
    success[:, 1] = np.nan
    cost = np.column_stack([np.full(60, 0.02), np.full(60, 0.5), np.full(60, np.nan)])
    fitted = fit(table(success, cost=cost), directions(chance, 60), QUICK)
    said = fitted.forecast(directions(chance, 4), ["a"] * 4, [""] * 4)
    assert said.workers == ("model-0", "model-2")
    np.testing.assert_allclose(said.cost[:, 0], 0.02, rtol=1e-3)
    assert np.isnan(said.cost[:, 1]).all()
    assert np.isnan(said.p95[:, 1]).all()


def test_cost_follows_the_length_and_what_is_free_stays_free() -> None:
    chance = np.random.default_rng(0)
    requests = ["word " * int(size) for size in chance.integers(5, 400, 300)]
    length = np.array([len(request) for request in requests], np.float64)
    cost = np.column_stack([length * 1e-6 * np.exp(0.1 * chance.standard_normal(300)), np.zeros(300)])
    fitted = fit(table(np.ones((300, 2)), requests=requests, cost=cost), directions(chance, 300), QUICK)
    said = fitted.forecast(directions(chance, 2), ["word " * 20, "word " * 300], ["", ""])
    np.testing.assert_allclose(said.cost[:, 0], [100e-6, 1500e-6], rtol=0.25)
    assert (said.cost[:, 1] == 0).all()


def test_95_of_100_answers_come_within_the_95th_percentile() -> None:
    chance = np.random.default_rng(1)
    seconds = np.exp(0.8 * chance.standard_normal((1_500, 1)))
    vectors = directions(chance, 1_500)
    fitted = fit(table(np.ones((1_000, 1)), cost=seconds[:1_000] / 1_000), vectors[:1_000], QUICK)
    said = fitted.forecast(vectors[1_000:], ["request 1"] * 500, [""] * 500)
    assert (seconds[1_000:] <= said.p95).mean() == pytest.approx(0.95, abs=0.04)
    assert (seconds[1_000:] <= said.p50).mean() == pytest.approx(0.5, abs=0.08)


def test_probabilities_come_true() -> None:
    chance = np.random.default_rng(2)
    vectors, outcomes, _ = specialists(chance, 3_000)
    fitted = fit(table(outcomes[:1_500]), vectors[:1_500], QUICK)
    said = fitted.forecast(vectors[1_500:], ["request 1"] * 1_500, [""] * 1_500)
    assert ece(said.success, outcomes[1_500:]) < 0.05


def test_what_is_unlike_all_that_was_seen_is_told() -> None:
    chance = np.random.default_rng(2)
    vectors = directions(chance, 300)
    vectors[:, 12:] = 0
    fitted = fit(table((chance.random((300, 2)) < 0.5).astype(np.float64)), vectors, QUICK)
    far = np.zeros((1, 24), np.float32)
    far[0, 20] = 6
    near, strange = (fitted.forecast(one, ["request 7"], [""]).familiar[0] for one in (vectors[:1], far))
    assert near > fitted.strange > strange


def test_of_real_questions_the_probabilities_come_true_and_the_dear_model_is_dear() -> None:
    table_, vectors = questions()
    gaps = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(300)
        learned, test = order[:200], order[200:]
        fitted = fit(table_.take(learned), vectors[learned], QUICK, seed)
        said = fitted.forecast(vectors[test], [table_.requests[at] for at in test], [""] * 100)
        assert (said.cost[:, 1] > said.cost[:, 0]).all()
        gaps.append(ece(said.success, table_.success[test], bins=5))
    assert np.mean(gaps) < 0.12


def test_the_same_rows_and_seed_give_the_same_predictors() -> None:
    table_, vectors = questions()
    one, two = (fit(table_, vectors, QUICK, 4).forecast(vectors, table_.requests, [""] * 300) for _ in range(2))
    np.testing.assert_array_equal(one.success, two.success)


@examples(0.2)
@given(
    rows=st.integers(1, 40),
    workers=st.integers(1, 4),
    unknown=st.floats(0, 0.9),
    kinds=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_whatever_is_missing_a_forecast_is_a_probability(
    rows: int, workers: int, unknown: float, kinds: int, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    success = chance.integers(0, 3, (rows, workers)) / 2
    success[chance.random(success.shape) < unknown] = np.nan
    success[0, 0] = 1.0
    types = [f"type {at}" for at in chance.integers(0, kinds, rows)]
    config = RouterFitConfig(nets=1, hidden=4, clusters=(3,), repeats=1, axes=4, epochs=1)
    fitted = fit(table(success, types=types), directions(chance, rows, 6), config)
    said = fitted.forecast(directions(chance, 5, 6), [""] * 5, ["type 0", "type 1", "", "?", "type 2"])
    assert ((said.success > 0) & (said.success < 1)).all()
    assert ((said.familiar >= 0) & (said.familiar <= 1)).all()


@pytest.mark.parametrize(
    ("success", "vectors", "said"),
    [
        (np.full((3, 2), np.nan), np.zeros((3, 4), np.float32), "no outcome is judged"),
        (np.ones((3, 2)), np.zeros((2, 4), np.float32), "3 rows and 2 vectors"),
        (np.ones((1, 2)), np.full((1, 4), np.nan, np.float32), "no number"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(success: Floats, vectors: Vectors, said: str) -> None:
    with pytest.raises(InputError, match=said):
        fit(table(success), vectors)


def test_vectors_of_another_embedder_are_refused() -> None:
    fitted = fit(table(np.ones((3, 2))), directions(np.random.default_rng(0), 3), embedder="hashing:24")
    with pytest.raises(InputError, match="length 24 by hashing:24"):
        fitted.forecast(np.zeros((1, 9), np.float32), ["a"], [""])
