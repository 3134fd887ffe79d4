"""The choice meets the limits, whatever is forecast; the scalar path and the arrays agree."""

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.core.policy import Forecast
from journeyman.optimizers.router.decide import OnlineBudget, decide, decide_one, row, tuned_dual
from journeyman.optimizers.router.objective import Objective, parse
from journeyman.optimizers.router.predict import Forecasts

pytestmark = pytest.mark.training

# Multiples that floats hold exactly, so that ties are ties in both paths.
shares = st.integers(0, 16).map(lambda value: value / 16)
unknown = st.just(math.nan)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Forecasts, Objective]:
    n, m = draw(st.integers(1, 6)), draw(st.integers(1, 5))

    def table(cell: st.SearchStrategy[float]) -> np.ndarray:
        return np.array(draw(st.lists(st.lists(cell, min_size=m, max_size=m), min_size=n, max_size=n)))

    names = draw(st.permutations("abcde"[:m]))
    forecasts = Forecasts(
        workers=tuple(names),
        success=table(shares),
        cost=table(shares | unknown),
        p50=table(shares | unknown),
        p95=table(shares | unknown),
        familiar=np.ones(n),
    )
    objective = Objective(
        cost=draw(st.sampled_from([0.0, 0.5, 4.0])),
        p50=draw(st.sampled_from([0.0, 0.25])),
        p95=draw(st.sampled_from([0.0, 0.125])),
        min_quality=draw(st.none() | shares),
        deadline=draw(st.none() | shares),
        allow=tuple(draw(st.sets(st.sampled_from("abcde")))),
        unpriced=draw(st.booleans()),
    )
    if not objective.allow:
        objective = replace(objective, deny=tuple(draw(st.sets(st.sampled_from("abcde")))))
    return forecasts, objective


@given(scenes(), st.sampled_from([0.0, 1.0]))
def test_who_is_chosen_meets_every_limit(scene: tuple[Forecasts, Objective], dual: float) -> None:
    forecasts, objective = scene
    decision = decide(forecasts, objective, dual=dual)
    for at in range(len(forecasts.success)):
        worker = decision.worker(at)
        if worker is None:
            continue
        chosen = row(forecasts, at)[forecasts.workers.index(worker)]
        assert objective.admits(worker)
        assert objective.deadline is None or (chosen.p95 is not None and chosen.p95 <= objective.deadline)
        assert chosen.cost is not None or objective.unpriced or not objective.money_counts
        if objective.min_quality is not None and chosen.success < objective.min_quality:
            able = [f for f in row(forecasts, at) if decide_one([f], objective).worker]
            assert all(f.success < objective.min_quality for f in able)


@given(scenes(), st.sampled_from([0.0, 1.0]))
def test_one_request_alone_is_decided_as_among_many(scene: tuple[Forecasts, Objective], dual: float) -> None:
    forecasts, objective = scene
    decision = decide(forecasts, objective, dual=dual)
    for at in range(len(forecasts.success)):
        assert decide_one(row(forecasts, at), objective, dual=dual).worker == (decision.worker(at) or "")


@given(scenes(), st.randoms(use_true_random=False))
def test_the_order_of_the_workers_plays_no_part(scene: tuple[Forecasts, Objective], random: Random) -> None:
    forecasts, objective = scene
    order = list(range(len(forecasts.workers)))
    random.shuffle(order)
    turned = replace(
        forecasts,
        workers=tuple(forecasts.workers[column] for column in order),
        success=forecasts.success[:, order],
        cost=forecasts.cost[:, order],
        p50=forecasts.p50[:, order],
        p95=forecasts.p95[:, order],
    )
    rows = range(len(forecasts.success))
    here, there = decide(forecasts, objective), decide(turned, objective)
    assert [here.worker(at) for at in rows] == [there.worker(at) for at in rows]


def scene(n: int = 400, seed: int = 0) -> Forecasts:
    """Three workers, the dearer the better, by how much depending on the request."""
    rng = np.random.default_rng(seed)
    base = rng.uniform(0.2, 0.8, n)
    gain = rng.uniform(0, 0.2, (n, 2)).cumsum(axis=1)
    success = np.column_stack([base, base[:, None] + gain])
    cost = np.array([0.0001, 0.001, 0.01]) * rng.uniform(0.5, 2, (n, 1))
    seconds = np.tile([1.0, 2.0, 4.0], (n, 1))
    return Forecasts(
        workers=("small", "middle", "large"), success=success, cost=cost, p50=seconds, p95=2 * seconds, familiar=np.ones(n)
    )


