"""The way into the store: what is handed over gets there, whatever the store does."""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.trace import Trace
from journeyman.serving.ingest.base import RecordCleaner
from journeyman.serving.ingest.factory import _read_spans as read_spans
from journeyman.serving.ingest.queues import BoundedQueue, Pipe, QueueLimits, Waiting
from journeyman.serving.ingest.spill import Spill
from journeyman.serving.ingest.writer import StoreIntake
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Query, TraceStore
from journeyman.tracing.redaction import Redactor
from journeyman.tracing.wire.assembler import ConversationAssembler
from journeyman.tracing.wire.dialects import Dialect, Exchange
from tests.serving.ingest.test_spill import made

pytestmark = pytest.mark.service

AT = datetime(2026, 1, 2, tzinfo=UTC)
SOON = 20.0
QUICK = QueueLimits(linger=0.001)


def exchange(number: int, reply: str = "Yes.", said: str = "Is it so?") -> Exchange:
    request = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": f"{said} {number}"}]}
    answer = {
        "id": f"chatcmpl-{number}",
        "model": "gpt-4o-mini",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3},
    }
    return Exchange(
        id=f"x{number}",
        dialect=Dialect.CHAT,
        request=json.dumps(request).encode(),
        response=json.dumps(answer).encode(),
        status=200,
        started_at=AT + timedelta(seconds=number),
        seconds=0.5,
        base_url="https://api.openai.com/v1",
    )


def cleaner(**settings: bool) -> RecordCleaner:
    joiner = ConversationAssembler(price=lambda url, model, usage: None)
    return RecordCleaner(redactor=Redactor(), read=lambda each: (joiner.join(each),), **settings)


