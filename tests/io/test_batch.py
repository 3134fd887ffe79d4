from hypothesis import given
from hypothesis import strategies as st

from journeyman.io.batch import BatchSize


@given(st.integers(1, 10_000), st.floats(0, 1e6), st.integers(1, 50), st.integers(50, 5000))
def test_a_size_stays_within_its_bounds_and_is_at_most_twice_what_was_done(
    count: int, took: float, smallest: int, largest: int
) -> None:
    batch = BatchSize(size=smallest, seconds=0.5, smallest=smallest, largest=largest)
    batch.learn(count, took)
    assert smallest <= batch.size <= largest
    assert batch.size <= max(2 * count, smallest)


def test_a_batch_comes_to_take_its_time_whether_it_began_too_small_or_too_large() -> None:
    for size in (1, 5000):
        batch = BatchSize(size=size, seconds=0.5, largest=5000)
        for _ in range(10):
            batch.learn(batch.size, 0.002 * batch.size)
        assert 240 <= batch.size <= 250
