"""From a store's URL to an engine that keeps the promises of `SqlStore`, and from a driver's error to a sentence."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from journeyman.errors import InputError, MissingExtra, StoreError
from journeyman.stores.urls import MEMORY, redacted

PATIENCE = 30
"""Seconds to wait for another process that writes to the same SQLite file."""

_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}

_ADVICE = {
    "database is locked": f"another process has been writing to it for more than {PATIENCE} s; wait for it or stop it",
    "unable to open database file": "see that its folder can be written to",
    "readonly database": "see that the file and its folder can be written to",
    "file is not a database": "move it away, or name another store",
    "malformed": "the file is damaged; restore it from a backup, or move it away",
    "disk is full": "make room on the disk",
    "disk I/O error": "see that the disk has room and is in order",
    "connection failed": "see that the server runs and that the URL, user and password are right",
    "failed to resolve host": "see that the host's name is right",
}
"""What a driver says, and what to do about it."""


def parse(url: str) -> tuple[str, sa.URL]:
    """How to call the store in a message, and its URL with the driver filled in.

    Raises:
        InputError: The URL cannot be read, or names a kind of store that there is not.
    """
    name = redacted(url)
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        # What was wrong may be a part of the password, so the message of the cause stays untold.
        raise InputError(f"the store {name} is not a URL; write sqlite:///FILE or postgresql://USER@HOST/DATABASE") from None
    if parsed.drivername not in _DRIVERS:
        raise InputError(f"no store of the kind {parsed.drivername!r}; there are memory:, sqlite:///FILE and postgresql://…")
    parsed = parsed.set(drivername=_DRIVERS[parsed.drivername])
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise InputError(f"the store {name} names no file; write memory: for one that is not kept")
    return name, parsed


def connect(url: str) -> tuple[str, sa.Engine]:
    """How to call the store in a message, and an engine for it. SQLite's file is made, with its folder, on first use.

    In memory there is one connection for all, and the database is gone when it is closed.

    Raises:
        InputError: The URL cannot be read, or names a kind of store that there is not.
        MissingExtra: The driver is not installed.
        StoreError: The folder of the file cannot be made.
    """
    dumps = partial(json.dumps, allow_nan=False)
    if url == MEMORY:
        alone = {"check_same_thread": False}
        return MEMORY, _sqlite("sqlite+pysqlite://", json_serializer=dumps, connect_args=alone, poolclass=sa.StaticPool)
    name, parsed = parse(url)
    if parsed.get_backend_name() == "postgresql":
        return name, _postgres(parsed, dumps)
    _make_folder(Path(parsed.database or "").parent)
    return name, _sqlite(parsed, json_serializer=dumps, connect_args={"timeout": PATIENCE})


def _sqlite(url: str | sa.URL, **options: Any) -> sa.Engine:
    engine = sa.create_engine(url, **options)
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def describe(error: sa.exc.SQLAlchemyError) -> str:
    """What went wrong in one line, without the statement and its values, and what to do where that is known."""
    cause = " ".join(str(getattr(error, "orig", None) or error).split())
    advice = next((do for said, do in _ADVICE.items() if said in cause), "")
    return f"{cause}; {advice}" if advice else cause


def _postgres(url: sa.URL, dumps: "partial[str]") -> sa.Engine:
    try:
        return sa.create_engine(url, json_serializer=dumps, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[postgres]'") from error


def _make_folder(folder: Path) -> None:
    try:
        # What stands in it was said in confidence.
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(f"the folder {folder} of the store cannot be made: {error.strerror}") from error


def _prepare_sqlite(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
    # The driver would begin transactions as it thinks fit, and not before DDL: we say when, in `_begin_sqlite`.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("pragma journal_mode = wal")
    # Some builds of SQLite would sync only now and then: what was acknowledged must outlive a power cut.
    cursor.execute("pragma synchronous = full")
    cursor.execute("pragma foreign_keys = on")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    # A transaction that reads first and then writes cannot wait for another writer, only fail: so say it at once.
    writes = connection.get_execution_options().get("write", False)
    connection.exec_driver_sql("begin immediate" if writes else "begin")
