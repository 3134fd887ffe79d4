"""How much a label weighs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.rows import kto_weights


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_neither_side_drowns_the_other(good: int, bad: int) -> None:
    desirable, undesirable = kto_weights(good, bad)
    assert 1 - 1e-9 <= desirable * good / (undesirable * bad) <= 4 / 3 + 1e-9
    assert min(desirable, undesirable) == 1.0


@given(st.integers(1, 100), st.integers(1, 100), st.floats(0.1, 10))
def test_a_weight_that_is_given_stays_and_the_other_follows(good: int, bad: int, given: float) -> None:
    desirable, undesirable = kto_weights(good, bad, desirable=given)
    assert desirable == given
    assert desirable * good == pytest.approx(undesirable * bad)
    desirable, undesirable = kto_weights(good, bad, undesirable=given)
    assert undesirable == given
    assert desirable * good == pytest.approx(undesirable * bad)
    assert kto_weights(good, bad, desirable=given, undesirable=2.0) == (given, 2.0)


@pytest.mark.parametrize(("good", "bad", "which"), [(0, 5, "good"), (5, 0, "bad")])
def test_labels_of_one_kind_are_refused(good: int, bad: int, which: str) -> None:
    with pytest.raises(InputError, match=f"none of 5 rows is labelled {which}"):
        kto_weights(good, bad)
