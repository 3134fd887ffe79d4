"""Few answers of a new worker are enough to fit it beside the others."""

import numpy as np

from journeyman.learn.router.joining import joined, newcomers
from journeyman.learn.router.table import Table
from journeyman.policy import Card


def recorded(n: int = 400, asked: int = 30) -> tuple[Table, np.ndarray]:
    """Five workers, of whom "new" was asked little; and what it would have answered to all."""
    rng = np.random.default_rng(0)
    hard = rng.normal(0, 1.5, (n, 1))
    success = (rng.random((n, 5)) < 1 / (1 + np.exp(hard - [-1.5, -0.5, 0.5, 1.5, 1.0]))).astype(float)
    length = rng.uniform(1, 3, (n, 1))
    cost, truth = length * [0.001, 0.002, 0.004, 0.01, 0.006], success[:, 4].copy()
    success[asked:, 4] = cost[asked:, 4] = np.nan
    nothing = np.zeros((n, 5), np.bool_)
    table = Table(
        ids=tuple(map(str, range(n))),
        requests=("",) * n,
        types=("general",) * n,
        cards=tuple(Card(name=name) for name in ("a", "b", "c", "d", "new")),
        success=success,
        cost=cost,
        seconds=np.full((n, 5), np.nan),
        errors=nothing,
        malformed=nothing,
    )
    return table, truth


def test_a_worker_that_was_asked_little_is_a_newcomer_and_one_that_was_never_asked_is_not() -> None:
    table, _ = recorded()
    assert newcomers(table) == ("new",)
    assert newcomers(recorded(asked=4)[0]) == ()
    assert newcomers(recorded(asked=200)[0]) == ()


def test_what_was_asked_is_kept_and_the_rest_is_nearer_the_truth_than_its_own_mean() -> None:
    table, truth = recorded()
    filled = joined(table, ("new",))
    assert filled.success[:30, 4].tolist() == truth[:30].tolist()
    assert (filled.success[:, :4] == table.success[:, :4]).all()
    by_mean = np.mean((truth[:30].mean() - truth[30:]) ** 2)
    assert np.mean((filled.success[30:, 4] - truth[30:]) ** 2) < 0.9 * by_mean


def test_its_cost_follows_the_requests_that_the_others_found_dear() -> None:
    table, _ = recorded()
    filled = joined(table, ("new",)).cost
    assert np.allclose(filled[:, 4], filled[:, 0] * 6)


def test_where_nothing_was_measured_nothing_is_made_up() -> None:
    table, _ = recorded()
    assert np.isnan(joined(table, ("new",)).seconds).all()
    alone = joined(table, ("a", "b", "c", "new"))
    assert np.isnan(alone.success[30:, 4]).all()
