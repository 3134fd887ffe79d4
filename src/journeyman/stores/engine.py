"""From a store's URL to an engine that keeps the promises of `SqlStore`, and from a driver's error to a sentence."""

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.pool import ConnectionPoolEntry

from journeyman.core.errors import InputError, MissingExtra, StoreError, StoreUnreachable, Unkeepable
from journeyman.core.installation import installing
from journeyman.stores.tables import METADATA
from journeyman.stores.traces.tables import create_search_and_triggers, make_partial
from journeyman.stores.urls import MEMORY, is_nowhere, redacted

PATIENCE = 30
"""Seconds to wait for another process that writes to the same SQLite file."""
_PAUSE = 0.01
_CONNECT_SECONDS = 5
"""For which a server of PostgreSQL is waited for that takes a connection and says nothing, unless the URL says otherwise."""

_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}

_DAMAGED = "the store is damaged; restore it from a backup, or move it away"
_NOT_YET = ("starting up", "not yet accepting", "shutting down", "recovery mode", "too many")
_ADVICE = {
    "database is locked": f"another process has been writing to it for more than {PATIENCE} s; wait for it or stop it",
    "unable to open database file": "see that its folder can be written to",
    "readonly database": "see that the file and its folder can be written to",
    "file is not a database": "move it away, or name another store",
    "no such table": _DAMAGED,
    "no such column": _DAMAGED,
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


def connect(url: str, patience: float = PATIENCE) -> tuple[str, sa.Engine]:
    """How to call the store in a message, and an engine for it. SQLite's file is made, with its folder, on first use.

    In memory there is one connection for all, and the database is gone when it is closed.

    Args:
        patience: Seconds to wait for another process that writes to the same SQLite file.

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
    file = Path(parsed.database or "")
    _make_folder(file.parent)
    options: dict[str, Any] = {"json_serializer": dumps, "connect_args": {"timeout": patience}}
    if not _only_readable(file):
        return name, _sqlite(parsed, **options)
    parsed = parsed.set(database=file.absolute().as_uri(), query={**_read_only(file, name), "uri": "true"})
    return name, _sqlite(parsed, prepare=_prepare_reader, **options)


def _only_readable(file: Path) -> bool:
    """Whether this process may read a database and not write it. SQLite's log stands beside the file, in its folder."""
    return file.is_file() and os.access(file, os.R_OK) and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK))


def _read_only(file: Path, name: str) -> Mapping[str, str]:
    """How a file is opened that can only be read.

    Raises:
        StoreError: Its newest records cannot be read without writing beside it.
    """
    log, shared = (Path(f"{file}{ending}") for ending in ("-wal", "-shm"))
    if shared.exists():
        # Somebody else has it open, and we may look on.
        return {"mode": "ro"}
    if log.exists() and log.stat().st_size:
        raise StoreError(
            f"{name} cannot be read where it cannot be written: its newest records stand in {log.name}; copy both to a folder "
            "of your own, and name the copy"
        )
    # Nobody writes to it, so nothing has to be locked, which would be to write.
    return {"immutable": "1"}


