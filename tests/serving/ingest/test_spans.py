"""Spans: told to be kept only when they are, and made into traces soon after."""

import time
from concurrent.futures import wait
from contextlib import closing
from pathlib import Path

import pytest

from journeyman.core.errors import StoreError
from journeyman.serving.ingest.queues import QueueLimits
from journeyman.serving.ingest.writer import StoreIntake
from journeyman.stores.traces import open_traces
from tests.serving.ingest.test_writer import SOON, Start, cleaner, exchange, locked, until
from tests.support.spans import call, rows

pytestmark = pytest.mark.service


@pytest.fixture
def start(tmp_path: Path) -> Start:
    return Start(tmp_path)


def test_spans_are_on_disk_when_they_are_told_to_be_and_soon_make_a_trace(start: Start) -> None:
    with closing(start()) as intake:
        intake.spans(rows(call(1, 1, "Hello"))).result(SOON)
        with open_traces(start.file) as store:
            assert len(store.spans([f"{1:032x}"])[f"{1:032x}"]) == 1
            began = time.monotonic()
            until(lambda: store.get(f"{1:032x}") is not None)
            assert time.monotonic() - began < 5
    (trace,) = start.traces()
    assert trace.reply == "Hello!"


def test_spans_that_come_late_and_out_of_order_join_their_trace(start: Start) -> None:
    with closing(start()) as intake:
        for span in (3, 1):
            intake.spans(rows(call(1, span, f"Question {span}"))).result(SOON)
        assert intake.flush(SOON)
        intake.spans(rows(call(1, 2, "Question 2"), call(2, 9))).result(SOON)
        assert intake.flush(SOON)
    first, _ = sorted(start.traces(), key=lambda trace: -len(trace.calls))
    assert [each.reply for each in first.calls] == ["Question 1!", "Question 2!", "Question 3!"]


def test_many_requests_at_once_are_each_answered(start: Start) -> None:
    with closing(start()) as intake:
        futures = [intake.spans(rows(*(call(number, span) for span in range(1, 6)))) for number in range(1, 101)]
        assert not wait(futures, SOON).not_done
        assert all(future.exception() is None for future in futures)
        assert intake.flush(SOON)
        assert intake.health().stored == 500
    assert len(start.ids()) == 100


def test_spans_do_not_wait_behind_chats(start: Start) -> None:
    with closing(start(QueueLimits())) as intake:
        intake.spans(rows(call(1, 1))).result(SOON)
        for number in range(3000):
            intake.submit(exchange(number, said="Is it so? " * 200))
        intake.spans(rows(call(2, 1))).result(SOON)
        # Behind them in line, it was told when nearly all were stored.
        assert intake.health().stored < 1500
        assert intake.flush(SOON)
        assert intake.health().stored == 3002


def test_spans_without_room_are_refused_at_once(start: Start) -> None:
    with closing(start(QueueLimits(linger=0.001, things=3))) as intake:
        intake.spans(rows(call(1, 1))).result(SOON)
        with locked(start.file):
            futures = [intake.spans(rows(call(number, 1))) for number in range(2, 12)]
            refused = [future for future in futures if future.done()]
            assert len(refused) >= 7
            with pytest.raises(StoreError, match="send them again"):
                refused[0].result(0)
        assert intake.flush(SOON)
        assert not wait(futures, SOON).not_done
    assert len(start.ids()) == 11 - len(refused)


def test_spans_that_a_store_does_not_take_in_time_are_refused_and_none_is_kept(start: Start, tmp_path: Path) -> None:
    blocker = tmp_path / "folder"
    blocker.write_text("")
    start.file = blocker / "journeyman.db"
    with closing(start(QueueLimits(linger=0.001, patience=0.5))) as intake:
        future = intake.spans(rows(call(1, 1)))
        with pytest.raises(StoreError):
            future.result(SOON)
        assert intake.health().waiting == 0
        blocker.unlink()
        assert intake.flush(SOON)
    assert start.ids() == []


def test_spans_that_another_process_left_unread_become_traces_at_the_start(start: Start) -> None:
    with open_traces(start.file) as store:
        store.add_spans(rows(call(7, 1)))
    with closing(start()) as intake:
        assert intake.flush(SOON)
    assert start.ids() == [f"{7:032x}"]


def test_spans_that_nobody_can_read_do_not_hold_up_the_others(start: Start) -> None:
    broken = rows(call(1, 1))[0]
    with open_traces(start.file) as store:
        store.add_spans([broken._replace(body=b"\xff\xff", packed=b""), *rows(call(2, 1))])
    with closing(start()) as intake:
        assert intake.flush(SOON)
    assert start.ids() == [f"{2:032x}"]


def test_without_a_reader_spans_are_only_kept(start: Start) -> None:
    intake = StoreIntake(lambda: open_traces(start.file), cleaner=cleaner(), spill=start.spill)
    with closing(intake):
        intake.spans(rows(call(1, 1))).result(SOON)
        assert intake.flush(SOON)
    with open_traces(start.file) as store:
        assert list(store.pending()) == [f"{1:032x}"]


def test_a_closed_intake_refuses_spans(start: Start) -> None:
    intake = start()
    intake.close()
    with pytest.raises(StoreError):
        intake.spans(rows(call(1, 1))).result(SOON)
