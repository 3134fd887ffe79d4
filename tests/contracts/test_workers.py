"""What all workers promise. Ray joins where it is installed, PostgreSQL where it and procrastinate are."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.errors import InputError, JourneymanError
from journeyman.io import executors
from journeyman.io.executors import Here, ItemFailed, Workers
from tests.support import jobs, postgres
from tests.support.jobs import crash, reciprocal, square

Items = list[dict[str, Any]]


@pytest.fixture(
    scope="module",
    params=[
        "here",
        pytest.param("local:2", marks=pytest.mark.service),
        pytest.param("ray", marks=pytest.mark.service),
        pytest.param("postgres", marks=pytest.mark.postgres),
    ],
)
def pool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    if request.param != "postgres":
        if request.param == "ray":
            pytest.importorskip("ray", reason="needs the extra: pip install 'journeyman[ray]'")
        with executors.load(request.param) as made:
            yield made
        return
    pytest.importorskip("procrastinate", reason="needs the extra: pip install 'journeyman[workers]'")
    with pytest.MonkeyPatch.context() as monkeypatch, postgres.database() as url:
        jobs.install(tmp_path_factory.mktemp("package"), monkeypatch)
        with jobs.worker(url, "--processes", "2"), executors.load(f"postgres:{url}") as made:
            yield made


def numbers(*found: int) -> Items:
    return [{"number": number} for number in found]


def test_results_come_in_the_order_of_the_items(pool: Workers) -> None:
    items: Items = [{"number": number, "sleep": 0.2 if number == 0 else 0} for number in range(30)]
    assert list(pool.map(square, items)) == [number * number for number in range(30)]


def test_a_pool_can_be_asked_again(pool: Workers) -> None:
    assert list(pool.map(square, numbers(1, 2))) == [1, 4]
    assert list(pool.map(square, [])) == []


def test_what_the_function_raises_is_raised_here(pool: Workers) -> None:
    with pytest.raises((ZeroDivisionError, JourneymanError), match="division by zero"):
        list(pool.map(reciprocal, numbers(2, 0, 1)))


def test_items_are_taken_only_when_they_are_needed(pool: Workers) -> None:
    taken = []

    def items() -> Iterator[dict[str, Any]]:
        for number in range(10_000):
            taken.append(number)
            yield {"number": number}

    results = pool.map(square, items())
    assert next(results) == 0
    assert len(taken) < 1000
    results.close()  # type: ignore[attr-defined]


def test_an_item_that_takes_too_long_is_a_failed_item_and_the_others_are_done(pool: Workers) -> None:
    items: Items = [{"number": 1}, {"number": 2, "sleep": 30}, {"number": 3}]
    assert list(pool.map(square, items, seconds=1, failed=lambda item, why: -int(item["number"]))) == [1, -2, 9]
    with pytest.raises(ItemFailed, match="more than 1 s"):
        list(pool.map(square, items, seconds=1))


def test_an_item_whose_worker_is_killed_is_done_by_another_one(pool: Workers, tmp_path: Path) -> None:
    if isinstance(pool, Here) and type(pool) is Here:
        pytest.skip("here the worker is this process")
    items: Items = [*numbers(1, 2), {"number": 3, "once": str(tmp_path / "killed")}, *numbers(4, 5)]
    assert list(pool.map(crash, items)) == [1, 2, 3, 4, 5]
    assert (tmp_path / "killed").exists()


def test_an_item_that_kills_each_worker_is_given_up_with_the_reason(pool: Workers) -> None:
    if isinstance(pool, Here) and type(pool) is Here:
        pytest.skip("here the worker is this process")
    items: Items = [{"number": 1}, {"number": 2, "always": True}, {"number": 3}]
    reasons = []

    def failed(item: dict[str, Any], why: str) -> int:
        reasons.append(why)
        return -1

    assert list(pool.map(crash, items, failed=failed)) == [1, -1, 3]
    assert "3 times" in reasons[0]


def test_each_item_is_done_once(pool: Workers, tmp_path: Path) -> None:
    log = tmp_path / "log"
    list(pool.map(square, [{"number": number, "log": str(log)} for number in range(20)]))
    assert sorted(map(int, log.read_text().split())) == list(range(20))


def test_what_takes_too_long_does_not_count_where_nobody_can_interrupt_it() -> None:
    found: list[int] = []

    def other() -> None:
        items: Items = [{"number": 1, "sleep": 0.05}]
        found.extend(Here().map(square, items, seconds=0.01, failed=lambda *_: -1))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [-1]


@pytest.mark.parametrize("name", ["many", "here:2", "local:0", "local:x"])
def test_a_name_of_none_is_said_in_one_sentence(name: str) -> None:
    with pytest.raises(InputError, match=name):
        executors.load(name)


def test_a_password_in_a_name_that_is_none_is_not_repeated() -> None:
    with pytest.raises(InputError) as error:
        executors.load("postgrex://me:hunter2@db/x")
    assert "hunter2" not in str(error.value)
