"""A model that has read the session is cheaper to ask again than its price list says of others."""

from journeyman.core.policy import Card, Forecast
from journeyman.optimizers.router.decide import decide_one
from journeyman.optimizers.router.objective import parse
from journeyman.serving.router import RoutingSession, in_session

CARDS = {
    "small": Card(name="small", input_price=1.0, output_price=2.0),
    "large": Card(name="large", input_price=5.0, output_price=15.0),
    "tool": Card(name="tool", kind="tool", call_price=0.01),
    "unknown": Card(name="unknown"),
}


def test_whoever_has_not_read_the_session_reads_it_at_full_price() -> None:
    session = RoutingSession(tokens=100_000, worker="large", share=0.1)
    assert session.of(CARDS["large"]) == 0.05
    assert session.of(CARDS["small"]) == 0.1
    assert session.of(CARDS["tool"]) == 0.0
    assert session.of(CARDS["unknown"]) is None


def test_what_was_read_is_forgotten_after_a_while() -> None:
    assert RoutingSession(tokens=100_000, worker="large", idle=301).of(CARDS["large"]) == 0.5


def test_a_long_session_stays_with_its_model_and_a_new_one_goes_to_the_cheaper() -> None:
    offered = [
        Forecast(worker="small", success=0.80, cost=0.001, p50=None, p95=None),
        Forecast(worker="large", success=0.82, cost=0.005, p50=None, p95=None),
    ]
    objective = parse("quality - 20*cost")
    assert decide_one(in_session(offered, RoutingSession(tokens=0), CARDS), objective).worker == "small"
    assert decide_one(in_session(offered, RoutingSession(tokens=100_000, worker="large"), CARDS), objective).worker == "large"


def test_what_has_no_card_or_price_has_no_known_cost_in_a_session() -> None:
    offered = [Forecast(worker=name, success=0.5, cost=0.1, p50=None, p95=None) for name in ("tool", "unknown", "nobody")]
    found = in_session(offered, RoutingSession(tokens=1000, worker="small"), CARDS)
    assert [each.cost for each in found] == [0.1, None, None]
