"""The split: a request is on one side alone, whatever its rows say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.core.policy import Ending, Outcome
from journeyman.core.task import content
from journeyman.optimizers.outcome_table import OutcomeRow, Parts, Table, parts
from journeyman.optimizers.router import outcomes

RIGHT = Outcome(ending=Ending.RIGHT, success=1.0)


def table(*rows: tuple[str, str]) -> Table:
    """Of requests and what a file says of each."""
    return outcomes.table(
        [OutcomeRow(id=str(at), request=text, outcomes={"a": RIGHT}, split=said) for at, (text, said) in enumerate(rows)]
    )


def sides(found: Parts) -> dict[int, str]:
    return {at: name for name in ("train", "validation", "held_out", "left_out") for at in getattr(found, name)}


_ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "A ", "b", "c", "d", "e"]), st.sampled_from(["", "train", "held_out"])), min_size=1
)


@given(_ROWS, st.integers(0, 5))
def test_equal_requests_are_never_on_two_sides_and_no_row_is_lost(rows: list[tuple[str, str]], seed: int) -> None:
    found = parts(table(*rows), held_out=0.3, validation=0.2, seed=seed)
    where = sides(found)
    assert sorted(where) == list(range(len(rows)))
    assert len(where) == sum(len(getattr(found, name)) for name in ("train", "validation", "held_out", "left_out"))
    by_request: dict[str, set[str]] = {}
    for at, side in where.items():
        if side != "left_out":
            by_request.setdefault(content(rows[at][0]), set()).add(side)
    assert all(len(found) == 1 for found in by_request.values())
    assert all(where[at] == "held_out" for at, (_, said) in enumerate(rows) if said == "held_out")


def test_without_a_word_of_the_file_shares_are_kept_and_another_seed_draws_others() -> None:
    many = table(*((f"request {at}", "") for at in range(2000)))
    found, other = (parts(many, held_out=0.2, validation=0.1, seed=seed) for seed in (0, 1))
    assert len(found.held_out) == pytest.approx(400, abs=60)
    assert len(found.validation) == pytest.approx(200, abs=50)
    assert set(found.held_out) != set(other.held_out)
    assert parts(many, held_out=0.2, validation=0.1, seed=0) == found


def test_a_training_row_whose_request_is_held_out_is_left_out() -> None:
    found = parts(table(("Add.", "held_out"), ("add. ", "train"), ("Divide.", "train")), validation=0.0)
    assert (found.train, found.held_out, found.left_out) == ((2,), (0,), (1,))


@pytest.mark.parametrize(("held_out", "validation"), [(1.0, 0.0), (0.6, 0.5), (-0.1, 0.1)])
def test_shares_that_leave_nothing_to_learn_from_are_refused(held_out: float, validation: float) -> None:
    with pytest.raises(InputError, match="leave nothing to learn from"):
        parts(table(("Add.", "")), held_out=held_out, validation=validation)
