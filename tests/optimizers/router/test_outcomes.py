"""Recorded outcomes: every shape becomes the same table, what is unknown stays unknown, and what cannot be used is said."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.policy import Card, Ending, Outcome
from journeyman.core.reward import Reward
from journeyman.core.trace import ModelCall, Trace
from journeyman.optimizers.outcome_table import OutcomeRow
from journeyman.optimizers.router import outcomes


def read(*lines: Mapping[str, Any]) -> tuple[OutcomeRow, ...]:
    """The rows; a complaint is an error."""
    said: list[str] = []
    found = outcomes.rows((line, said.append) for line in lines)
    assert said == []
    return found


def complaint(*lines: Mapping[str, Any]) -> str:
    said: list[str] = []
    outcomes.rows((line, said.append) for line in lines)
    return "; ".join(said)


def test_a_wide_line_tells_of_all_workers() -> None:
    answers = {"small": {"success": 0, "cost": 0.001, "latency_ms": 250}, "large": {"success": 1, "seconds": 2.5}}
    (row,) = read({"id": "q1", "request": "Add 1 and 2.", "type": "sums", "split": "test", "outcomes": answers})
    assert (row.id, row.request, row.type, row.split) == ("q1", "Add 1 and 2.", "sums", "held_out")
    assert row.outcomes["small"] == Outcome(ending=Ending.WRONG, success=0.0, cost=0.001, seconds=0.25)
    assert row.outcomes["large"] == Outcome(ending=Ending.RIGHT, success=1.0, seconds=2.5)


def test_lines_of_one_request_and_several_workers_are_one_row() -> None:
    (row,) = read(
        {"request": "Add 1 and 2.", "model": "small", "success": False},
        {"request": "Add 1 and 2.", "model": "large", "success": True},
    )
    assert {name: outcome.success for name, outcome in row.outcomes.items()} == {"small": 0.0, "large": 1.0}


def test_a_request_belongs_to_one_cluster_which_one_of_its_lines_may_name() -> None:
    lines = [
        {"request": "one", "model": "small", "success": 1, "cluster": 7},
        {"request": "one", "model": "large", "success": 1},
        {"request": "two", "model": "small", "success": 1, "cluster": "shop"},
    ]
    made = outcomes.table(read(*lines))
    assert [(task.question, task.cluster) for task in made.tasks] == [("one", "7"), ("two", "shop")]
    assert made.take([1]).clusters == ("shop",)
    assert made.digest != outcomes.table(read(*({**line, "cluster": "all"} for line in lines))).digest
    assert outcomes.table(read({"request": "one", "model": "small", "success": 1})).clusters == ()
    torn = complaint(*({"request": "one", "model": name, "success": 1, "cluster": name} for name in ("a", "b")))
    assert torn == "the request is of cluster a and of b; it is of one"


def test_a_worker_that_was_asked_twice_counts_twice() -> None:
    first, second = read(*({"request": "Add.", "model": "small", "score": score} for score in (0, 1)))
    assert [row.outcomes["small"].success for row in (first, second)] == [0.0, 1.0]
    assert first.id != second.id


def test_recorded_pairs_of_a_weak_and_a_strong_model_are_read_and_contaminated_ones_left_out() -> None:
    line = {"prompt": "Add.", "domain": "algebra", "weak_correct": 0, "strong_correct": 1, "contaminated": 0}
    (row,) = read(line, {**line, "prompt": "Seen before.", "contaminated": 1})
    assert (row.request, row.type) == ("Add.", "algebra")
    assert [row.outcomes[side].success for side in ("weak", "strong")] == [0.0, 1.0]


def test_scores_by_model_are_read() -> None:
    (row,) = read({"split": "train", "question": "Add.", "task_name": "sums", "scores": {"a": 0.25, "b": 1}})
    assert (row.type, row.split, row.outcomes["a"].success, row.outcomes["b"].ending) == ("sums", "train", 0.25, Ending.RIGHT)


def test_a_request_that_only_one_of_its_lines_tells_is_found_by_the_id() -> None:
    line = {"global_index": "AIME_7", "model": "a", "score": 0, "cost": 0.1, "input_tokens": 3, "output_tokens": 4}
    (row,) = read({**line, "question": None}, {**line, "model": "b", "question": "Add."})
    assert (row.id, row.request, row.type, set(row.outcomes)) == ("AIME_7", "Add.", "AIME", {"a", "b"})


def test_one_id_for_two_requests_keeps_them_apart() -> None:
    first, second = read(*({"id": 0, "request": text, "model": "a", "success": 1} for text in ("Add.", "Divide.")))
    assert (first.request, second.request) == ("Add.", "Divide.")
    assert first.id != second.id


def test_error_unreadable_answer_and_wrong_answer_are_told_apart() -> None:
    endings: dict[str, dict[str, Any]] = {
        "down": {"error": "503", "success": 0},
        "odd": {"ending": "format"},
        "wrong": {"success": 0},
        "silent": {},
    }
    table = outcomes.table(read({"request": "Add.", "outcomes": endings}))
    assert table.workers == ("down", "odd", "wrong", "silent")
    np.testing.assert_array_equal(table.success, [[math.nan, 0, 0, math.nan]])
    np.testing.assert_array_equal(table.errors, [[True, False, False, False]])
    np.testing.assert_array_equal(table.malformed, [[False, True, False, False]])


def test_tokens_become_a_cost_only_where_their_price_is_known() -> None:
    counted = {"success": 1, "input_tokens": 1000, "output_tokens": 500}
    cards = {"a": Card(name="a", input_price=1.0, output_price=4.0), "b": Card(name="b", input_price=1.0)}
    rows = read({"request": "Add.", "outcomes": {"a": counted, "b": counted, "c": counted}})
    np.testing.assert_allclose(outcomes.table(rows, cards).cost, [[0.003, math.nan, math.nan]])


def test_a_length_that_was_not_recorded_is_assumed_only_when_it_is_asked_for() -> None:
    rows = read({"request": "x" * 400, "outcomes": {"a": {"success": 1}}})
    cards = {"a": Card(name="a", input_price=1.0, output_price=2.0)}
    assert np.isnan(outcomes.table(rows, cards).cost).all()
    np.testing.assert_allclose(outcomes.table(rows, cards, output_tokens=50).cost, [[(100 + 2 * 50) / 1e6]])


def test_named_columns_come_in_that_order_and_unknown_workers_are_left_out() -> None:
    rows = read({"request": "Add.", "outcomes": {"a": {"success": 1}, "b": {"success": 0}}})
    table = outcomes.table(rows, workers=("c", "b"))
    assert table.workers == ("c", "b")
    np.testing.assert_array_equal(table.success, [[math.nan, 0]])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"request": "Add."}, "neither outcomes nor a model"),
        ({"model": "a", "success": 1}, "no request"),
        ({"id": 3, "model": "a", "success": 1}, "no other line of this id tells one"),
        ({"request": "Add.", "model": "a", "success": 2}, "success of 'a' is 2"),
        ({"request": "Add.", "model": "a", "success": "yes"}, "success of 'a' is 'yes'"),
        ({"request": "Add.", "model": "a", "ending": "great"}, "ending of 'a' is 'great'"),
        ({"request": "Add.", "model": "a", "cost": -1}, "cost is -1"),
        ({"request": "Add.", "model": "a", "cost": math.inf}, "cost is inf"),
        ({"request": "Add.", "model": "a", "cost": 10**400}, "cost is 1000"),
        ({"request": "Add.", "model": "a", "split": "exam"}, "split is 'exam'"),
        ({"request": "Add.", "model": "a", "success": 1, "cluster": True}, "cluster is True"),
        ({"request": ["Add."], "model": "a"}, "request is ['Add.']"),
        ({"request": "Add.", "outcomes": {"a": 1}}, "the outcome of 'a' is 1"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_and_nothing_of_it_is_used(line: Mapping[str, Any], said: str) -> None:
    assert said in complaint(line)


_VALUE = st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.text(max_size=3) | st.just({"success": 1})
_FIELD = st.sampled_from(["id", "request", "model", "success", "cost", "ending", "outcomes", "scores", "split", "weak_correct"])


@given(st.lists(st.dictionaries(_FIELD, _VALUE, max_size=6), max_size=5))
def test_any_line_is_used_whole_or_complained_about(lines: Sequence[Mapping[str, Any]]) -> None:
    said: list[str] = []
    rows = outcomes.rows((line, said.append) for line in lines)
    table = outcomes.table(rows)
    known = table.success[~np.isnan(table.success)]
    assert ((known >= 0) & (known <= 1)).all()
    assert len(rows) + len(said) <= len(lines)
    assert len({row.id for row in rows}) == len(rows)


def trace(*models: str, label: bool | None = None, error: str | None = None, **more: Any) -> Trace:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    calls = tuple(ModelCall(model=model, prompt="", reply="" if error else "3", cost=0.1, error=error) for model in models)
    end = start + timedelta(seconds=2)
    return Trace(
        id="t", task_id="t", candidate_id="base", started_at=start, ended_at=end, steps=calls, input="Add.", label=label, **more
    )


def test_a_trace_of_one_model_is_an_outcome_and_a_persons_word_goes_before_rewards() -> None:
    row = outcomes.of_trace(trace("a", "a", label=True, rewards=(Reward(name="r", value=0.0),), domain="sums"))
    assert row is not None
    assert (row.request, row.type) == ("Add.", "sums")
    assert row.outcomes["a"] == Outcome(ending=Ending.RIGHT, success=1.0, cost=0.2, seconds=2.0)


def test_a_trace_of_two_models_or_without_a_verdict_is_no_outcome() -> None:
    assert outcomes.of_trace(trace("a", "b", label=True)) is None
    assert outcomes.of_trace(trace("a")) is None


@pytest.mark.parametrize("split", ["held_out", "validation"])
def test_nobody_learns_from_attempts_at_tasks_that_are_set_apart(split: str) -> None:
    assert outcomes.of_trace(trace("a", label=True, raw={"split": split})) is None


def test_a_trace_whose_calls_all_failed_is_an_error_and_says_nothing_of_the_model() -> None:
    row = outcomes.of_trace(trace("a", error="503", label=False))
    assert row is not None
    assert (row.outcomes["a"].ending, row.outcomes["a"].success) == (Ending.ERROR, None)


def test_equal_requests_to_several_models_are_one_row() -> None:
    made = [outcomes.of_trace(trace(model, label=True)) for model in ("a", "b")]
    (row,) = outcomes.merged(each for each in made if each is not None)
    assert set(row.outcomes) == {"a", "b"}
