import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.format import counted, noun
from journeyman.serving.dashboard import layout as words
from journeyman.serving.dashboard.layout import visible


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "?"),
        (0, "$0"),
        (0.00001234, "$1.2e-05"),
        (0.0012, "$0.0012"),
        (0.0644, "$0.064"),
        (0.1, "$0.10"),
        (1234.5, "$1,234.50"),
    ],
)
def test_money_has_the_digits_that_tell_something(value: float | None, said: str) -> None:
    assert words.money(value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "?"),
        (0, "0 ms"),
        (0.82, "820 ms"),
        (0.9996, "1.0 s"),
        (59.96, "1 min 0 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
    ],
)
def test_seconds_are_said_in_the_unit_of_their_size(value: float | None, said: str) -> None:
    assert words.seconds(value) == said


@pytest.mark.parametrize(
    ("value", "said"), [(None, "?"), (0, "0"), (999, "999"), (1200, "1.2k"), (999_900, "1000k"), (12_345_678, "12.3M")]
)
def test_counts_are_short(value: int | None, said: str) -> None:
    assert words.short(value) == said


def test_unknown_is_not_zero() -> None:
    assert words.count(None) == "unknown" != words.count(0)
    assert words.reward(None) == "unknown" != words.reward(0)
    assert words.share(None) == "?" != words.share(0)


@given(st.text(st.characters()))
def test_what_is_shown_has_nothing_hidden_and_can_be_written(text: str) -> None:
    shown = visible(text)
    shown.encode()
    assert not set("\x00\x1b\u202e\u2066\ufeff") & set(shown)


@given(st.text(st.characters(), max_size=300))
def test_any_text_can_be_set_out(text: str) -> None:
    words.pretty(text)
    assert len(words.one_line(text, 50)) <= 50


def test_json_is_set_out_in_lines_and_other_text_is_left() -> None:
    assert words.pretty('{"a": [1]}') == '{\n  "a": [\n    1\n  ]\n}'
    assert words.pretty("{not json") == "{not json"
    assert words.pretty("[" * 100_000) == "[" * 100_000


@pytest.mark.parametrize(
    ("number", "words", "said"),
    [(0, ("rule",), "0 rules"), (1, ("rule",), "1 rule"), (2, ("rule",), "2 rules"), (1200, ("bullet",), "1,200 bullets"),
     (1, ("person", "people"), "1 person"), (3, ("person", "people"), "3 people")],
)  # fmt: skip
def test_one_of_something_is_not_said_in_the_plural(number: int, words: tuple[str, ...], said: str) -> None:
    assert counted(number, *words) == said
    assert f"{number:,} {noun(number, *words)}" == said
