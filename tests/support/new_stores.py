"""A new database made of what a migrated one holds: Alembic is asked once a session, not by every test that opens a store."""

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import sqlalchemy as sa

from journeyman.stores import schema
from journeyman.stores.engine import connect

migrate = schema.migrate
"""The real one."""


@cache
def statements() -> tuple[str, ...]:
    """What makes the tables, indices and triggers of a new SQLite database, and says at which step it is."""
    with TemporaryDirectory(prefix="journeyman-template-") as folder:
        file = Path(folder) / "template.db"
        name, engine = connect(f"sqlite:///{file}")
        with engine.connect().execution_options(write=True) as connection, connection.begin():
            migrate(connection, name)
        engine.dispose()
        with closing(sqlite3.connect(file)) as database:
            # What SQLite and its full-text search make by themselves is made again when these are.
            rows = database.execute("select name, sql from sqlite_master where sql is not null order by rowid").fetchall()
    searched = [f"{name}_" for name, sql in rows if sql.startswith("CREATE VIRTUAL")]
    own = [sql for name, sql in rows if not name.startswith(("sqlite_", *searched))]
    return (*own, f"insert into alembic_version (version_num) values ('{schema.HEAD}')")


def from_template(connection: sa.Connection, name: str) -> None:
    """As `schema.migrate` does it; a new SQLite database gets its tables at once."""
    if connection.dialect.name != "sqlite" or schema.current(connection) is not None:
        migrate(connection, name)
        return
    for statement in statements():
        connection.exec_driver_sql(statement)
