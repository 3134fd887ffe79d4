"""The proof: utilities as they are defined, mapped to scores without changing who is better, and compared with paired rows."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.core.gate import BetterOnHeldOut, Guardrail
from journeyman.core.policy import Ending, Outcome
from journeyman.experiments.router.evaluation import RouterEvaluation, Utilities, prove, singles
from journeyman.optimizers.outcome_table import OutcomeRow, Table
from journeyman.optimizers.router import outcomes
from journeyman.optimizers.router.decide import BatchDecision
from journeyman.optimizers.router.objective import Objective, parse
from journeyman.optimizers.router.predict import Forecasts

DEAR = parse("quality - 10*cost")


def table(*rows: Mapping[str, tuple[float | None, float | None]]) -> Table:
    """Success and cost by worker; a success of `None` is a provider's error."""
    made = [
        OutcomeRow(
            id=str(at),
            request=f"request {at}",
            outcomes={
                name: Outcome(ending=Ending.ERROR if s is None else Ending.RIGHT if s else Ending.WRONG, success=s, cost=c)
                for name, (s, c) in row.items()
            },
        )
        for at, row in enumerate(rows)
    ]
    return outcomes.table(made)


def proof(of: Table, chosen: list[int], objective: Objective, best: str, **more: Any) -> RouterEvaluation:
    n, m = of.success.shape
    unknown = np.full((n, m), math.nan)
    forecasts = Forecasts(
        workers=of.workers, success=np.full((n, m), 0.7), cost=unknown, p50=unknown, p95=unknown, familiar=np.ones(n)
    )
    made = BatchDecision(forecasts=forecasts, objective=objective, chosen=np.asarray(chosen), dual=0.0)
    return prove(of, made, best=best, most=Utilities.of(of, objective).most, **more)


def test_a_utility_is_success_less_what_it_cost() -> None:
    found = Utilities.of(table({"a": (1.0, 0.02), "b": (0.0, 0.05)}), DEAR)
    np.testing.assert_allclose(found.values, [[1 - 0.2, 0 - 0.5]])
    assert found.span == pytest.approx(1.5)
    assert found.score(-0.5) == pytest.approx(0.0)
    assert found.score(1.0) == pytest.approx(1.0)
    assert found.score(math.nan) is None


def test_a_call_that_failed_is_a_wrong_answer_that_cost_nothing() -> None:
    found = Utilities.of(table({"a": (None, None), "b": (1.0, 0.02)}), DEAR)
    np.testing.assert_allclose(found.values, [[0.0, 0.8]])


_CELLS = st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1))


@given(st.lists(st.tuples(_CELLS, _CELLS), min_size=2, max_size=20), st.floats(0, 50))
def test_scores_differ_as_utilities_do(rows: list[tuple[tuple[float, float], tuple[float, float]]], weight: float) -> None:
    found = Utilities.of(table(*({"a": a, "b": b} for a, b in rows)), Objective(cost=weight))
    for one, other in found.values:
        mine, theirs = found.score(one), found.score(other)
        assert mine is not None
        assert theirs is not None
        assert (mine - theirs) * found.span == pytest.approx(one - other, abs=1e-9)


def test_the_incumbent_is_the_best_single_worker_that_the_objective_allows() -> None:
    rows = table(*[{"cheap": (1.0, 0.001), "dear": (1.0, 0.1)}] * 6, *[{"cheap": (0.0, 0.001), "dear": (1.0, 0.1)}] * 4)
    assert singles(rows, Objective())[0] == "dear"
    assert singles(rows, DEAR)[0] == "cheap"
    assert singles(rows, Objective(max_cost=0.01)) == ("cheap",)
    with pytest.raises(InputError, match="no worker alone"):
        singles(rows, Objective(allow=("nobody",)))


