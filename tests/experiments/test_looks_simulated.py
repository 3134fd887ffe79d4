"""What counting looks promises, simulated for every kind of optimizer."""

import pytest

from benchmarks.bench_looks import KINDS, passing

pytestmark = pytest.mark.training


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_better_passes_in_one_of_twenty_worlds_at_most(kind: str) -> None:
    assert passing(kind, worlds=20, repeats=40, seed=3) <= 1
