import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.rewards.answers import Expected, FunctionCall, mismatch, parse_call

TOOLS = [
    {
        "name": "geo.area",
        "parameters": {
            "type": "dict",
            "properties": {
                "base": {"type": "float"},
                "unit": {"type": "string"},
                "round": {"type": "integer"},
                "exact": {"type": "boolean"},
                "points": {"type": "array", "items": {"type": "float"}},
                "who": {"type": "dict"},
                "rows": {"type": "array", "items": {"type": "dict"}},
            },
            "required": ["base"],
        },
    }
]
ALLOWED: dict[str, list[Any]] = {
    "base": [10],
    "unit": ["square cm", "cm^2", ""],
    "round": [2, ""],
    "exact": [True, ""],
    "points": [[1.0, 2.0], ""],
    "who": [{"name": ["Ann", "ann b."], "age": [3, ""]}, ""],
    "rows": [[{"a": ["x"]}, {"a": ["y"]}], ""],
}


def fault(**arguments: Any) -> str:
    return mismatch([{"geo.area": ALLOWED}], [FunctionCall("geo.area", arguments)], TOOLS)


@pytest.mark.parametrize(
    "arguments",
    [
        {"base": 10},
        {"base": 10.0},
        {"base": 10, "unit": "Square CM"},
        {"base": 10, "unit": "cm2"},
        {"base": 10, "round": 2, "exact": True},
        {"base": 10, "points": [1.0, 2.0]},
        {"base": 10, "points": []},
        {"base": 10, "who": {"name": "ANN"}},
        {"base": 10, "who": {"age": 3, "name": "Ann B"}},
        {"base": 10, "rows": [{"a": "X"}, {"a": "y"}]},
    ],
)
def test_allowed_values_in_their_types_are_right(arguments: dict[str, Any]) -> None:
    assert fault(**arguments) == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "the argument 'base' is missing"),
        ({"base": "10"}, "base is '10', and must be one of [10]"),
        ({"base": 11}, "base is 11"),
        ({"base": 10, "colour": "red"}, "the argument 'colour' is one too many"),
        ({"base": 10, "unit": "m"}, "unit is 'm'"),
        ({"base": 10, "unit": 3}, "unit is 3"),
        ({"base": 10, "round": 2.0}, "round is 2.0"),
        ({"base": 10, "round": True}, "round is True"),
        ({"base": 10, "exact": 1}, "exact is 1"),
        ({"base": 10, "exact": False}, "exact is False"),
        ({"base": 10, "points": [2.0, 1.0]}, "points is [2.0, 1.0]"),
        ({"base": 10, "points": "1, 2"}, "points is '1, 2'"),
        ({"base": 10, "who": {"age": 3}}, "who is {'age': 3}"),
        ({"base": 10, "who": {"name": "Ann", "x": 1}}, "who is"),
        ({"base": 10, "rows": [{"a": "y"}, {"a": "x"}]}, "rows is"),
        ({"base": 10, "rows": [{"a": "x"}]}, "rows is"),
        ({"base": 10, "rows": ["x", "y"]}, "rows is"),
    ],
)
def test_anything_else_is_wrong_and_the_sentence_names_the_argument(arguments: dict[str, Any], said: str) -> None:
    assert said in fault(**arguments)


def test_an_integer_in_a_list_of_floats_is_refused_as_the_leaderboard_does_and_taken_on_request() -> None:
    tight: list[Expected] = [{"geo.area": {"base": [10], "points": [[1.0, 2.0]]}}]
    made = [FunctionCall("geo.area", {"base": 10, "points": [1, 2]})]
    assert "points is [1, 2]" in mismatch(tight, made, TOOLS)
    assert mismatch(tight, made, TOOLS, whole_floats=True) == ""


def test_a_dot_in_a_name_may_be_an_underscore() -> None:
    assert mismatch([{"geo.area": {"base": [1]}}], [FunctionCall("geo_area", {"base": 1})], TOOLS) == ""
    assert (
        mismatch([{"geo.area": {"base": [1]}}], [FunctionCall("area", {"base": 1})], TOOLS)
        == "area was called instead of geo.area"
    )


def test_an_argument_that_may_not_be_left_out_is_missed() -> None:
    assert "the argument 'unit' is missing" in mismatch([{"f": {"unit": ["m"]}}], [FunctionCall("f", {})])


@pytest.mark.parametrize(("made", "right"), [(True, True), (1, False), ("true", False)])
def test_without_descriptions_true_is_not_one(made: Any, right: bool) -> None:
    assert (mismatch([{"f": {"x": [True]}}], [FunctionCall("f", {"x": made})]) == "") is right


def test_several_calls_may_come_in_any_order_and_none_too_many_or_too_few() -> None:
    expected: list[Expected] = [{"f": {"x": [1]}}, {"f": {"x": [2]}}, {"g": {}}]
    made = [FunctionCall("g", {}), FunctionCall("f", {"x": 2}), FunctionCall("f", {"x": 1})]
    assert mismatch(expected, made) == ""
    assert mismatch(expected, made[1:]) == "2 tool calls instead of 3"
    assert mismatch(expected, [*made, made[0]]) == "4 tool calls instead of 3"
    assert "x is 2, and must be one of [1]" in mismatch(expected, [made[0], made[1], made[1]])


def test_a_call_that_fits_two_leaves_room_for_one_that_fits_only_the_other() -> None:
    expected = [{"f": {"day": ["1 May", "May 1", "today"]}}, {"f": {"day": ["1 May"]}}]
    assert mismatch(expected, [FunctionCall("f", {"day": "1 May"}), FunctionCall("f", {"day": "today"})]) == ""


def test_no_call_is_right_where_none_is_expected() -> None:
    assert mismatch([], []) == ""
    assert mismatch([], [FunctionCall("f", {})]) == "1 tool calls instead of 0"


@pytest.mark.parametrize("arguments", ["{", "[1]", "3", "[" * 100_000])
def test_arguments_that_are_no_object_are_no_call(arguments: str) -> None:
    assert parse_call("f", arguments) is None


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(list(ALLOWED)), VALUES))
def test_any_arguments_get_a_verdict_and_are_not_changed(arguments: dict[str, Any]) -> None:
    before = copy.deepcopy(arguments)
    assert isinstance(fault(**arguments), str)
    assert isinstance(mismatch([{"geo.area": ALLOWED}], [FunctionCall("geo.area", arguments)]), str)
    assert arguments == before


@given(st.lists(st.integers(0, 3), max_size=6), st.randoms())
def test_the_order_of_the_calls_never_matters(numbers: list[int], chance: Any) -> None:
    expected = [{"f": {"x": [number, number + 1]}} for number in numbers]
    made = [FunctionCall("f", {"x": number + chance.choice([0, 1])}) for number in numbers]
    assert mismatch(expected, made) == ""
    chance.shuffle(made)
    assert mismatch(expected, made) == ""
