"""What every trace store promises of raw spans."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import sqlalchemy as sa

from journeyman.stores.traces import writing
from journeyman.stores.traces.base import Query, SpanRow, TraceStore
from tests.contracts.test_trace_stores import NOON, call, listed, make
from tests.support.trace_stores import KINDS, opened

HOUR = timedelta(hours=1)
MOST_VALUES = 32_766
"""Of a request, by SQLite; PostgreSQL takes twice as many."""


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TraceStore]:
    with opened(request.param, tmp_path) as store:
        yield store


def make_span(trace_id: str, span_id: str, *, at: datetime = NOON, body: bytes = b"{}") -> SpanRow:
    return SpanRow(trace_id=trace_id, span_id=span_id, at=at, body=body, scope=b"resource and scope")


def test_spans_come_back_as_they_were_in_the_order_of_their_time(store: TraceStore) -> None:
    bodies = [b"\x00\xff" * 2000, b"", b"{}"]
    spans = [make_span("a", str(n), at=NOON - n * HOUR, body=body) for n, body in enumerate(bodies)]
    store.add_spans([*spans, make_span("b", "0")])
    found = store.spans(["a", "nobody"])
    assert list(found["a"]) == spans[::-1]
    assert not found.get("nobody")


def test_traces_whose_spans_came_are_pending_until_they_are_settled_longest_waiting_first(store: TraceStore) -> None:
    store.add_spans([])
    store.add_spans([make_span("b", "1"), make_span("b", "2")])
    store.add_spans([make_span("a", "1")])
    store.add_spans([make_span("b", "3")])
    assert list(store.pending()) == ["b", "a"]
    assert list(store.pending(1)) == ["b"]
    store.settle({"b": 2}, [make("b")])
    assert list(store.pending()) == ["b", "a"]
    store.settle({"b": 3, "a": 1}, [make("b"), make("a")])
    assert list(store.pending()) == []
    assert listed(store) == ["a", "b"]


def test_a_span_that_comes_late_makes_its_trace_wait_again_and_one_that_comes_twice_does_not(store: TraceStore) -> None:
    store.add_spans([make_span("a", "1"), make_span("b", "1"), make_span("a", "1", body=b"other")])
    store.settle({"a": 1, "b": 1}, [])
    store.add_spans([make_span("a", "1"), make_span("b", "1")])
    assert list(store.pending()) == []
    store.add_spans([make_span("b", "1"), make_span("b", "2", at=NOON - HOUR)])
    assert list(store.pending()) == ["b"]
    assert [span.span_id for span in store.spans(["b"])["b"]] == ["2", "1"]
    assert [span.body for span in store.spans(["a"])["a"]] == [b"{}"]


@pytest.mark.service
def test_no_request_holds_more_values_than_a_database_takes(store: TraceStore) -> None:
    held = list[int]()

    def asked(_: object, __: object, ___: str, values: Sequence[Any], ____: object, many: bool) -> None:
        held.extend(map(len, values if many else [values]))

    # More than are written at once, of as many traces, and some of them again.
    spans = [make_span(f"{number:032x}", "1" * 16) for number in range(2 * writing.SPANS_AT_ONCE + 1)]
    sa.event.listen(sa.Engine, "before_cursor_execute", asked)
    try:
        store.add_spans(spans)
        store.add_spans(spans[-writing.SPANS_AT_ONCE - 1 :])
        assert len(store.pending(100_000)) == len(spans)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", asked)
    assert 1000 < max(held) < MOST_VALUES
    assert [len(found) for found in store.spans([spans[0].trace_id, spans[-1].trace_id]).values()] == [1, 1]


def test_every_trace_with_spans_can_be_made_anew(store: TraceStore) -> None:
    store.add_spans([make_span("a", "1"), make_span("b", "1")])
    store.add([make("c")])
    store.settle({"a": 1, "b": 1}, [])
    assert store.rebuild() == 2
    assert sorted(store.pending()) == ["a", "b"]


def test_threads_that_write_and_read_at_once_all_arrive(store: TraceStore) -> None:
    failed: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(5):
                store.add([make(f"{name}{number}"), make("shared", call(f"{name}{number}"))])
                store.add_spans([make_span("s", f"{name}{number}"), make_span("s", "shared")])
                store.page(Query(text="yes"))
        except BaseException as error:  # noqa: BLE001 - told in the test's own thread
            failed.append(error)

    threads = [Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert failed == []
    assert len(listed(store)) == 16
    assert len(store.spans(["s"])["s"]) == 16
    store.settle({"s": 16}, [])
    assert list(store.pending()) == []
