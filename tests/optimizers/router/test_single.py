"""One request alone is forecast as it would be among others."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.optimizers.router.fit import fit
from journeyman.optimizers.router.predict import COUNTED, Fitted, Single, count
from tests.optimizers.router.worlds import QUICK, directions, table

D = 24


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    """Of three workers; the third has no known price or time."""
    chance = np.random.default_rng(0)
    vectors = directions(chance, 400, D)
    right = (chance.random((400, 3)) < np.where(vectors[:, :1] > 0, [0.9, 0.3, 0.6], [0.3, 0.9, 0.6])).astype(float)
    cost = np.array([0.001, 0.002, np.nan]) * chance.uniform(0.5, 2, (400, 1))
    types = [("sum", "verse")[int(value > 0)] for value in vectors[:, 1]]
    requests = [f"request {at}, {'word ' * (at % 30)}" for at in range(400)]
    return fit(table(right, requests=requests, types=types, cost=cost), vectors, QUICK)


@given(
    seed=st.integers(0, 10_000),
    strange=st.sampled_from([0.0, 0.3, 1.0, 5.0]),
    text=st.text(max_size=80),
    type=st.sampled_from(["sum", "verse", "general"]),
)
def test_alone_is_as_among_others(fitted: Fitted, seed: int, strange: float, text: str, type: str) -> None:
    chance = np.random.default_rng(seed)
    vectors = directions(chance, 4, D) + np.float32(strange)
    among = fitted.forecast(vectors, [text, "a", "b", "c"], [type, "sum", "verse", ""])
    alone, familiar = Single(fitted)(vectors[:1], text, type)
    assert [each.worker for each in alone] == list(among.workers)
    assert familiar == pytest.approx(among.familiar[0], abs=1e-3)
    assert [each.success for each in alone] == pytest.approx(among.success[0].tolist(), abs=1e-4)
    for name, expected in (("cost", among.cost[0]), ("p50", among.p50[0]), ("p95", among.p95[0])):
        found = [getattr(each, name) for each in alone]
        assert found[2] is None
        assert np.isnan(expected[2])
        assert found[:2] == pytest.approx(expected[:2].tolist(), rel=1e-4)


def test_a_vector_of_another_length_is_refused(fitted: Fitted) -> None:
    with pytest.raises(InputError, match="vectors of length 24, not of 9"):
        Single(fitted)(np.zeros((1, 9), np.float32), "a", "")


@given(st.text(max_size=200) | st.text(st.characters(max_codepoint=127), max_size=200))
def test_characters_of_each_kind_are_counted_in_any_script(text: str) -> None:
    found = count(text)
    kinds = (r"[0-9]", r"[A-Z]", r"[-+*/=^<>$\\{}()\[\]_|]", r"[^\w\s]")
    assert len(found) == COUNTED
    assert found[1:5] == tuple(len(re.findall(kind, text)) / (len(text) + 1) for kind in kinds)
    assert np.expm1(found[8]) == pytest.approx(len(re.findall(r"[0-9]+", text)))
