"""What is promised of processes that are killed, disks that are full, and databases that others write to."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from journeyman.core.errors import StoreError
from journeyman.core.score import Reward, Score
from journeyman.core.task import Split
from journeyman.core.trace import ModelCall, Trace
from journeyman.stores import AttemptRecord, RunRecord, open_store
from journeyman.stores.sql import SqlTraces
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Query

pytestmark = pytest.mark.service

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)

COMMON = """
import resource, sys
from datetime import UTC, datetime
from journeyman.core.errors import StoreError
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Query, SpanRow
from journeyman.core.trace import ModelCall, ToolCall, Trace

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)

def traces(name, size, length=1500):
    steps = (ModelCall(model="m", prompt=name * length, reply="said " * 50), ToolCall(tool="t", arguments=name, result="r"))
    return [Trace(id=f"{name}-{n}", task_id="t", candidate_id="c", started_at=NOON, steps=steps) for n in range(size)]

def spans(name, size):
    return [SpanRow(trace_id=f"{name}-{n // 5}", span_id=str(n), at=NOON, body=b"x" * 900) for n in range(size)]
"""

WRITER = f"""{COMMON}
file, name, batches = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open_traces(file) as store:
    for number in range(batches):
        store.add(traces(f"{{name}}.{{number}}", 20))
        store.add_spans(spans(f"{{name}}.{{number}}", 50))
        print(number, flush=True)
"""

FULL = f"""{COMMON}
with open_traces(sys.argv[1]) as store:
    store.add(traces("before", 5))
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    try:
        store.add([trace for n in range(400) for trace in traces(f"{{n}} ", 1)])
    except StoreError as error:
        print(error)
    print(store.count(Query()))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(store.add([trace for n in range(400) for trace in traces(f"{{n}} ", 1)]), store.count(Query()))
