import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from journeyman.core.errors import InputError, StoreError
from journeyman.stores import RunRecord, open_store
from journeyman.stores import engine as schema
from journeyman.stores.engine import connect
from journeyman.stores.sql import SqlStore
from journeyman.stores.tables import METADATA
from journeyman.stores.traces import tables as tables
from tests.support import postgres

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)

WRITER = """
import sys
from datetime import UTC, datetime
from journeyman.core.score import Reward, Score
from journeyman.stores import AttemptRecord, RunRecord, open_store
from journeyman.core.task import Split
from journeyman.core.trace import ModelCall, Trace

file, name, batches, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
now = datetime.now(UTC)
with open_store(file) as store:
    for number in range(batches):
        run = f"{name}-{number}"
        store.add_run(RunRecord(id=run, kind="test", config={}, started_at=now))
        call = ModelCall(model="m", prompt="x" * 1000, reply="y")
        traces = [Trace(id=str(n), task_id="t", candidate_id="c", started_at=now, steps=(call,)) for n in range(size)]
        score = Score(trace_id="", rewards=(Reward(name="r", value=1.0),))
        store.add_attempts([AttemptRecord(run_id=run, split=Split.TRAIN, trace=trace, score=score) for trace in traces])
        print(store.record_look("held out", run, now), flush=True)
"""


def write(file: Path, name: str, batches: int, size: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", WRITER, str(file), name, str(batches), str(size)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.service
def test_processes_that_write_at_once_all_arrive_and_every_look_has_its_own_number(tmp_path: Path) -> None:
    file = tmp_path / "journeyman.db"
    writers = [write(file, name, batches=8, size=20) for name in ("a", "b", "c")]
    told = [writer.communicate(timeout=120) for writer in writers]
    assert [error for _, error in told] == ["", "", ""]
    assert sorted(int(line) for out, _ in told for line in out.split()) == list(range(1, 25))
    with open_store(file) as store:
        assert len(list(store.attempts())) == 3 * 8 * 20
        assert store.looks("held out") == 24


@pytest.mark.service
def test_a_writer_killed_at_any_moment_leaves_whole_batches_only(tmp_path: Path) -> None:
    file = tmp_path / "journeyman.db"
    for life in range(3):
        writer = write(file, f"life {life}", batches=10_000, size=200)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.011 * (life + 1))
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate(timeout=60)
    with open_store(file) as store:
        sizes = Counter(attempt.run_id for attempt in store.attempts())
        assert len(sizes) >= 3
        assert set(sizes.values()) == {200}


def test_what_was_written_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    run = RunRecord(id="r", kind="k", config={"a": 1}, started_at=NOON)
    for _ in range(2):
        with open_store(tmp_path / "journeyman.db") as store:
            store.add_run(run)
    with open_store(f"sqlite:///{tmp_path}/journeyman.db") as store:
        assert list(store.runs()) == [run]


def test_a_store_of_a_newer_journeyman_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "journeyman.db"
    open_store(file).close()
    db = sqlite3.connect(file)
    with db:
        db.execute("update alembic_version set version_num = '9999'")
    db.close()
    before = file.read_bytes()
    with pytest.raises(StoreError, match=r"journeyman\.db was written by a newer Journeyman \(step 9999.*install that one"):
        open_store(file)
    assert file.read_bytes() == before


def test_a_migration_that_breaks_off_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "journeyman.db"
    db = sqlite3.connect(file)
    with db:
        db.execute("create view moves as select 'mine' as owner")
    db.close()
    with pytest.raises(StoreError, match=r"moves already exists|already a.* named moves"):
        open_store(file)
    db = sqlite3.connect(file)
    assert db.execute("select name, type from sqlite_master").fetchall() == [("moves", "view")]
    db.close()


def not_of_the_search(name: str | None, kind: str, parents: Mapping[str, str | None]) -> bool:
    """The full-text index is a virtual table that makes tables of its own."""
    return not (kind == "table" and name is not None and name.startswith(("part_words", "content_words", "document_words")))


def test_the_migrations_make_the_tables_that_the_code_expects(tmp_path: Path) -> None:
    file = tmp_path / "journeyman.db"
    open_store(file).close()
    _, engine = connect(f"sqlite:///{file}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_name": not_of_the_search})
        assert compare_metadata(context, METADATA) == []
        assert sa.inspect(connection).get_unique_constraints("attempts")[0]["column_names"] == ["run_id", "id"]
    engine.dispose()


