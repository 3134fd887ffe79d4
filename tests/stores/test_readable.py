"""A store that can only be read is read; one that is damaged, or another program's, is called so."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from journeyman.core.errors import StoreError
from journeyman.core.trace import Trace
from journeyman.stores import open_store
from journeyman.stores.engine import step_of
from journeyman.stores.traces import open_traces
from tests.support.traces import done

ROOT = Path(__file__).parents[2]


def _file(folder: Path, *ids: str) -> Path:
    file = folder / "store.db"
    with open_traces(file) as store:
        store.add([_trace(id) for id in ids])
    return file


def _trace(id: str) -> Trace:
    return done(id=id)


@pytest.fixture
def shelf() -> Iterator[Path]:
    """A folder that every user may enter."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="journeyman-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def _ordinary(*command: str) -> "subprocess.CompletedProcess[str]":
    """A command of ours by somebody who owns nothing here."""
    run = [sys.executable, *(["-m", "tests.support.ordinary"] if os.geteuid() == 0 else []), "-m", "journeyman", *command]
    return subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=60)


def _close(shelf: Path, file: Path) -> None:
    file.chmod(0o444)
    shelf.chmod(0o555)


@pytest.mark.service
def test_a_store_that_can_only_be_read_is_read(shelf: Path) -> None:
    file = _file(shelf, "first", "second")
    _close(shelf, file)
    listed = _ordinary("traces", "list", "--store", str(file), "--json")
    assert listed.returncode == 0, listed.stderr
    assert '"first"' in listed.stdout
    assert '"second"' in listed.stdout
    assert [path.name for path in shelf.iterdir()] == ["store.db"]
    said = _ordinary("traces", "label", "first", "good", "--who", "me", "--store", str(file))
    assert said.returncode == 2
    assert "Traceback" not in said.stderr


@pytest.mark.service
def test_a_store_that_somebody_else_is_writing_is_read_with_its_newest_records(shelf: Path) -> None:
    file = shelf / "store.db"
    with open_traces(file) as store:
        store.add([_trace("first")])
        for path in shelf.iterdir():
            path.chmod(0o444)
        listed = _ordinary("traces", "list", "--store", str(file), "--json")
        assert listed.returncode == 0, listed.stderr
        assert '"first"' in listed.stdout


@pytest.mark.service
def test_what_cannot_be_read_without_writing_says_what_to_do(shelf: Path) -> None:
    file = _file(shelf, "first")
    Path(f"{file}-wal").write_bytes(b"what a process that was killed had not moved yet")
    _close(shelf, file)
    listed = _ordinary("traces", "list", "--store", str(file))
    assert listed.returncode == 2
    assert "its newest records stand in store.db-wal; copy both to a folder of your own" in listed.stderr


def test_tables_of_a_store_without_a_version_are_a_damaged_store(tmp_path: Path) -> None:
    file = _file(tmp_path, "first")
    for damage in ("delete from alembic_version", "drop table alembic_version"):
        with closing(sqlite3.connect(file)) as raw:
            raw.execute(damage)
            raw.commit()
        before = file.read_bytes()
        for make in (True, False):
            with pytest.raises(StoreError, match=r"does not say of which version: the store is damaged; restore it"):
                open_store(file, make=make)
        with pytest.raises(StoreError, match="damaged"):
            step_of(f"sqlite:///{file}")
        assert file.read_bytes() == before


def test_a_store_that_lacks_a_table_is_a_damaged_store(tmp_path: Path) -> None:
    file = _file(tmp_path, "first")
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("drop table traces")
        raw.commit()
    with open_traces(file) as store, pytest.raises(StoreError, match="no such table: traces; the store is damaged"):
        store.get("first")


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("create table orders (id integer)")
        raw.commit()
    before = file.read_bytes()
    for make in (True, False):
        with pytest.raises(StoreError, match="is the database of another program: it has the table orders; name another store"):
            open_traces(file, make=make)
    assert file.read_bytes() == before