"""

HOLDER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("begin immediate")
print("held", flush=True)
sys.stdin.readline()
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def make(id: str, reply: str = "yes") -> Trace:
    call = ModelCall(model="m", prompt="q", reply=reply)
    return Trace(id=id, task_id="t", candidate_id="c", started_at=NOON, steps=(call,))


@pytest.mark.parametrize("lives", [5, pytest.param(20, marks=pytest.mark.nightly)])
def test_a_writer_killed_at_any_moment_loses_nothing_acknowledged_and_leaves_no_half_batch(tmp_path: Path, lives: int) -> None:
    file, acknowledged, rng = tmp_path / "traces.db", [], random.Random(0)
    open_traces(file).close()
    for life in range(lives):
        writer = start(WRITER, file, f"life{life}", 10_000)
        assert writer.stdout is not None
        told = [writer.stdout.readline()]
        time.sleep(rng.uniform(0, 0.3))
        os.kill(writer.pid, signal.SIGKILL)
        told += writer.communicate(timeout=60)[0].splitlines(keepends=True)
        acknowledged += [f"life{life}.{int(line)}" for line in told if line.endswith("\n")]
    assert len(acknowledged) >= lives
    with open_traces(file) as store:
        found: dict[str, int] = {}
        for trace in store.traces():
            name = trace.id.rpartition("-")[0]
            found[name] = found.get(name, 0) + 1
            assert trace.calls[0].prompt == name * 1500
            assert trace.tool_calls[0].arguments == name
        assert set(found.values()) == {20}
        assert set(acknowledged) <= found.keys()
        for name in acknowledged:
            spans = store.spans([f"{name}-{n}" for n in range(10)])
            assert [len(each) for each in spans.values()] == [5] * 10
        words = [store.count(Query(text=f'"{name}"')) for name in acknowledged[:10]]
        assert words == [20] * len(words)
    db = sqlite3.connect(file)
    assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    assert db.execute("select count(*) from trace_parts").fetchone() == (60 * len(found),)
    db.close()


def test_processes_that_write_at_once_all_arrive(tmp_path: Path) -> None:
    file = tmp_path / "traces.db"
    writers = [start(WRITER, file, name, 4) for name in ("a", "b")]
    assert [writer.communicate(timeout=120)[1] for writer in writers] == ["", ""]
    with open_traces(file) as store:
        assert store.count(Query()) == 2 * 4 * 20
        assert len(store.pending(1000)) == 2 * 4 * 10


def test_a_full_disk_is_told_and_leaves_nothing_half_and_when_there_is_room_it_goes_on(tmp_path: Path) -> None:
    run = start(FULL, tmp_path / "traces.db")
    out, error = run.communicate(timeout=120)
    assert error == ""
    said, count, after = out.splitlines()
    assert "see that the disk has room" in said or "make room on the disk" in said
    assert count == "5"
    assert after == "400 405"


def test_a_database_that_another_process_holds_is_told_and_asking_again_later_succeeds(tmp_path: Path) -> None:
    file = tmp_path / "traces.db"
    with SqlTraces(f"sqlite:///{file}", patience=0.2) as store:
        holder = start(HOLDER, file)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match=r"database is locked; another process has been writing to it for more than"):
            store.add([make("a")])
        assert store.get("a") is None
        holder.communicate("go\n", timeout=60)
        assert store.add([make("a")]) == 1


def test_a_trace_that_grew_writes_only_what_is_new(tmp_path: Path) -> None:
    file = tmp_path / "traces.db"

    def rows() -> dict[int, int]:
        db = sqlite3.connect(file)
        try:
            return dict(db.execute("select position, seq from trace_parts"))
        finally:
            db.close()

    with open_traces(file) as store:
        trace = make("a")
        store.add([trace])
        before = rows()
        store.add(
            [Trace(id="a", task_id="t", candidate_id="c", started_at=NOON, steps=(*trace.steps, *make("", "more").steps))]
        )
        after = rows()
    assert {position: seq for position, seq in after.items() if position < 2} == before
    assert sorted(after) == [0, 1, 2]


def test_a_long_text_is_kept_once_whoever_says_it(tmp_path: Path) -> None:
    file = tmp_path / "traces.db"
    with open_traces(file) as store:
        store.add([make(str(number), "all the same " * 1000) for number in range(50)])
    db = sqlite3.connect(file)
    assert db.execute("select count(*), max(size) < 1000 from contents").fetchone() == (1, 1)
    db.close()


def attempts(run: str = "run") -> list[AttemptRecord]:
    score = Score(trace_id="", rewards=(Reward(name="exact", value=0.5, evidence="half"),))
    return [AttemptRecord(run_id=run, split=Split.HELD_OUT, trace=make(id), score=score) for id in "ab"]


def test_attempts_of_runs_are_among_the_traces_with_their_rewards(tmp_path: Path) -> None:
    file = tmp_path / "journeyman.db"
    with open_store(file) as store:
        store.add_run(RunRecord(id="run", kind="k", config={}, started_at=NOON))
        store.add_attempts(attempts())
        store.add_attempts(attempts())
    with open_traces(file) as traces:
        lines = traces.page(Query(source="run")).lines
        assert sorted((line.id, line.reward) for line in lines) == [("run:a", 0.5), ("run:b", 0.5)]
        kept = traces.get("run:a")
        assert kept is not None
        assert kept.raw["split"] == "held_out"
        assert kept.rewards[0].evidence == "half"


def test_a_store_from_before_there_were_traces_is_brought_up_to_date_and_has_its_attempts_among_them(tmp_path: Path) -> None:
    file = tmp_path / "journeyman.db"
    with open_store(file) as store:
        store.add_run(RunRecord(id="run", kind="k", config={}, started_at=NOON))
        store.add_attempts(attempts())
    _back_to_the_first_step(file, attempts())
    with open_traces(file) as traces:
        assert sorted(line.id for line in traces.page(Query(text="yes")).lines) == ["run:b"]
    with open_store(file) as store, pytest.raises(StoreError, match="attempt a of run run cannot be read"):
        list(store.attempts())


def _back_to_the_first_step(file: Path, attempts: Iterable[AttemptRecord]) -> None:
    """As an earlier version left it, with one attempt that cannot be read."""
    first = ("runs", "run_marks", "attempts", "candidates", "evaluations", "looks", "moves", "alembic_version")
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("pragma foreign_keys = off")
    kept = "seq, run_id, id, task_id, candidate_id, domain, split, total, tokens, cost, started_at, score"
    db.execute(f"create table older as select {kept}, '' as trace from attempts")
    db.execute("drop table attempts")
    db.execute("alter table older rename to attempts")
    for attempt in attempts:
        told = TypeAdapter(Trace).dump_json(attempt.trace).decode()
        db.execute("update attempts set trace = ? where id = ?", (told, attempt.id))
    for virtual in ("part_words", "content_words", "document_words"):
        db.execute(f"drop table {virtual}")
    for (name,) in db.execute("select name from sqlite_master where type = 'table'").fetchall():
        if name not in first:
            db.execute(f"drop table {name}")
    db.execute("update alembic_version set version_num = '0001'")
    db.execute("update attempts set score = ? where id = 'a'", (json.dumps({}),))
    db.close()