@given(st.floats(0.0002, 0.02))
def test_the_dual_weight_keeps_the_budget_and_gives_nothing_away_for_less(budget: float) -> None:
    forecasts = scene()
    objective = Objective(max_cost=budget)
    decision = decide(forecasts, objective)
    cost = forecasts.cost[np.arange(400), decision.chosen]
    assert cost.mean() <= budget
    if decision.dual:
        # A little less, and one more request would go to a dearer worker and break the budget.
        looser = decide(forecasts, objective, dual=decision.dual * (1 - 1e-9)).chosen
        assert forecasts.cost[np.arange(400), looser].mean() > budget


def test_a_budget_brings_more_than_the_best_single_worker_that_keeps_it() -> None:
    forecasts = scene()
    chosen = decide(forecasts, Objective(max_cost=forecasts.cost[:, 1].mean())).chosen
    assert forecasts.success[np.arange(400), chosen].mean() > forecasts.success[:, 1].mean()


def test_a_budget_below_the_cheapest_is_refused_with_its_numbers() -> None:
    with pytest.raises(InputError, match=r"\$1e-06 a request cannot be met: the cheapest choices cost \$0.00012432"):
        tuned_dual(scene(), parse("quality where cost <= 0.000001"))


@given(st.integers(0, 50), st.floats(0.0002, 0.005))
def test_in_service_the_spending_never_passes_the_budget_and_its_advance(seed: int, share: float) -> None:
    forecasts = scene(200, seed)
    budget, objective = OnlineBudget(share=share, ahead=5), Objective(max_cost=share)
    spent = 0.0
    for at in range(200):
        offered = row(forecasts, at)
        worker = decide_one(offered, objective, dual=budget.dual, left=budget.left).worker
        cost = next((f.cost or 0.0 for f in offered if f.worker == worker), 0.0)
        spent += cost
        budget = budget.after(cost)
        assert spent <= share * (at + 1 + budget.ahead) + 1e-12


def test_in_service_the_dual_finds_the_price_that_logged_forecasts_would_have_told() -> None:
    forecasts, share = scene(4000, 1), 0.002
    told = decide(forecasts, Objective(max_cost=share))
    budget, found = OnlineBudget(share=share), []
    for at in range(4000):
        verdict = decide_one(row(forecasts, at), Objective(max_cost=share), dual=budget.dual, left=budget.left)
        found.append(forecasts.workers.index(verdict.worker))
        budget = budget.after(float(forecasts.cost[at, found[-1]]))
    rows = np.arange(4000)
    online, offline = forecasts.success[rows, found].mean(), forecasts.success[rows, told.chosen].mean()
    assert budget.spent <= share * (4000 + budget.ahead)
    assert online > offline - 0.01


def test_an_unknown_price_is_not_free() -> None:
    offered = [
        Forecast(worker="a", success=0.9, cost=None, p50=None, p95=None),
        Forecast(worker="b", success=0.5, cost=0.01, p50=None, p95=None),
    ]
    assert decide_one(offered, parse("quality")).worker == "a"
    assert decide_one(offered, parse("quality - cost")).worker == "b"
    assert decide_one(offered, replace(parse("quality - cost"), unpriced=True)).worker == "a"
    # Counted as the dearest, it has no advantage in cost.
    assert decide_one(offered, replace(parse("-cost where quality >= 0.4"), unpriced=True)).worker == "a"
    assert "no allowed worker has a known price" in decide_one(offered[:1], parse("quality - cost")).reason


def test_the_reason_has_its_numbers() -> None:
    verdict = scene_verdict("quality - 20*cost")
    assert "small" in verdict
    assert "likely right" in verdict
    assert "next is" in verdict
    assert "the least that reaches 0.5" in scene_verdict("-cost where quality >= 0.5")
    assert "nobody reaches 1" in scene_verdict("-cost where quality >= 1")
    assert "the fastest takes 2 s" in scene_verdict("quality where p95 <= 1")


def scene_verdict(words: str) -> str:
    forecasts = scene(1)
    return decide_one(row(forecasts, 0), parse(words)).reason
