"""A model that has read the session is cheaper to ask again than its price list says of others."""

import numpy as np

from journeyman.learn.router.base import Forecasts
from journeyman.learn.router.decide import decide, decide_one
from journeyman.learn.router.objective import parse
from journeyman.learn.router.warm import Session, all_in_session, in_session
from journeyman.policy import Card, Forecast

CARDS = {
    "small": Card(name="small", input_price=1.0, output_price=2.0),
    "large": Card(name="large", input_price=5.0, output_price=15.0),
    "tool": Card(name="tool", kind="tool", call_price=0.01),
    "unknown": Card(name="unknown"),
}


def test_whoever_has_not_read_the_session_reads_it_at_full_price() -> None:
    session = Session(tokens=100_000, worker="large", share=0.1)
    assert session.of(CARDS["large"]) == 0.05
    assert session.of(CARDS["small"]) == 0.1
    assert session.of(CARDS["tool"]) == 0.0
    assert session.of(CARDS["unknown"]) is None


def test_what_was_read_is_forgotten_after_a_while() -> None:
    assert Session(tokens=100_000, worker="large", idle=301).of(CARDS["large"]) == 0.5


def test_a_long_session_stays_with_its_model_and_a_new_one_goes_to_the_cheaper() -> None:
    offered = [
        Forecast(worker="small", success=0.80, cost=0.001, p50=None, p95=None),
        Forecast(worker="large", success=0.82, cost=0.005, p50=None, p95=None),
    ]
    objective = parse("quality - 20*cost")
    assert decide_one(in_session(offered, Session(tokens=0), CARDS), objective).worker == "small"
    assert decide_one(in_session(offered, Session(tokens=100_000, worker="large"), CARDS), objective).worker == "large"


def test_arrays_and_single_forecasts_cost_the_same() -> None:
    names = ("small", "large", "tool", "unknown", "nobody")
    cost = np.array([[0.001, 0.005, 0.01, np.nan, 0.1]])
    one = np.full_like(cost, 0.5)
    forecasts = Forecasts(workers=names, success=one, cost=cost, p50=one, p95=one, familiar=np.ones(1))
    session = Session(tokens=1000, worker="small")
    offered = [
        Forecast(worker=name, success=0.5, cost=None if np.isnan(value) else value, p50=0.5, p95=0.5)
        for name, value in zip(names, cost[0].tolist(), strict=True)
    ]
    alone = [np.nan if f.cost is None else f.cost for f in in_session(offered, session, CARDS)]
    together = all_in_session(forecasts, session, CARDS)
    np.testing.assert_allclose(together.cost[0], alone)
    assert decide(together, parse("quality - cost")).worker(0) == "small"
