from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from journeyman.core.errors import PlanError
from journeyman.core.plan import Plan, Subtask
from journeyman.core.policy import Card
from journeyman.optimizers.planner.decode import (
    Decoded,
    Needs,
    StepScores,
    best_order,
    choose_steps,
    complete,
    decode,
    forward_edges,
)
from tests.support.examples import examples

from .worlds import numbers

TYPES = ("image", "text", "audio")
types = st.lists(st.sampled_from(TYPES), unique=True, max_size=2).map(tuple)


@st.composite
def decks(draw: st.DrawFn, most: int = 10) -> list[Card]:
    made = draw(st.lists(st.tuples(types, types), min_size=1, max_size=most))
    return [Card(name=f"tool {at}", kind="tool", takes=takes, gives=gives) for at, (takes, gives) in enumerate(made)]


def scores(seed: int, k: int, scale: float = 4.0) -> StepScores:
    return StepScores(
        start=numbers(seed, k, scale=scale),
        successors=numbers(seed + 1, k, k, scale=scale),
        dependencies=numbers(seed + 2, k, k, scale=scale),
    )


def plan_of(shape: Decoded, cards: list[Card]) -> Plan:
    """Refuses, by itself, what points backwards."""
    subtasks = [
        Subtask(id=str(at), text="", tool=cards[step].name, after=tuple(str(p) for p in parents))
        for at, (step, parents) in enumerate(zip(shape.steps, shape.parents, strict=True))
    ]
    return Plan(instruction="", subtasks=tuple(subtasks))


@examples(3)
@given(decks(), st.integers(0, 10**6), st.sampled_from([0.1, 4.0, 1e6]), st.none() | st.frozensets(st.sampled_from(TYPES)))
def test_whatever_the_scores_a_plan_is_acyclic_and_gets_what_it_needs_or_is_refused_in_a_sentence(
    cards: list[Card], seed: int, scale: float, given: frozenset[str] | None
) -> None:
    likely = np.random.default_rng(seed).random(len(cards))
    again = np.random.default_rng(seed + 9).random(len(cards))
    chosen = choose_steps(np.stack([likely, likely * again, likely * again**2]), softmax(numbers(seed, 13)))
    try:
        steps = complete(chosen, cards, likely, given)
        made = scores(seed, len(steps), scale)
        handed = scores(seed + 1, len(steps), scale).dependencies if seed % 2 else None
        shape = decode(steps, replace(made, edges=handed), cards, given)
    except PlanError as error:
        refused = str(error)
    else:
        refused = ""
        assert sorted(shape.steps) == sorted(steps)
        assert_handed(shape, cards, given)
    # What comes with the instruction is known wherever something may be missing.
    assert not refused or given is not None
    assert not refused or " must be handed " in refused


def assert_handed(shape: Decoded, cards: list[Card], given: frozenset[str] | None) -> None:
    assert len(plan_of(shape, cards).subtasks) == len(shape.steps)
    for step, parents in zip(shape.steps, shape.parents, strict=True):
        handed = {kind for parent in parents for kind in cards[shape.steps[parent]].gives}
        assert given is None or set(cards[step].takes) <= given | handed


@given(st.integers(1, 5), st.integers(0, 10**6))
def test_the_exact_order_is_the_best_of_all_orders(k: int, seed: int) -> None:
    found = scores(seed, k)
    order = best_order(found.start, found.successors, found.dependencies)
    first = np.log(softmax(found.start.astype(float)) + 1e-9)
    others = np.where(np.eye(k, dtype=bool), -np.inf, found.successors.astype(float))
    follow = np.log(softmax(others, axis=-1) + 1e-9) if k > 1 else np.zeros((1, 1))
    before = -np.logaddexp(0, found.dependencies.T)

    def worth(path: tuple[int, ...]) -> float:
        steps = sum(follow[a, b] for a, b in pairwise(path))
        return float(first[path[0]] + steps + sum(before[a, b] for at, a in enumerate(path) for b in path[at + 1 :]))

    assert worth(tuple(order)) == pytest.approx(max(worth(path) for path in permutations(range(k))))


