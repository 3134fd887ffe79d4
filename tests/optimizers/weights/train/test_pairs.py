"""Which completion is preferred to which."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.optimizers.weights.rows import CompletionGroup, LabelledCompletion
from journeyman.optimizers.weights.train.preference import MARGIN, PreferencePair, pairs

pytestmark = pytest.mark.training

SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def group(*scores: float, told: bool = True) -> CompletionGroup:
    said = tuple(f"{n}" for n in range(len(scores)))
    return CompletionGroup(prompt="p", completions=said, rewards=scores, scores=scores if told else ())


def between(pair: PreferencePair) -> tuple[str, str]:
    assert isinstance(pair.chosen, str)
    assert isinstance(pair.rejected, str)
    return pair.chosen, pair.rejected


def test_the_best_is_preferred_to_the_worst() -> None:
    assert [between(pair) for pair in pairs([group(0.2, 1.0, 0.5, 0.0)])] == [("1", "3")]


def test_more_pairs_of_a_group_go_inwards_from_the_ends() -> None:
    assert [between(pair) for pair in pairs([group(0.2, 1.0, 0.5, 0.0)], a_group=5)] == [("1", "3"), ("2", "0")]


@given(SCORES, st.integers(1, 5))
def test_a_pair_differs_by_the_margin_and_nothing_is_in_two_pairs(scores: list[float], most: int) -> None:
    found = [between(pair) for pair in pairs([group(*scores)], a_group=most)]
    assert len(found) <= most
    assert all(scores[int(chosen)] - scores[int(rejected)] >= MARGIN for chosen, rejected in found)
    used = [name for pair in found for name in pair]
    assert len(used) == len(set(used))
    assert bool(found) == (max(scores) - min(scores) >= MARGIN)


def test_where_only_normalised_rewards_are_told_any_difference_counts() -> None:
    assert len(pairs([group(0.01, -0.01, told=False), group(0.0, 0.0, told=False)])) == 1


def test_good_and_bad_completions_of_one_prompt_are_paired() -> None:
    rows = [
        LabelledCompletion(prompt=p, completion=c, label=good)
        for p, c, good in [("p", "a", True), ("q", "b", False), ("p", "c", False)]
    ]
    assert [between(pair) for pair in pairs(rows)] == [("a", "c")]