def _sqlite(url: str | sa.URL, *, prepare: Callable[..., None] | None = None, **options: Any) -> sa.Engine:
    engine = sa.create_engine(url, **options)
    sa.event.listen(engine, "connect", prepare or _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def describe(error: Exception) -> str:
    """What went wrong in one line, without the statement and its values, and what to do where that is known."""
    cause = " ".join(str(getattr(error, "orig", None) or error).split())
    advice = next((do for said, do in _ADVICE.items() if said in cause), "")
    return f"{cause}; {advice}" if advice else cause


def _postgres(url: sa.URL, dumps: "partial[str]") -> sa.Engine:
    try:
        options = {"connect_timeout": _CONNECT_SECONDS} if "connect_timeout" not in url.query else {}
        return sa.create_engine(url, json_serializer=dumps, pool_pre_ping=True, connect_args=options)
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
    cursor.execute("select count(*), sum(name = 'alembic_version') from sqlite_master where type = 'table'")
    tables, versions = cursor.fetchone() or (0, 0)
    # What turns out to be another program's file is left as it is.
    if not tables or versions:
        _write_ahead(cursor)
    # Some builds of SQLite would sync only now and then: what was acknowledged must outlive a power cut.
    cursor.execute("pragma synchronous = full")
    cursor.execute("pragma foreign_keys = on")
    cursor.close()


def _prepare_reader(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None


def _write_ahead(cursor: DBAPICursor) -> None:
    """Let readers and a writer work side by side; a file that is new is changed for it, and only one process can do so.

    Whoever comes second while the first still writes is refused at once, whatever the timeout of the connection.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            cursor.execute("pragma journal_mode = wal")
        except sqlite3.OperationalError as error:
            if "is locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(_PAUSE)
        else:
            return


def _begin_sqlite(connection: sa.Connection) -> None:
    # A transaction that reads first and then writes cannot wait for another writer, only fail: so say it at once.
    writes = connection.get_execution_options().get("write", False)
    connection.exec_driver_sql("begin immediate" if writes else "begin")


# Which step a database is at, and how to bring it to the newest.
#
# A new database is made at once as the tables are now; an older one takes the steps of `migrations`. A test compares the two.

HEAD = "0010"
"""The step that this version of the code reads and writes. A test compares it with the newest file of `migrations`."""

_TWICE = "0002"
"""The last step at which attempts of runs kept their traces themselves."""

_LOCK = 5_061_726_177
"""Any number, as long as it is the same for all: whoever holds it on PostgreSQL migrates."""

_VERSION = """
create table alembic_version (version_num varchar(32) not null, constraint alembic_version_pkc primary key (version_num))
"""
"""As Alembic makes it."""


def current(connection: sa.Connection, name: str) -> str | None:
    """The step that the database is at; `None` when it has none of our tables.

    Args:
        name: Of the database, for messages.

    Raises:
        StoreError: It has some of them, but says no step; or it is a file of another program.
    """
    if sa.inspect(connection).has_table("alembic_version"):
        version: str | None = connection.scalar(sa.text("select version_num from alembic_version"))
        if version is not None:
            return version
    tables = set(sa.inspect(connection).get_table_names()) - {"alembic_version"}
    if ours := sorted(tables & METADATA.tables.keys()):
        raise StoreError(f"{name} has tables of a store, such as {ours[0]}, and does not say of which version: {_DAMAGED}")
    if tables and connection.dialect.name == "sqlite":
        raise StoreError(f"{name} is the database of another program: it has the table {min(tables)}; name another store")
    return None


def update(connection: sa.Connection, name: str) -> None:
    """Bring a database to the newest step, in the transaction of the connection, so whole or not at all.

    Args:
        name: Of the database, for messages.

    Raises:
        StoreError: A newer Journeyman has been here.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    # Another process may have been first.
    at = current(connection, name)
    if at is None:
        _create(connection)
    elif at != HEAD:
        _migrate(connection, at, name)


def _create(connection: sa.Connection) -> None:
    for statement in _tables(connection.dialect.name):
        connection.exec_driver_sql(statement)
    create_search_and_triggers(connection)
    connection.execute(sa.text(_VERSION))
    connection.execute(sa.text("insert into alembic_version (version_num) values (:at)"), {"at": HEAD})


@cache
def _tables(dialect: str) -> tuple[str, ...]:
    """The statements that make the tables. Kept, as to write them takes longer than to run them."""
    made: list[str] = []

    def written(statement: sa.schema.ExecutableDDLElement, *_: object) -> None:
        made.append(str(statement.compile(dialect=engine.dialect)))

    make_partial(dialect)
    engine = sa.create_mock_engine(f"{_DRIVERS[dialect]}://", written)
    METADATA.create_all(engine, checkfirst=False)
    return tuple(made)


def _migrate(connection: sa.Connection, at: str, name: str) -> None:
    if at > HEAD:
        newer = f"newer Journeyman (step {at}, and this one knows steps up to {HEAD})"
        raise StoreError(f"{name} was written by a {newer}: install that one, as this was: {installing(None)}")
    upgrade(connection, HEAD)
    if at <= _TWICE:
        # With the tables as they are now, so after all steps.
        from journeyman.stores.traces.attempts import move

        move(connection)


def upgrade(connection: sa.Connection, to: str) -> None:
    """Let Alembic change the tables up to a step."""
    # Loading Alembic takes a fifth of a second, and nearly every opening has nothing to migrate.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, to)


def step_of(url: str) -> str | None:
    """The step that a store is at; `None` when nothing is kept there yet. Nothing is made or migrated.

    Raises:
        InputError: The URL is not one of a store.
        StoreError: It cannot be reached, or is not a database.
    """
    if is_nowhere(url):
        return None
    with _alone(url) as (connection, name):
        return current(connection, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSize:
    """How much there is in a store."""

    bytes: int
    """On the disk, with what is not yet in the database's own file."""
    rows: Mapping[str, int]
    """By table."""


def size_of(url: str) -> StoreSize:
    """How much a store holds. Nothing is made or migrated.

    Raises:
        StoreError: It cannot be reached, or is not a database.
    """
    with _alone(url) as (connection, _):
        tables = sorted(set(sa.inspect(connection).get_table_names()) & METADATA.tables.keys())
        rows = {table: int(connection.scalar(sa.select(sa.func.count()).select_from(sa.table(table))) or 0) for table in tables}
        if connection.dialect.name == "postgresql":
            return StoreSize(
                bytes=int(connection.scalar(sa.text("select pg_database_size(current_database())")) or 0), rows=rows
            )
    path = sqlite_file(url)
    files = (path.with_name(f"{path.name}{ending}") for ending in ("", "-wal"))
    return StoreSize(bytes=sum(file.stat().st_size for file in files if file.exists()), rows=rows)


def sqlite_file(url: str) -> Path:
    """The file of a store that is one.

    Raises:
        InputError: It is not on SQLite.
    """
    name, parsed = parse(url)
    if parsed.get_backend_name() != "sqlite":
        raise InputError(f"the store {name} is no file")
    return Path(parsed.database or "")


def vacuum(url: str) -> None:
    """Give the room of what was forgotten back to the disk, and count anew how tables are best read.

    Raises:
        StoreError: It cannot be reached or written, or somebody writes to it.
    """
    with _alone(url) as (connection, _):
        if connection.dialect.name == "postgresql":
            connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("vacuum (analyze)")
            return
        driver = connection.connection.driver_connection
        assert driver is not None
        connection.rollback()
        for statement in ("vacuum", "analyze", "pragma wal_checkpoint(truncate)"):
            driver.execute(statement)


@contextmanager
def _alone(url: str) -> Iterator[tuple[sa.Connection, str]]:
    """A connection for one thing, and how to call the store in a message."""
    name, engine = connect(url)
    try:
        with engine.connect() as connection:
            yield connection, name
    except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
        raise StoreError(f"{name}: {describe(error)}") from error
    finally:
        engine.dispose()


# An open database: transactions to read and to write in, and errors that are one sentence.


class Database:
    """May be used by several threads and processes at once; of those who write, one at a time."""

    def __init__(self, url: str, *, make: bool = True, patience: float = PATIENCE) -> None:
        """Open the database, make it when it is new, and bring it up to date.

        Args:
            make: Without it nothing is made where there is no database yet: what is opened then is empty, and in memory.
            patience: Seconds to wait for another process that writes to the same SQLite file.

        Raises:
            StoreError: It cannot be reached, is not a database, or was written by a newer Journeyman.
            MissingExtra: The driver is not installed.
        """
        self.patience = patience
        self._open(MEMORY if not make and is_nowhere(url) else url)
        try:
            with self.read() as connection:
                version = current(connection, self.name)
            if version is None and not make:
                self.close()
                self._open(MEMORY)
            if version != HEAD:
                with self.write() as connection:
                    update(connection, self.name)
        except BaseException:
            self.close()
            raise

    def _open(self, url: str) -> None:
        self.name, self._engine = connect(url, self.patience)
        self._listening: Any = None
        # In memory there is one connection for all threads, and a transaction is its own.
        self._turn = RLock() if url == MEMORY else nullcontext()

    @property
    def dialect(self) -> str:
        """ "sqlite" or "postgresql"."""
        return self._engine.dialect.name

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """What is read in one block is of one moment on SQLite; keep it short, and never hold it while a caller thinks."""
        with self._named(), self._turn, self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self, *, swift: bool = False) -> Iterator[sa.Connection]:
        """A transaction of its own: whole and on disk when the block ends, undone when it raises.

        Args:
            swift: On SQLite it outlives every process, and may be lost with the power of the machine. On PostgreSQL it is given
                up after the patience of whoever opened this.
        """
        with (
            self._named(),
            self._turn,
            self._engine.connect().execution_options(write=True) as connection,
            self._begun(connection, swift=swift),
        ):
            yield connection

    @contextmanager
    def _begun(self, connection: sa.Connection, *, swift: bool) -> Iterator[None]:
        if self.dialect == "sqlite" and (driver := connection.connection.driver_connection) is not None:
            driver.execute(f"pragma synchronous = {'normal' if swift else 'full'}")
        with connection.begin():
            if swift and self.dialect == "postgresql":
                connection.exec_driver_sql(f"set local statement_timeout = {round(self.patience * 1000)}")
            yield

    def listen(self, channel: str, seconds: float) -> bool:
        """Wait until somebody calls on a channel of PostgreSQL, for so long at most; whether somebody did. For one thread."""
        with self._named():
            try:
                if self._listening is None:
                    # A connection of its own, which is never in a transaction.
                    held = self._engine.raw_connection()
                    self._listening = held.driver_connection
                    held.detach()
                    self._listening.autocommit = True
                    self._listening.execute(f"listen {channel}")
                return any(True for _ in self._listening.notifies(timeout=seconds, stop_after=1))
            except self._driver_error as error:
                self._deafen()
                raise sa.exc.DBAPIError.instance(None, None, error, self._driver_error) from error

    @property
    def _driver_error(self) -> type[Exception]:
        found: type[Exception] = self._engine.dialect.loaded_dbapi.Error
        return found

    def _deafen(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def close(self) -> None:
        self._deafen()
        self._engine.dispose()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        # Of a number that is too large the driver of SQLite says so itself.
        except (sa.exc.DataError, sa.exc.IntegrityError, OverflowError) as error:
            raise Unkeepable(f"{self.name}: {describe(error)}") from error
        except sa.exc.SQLAlchemyError as error:
            kind = StoreUnreachable if self.dialect == "postgresql" and _is_away(error) else StoreError
            raise kind(f"{self.name}: {describe(error)}") from error


def _is_away(error: sa.exc.SQLAlchemyError) -> bool:
    """Whether a server may answer later that could not be asked now. One that refuses whoever asks says that it is FATAL."""
    said = str(getattr(error, "orig", None) or error)
    return "connection" in said and ("FATAL" not in said or any(words in said for words in _NOT_YET))


class OnDatabase:
    """What a store on a database is made of."""

    def size(self) -> int:
        """Bytes that the database takes."""
        sqlite = "select page_count * page_size from pragma_page_count(), pragma_page_size()"
        asked = sqlite if self._database.dialect == "sqlite" else "select pg_database_size(current_database())"
        with self._database.read() as connection:
            return int(connection.execute(sa.text(asked)).scalar_one())

    def __init__(self, url: str, *, make: bool = True, patience: float = PATIENCE) -> None:
        """As `Database` is opened."""
        self._database = Database(url, make=make, patience=patience)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def starting(connection: sa.Connection, ids: sa.Column[str], prefix: str, limit: int) -> Sequence[str]:
    """The ids of a column that begin so, each once and in the order of the alphabet. The prefix is as it is kept."""
    where = [sa.func.substr(ids, 1, len(prefix)) == prefix]
    if connection.dialect.name == "sqlite":
        # Where the index is sorted by code points, the search begins at the prefix.
        where.append(sa.type_coerce(ids, sa.Text) >= prefix)
    return list(connection.scalars(sa.select(ids).where(*where).distinct().order_by(ids).limit(limit)))