def test_beyond_eight_steps_a_clear_chain_is_still_found() -> None:
    k = 12
    wanted = np.random.default_rng(0).permutation(k).tolist()
    start, successors = np.full(k, -9.0), np.full((k, k), -9.0)
    start[wanted[0]] = 9.0
    successors[wanted[:-1], wanted[1:]] = 9.0
    assert best_order(start, successors, np.full((k, k), -9.0)) == wanted


def test_steps_that_wait_for_each_other_are_refused() -> None:
    cards = [Card(name="a", takes=("x",), gives=("y",)), Card(name="b", takes=("y",), gives=("x",))]
    found = scores(0, 2)
    with pytest.raises(PlanError, match="in a circle"):
        best_order(found.start, found.successors, found.dependencies, Needs.of(cards, frozenset()))


def test_what_a_step_lacks_is_made_by_a_tool_that_nobody_asked_for() -> None:
    cards = [Card(name="caption", takes=("image",), gives=("text",)), Card(name="draw", takes=("text",), gives=("image",))]
    assert complete([0], cards, np.array([0.9, 0.1]), frozenset({"text"})) == [0, 1]
    assert complete([0], cards, np.array([0.9, 0.1]), frozenset({"image"})) == [0]
    with pytest.raises(PlanError, match="'caption' must be handed 'image'"):
        complete([0], cards[:1], np.array([0.9]), frozenset())


def test_an_edge_that_follows_from_others_goes_but_one_that_carries_what_is_needed_stays() -> None:
    plain = [Card(name=name) for name in "abc"]
    everything = np.full((3, 3), 9.0)
    assert forward_edges(everything, plain) == [[], [0], [1]]
    cards = [Card(name="a", gives=("image",)), Card(name="b", gives=("text",)), Card(name="c", takes=("image", "text"))]
    assert forward_edges(everything, cards) == [[], [0], [0, 1]]
    unlikely = np.full((3, 3), -9.0)
    assert forward_edges(unlikely, cards, frozenset()) == [[], [], [0, 1]]
    # What is handed on is said, not inferred: nothing is left out of it, and what is needed still comes.
    assert forward_edges(unlikely, plain, edges=everything) == [[], [0], [0, 1]]
    assert forward_edges(everything, cards, frozenset(), edges=unlikely) == [[], [], [0, 1]]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(0, 10**6))
def test_at_least_one_step_is_chosen_and_never_more_than_a_plan_may_have(chances: list[float], seed: int) -> None:
    chosen = choose_steps(np.array([chances, np.square(chances)]), softmax(numbers(seed, 13)))
    assert 1 <= len(chosen) <= 12


def test_a_card_comes_twice_where_both_are_likely() -> None:
    lengths = np.zeros(13)
    lengths[2] = 1.0
    assert choose_steps(np.array([[0.95, 0.05], [0.57, 0.0]]), lengths) == [0, 0]
    assert choose_steps(np.array([[0.95, 0.9], [0.05, 0.0]]), lengths) == [0, 1]


def test_nothing_to_plan_with_is_said() -> None:
    with pytest.raises(PlanError, match="nothing to plan with"):
        choose_steps(np.zeros((1, 0)), np.ones(13))


def test_a_step_is_handed_as_much_as_such_steps_always_were_by_whom_is_likeliest() -> None:
    cards = [Card(name=name, gives=("call",)) for name in "ab"] + [Card(name="read", takes=("call",)), Card(name="sum")]
    edges = np.array([[-9, -9, -2, 3], [-9, -9, -1, -9], [-9, -9, -9, -9], [-9, -9, -9, -9]], float)
    assert forward_edges(edges, cards, edges=edges) == [[], [], [], [0]]
    handed: list[dict[str, tuple[int, int]]] = [{}, {}, {"call": (1, 1)}, {"call": (1, 9)}]
    assert forward_edges(edges, cards, edges=edges, handed=handed) == [[], [], [1], [0]]
    both = np.where(edges > -5, 4.0, edges)
    assert forward_edges(both, cards, edges=both) == [[], [], [0, 1], [0]]
    assert forward_edges(both, cards, edges=both, handed=handed) == [[], [], [0], [0]]
