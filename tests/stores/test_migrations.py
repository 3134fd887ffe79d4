"""A database of every step before opens, and loses nothing."""

import gzip
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from journeyman.core.candidate import Candidate, Kind
from journeyman.core.errors import StoreError
from journeyman.core.release import Stage
from journeyman.core.score import Reward, Score
from journeyman.core.task import Split
from journeyman.core.trace import Message, ModelCall, Reasoning, ToolCall, Trace
from journeyman.stores import AttemptRecord, RunState, open_store, open_traces
from journeyman.stores import engine as schema
from journeyman.stores.engine import connect
from journeyman.stores.traces.base import Query
from tests.support import postgres

BEFORE = Path(__file__).parents[1] / "data" / "store" / "0002.db.gz"
NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)


def attempt(id: str, run: str = "one", **more: Any) -> AttemptRecord:
    """As tests/data/store/README.md has it."""
    value, split = more.pop("value", 1.0), more.pop("split", Split.TRAIN)
    call = ModelCall(
        model="m",
        prompt="user: 1+1",
        reply={"odd": "\x00 \ud800 2", "long": "2" * 3000}.get(id, "2"),
        messages=(Message(role="user", text="1+1"),),
        input_tokens=3,
        output_tokens=1,
        cost=0.25,
        shown=("b1",),
        id="s1",
        response_id=None if id == "odd" else f"r-{id}",
    )
    tool = ToolCall(tool="calculator", arguments="1+1", result="2", ok=False, parent="s1")
    steps = (Reasoning(text="adding"), call, tool)
    trace = Trace(id=id, task_id=f"task {id}", started_at=NOON, steps=steps, **{"candidate_id": "base", **more})
    score = Score(trace_id=id, rewards=(Reward(name="exact", value=value, evidence="as asked"),))
    return AttemptRecord(run_id=run, split=split, trace=trace, score=score)


