import threading
import time

import pytest

from journeyman.serving.dashboard.figures import KEPT, LONGEST, SharedCache, VersionedCache


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float, value: int) -> int:
        self.now += seconds
        return value


def test_what_took_long_to_count_is_shown_for_longer() -> None:
    clock = Hands()
    figures = SharedCache[int](clock)
    assert figures.get("a", lambda: clock.work(1.0, 1)).value == 1
    clock.now += 19.9
    assert figures.get("a", lambda: clock.work(1.0, 2)).value == 1
    clock.now += 0.2
    assert figures.get("a", lambda: clock.work(0.0, 3)).value == 3
    assert figures.get("a", lambda: clock.work(0.0, 4)).value == 4  # what costs nothing is counted each time


def test_nothing_is_shown_for_longer_than_a_minute() -> None:
    clock = Hands()
    figures = SharedCache[int](clock)
    figures.get("a", lambda: clock.work(100.0, 1))
    clock.now += LONGEST + 0.1
    assert figures.get("a", lambda: clock.work(1.0, 2)).value == 2


def test_only_the_last_figures_are_kept() -> None:
    clock = Hands()
    figures = SharedCache[int](clock)
    for key in range(KEPT + 1):
        figures.get(key, lambda: clock.work(0.5, 1))
    assert figures.get(KEPT, lambda: clock.work(0.5, 2)).value == 1
    assert figures.get(0, lambda: clock.work(0.5, 2)).value == 2


def test_what_many_want_at_once_is_counted_once() -> None:
    figures, counted = SharedCache[int](), []

    def count() -> int:
        counted.append(1)
        time.sleep(0.2)
        return 7

    threads = [threading.Thread(target=lambda: figures.get("a", count)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert len(counted) == 1


def test_what_cannot_be_counted_is_tried_again() -> None:
    figures = SharedCache[int]()

    def fail() -> int:
        raise OSError("no store")

    with pytest.raises(OSError, match="no store"):
        figures.get("a", fail)
    assert figures.get("a", lambda: 1).value == 1


def test_what_has_a_version_is_counted_again_when_it_has_another_and_only_then() -> None:
    figures, counted = VersionedCache[int](), list[int]()

    def count() -> int:
        counted.append(len(counted))
        return counted[-1]

    versions = [(1, "x"), (1, "x"), (2, "x"), (2, "y"), (2, "y")]
    assert [figures.get("a", version, count) for version in versions] == [0, 0, 1, 2, 2]
    assert figures.get("b", (2, "y"), count) == 3
