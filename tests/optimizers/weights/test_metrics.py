import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.metrics import UpdateMetrics, finite, parse, read

NUMBERS = st.none() | st.floats(allow_nan=False, allow_infinity=False)
UPDATES = st.builds(
    UpdateMetrics,
    step=st.integers(0, 10**6),
    of=st.integers(0, 10**6),
    loss=NUMBERS,
    reward=NUMBERS,
    validation=NUMBERS,
    tokens=st.none() | st.integers(0),
    broken=st.lists(st.text(max_size=5), max_size=2).map(tuple),
    more=st.dictionaries(st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False), max_size=3),
)


@given(UPDATES)
def test_what_was_written_is_read_again(update: UpdateMetrics) -> None:
    assert parse(update.line()) == update
    assert update.line().count("\n") == 1


def test_what_is_no_number_is_unknown_and_named() -> None:
    found, broken = finite({"loss": math.nan, "grad_norm": math.inf, "reward": 0.5, "kl": None})
    assert found == {"loss": None, "grad_norm": None, "reward": 0.5, "kl": None}
    assert broken == ("grad_norm", "loss")


def test_a_line_that_was_being_written_when_the_program_was_killed_is_left_out(tmp_path: Path) -> None:
    path, update = tmp_path / "metrics.jsonl", UpdateMetrics(step=1, of=2)
    later = replace(update, step=2).line()
    for cut in range(len(later)):
        path.write_text(update.line() + later[:cut])
        assert read(path) == [update]
    path.write_text(update.line() + later)
    assert [each.step for each in read(path)] == [1, 2]


def test_a_field_of_a_later_version_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "m").write_text('{"step": 1, "of": 2, "colour": "red"}\n')
    assert read(tmp_path / "m") == [UpdateMetrics(step=1, of=2)]


@pytest.mark.parametrize(
    "line", ["nonsense", "[]", '{"step": 1}', '{"step": "1", "of": 2}', '{"step": 1, "of": 2, "broken": 3}']
)
def test_a_line_that_was_not_written_so_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "m").write_text(UpdateMetrics(step=1, of=2).line() + line + "\n")
    with pytest.raises(InputError, match=r"m:2: not an update as it was written"):
        read(tmp_path / "m")


def test_there_are_no_updates_where_there_is_no_file(tmp_path: Path) -> None:
    assert read(tmp_path / "none") == []
