"""What the operator says is what is optimised; anything else is refused in one sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.optimizers.router.objective import Objective, parse


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("quality", Objective()),
        ("quality - 20*cost", Objective(cost=20)),
        ("quality - 0.01*p95", Objective(p95=0.01)),
        ("2*quality - 3*4*cost - (p95 + cost)/2", Objective(cost=6.25, p95=0.25)),
        ("success - latency * .1", Objective(p50=0.1)),
        ("quality where cost <= 0.002 and p95 <= 3", Objective(max_cost=0.002, deadline=3)),
        ("quality subject to cost <= 1/500", Objective(max_cost=0.002)),
        ("-cost where quality >= 0.9", Objective(cost=1, min_quality=0.9)),
        ("I pay $0.05 and 20 seconds for one more success", Objective(cost=20, p50=0.05)),
        ("I'd pay $2 per success", Objective(cost=0.5)),
        ("I pay 10 s for one more success", Objective(p50=0.1)),
    ],
)
def test_words_are_understood(words: str, meant: Objective) -> None:
    assert parse(words) == meant


@pytest.mark.parametrize(
    "words",
    [
        "",
        "   ",
        "-cost",
        "0*quality",
        "-quality",
        "quality*cost",
        "quality/0",
        "1/quality",
        "quality + cost",
        "qualty",
        "__import__('os').system('true')",
        "quality if cost else p95",
        "quality where",
        "quality where cost >= 3",
        "quality where cost <= p95",
        "quality where cost <= 1 and cost <= 2",
        "quality where quality >= 1.5",
        "quality where cost <= -1",
        "quality - 1e999*cost",
        "quality - " + "9" * 390 + "*cost",
        "True*quality",
        "(" * 200 + "quality" + ")" * 200,
        "I pay $0 for one more success",
        "I pay for one more success",
        "I pay $1-e for one more success",
    ],
)
def test_what_is_no_objective_is_refused_in_one_sentence(words: str) -> None:
    with pytest.raises(InputError) as refused:
        parse(words)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 700


weights = st.floats(0, 1e6).filter(lambda value: value == 0 or value > 1e-6)


@given(weights, weights, weights, st.none() | weights, st.none() | st.floats(0, 1), st.none() | weights)
def test_an_objective_says_itself_in_words_that_read_back(
    cost: float, p50: float, p95: float, max_cost: float | None, floor: float | None, deadline: float | None
) -> None:
    meant = Objective(cost=cost, p50=p50, p95=p95, max_cost=max_cost, min_quality=floor, deadline=deadline)
    assert parse(str(meant)) == meant


@given(st.text(max_size=60))
def test_any_other_text_is_refused_and_never_run(words: str) -> None:
    try:
        parse(words)
    except InputError:
        return
    assert any(name in words for name in ("quality", "success", "accuracy", "pay"))


def test_a_list_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(InputError, match="both allowed and denied"):
        Objective(allow=("a",), deny=("a",))
