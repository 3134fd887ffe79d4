"""The one sentence of a comparison."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.comparison import ComparisonState, ComparisonVerdict, signed

SHARES = st.floats(0, 1)
ENDS = st.none() | st.floats(-1, 1)


@given(before=st.none() | SHARES, after=st.none() | SHARES, ends=st.tuples(ENDS, ENDS), count=st.integers(0, 500),
       harm=st.none() | st.floats(0.001, 0.5), withheld=st.sampled_from(["", "the split is off"]))  # fmt: skip
def test_a_sentence_never_contradicts_its_interval_and_never_stands_without_it(
    before: float | None,
    after: float | None,
    ends: tuple[float | None, float | None],
    count: int,
    harm: float | None,
    withheld: str,
) -> None:
    low, high = ends if None in ends else sorted(ends)  # type: ignore[type-var]
    told: dict[str, Any] = {"before": before, "after": after, "low": low, "high": high, "count": count, "harm": harm}
    found = ComparisonVerdict(**told, withheld=withheld)
    state, said = found.state, found.sentence
    assert said.startswith(f"{state}: ")
    known = not withheld and None not in (before, after, low, high)
    assert (state is ComparisonState.CANNOT_BE_SAID) == (not known)
    if known and low is not None and high is not None:
        assert (state is ComparisonState.BETTER) == (low > 0)
        assert (state is ComparisonState.WORSE) == (high < 0 and not low > 0)
        assert state is not ComparisonState.NOT_WORSE or (harm is not None and low > -harm)
        # The estimate, its interval and its number stand together.
        assert f"({signed(low)} … {signed(high)}) on {count} task" in said
        # Where the ends are refuted themselves, no more is known than that, and no less.
        strict = ComparisonVerdict(**told, ends_excluded=True).state
        assert strict is state or 0.0 in (low, high) or (harm is not None and low == -harm)
    else:
        assert "→" not in said


def test_an_end_that_is_itself_refuted_decides() -> None:
    told: dict[str, Any] = {"gained": -0.35, "low": -1.0, "high": 0.0, "count": 88}
    assert ComparisonVerdict(**told).state is ComparisonState.NOT_YET
    assert ComparisonVerdict(**told, ends_excluded=True).state is ComparisonState.WORSE
    told |= {"gained": 0.5, "low": 0.0, "high": 1.0}
    assert ComparisonVerdict(**told, ends_excluded=True).state is ComparisonState.BETTER


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (ComparisonVerdict(before=0.65, after=0.81, low=0.03, high=0.29, count=51, caveat="look 3"),
         "BETTER: success 0.65 → 0.81, +0.16 (+0.03 … +0.29) on 51 tasks; look 3"),
        (ComparisonVerdict(before=0.5, after=0.4, low=-0.2, high=-0.01, count=1, unit="session"),
         "WORSE: success 0.50 → 0.40, −0.10 (−0.20 … −0.01) on 1 session"),
        (ComparisonVerdict(before=0.5, after=0.5, low=-0.04, high=0.04, count=900, harm=0.05),
         "NOT WORSE: success 0.50 → 0.50, +0.00 (−0.04 … +0.04) on 900 tasks"),
        (ComparisonVerdict(before=0.5, after=0.5, low=-0.04, high=0.04, count=9),
         "NOT YET: success 0.50 → 0.50, +0.00 (−0.04 … +0.04) on 9 tasks"),
        (ComparisonVerdict(), "CANNOT BE SAID: no task was compared"),
        (ComparisonVerdict(before=0.5, after=1.0, count=3), "CANNOT BE SAID: 3 tasks are too few for an interval"),
        (ComparisonVerdict(before=0.0, after=1.0, low=0.5, high=1, withheld="split is off"), "CANNOT BE SAID: split is off"),
    ],
)  # fmt: skip
def test_each_state_has_its_sentence(found: ComparisonVerdict, said: str) -> None:
    assert found.sentence == said


def test_unknown_is_never_shown_as_nothing() -> None:
    for before, after in product((None, 0.0), repeat=2):
        if None in (before, after):
            assert "0.00" not in ComparisonVerdict(before=before, after=after, low=0.1, high=0.2, count=9).sentence