def test_choosing_right_passes_and_choosing_at_random_does_not() -> None:
    rows = table(*({"a": (float(at % 2), 0.01), "b": (float(1 - at % 2), 0.01)} for at in range(100)))
    wise = proof(rows, [1 - at % 2 for at in range(100)], DEAR, "a")
    assert wise.report.passed
    assert wise.gain == pytest.approx(0.5)
    assert wise.json()["reason"].endswith("(in scores, of which 1 is 1.1 successes)"), "its gain is another number"
    quality = proof(rows, [1 - at % 2 for at in range(100)], Objective(), "a")
    assert f"gain {quality.json()['gain']:+.3f} on 100 tasks" in quality.reason
    assert quality.reason == quality.report.reason
    assert wise.sides["router"].accuracy == 1.0
    assert wise.sides["oracle"].utility == wise.sides["router"].utility
    assert wise.sides["random"].accuracy == pytest.approx(0.5)
    assert not proof(rows, [at // 2 % 2 for at in range(100)], DEAR, "a").report.passed


def test_a_router_that_costs_more_than_is_allowed_does_not_pass_however_right_it_is() -> None:
    rows = table(*({"a": (float(at % 2), 0.01), "b": (float(1 - at % 2), 0.02)} for at in range(100)))
    allowed = {margin: BetterOnHeldOut(guardrails=(Guardrail("cost", margin),)) for margin in (0.1, 0.7)}
    wise = {margin: proof(rows, [1 - at % 2 for at in range(100)], DEAR, "a", gate=gate) for margin, gate in allowed.items()}
    assert wise[0.7].passed
    assert not wise[0.1].passed
    assert "but cost +50.0 %" in wise[0.1].reason
    (cost,) = wise[0.1].json()["report"]["guardrails"]
    assert (cost["baseline"], cost["candidate"]) == pytest.approx((0.01, 0.015))


def test_a_router_that_helps_half_of_the_customers_is_no_gain_for_the_next_one() -> None:
    """The router is right where the best single worker is wrong with seven of twelve customers, and the other way round."""
    rows = table(
        *({"a": (float(at // 20 > 6), 0.01), "b": (float(at // 20 <= 6), 0.01)} for at in range(240)),
    )
    chosen = [1] * len(rows)
    alone = proof(rows, chosen, Objective(), "a")
    assert alone.passed, "as long as nobody says that they go together"
    apart = proof(replace(rows, clusters=tuple(f"customer {at // 20}" for at in range(240))), chosen, Objective(), "a")
    assert not apart.passed
    assert "on 240 tasks in 12 clusters" in apart.reason
    assert apart.json()["report"]["clusters"] == 12
    few = proof(replace(rows, clusters=tuple(f"customer {at // 60}" for at in range(240))), chosen, Objective(), "a")
    assert "10 clusters are needed" in few.reason


def test_always_asking_the_best_single_worker_is_no_gain() -> None:
    rows = table(*({"a": (1.0, 0.01), "b": (float(at % 2), 0.01)} for at in range(100)))
    found = proof(rows, [0] * 100, DEAR, "a")
    assert not found.report.passed
    assert found.gain == 0


def test_rows_that_tell_of_one_worker_alone_cannot_prove_anything() -> None:
    rows = table(*({("a", "b")[at % 2]: (1.0, 0.01)} for at in range(100)))
    found = proof(rows, [at % 2 for at in range(100)], DEAR, "a")
    assert not found.report.passed
    assert "could not be compared" in found.report.reason


def test_what_saves_money_and_loses_quality_is_refused_where_quality_has_a_floor() -> None:
    objective = parse("-cost where quality >= 0.8")
    rows = table(*({"cheap": (float(at % 10 < 6), 0.001), "dear": (1.0, 0.1)} for at in range(200)))
    careless = proof(rows, [0] * 200, objective, "dear")
    assert not careless.report.passed
    assert "loses success" in careless.report.reason
    careful = proof(rows, [0 if at % 10 < 6 else 1 for at in range(200)], objective, "dear")
    assert careful.report.passed


def test_a_request_for_which_nobody_could_be_chosen_is_not_answered() -> None:
    rows = table(*[{"a": (1.0, 0.01), "b": (1.0, 0.01)}] * 50)
    found = proof(rows, [-1] * 50, DEAR, "a")
    assert found.sides["router"].accuracy == 0.0
    assert not found.report.passed
