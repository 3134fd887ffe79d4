"""A curve says what changed, how sure that is, and nothing that it does not know."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from journeyman.core.errors import InputError
from journeyman.experiments.learning_curve import MeasureChange, Point, changes, rolling


def change(name: str, points: list[Point], **how: float) -> MeasureChange:
    return next(found for found in changes(points, **how) if found.measure.name == name)  # type: ignore[arg-type]


def tokens(*values: float | None, group: str = "") -> list[Point]:
    return [Point(name=str(number), tokens=value, group=group) for number, value in enumerate(values)]


def successes(*values: bool | None) -> list[Point]:
    return [Point(name=str(number), success=value) for number, value in enumerate(values)]


def test_the_first_third_is_compared_with_the_last() -> None:
    found = change("tokens", tokens(90, 100, 110, 5, 5, 5, 40, 50, 60))
    assert (found.first, found.last, found.difference, found.relative) == (100, 50, -50, -0.5)
    assert (found.compared, found.verdict) == (6, "better")


def test_without_groups_it_is_welchs_interval() -> None:
    first, last = [90.0, 100.0, 115.0, 80.0], [60.0, 70.0, 20.0, 45.0]
    known = stats.ttest_ind(last, first, equal_var=False).confidence_interval(0.95)
    assert change("tokens", tokens(*first, *last), part=0.5).interval == pytest.approx((known.low, known.high))


def test_more_tokens_are_worse_and_more_success_is_better() -> None:
    assert change("tokens", tokens(40, 50, 60, 90, 100, 110), part=0.5).verdict == "worse"
    assert change("success", successes(*[False] * 10, *[True] * 10), part=0.5).verdict == "better"
    assert change("success", successes(*[True] * 10, *[False] * 10), part=0.5).verdict == "worse"


def test_three_failures_and_then_three_successes_prove_nothing() -> None:
    found = change("success", successes(False, False, False, True, True, True), part=0.5)
    assert (found.first, found.last, found.verdict) == (0, 1, "not shown")


def test_unknown_values_are_left_out_and_counted_and_never_taken_for_failures() -> None:
    some = successes(*[True, None] * 9)
    found = change("success", some)
    assert (found.known, found.unknown, found.first, found.last) == (9, 9, 1, 1)


def test_a_run_that_begins_with_one_kind_and_ends_with_another_shows_no_change_for_that() -> None:
    dear, cheap = [1000, 1010, 990] * 3, [10, 11, 9] * 3
    points = [*tokens(*dear, group="app"), *tokens(*cheap, group="script")]
    assert change("tokens", points).verdict == "not shown"
    assert change("tokens", points, alike=True).verdict == "better"


def test_kinds_with_too_few_tasks_are_left_out_by_name() -> None:
    points = [*tokens(*[10.0, 11.0, 12.0] * 4, group="many"), *tokens(1, 2, 3, group="few")]
    found = change("tokens", points)
    assert (found.left_out, found.compared, found.known) == (("few",), 8, 15)


def test_too_few_tasks_give_no_interval() -> None:
    found = change("tokens", tokens(1, 2, 3))
    assert (found.first, found.interval, found.verdict) == (None, None, "too few")
    nothing = change("cost", tokens(1, 2, 3))
    assert (nothing.known, nothing.unknown, nothing.verdict) == (0, 3, "too few")


@pytest.mark.parametrize("part", [0, 0.51, -1, math.nan])
def test_a_part_that_cannot_be_is_refused(part: float) -> None:
    with pytest.raises(InputError, match=r"lies above 0 and at most at 0\.5"):
        changes(tokens(1, 2), part=part)


VALUES = st.lists(st.one_of(st.none(), st.floats(0, 1, width=16)), min_size=1, max_size=40)


@given(VALUES, st.sampled_from([0.2, 1 / 3, 0.5]))
def test_whatever_the_scores_the_interval_lies_in_what_can_be(values: list[float | None], part: float) -> None:
    points = [Point(name=str(number), score=value) for number, value in enumerate(values)]
    found = change("score", points, part=part)
    assert found.known + found.unknown == len(values)
    if found.interval is not None:
        low, high = found.interval
        assert -1 <= low <= high <= 1
        assert found.difference is not None
        assert abs(found.difference) <= 1


@given(st.lists(st.integers(0, 10_000), min_size=9, max_size=30))
def test_the_order_of_kinds_among_each_other_does_not_matter(values: list[int]) -> None:
    one, other = tokens(*values, group="a"), tokens(*values[::-1], group="b")
    mixed = [point for pair in zip(one, other, strict=True) for point in pair]
    straight, woven = change("tokens", [*one, *other]), change("tokens", mixed)
    assert (straight.first, straight.last, straight.interval) == (woven.first, woven.last, woven.interval)


def test_a_rolling_mean_skips_what_is_unknown_and_waits_for_half_a_window() -> None:
    third = pytest.approx(1 / 3)
    assert rolling([1, 0, None, 0, 1, 1], 4) == [None, 0.5, 0.5, third, third, pytest.approx(2 / 3)]
    assert rolling([None, None], 1) == [None, None]