class Start:
    """Opens intakes on one store, and closes them all."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "journeyman.db"
        self.spill = folder / "spill"

    def __call__(self, limits: QueueLimits = QUICK, open_store: Callable[[], TraceStore] | None = None) -> StoreIntake:
        opened = open_store or (lambda: open_traces(self.file))
        return StoreIntake(opened, cleaner=cleaner(), read_spans=read_spans, spill=self.spill, limits=limits)

    def ids(self) -> list[str]:
        with open_traces(self.file) as store:
            return [trace.id for trace in store.traces()]

    def traces(self) -> list[Trace]:
        with open_traces(self.file) as store:
            return list(store.traces(Query()))


@pytest.fixture
def start(tmp_path: Path) -> Start:
    return Start(tmp_path)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Somebody else holds the database."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("begin exclusive")
        try:
            yield
        finally:
            connection.execute("rollback")


def until(true: Callable[[], bool], timeout: float = SOON) -> None:
    deadline = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.01)


def test_exchanges_and_traces_are_in_the_store_after_a_flush(start: Start) -> None:
    with closing(start()) as intake:
        for number in range(30):
            intake.submit(exchange(number))
        intake.add(made("own"))
        assert intake.flush(SOON)
        health = intake.health()
    assert (health.waiting, health.spilled, health.dropped, health.error) == (0, 0, 0, None)
    assert health.stored == 31
    traces = start.traces()
    assert len(traces) == 31
    assert {trace.reply for trace in traces} == {"Yes.", "Hello"}


def test_the_latest_version_of_a_trace_is_what_stays(start: Start) -> None:
    with closing(start()) as intake:
        for number in range(200):
            intake.add(made("same", reply=str(number)))
        assert intake.flush(SOON)
        assert intake.health().stored == 200
    assert [trace.reply for trace in start.traces()] == ["199"]


def test_a_conversation_is_one_trace_with_its_steps_in_order(start: Start) -> None:
    said: list[dict[str, str]] = []
    with closing(start()) as intake:
        for number in range(10):
            said.append({"role": "user", "content": f"Question {number}"})
            one = exchange(number, reply=f"Answer {number}")
            intake.submit(replace(one, request=json.dumps({"model": "m", "messages": said}).encode()))
            said.append({"role": "assistant", "content": f"Answer {number}"})
            time.sleep(0.005)
        assert intake.flush(SOON)
    (trace,) = start.traces()
    assert [call.reply for call in trace.calls] == [f"Answer {number}" for number in range(10)]


def test_while_the_database_is_locked_traces_wait_on_the_disk_and_come_in_order_when_it_is_free(start: Start) -> None:
    with closing(start()) as intake:
        intake.add(made("first"))
        assert intake.flush(SOON)
        with locked(start.file):
            for number in range(50):
                intake.add(made(f"{number:02}", reply="old"))
            until(lambda: intake.health().spilled >= 50)
            intake.add(made("07", reply="new"))
            until(lambda: intake.health().spilled >= 51)
            assert intake.health().waiting == 0
        assert intake.flush(SOON)
        assert intake.health().dropped == 0
    replies = {trace.id: trace.reply for trace in start.traces()}
    assert len(replies) == 51
    assert replies["07"] == "new"


def test_a_store_that_cannot_be_opened_is_asked_again_until_it_can(start: Start, tmp_path: Path) -> None:
    blocker = tmp_path / "folder"
    blocker.write_text("a file where the store's folder should be")
    start.file = blocker / "journeyman.db"
    with closing(start()) as intake:
        intake.add(made("1"))
        until(lambda: intake.health().error is not None and intake.health().spilled == 1)
        assert "folder" in (intake.health().error or "")
        assert intake.health().retries >= 1
        blocker.unlink()
        assert intake.flush(SOON)
        assert intake.health().error is None
    assert start.ids() == ["1"]


def test_what_finds_no_room_is_dropped_and_counted_and_nothing_else_is(start: Start, tmp_path: Path) -> None:
    blocker = tmp_path / "folder"
    blocker.write_text("")
    start.file = blocker / "journeyman.db"
    limits = QueueLimits(linger=0.001, things=10, spill_bytes=2000)
    with closing(start(limits)) as intake:
        for number in range(100):
            intake.add(made(f"{number:03}"))
            time.sleep(0.002)
        until(lambda: intake.health().error is not None)
        health = intake.health()
        assert health.dropped > 0
        assert health.waiting <= 10
        blocker.unlink()
        assert intake.flush(SOON)
        assert intake.health().stored == 100 - health.dropped
    assert len(start.ids()) == 100 - health.dropped


def test_nobody_who_hands_over_waits_for_the_store(start: Start) -> None:
    with closing(start()) as intake:
        intake.add(made("first"))
        assert intake.flush(SOON)
        with locked(start.file):
            began = time.monotonic()
            for number in range(2000):
                intake.submit(exchange(number))
            assert time.monotonic() - began < 5, "far less than the thirty seconds for which the store waits"
        assert intake.flush(SOON)


def test_what_a_closed_intake_could_not_write_is_written_by_the_next(start: Start, tmp_path: Path) -> None:
    blocker = tmp_path / "folder"
    blocker.write_text("")
    start.file = blocker / "journeyman.db"
    intake = start()
    for number in range(20):
        intake.add(made(f"{number:02}"))
    intake.close(timeout=0.5)
    intake.add(made("too late"))
    assert intake.health().dropped == 1
    blocker.unlink()
    with closing(start()) as after:
        until(lambda: after.health().stored == 20)
    assert start.ids() == [f"{number:02}" for number in range(20)]
    assert list(start.spill.iterdir()) == []


NEVER = (
    replace(made("without a zone"), started_at=datetime(2026, 1, 2)),
    replace(made("too large"), steps=(replace(made("x").calls[0], input_tokens=2**70),)),
    replace(made("no number"), steps=(replace(made("x").calls[0], cost=float("nan")),)),
)


def test_traces_that_the_store_can_never_take_are_named_counted_and_hold_up_no_others(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(start(replace(QUICK, linger=0.2))) as intake:
        for number, never in enumerate(NEVER):
            intake.add(made(f"{number} before"))
            intake.add(never)
            intake.add(made(f"{number} after"))
        assert intake.flush(SOON)
        health = intake.health()
    assert (health.stored, health.dropped, health.error) == (6, 3, None)
    assert len(start.ids()) == 6
    assert sum("left out" in said for said in caplog.messages) == 3
    assert "'without a zone' cannot be kept: the time 2026-01-02T00:00:00 has no zone" in caplog.text


def test_traces_that_can_never_be_taken_do_not_stay_on_the_disk_either(start: Start) -> None:
    with closing(start()) as intake:
        intake.add(made("first"))
        assert intake.flush(SOON)
        with locked(start.file):
            for never in NEVER:
                intake.add(never)
            intake.add(replace(made("strange"), raw={"what": {object}}))
            until(lambda: intake.health().spilled == 4)
        assert intake.flush(SOON)
        assert (intake.health().stored, intake.health().dropped) == (2, 3)
    assert start.ids() == ["first", "strange"]


def test_an_exchange_that_cannot_be_read_is_counted_and_does_not_hold_up_the_others(start: Start) -> None:
    def read(each: Exchange) -> list[Trace]:
        if each.id == "x1":
            raise ValueError("password: 'p4ssw0rd'")
        return [made(each.id)]

    strict = RecordCleaner(redactor=Redactor(), read=read)
    with closing(StoreIntake(lambda: open_traces(start.file), cleaner=strict, spill=start.spill)) as intake:
        for number in range(3):
            intake.submit(exchange(number))
        assert intake.flush(SOON)
        assert intake.health().dropped == 1
    assert start.ids() == ["x0", "x2"]


def test_what_is_stored_while_it_is_moved_to_the_disk_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = BoundedQueue(QueueLimits())
    pipe = Pipe(line, cleaner(), tmp_path, QueueLimits())
    for id in ("a", "b", "c"):
        item = Waiting(what=made(id), weight=1)
        assert line.put(item)
        pipe.prepare(item)
    taken, written, append = pipe.first_traces(2), list[int](), Spill.append

    def slow(spill: Any, trace: Trace) -> bool:
        found = append(spill, trace)
        if not written:
            # The store has kept both, of which one is on the disk by now.
            written.append(pipe.drop_traces(taken))
        return found

    monkeypatch.setattr(Spill, "append", slow)
    pipe.overflow(everything=True)
    while pipe.work:
        written.append(pipe.drop_traces(pipe.first_traces(2)))
    assert sum(written) == 3
    pipe.close()
