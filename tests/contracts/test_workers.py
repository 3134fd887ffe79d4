"""What all workers promise. Ray joins where it is installed."""

import operator
import os
import time
from collections.abc import Iterator

import pytest

from journeyman.core.errors import InputError, JourneymanError
from journeyman.io import executors
from journeyman.io.executors import Processes, Workers


@pytest.fixture(scope="module", params=["here", "local:2", pytest.param("ray", marks=pytest.mark.service)])
def pool(request: pytest.FixtureRequest) -> Iterator[Workers]:
    if request.param == "ray":
        pytest.importorskip("ray", reason="needs the extra: pip install 'journeyman[ray]'")
    with executors.load(request.param) as made:
        yield made


def slow_first(number: int) -> int:
    time.sleep(0.2 if number == 0 else 0)
    return number * number


def test_results_come_in_the_order_of_the_items(pool: Workers) -> None:
    assert list(pool.map(slow_first, range(30))) == [number * number for number in range(30)]


def test_a_pool_can_be_asked_again(pool: Workers) -> None:
    assert list(pool.map(operator.neg, [1, 2])) == [-1, -2]
    assert list(pool.map(str, [])) == []


def test_what_the_function_raises_is_raised_here(pool: Workers) -> None:
    with pytest.raises(ZeroDivisionError):
        list(pool.map(reciprocal, [2, 0, 1]))


def reciprocal(number: int) -> float:
    return 1 / number


def test_items_are_taken_only_when_they_are_needed(pool: Workers) -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(10_000):
            taken.append(number)
            yield number

    results = pool.map(operator.neg, items())
    assert next(results) == 0
    assert len(taken) < 1000


def test_a_worker_that_is_killed_is_one_sentence() -> None:
    with Processes(1) as pool, pytest.raises(JourneymanError, match="a worker process was killed"):
        list(pool.map(os._exit, [9]))


@pytest.mark.parametrize("name", ["many", "here:2", "local:0", "local:x"])
def test_a_name_of_none_is_said_in_one_sentence(name: str) -> None:
    with pytest.raises(InputError, match=name):
        executors.load(name)
