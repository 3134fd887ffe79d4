"""Pairing results."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.core.evaluation import Evaluation, Pair, Result, pair


def results(scores: dict[str, float | None], trial: str = "0") -> list[Result]:
    return [Result(task_id=task, score=score, trial=trial) for task, score in scores.items()]


def test_tasks_are_paired_by_id_and_counted() -> None:
    found = pair(results({"b": 1.0, "a": 0.0, "c": 1.0}), results({"a": 1.0, "b": 0.0, "c": 1.0}))
    assert [p.task_id for p in found.pairs] == ["a", "b", "c"]
    assert (found.wins, found.losses, found.broken) == (1, 1, ("b",))
    assert found.gain == 0.0
    assert found.baseline == found.candidate == pytest.approx(2 / 3)


def test_attempts_at_one_task_are_one_pair() -> None:
    before = results({"a": 0.0}) + results({"a": 1.0}, "1") + results({"a": 0.0}, "2")
    found = pair(before, results({"a": 1.0}))
    assert found.tasks == 1
    assert found.baseline == pytest.approx(1 / 3)


def test_a_task_without_a_verdict_is_unknown_and_not_zero() -> None:
    found = pair(results({"a": 1.0, "b": 1.0}), results({"a": 1.0, "b": None}))
    assert (found.tasks, found.unknown, found.candidate) == (1, 1, 1.0)


def test_an_attempt_without_a_verdict_is_bounded_and_voids_no_task() -> None:
    after = [*results({"a": 1.0}), *results({"a": None}, "1"), *results({"a": 0.0}, "2"), *results({"a": 1.0}, "3")]
    found = pair(results({"a": 0.5}), after)
    assert (found.tasks, found.unknown, found.unknown_attempts) == (1, 0, 1)
    assert found.candidate == pytest.approx(2 / 3), "of the attempts with a verdict"
    (worst,), (best,) = found.bounds
    assert (worst, best) == pytest.approx((0.0, 0.25))


def test_a_task_is_unknown_where_no_attempt_of_one_side_has_a_verdict() -> None:
    found = pair(results({"a": 1.0}), results({"a": None}) + results({"a": None}, "1"))
    assert (found.tasks, found.unknown, found.unknown_attempts) == (0, 1, 0)


def test_leaving_out_tasks_makes_them_unknown() -> None:
    found = pair(results({"a": 1.0, "b": 0.0}), results({"a": 1.0, "c": 0.5}))
    assert (found.tasks, found.unknown) == (1, 2)
    assert (found.only_baseline, found.only_candidate) == (("b",), ("c",))


def test_of_nothing_nothing_is_known() -> None:
    empty = Evaluation(pairs=())
    assert (empty.baseline, empty.candidate, empty.gain, empty.broken) == (None, None, None, ())


def test_the_tasks_that_fell_furthest_are_named_first() -> None:
    fell = [("little", 0.9), ("far", 0.0), ("same", 1.0), ("half", 0.5)]
    found = Evaluation(pairs=tuple(Pair(task_id=task, baseline=1.0, candidate=score) for task, score in fell))
    assert found.broken == ("far", "half", "little")


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_score_outside_0_to_1_is_refused(score: float) -> None:
    with pytest.raises(InputError, match="task t1"):
        Result(task_id="t1", score=score)


scores = st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.none() | st.floats(0, 1), max_size=20)


@given(scores, scores, st.randoms(use_true_random=False))
def test_order_does_not_matter_and_every_task_is_accounted_for(
    before: dict[str, float | None], after: dict[str, float | None], chance: random.Random
) -> None:
    left, right = results(before), results(after)
    found = pair(left, right)
    chance.shuffle(left)
    chance.shuffle(right)
    assert pair(left, right) == found
    assert found.tasks + found.unknown == len(before.keys() | after.keys())
    turned = pair(right, left)
    assert turned.wins == found.losses
    assert turned.unknown == found.unknown


attempts = st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=4)


@given(
    st.dictionaries(st.sampled_from("abcd"), st.tuples(attempts, attempts), max_size=4), st.lists(st.floats(0, 1), min_size=32)
)
def test_whatever_the_missing_verdicts_are_the_difference_lies_within_its_bounds(
    tasks: dict[str, tuple[list[float | None], list[float | None]]], verdicts: list[float]
) -> None:
    sides = [
        [Result(task_id=task, score=score, trial=str(n)) for task, both in tasks.items() for n, score in enumerate(both[side])]
        for side in (0, 1)
    ]
    found = pair(*sides)
    told = iter(verdicts)
    full = pair(*([replace(r, score=next(told) if r.score is None else r.score) for r in side] for side in sides))
    wanted = {each.task_id: each.difference for each in full.pairs}
    for each in found.pairs:
        low, high = each.bounds
        assert low - 1e-9 <= wanted[each.task_id] <= high + 1e-9
        assert low - 1e-9 <= each.difference <= high + 1e-9
