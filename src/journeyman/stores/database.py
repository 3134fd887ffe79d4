"""An open database: transactions to read and to write in, and errors that are one sentence."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from threading import RLock
from types import TracebackType
from typing import Self

import sqlalchemy as sa

from journeyman.errors import StoreError, Unkeepable
from journeyman.stores import schema
from journeyman.stores.engine import connect, describe
from journeyman.stores.urls import MEMORY, is_nowhere


class Database:
    """May be used by several threads and processes at once; of those who write, one at a time."""

    def __init__(self, url: str, *, make: bool = True) -> None:
        """Open the database, make it when it is new, and bring it up to date.

        Args:
            make: Without it nothing is made where there is no database yet: what is opened then is empty, and in memory.

        Raises:
            StoreError: It cannot be reached, is not a database, or was written by a newer Journeyman.
            MissingExtra: The driver is not installed.
        """
        self._open(MEMORY if not make and is_nowhere(url) else url)
        try:
            with self.read() as connection:
                version = schema.current(connection)
            if version is None and not make:
                self.close()
                self._open(MEMORY)
            if version != schema.HEAD:
                with self.write() as connection:
                    schema.update(connection, self.name)
        except BaseException:
            self.close()
            raise

    def _open(self, url: str) -> None:
        self.name, self._engine = connect(url)
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
    def write(self) -> Iterator[sa.Connection]:
        """A transaction of its own: whole and on disk when the block ends, undone when it raises."""
        with (
            self._named(),
            self._turn,
            self._engine.connect().execution_options(write=True) as connection,
            connection.begin(),
        ):
            yield connection

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.DataError, sa.exc.IntegrityError) as error:
            raise Unkeepable(f"{self.name}: {describe(error)}") from error
        except sa.exc.SQLAlchemyError as error:
            raise StoreError(f"{self.name}: {describe(error)}") from error


class OnDatabase:
    """What a store on a database is made of."""

    def __init__(self, url: str, *, make: bool = True) -> None:
        """As `Database` is opened."""
        self._database = Database(url, make=make)

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
