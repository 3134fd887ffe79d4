"""Which clause asks for which card."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from journeyman.optimizers.planner.features import (
    NAMED,
    TIMES,
    anchor_features,
    anchors,
    clause_features,
    clauses,
    times,
    totals,
)

pytestmark = pytest.mark.training


@given(st.integers(1, 6), st.integers(0, 10**6))
def test_how_often_a_card_is_asked_for_is_counted_over_all_ways_in_which_clauses_may_ask(q: int, seed: int) -> None:
    chances = np.random.default_rng(seed).random(q)
    counted = np.zeros(TIMES + 1)
    for said in np.ndindex(*(2,) * q):
        counted[min(sum(said), TIMES)] += np.prod(np.where(said, chances, 1 - chances))
    found = times(torch.from_numpy(chances).float()[None, :, None])[0, 0].numpy()
    assert found == pytest.approx(counted, abs=1e-5)
    assert totals(chances.astype(np.float32), TIMES) == pytest.approx(counted, abs=0.02)


@given(st.integers(1, 5), st.lists(st.integers(-1, 3), min_size=1, max_size=9), st.integers(0, 10**6))
def test_every_step_comes_from_a_clause_and_those_of_one_card_in_the_order_of_theirs(
    q: int, steps: list[int], seed: int
) -> None:
    where = anchors(np.random.default_rng(seed).random((q, 4)).astype(np.float32), steps)
    assert all(0 <= at < q for at in where)
    for card in set(steps) - {-1}:
        of_card = [at for at, step in zip(where, steps, strict=True) if step == card]
        assert of_card == sorted(of_card)
        assert len(set(of_card)) == min(len(of_card), q)


def test_a_card_that_comes_twice_comes_from_the_two_clauses_that_likeliest_ask_for_it() -> None:
    chances = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.1]], np.float32)
    assert anchors(chances, [0, 1, 0]) == [0, 1, 2]


def test_a_name_is_seen_in_the_clause_that_has_it_and_the_first_of_several_is_marked() -> None:
    said = clauses("Oslo: three mugs for Cairo, please. Pass it on to Lima.")
    names = [frozenset([name]) for name in ("oslo", "cairo", "lima")]
    found = clause_features(said, names, np.zeros((len(said), 3), np.float32))
    assert found[..., NAMED].tolist() == [[1, 1, 0], [0, 0, 1]]
    first = found[..., NAMED + 3]
    assert first.tolist() == [[1, 0, 0], [0, 0, 1]]


def test_a_pair_of_steps_shows_which_clause_comes_before_which_and_whom_a_clause_names() -> None:
    named = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 1]], np.float32)
    found = anchor_features([0, 1, 2], named, np.eye(3, dtype=np.bool_), 3)
    later, before, mentioned = found[..., 0], found[..., 2], found[..., 3]
    assert later.tolist() == [[0, 1, 1], [-1, 0, 1], [-1, -1, 0]]
    assert [tuple(pair) for pair in np.argwhere(before)] == [(0, 1), (1, 2)]
    assert [tuple(pair) for pair in np.argwhere(mentioned)] == [(0, 2)]