ATTEMPTS = [
    attempt("plain"),
    attempt("odd", value=None),
    attempt("long"),
    attempt("plain", run="two", split=Split.HELD_OUT, candidate_id="c"),
    attempt(
        "own",
        source="hook",
        rewards=(Reward(name="own", value=0.5),),
        raw={"run_id": "mine", "more": [1, {"a": None}]},
        label=True,
    ),
    attempt("pruned", run="two"),
    attempt("replaced", run="two"),
]
"""All that can be read, in their order; after them comes one that was damaged."""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a store at step 0002."""
    file = tmp_path / "before.db"
    file.write_bytes(gzip.decompress(BEFORE.read_bytes()))
    if request.param == "sqlite":
        yield f"sqlite:///{file}"
        return
    with postgres.schema() as url:
        _copy(file, url)
        yield url


def _copy(file: Path, url: str) -> None:
    """Every row of a SQLite file into a PostgreSQL that is brought to the same step."""
    source = sqlite3.connect(file)
    source.row_factory = sqlite3.Row
    _, engine = connect(url)
    with engine.begin() as connection:
        schema.upgrade(connection, "0002")
        connection.execute(sa.text("drop trigger forget_digest on traces"))
        tables = sa.MetaData()
        tables.reflect(connection)
        for table in tables.sorted_tables:
            columns = [column for column in table.c if not isinstance(column.type, sa.dialects.postgresql.TSVECTOR)]
            if table.name in ("alembic_version", "part_words", "content_words", "document_words"):
                continue
            rows = [_values(columns, row) for row in source.execute(f"select * from {table.name}")]
            if rows:
                connection.execute(sa.insert(table), rows)
                top = sa.text(f"select setval(pg_get_serial_sequence('{table.name}', 'seq'), max(seq)) from {table.name}")
                connection.execute(top)
    engine.dispose()
    source.close()


def _values(columns: list[sa.Column[Any]], row: sqlite3.Row) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for column in columns:
        value = row[column.name]
        if value is not None and isinstance(column.type, sa.JSON):
            value = json.loads(value)
        elif value is not None and isinstance(column.type, sa.Boolean):
            value = bool(value)
        elif value is not None and isinstance(column.type, sa.DateTime):
            value = datetime.fromisoformat(value).replace(tzinfo=UTC)
        told[column.name] = value
    return told


def test_every_attempt_is_as_it_was_and_its_trace_is_kept_once(before: str) -> None:
    with open_store(before) as store:
        listed = store.attempts()
        assert [next(listed) for _ in ATTEMPTS] == ATTEMPTS
        with pytest.raises(StoreError, match="attempt damaged of run two cannot be read"):
            next(listed)
        assert [each.id for each in store.attempts(run_id="one")] == ["plain", "odd", "long", "own"]
        store.add_attempts([*ATTEMPTS, attempt("new")])
        assert [each.id for each in store.attempts(run_id="one")] == ["plain", "odd", "long", "own", "new"]
    _, engine = connect(before)
    with engine.connect() as connection:
        assert "told" not in {column["name"] for column in sa.inspect(connection).get_columns("attempts")}
    engine.dispose()


def test_everything_else_is_there_as_well(before: str) -> None:
    candidate = Candidate(kind=Kind.PLAYBOOK, body="rules", parents=("p",))
    with open_store(before) as store:
        assert [(run.id, run.state) for run in store.runs()] == [("one", RunState.RUNNING), ("two", RunState.FINISHED)]
        assert list(store.candidates()) == [candidate]
        assert [each.report for each in store.evaluations(candidate_id=candidate.id)] == [{"gain": 0.25}]
        assert [release.stage for release in store.releases()] == [Stage.PRODUCTION]
        assert store.record_look("h", candidate.id, NOON, "e") == store.looks("h") == 1


def test_the_traces_keep_what_was_said_of_them(before: str) -> None:
    with open_traces(before) as traces:
        labels = [(label.trace_id, label.good, label.who) for label in traces.labels()]
        assert sorted(labels) == [("one:plain", False, "ann"), ("watched", True, "ann")]
        kept = traces.get("one:plain")
        assert kept is not None
        assert (kept.label, [reward.name for reward in kept.rewards]) == (False, ["exact", "given"])
        replaced = traces.get("two:replaced")
        assert replaced is not None
        assert replaced.steps[-1] == Reasoning(text="added by somebody")
        listed = {line.id for line in traces.page(Query()).lines}
        ids = {f"{each.run_id}:{each.id}" for each in ATTEMPTS} | {"two:damaged", "watched"}
        # Of two that tell the same calls one is listed.
        assert listed == ids - {"two:plain"}
        assert [span.body for span in traces.spans(["watched"])["watched"]] == [b"{}"]


def test_what_is_moved_is_found_by_its_words(tmp_path: Path) -> None:
    file = tmp_path / "journeyman.db"
    file.write_bytes(gzip.decompress(BEFORE.read_bytes()))
    with open_traces(file) as traces:
        assert [line.id for line in traces.page(Query(text="zebra")).lines] == ["watched"]
        assert "two:pruned" in {line.id for line in traces.page(Query(text="adding")).lines}


def test_a_run_of_before_can_be_forgotten_and_its_traces_are_gone(before: str) -> None:
    with open_store(before) as store:
        assert store.remove_run("one") == 4
    with open_traces(before) as traces:
        assert traces.starting("one:") == []
        assert traces.get("two:plain") is not None


def test_what_a_run_attempted_is_neither_pruned_nor_replaced(tmp_path: Path) -> None:
    file = tmp_path / "journeyman.db"
    file.write_bytes(gzip.decompress(BEFORE.read_bytes()))
    with open_store(file) as store, open_traces(file) as traces:
        kept = traces.get("one:long")
        assert kept is not None
        assert traces.add([replace(kept, steps=()), Trace(id="a:b", task_id="t", candidate_id="c", started_at=NOON)]) == 1
        assert traces.add([Trace(id="a:b", task_id="other", candidate_id="c", started_at=NOON)]) == 1
        assert traces.prune(before=datetime(2027, 1, 1, tzinfo=UTC), keep_labelled=False).traces == 4
        assert [each for each in store.attempts(run_id="one")] == [each for each in ATTEMPTS if each.run_id == "one"]
