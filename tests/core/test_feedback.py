"""What is taken for feedback, and what is refused in one sentence."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.core.feedback import ANSWER, Feedback, LabelScheme, TargetKind, corrected_answer, latest, read_feedback
from journeyman.core.reward import Reward, Source, source_named

NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)


def read(**told: Any) -> Feedback:
    return read_feedback({"session": "s1", **told}, "feedback", id="made", now=NOW)


@pytest.mark.parametrize(("value", "kept"), [(True, 1.0), (False, 0.0), (1, 1.0), (0, 0.0), (0.7, 0.7)])
def test_a_truth_value_or_a_number_is_how_good_it_was(value: object, kept: float) -> None:
    word = read(value=value)
    assert (word.value, word.text, word.metric, word.source) == (kept, None, "success", Source.USER)
    assert (word.id, word.target_kind, word.target, word.at) == ("made", TargetKind.SESSION, "s1", NOW)


def test_a_text_is_kept_and_a_correct_answer_is_one() -> None:
    assert (read(metric="comment", value="too slow").text, read(metric="stars", value=4, text="nice").text) == (
        "too slow",
        "nice",
    )
    assert (read(metric="answer", value="Oslo").metric, read(metric=ANSWER, value="Oslo").text) == (ANSWER, "Oslo")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, "feedback: value is missing"),
        ({"value": math.nan}, "value is a number from -1e\\+12 to 1e\\+12, not nan"),
        ({"value": math.inf}, "value is a number"),
        ({"value": 1e308}, "value is a number"),
        ({"value": 10**400}, "value is a number"),
        ({"metric": "stars", "value": -1e13}, "value is a number"),
        ({"value": 4}, "value of success is true, false, or from 0 to 1"),
        ({"value": "yes"}, "value of success"),
        ({"value": [1]}, "value is a number"),
        ({"metric": ANSWER, "value": 3}, "the text that should have been answered"),
        ({"value": 1, "mark": 2}, "there is no 'mark'; there are id, request"),
        ({"value": 1, "trace": "t"}, "it is about one thing"),
        ({"session": None, "value": 1}, "it is about one thing: give one of request, trace, task, session, not 0"),
        ({"session": 7, "value": 1}, "session is a text of 1 to 512 characters, not 7"),
        ({"session": " ", "value": 1}, "session is a text"),
        ({"session": "s" * 513, "value": 1}, "session is a text"),
        ({"id": "i" * 513, "value": 1}, "id is a text"),
        ({"value": 1, "text": "t" * 20_001}, "text is a text of 1 to 20,000 characters"),
        ({"metric": "m" * 101, "value": 1}, "metric is a text"),
        ({"metric": "m", "value": "a", "text": "b"}, "value and text are both texts"),
        ({"value": 1, "source": "the boss"}, "source is one of ground truth, person"),
        ({"value": 1, "source": {}}, "source is one of"),
        ({"value": 1, "source": "person", "rater": "Ground Truth"}, "rater 'Ground Truth' stands for no person"),
        ({"value": 1, "tags": ["a"]}, "tags are an object"),
        ({"value": 1, "tags": {str(number): 1 for number in range(33)}}, "tags are an object of at most 32"),
        ({"value": 1, "tags": {"a": math.nan}}, "the tag 'a' is a short text"),
        ({"value": 1, "tags": {"a": {"b": 1}}}, "the tag 'a' is a short text"),
        ({"value": 1, "at": "yesterday"}, "at is a time with its zone"),
        ({"value": 1, "at": "2026-03-05T12:00:00"}, "at is a time with its zone"),
        ({"value": 1, "at": "0001-01-01T00:00:00+14:00"}, "at is a time with its zone"),
        ({"value": 1, "at": "2026-03-05T12:06:00+00:00"}, "at lies in the future"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_the_key_is_named(told: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(**told)


@pytest.mark.parametrize("given_", [None, [], "text", 3])
def test_what_is_no_object_is_refused(given_: object) -> None:
    with pytest.raises(InputError, match=r"feedback\[3\]: an object is wanted"):
        read_feedback(given_, "feedback[3]", id="made", now=NOW)


@pytest.mark.parametrize(
    ("name", "source"),
    [("ground truth", Source.TRUTH), ("ground_truth", Source.TRUTH), ("Ground-Truth", Source.TRUTH), ("user", Source.USER),
     ("end user", Source.USER), ("person", Source.PERSON), ("judge", Source.JUDGE), ("nobody", None)],
)  # fmt: skip
def test_a_source_is_known_by_every_spelling_of_it(name: str, source: Source | None) -> None:
    assert source_named(name) is source


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
keys = st.sampled_from(
    ["id", "request", "trace", "task", "session", "metric", "value", "text", "source", "rater", "tags", "at", "clear"]
)


@given(st.dictionaries(keys, anything | st.sampled_from(["success", "person", "2026-01-01T00:00:00Z", 0.5, True]), max_size=6))
def test_whatever_comes_is_a_word_that_reads_back_the_same_or_one_sentence(given_: dict[str, Any]) -> None:
    try:
        word = read_feedback(given_, "feedback", id="made", now=NOW)
    except InputError:
        return
    assert word.value is None or math.isfinite(word.value)
    kept = json.loads(json.dumps(word.as_json(), allow_nan=False))
    assert read_feedback(kept, "kept", id="other", now=None) == word


def test_the_last_word_of_one_rater_on_one_thing_counts_at_its_place() -> None:
    first, second, third = (read(value=value, rater=rater, id=str(number)) for number, (value, rater) in enumerate(
        ((1, "ada"), (1, "bo"), (0, "ada")))
    )  # fmt: skip
    assert latest([first, second, third]) == [second, third]
    assert read(value=1, at=(NOW + timedelta(minutes=4)).isoformat()).at == NOW + timedelta(minutes=4)


def test_what_is_taken_back_is_a_word_that_counts_for_nothing() -> None:
    said, back = read(value=1, source="person", rater="ada"), read(clear=True, source="person", rater="ada")
    assert (said.is_taken_back, back.is_taken_back, back.label, back.reward.weight) == (False, True, (None, "ada"), 0)
    assert latest([said, back]) == []
    assert latest([back, said]) == [said]
    assert read_feedback(back.as_json(), "feedback", id="made", now=None) == back
    for told in ({"clear": True, "value": 1}, {"clear": "yes"}, {"clear": False}):
        with pytest.raises(InputError, match=r"clear|value is missing"):
            read(**told)


SCHEME = LabelScheme.parse(["helpful:1..5"], ["topic: refund, delivery"])


def test_a_number_on_a_scale_is_worth_its_place_on_it() -> None:
    word = SCHEME.placed(read(metric="helpful", value=4), "feedback")
    assert (word.reward.value, word.reward.evidence, word.reward.weight) == (0.75, "4 of 1 to 5", 0)
    assert SCHEME.placed(read(metric="helpful", value=1), "feedback").reward.value == 0
    assert read_feedback(word.as_json(), "feedback", id="made", now=None) == word
    assert SCHEME.placed(read(metric="score", value=0.25), "feedback").reward.value == 0.25
    assert SCHEME.placed(read(metric="topic", value="refund"), "feedback").reward.evidence == "refund"
    other = read(metric="stars", value=7)
    assert SCHEME.placed(other, "feedback") is other


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"metric": "helpful", "value": 6}, "helpful is a number from 1 to 5, not 6.0"),
        ({"metric": "helpful", "value": "very"}, "helpful is a number from 1 to 5, not 'very'"),
        ({"metric": "score", "value": -0.1}, "score is a number from 0 to 1"),
        ({"metric": "topic", "value": "weather"}, "topic is one of refund, delivery, not 'weather'"),
        ({"metric": "topic", "value": 1}, "topic is one of refund, delivery, not 1.0"),
    ],
)
def test_what_is_not_on_its_scale_or_among_its_names_is_refused(told: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=f"feedback: {said}"):
        SCHEME.placed(read(**told), "feedback")


@pytest.mark.parametrize(
    "scales", ["helpful", "helpful:5..1", "helpful:a..b", "success:0..1", "note:0..1", "score:0..5", ":1..2", "a:1..nan"]
)
def test_what_is_no_scale_is_refused(scales: str) -> None:
    with pytest.raises(InputError):
        LabelScheme.parse([scales], [])


@pytest.mark.parametrize("tag", ["5..1", "1..", "x", "1e99..2", "--1..2", "0..0"])
def test_a_tag_that_is_no_scale_says_nothing(tag: str) -> None:
    assert read(metric="m", value=0.5, tags={"scale": tag}).reward.value == 0.5


@pytest.mark.parametrize("metric", ["success", "score", "stars"])
def test_a_scale_that_somebody_says_their_number_is_on_changes_nothing(metric: str) -> None:
    word = read(metric=metric, value=True, tags={"scale": "1..5", "page": "checkout"})
    assert SCHEME.placed(word, "feedback").reward.value == 1.0
    assert SCHEME.placed(word, "feedback").tags == {"page": "checkout"}
    assert SCHEME.placed(replace(word, metric="helpful"), "feedback").tags["scale"] == "1..5"
    said = replace(word, metric="success")
    assert (said.reward.value, said.label) == (1.0, (True, "end-user"))


def test_of_those_who_correct_an_answer_truth_goes_before_people_and_the_last_word_holds() -> None:
    def says(text: str, source: str, rater: str | None = None) -> Reward:
        return read(metric="answer", value=text, source=source, rater=rater).reward

    ada, bo, user, truth = (
        says("A", "person", "ada"),
        says("B", "person", "bo"),
        says("C", "end user"),
        says("D", "ground truth"),
    )
    assert corrected_answer([ada, bo, user]) == bo
    assert corrected_answer([truth, bo]) == truth
    assert corrected_answer([user, Reward(name="judge", value=1.0, evidence="E")]) is None
