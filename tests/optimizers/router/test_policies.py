"""What is learned is used only where it was better than the best single worker."""

import numpy as np
import pytest

from journeyman.core.errors import InputError
from journeyman.optimizers.outcome_table import Table
from journeyman.optimizers.router.decide import LEARNED, compare, ranked_singles, single_utility
from journeyman.optimizers.router.objective import parse
from journeyman.optimizers.router.predict import Forecasts
from journeyman.stats import Floats


def table(success: Floats, cost: Floats) -> Table:
    n, m = success.shape
    return Table.judged([""] * n, success, ("a", "b", "c")[:m], cost=cost)


def recorded(n: int = 400) -> tuple[Table, Floats]:
    """a and b are each right on half of the requests, b costs ten times as much; and the probabilities behind it."""
    rng = np.random.default_rng(0)
    likely = np.where(rng.random((n, 1)) < 0.5, [0.9, 0.3], [0.3, 0.95])
    return table((rng.random((n, 2)) < likely).astype(float), np.tile([0.001, 0.01], (n, 1))), likely


def forecasts(of: Table, likely: Floats) -> Forecasts:
    unknown = np.full(likely.shape, np.nan)
    return Forecasts(workers=of.workers, success=likely, cost=of.cost, p50=unknown, p95=unknown, familiar=np.ones(len(of)))


def test_good_forecasts_are_used() -> None:
    rows, likely = recorded()
    held = rows.take(range(200, 400))
    found = compare(rows.take(range(200)), held, forecasts(held, likely[200:]), parse("quality"))
    assert found.best == LEARNED
    assert found.gain > 2 * found.error > 0
    assert "it is used" in found.reason


def test_bad_forecasts_are_not_and_the_best_single_worker_answers() -> None:
    rows, likely = recorded()
    held = rows.take(range(200, 400))
    found = compare(rows.take(range(200)), held, forecasts(held, 1 - likely[200:]), parse("quality"))
    assert found.best == ranked_singles(rows.take(range(200)), parse("quality"))[0]
    assert found.gain < 0
    assert f"{found.best} is used" in found.reason


def test_single_workers_are_ranked_by_the_objective_and_its_limits() -> None:
    rows = table(np.array([[0, 1.0], [1, 1]]), np.array([[0.001, 0.1]] * 2))
    assert ranked_singles(rows, parse("quality")) == ("b", "a")
    assert ranked_singles(rows, parse("quality - 20*cost")) == ("a", "b")
    assert ranked_singles(rows, parse("quality where cost <= 0.01")) == ("a",)
    assert ranked_singles(rows, parse("-cost where quality >= 0.5")) == ("a", "b")
    assert ranked_singles(rows, parse("-cost where quality >= 0.9")) == ("b", "a")
    assert ranked_singles(rows, parse("quality where p95 <= 1")) == ()
    assert single_utility(rows, parse("quality - 20*cost")).tolist() == pytest.approx([0.48, -1.0])


def test_what_nobody_judged_does_not_count_as_wrong() -> None:
    rows = table(np.array([[1.0, 1], [np.nan, 0]]), np.array([[0.001, 0.1]] * 2))
    assert ranked_singles(rows, parse("quality")) == ("a", "b")
    unknown = table(np.full((2, 2), np.nan), rows.cost)
    with pytest.raises(InputError, match="none of 2 validation rows is known"):
        compare(rows, unknown, forecasts(unknown, np.full((2, 2), 0.5)), parse("quality"))


def test_limits_that_no_worker_keeps_are_refused() -> None:
    rows, likely = recorded()
    with pytest.raises(InputError, match="no worker alone keeps the limits"):
        compare(rows, rows, forecasts(rows, likely), parse("quality where cost <= 0.0001"))


def test_a_floor_comes_before_the_cost() -> None:
    rows, likely = recorded()
    train, held = rows.take(range(200)), rows.take(range(200, 400))
    found = compare(train, held, forecasts(held, likely[200:]), parse("-cost where quality >= 0.85"))
    # No worker alone reaches 0.85; the learned choice does, and pays less than the dear one.
    assert found.best == LEARNED
    assert found.tried[-1].reaches
    assert found.tried[-1].cost < 0.01
