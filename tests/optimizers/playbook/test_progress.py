"""Sums over batches: a run's is that of its parts, however they were cut, and unknown is not zero."""

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from journeyman.core.trace import ModelCall
from journeyman.optimizers.playbook.run import Progress, Spent, Tally

SMALL = st.integers(0, 9)
EIGHTHS = st.integers(0, 80).map(lambda number: number / 8)
"""Costs whose sums are exact."""
TALLIES = st.builds(Tally, attempts=SMALL, correct=SMALL, wrong=SMALL, unknown=SMALL)
SPENT = st.builds(Spent, calls=SMALL, input_tokens=SMALL, output_tokens=SMALL, uncounted=SMALL, cost=EIGHTHS, unpriced=SMALL)
KEYS = st.sampled_from(["1", "2", "oslo"])
PROGRESS = st.builds(
    Progress,
    attempts=TALLIES,
    by_epoch=st.dictionaries(KEYS, TALLIES),
    by_domain=st.dictionaries(KEYS, TALLIES),
    helpful=SMALL,
    harmful=SMALL,
    neutral=SMALL,
    unusable=SMALL,
    refused=st.dictionaries(KEYS, SMALL),
    added=SMALL,
    incremented=SMALL,
    retired=SMALL,
    generator=SPENT,
    reflector=SPENT,
    seconds=EIGHTHS,
)


@given(PROGRESS, PROGRESS, PROGRESS)
def test_it_does_not_matter_where_a_run_was_cut(one: Progress, two: Progress, three: Progress) -> None:
    assert (one + two) + three == one + (two + three)
    assert one + Progress() == one == Progress() + one
    assert one + two == two + one


@given(PROGRESS)
def test_it_is_read_from_the_disk_as_it_was_written(one: Progress) -> None:
    adapter = TypeAdapter(Progress)
    assert adapter.validate_json(adapter.dump_json(one)) == one


def test_accuracy_is_of_what_could_be_verified() -> None:
    assert Tally(attempts=10, correct=3, wrong=1, unknown=6).accuracy == 0.75
    assert Tally(attempts=6, unknown=6).accuracy is None


def test_a_cost_is_unknown_as_soon_as_a_call_has_no_price() -> None:
    def call(cost: float | None, tokens: int | None = 5) -> ModelCall:
        return ModelCall(model="m", prompt="p", reply="r", input_tokens=tokens, output_tokens=2, cost=cost)

    assert Spent.of([call(0.5), call(0.25)]).json()["cost"] == 0.75
    found = Spent.of([call(0.5), call(None, None)])
    assert (found.cost, found.unpriced, found.uncounted, found.input_tokens) == (0.5, 1, 1, 5)
    assert found.json()["cost"] is None
    assert Progress(generator=found, reflector=found).cost == 1.0


def test_what_was_extracted_is_the_sum_of_its_kinds() -> None:
    assert Progress(helpful=3, harmful=2, neutral=1).extracted == 6