def shape(engine: sa.Engine) -> dict[str, object]:
    """What a database is made of: columns, keys and indexes of every table, and the text of what only SQL has words for."""
    inspector = sa.inspect(engine)
    found: dict[str, object] = {}
    for table in inspector.get_table_names():
        found[table] = (
            sorted((c["name"], str(c["type"]), c["nullable"]) for c in inspector.get_columns(table)),
            sorted(tuple(each["column_names"]) for each in inspector.get_unique_constraints(table)),
            sorted((str(each["name"]), tuple(map(str, each["column_names"]))) for each in inspector.get_indexes(table)),
            sorted((*each["constrained_columns"], each["referred_table"]) for each in inspector.get_foreign_keys(table)),
        )
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            texts = "select sql from sqlite_master where type = 'trigger' or sql like '%virtual%' or sql like '% where %'"
        else:
            texts = "select tgname || ' ' || tgtype || ' ' || tgfoid::regproc from pg_trigger where not tgisinternal"
        found["text"] = sorted(" ".join(text.split()).replace('"', "") for text in connection.scalars(sa.text(texts)))
    return found


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_a_new_database_is_what_the_migrations_would_have_made(kind: str, tmp_path: Path) -> None:
    shapes = []
    for name in ("new", "migrated"):
        where = postgres.schema() if kind == "postgres" else nullcontext(f"sqlite:///{tmp_path}/{name}.db")
        with where as url:
            _, engine = connect(url)
            with engine.begin() as connection:
                if name == "migrated":
                    schema.upgrade(connection, "0001")
                schema.update(connection, url)
            shapes.append(shape(engine))
            engine.dispose()
    assert shapes[0] == shapes[1]


def test_looking_into_a_store_that_is_not_there_makes_none(tmp_path: Path) -> None:
    with open_store(tmp_path / "deep" / "journeyman.db", make=False) as store:
        assert list(store.runs()) == []
        store.add_run(RunRecord(id="r", kind="k", config={}, started_at=NOON))
    (tmp_path / "empty.db").touch()
    with open_store(tmp_path / "empty.db", make=False) as store:
        assert list(store.runs()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["empty.db"]


@pytest.mark.service
def test_making_a_new_store_does_not_load_alembic(tmp_path: Path) -> None:
    code = "import sys, journeyman.stores as s; s.open_store('journeyman.db').close(); print('alembic' in sys.modules)"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("False\n", "")


def test_the_newest_step_is_the_one_the_code_is_written_for() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_current_head() == schema.HEAD


@pytest.mark.service
def test_opening_a_store_that_is_up_to_date_does_not_load_alembic(tmp_path: Path) -> None:
    open_store(tmp_path / "journeyman.db").close()
    code = "import sys, journeyman.stores as s; s.open_store('journeyman.db').close(); print('alembic' in sys.modules)"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("False\n", "")


def test_a_file_that_is_no_database_is_refused_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "journeyman.db"
    file.write_text("dear diary, " * 100)
    with pytest.raises(StoreError, match="file is not a database; move it away, or name another store"):
        open_store(file)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"the folder .*file/below of the store cannot be made"):
        open_store(tmp_path / "file" / "below" / "journeyman.db")


@pytest.mark.service
def test_a_row_that_was_tampered_with_is_named(tmp_path: Path) -> None:
    file = tmp_path / "journeyman.db"
    write(file, "a", batches=1, size=1).communicate(timeout=60)
    db = sqlite3.connect(file)
    with db:
        db.execute("update attempts set score = '{}'")
    db.close()
    with open_store(file) as store, pytest.raises(StoreError, match="attempt 0 of run a-0 cannot be read"):
        list(store.attempts())


def test_a_value_that_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "journeyman.db") as store, pytest.raises(StoreError, match="not JSON compliant"):
        store.add_run(RunRecord(id="r", kind="k", config={"rate": float("nan")}, started_at=NOON))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://root:secret@h/x", "no store of the kind 'mysql'; there are memory:, sqlite:///FILE and postgresql"),
        ("postgresql://root:secret@h:port/x", r"the store postgresql://root:\*\*\*@h:port/x is not a URL"),
        ("sqlite://", "names no file; write memory:"),
    ],
)
def test_a_url_that_cannot_be_used_is_explained_without_its_password(url: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    with pytest.raises(StoreError, match=r"postgresql://me:\*\*\*@127\.0\.0\.1:1/x: .*see that the server runs") as caught:
        open_store("postgresql://me:secret@127.0.0.1:1/x")
    assert "secret" not in str(caught.value)


@pytest.mark.postgres
def test_a_store_may_have_a_schema_of_a_server_to_itself() -> None:
    run = RunRecord(id="r", kind="k", config={}, started_at=NOON)
    with postgres.schema() as url, postgres.schema() as other:
        with open_store(url) as store:
            store.add_run(run)
        with open_store(url) as store, open_store(other) as empty:
            assert (list(store.runs()), list(empty.runs())) == ([run], [])


def test_a_new_file_that_another_process_is_making_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    # As it is for a moment where several open a new store: begun, and not write-ahead yet.
    other.execute("begin immediate")
    other.execute("create table begun (at text)")

    def done() -> None:
        other.execute("drop table begun")
        other.execute("commit")
        other.close()

    threading.Timer(0.5, done).start()
    began = time.monotonic()
    with open_store(file) as store:
        store.add_run(RunRecord(id="r", kind="test", config={}, started_at=NOON))
        assert store.run("r") is not None
    assert time.monotonic() - began > 0.3


def test_a_new_file_that_stays_locked_is_said_to_be(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("begin exclusive")
    with pytest.raises(StoreError, match="database is locked"):
        SqlStore(f"sqlite:///{tmp_path}/store.db", patience=0.2)
    other.close()
