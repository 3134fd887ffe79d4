"""Which step a database is at, and how to bring it to the newest.

A new database is made at once as the tables are now; an older one takes the steps of `migrations`. A test compares the two.
"""

from pathlib import Path

import sqlalchemy as sa

from journeyman.errors import StoreError
from journeyman.stores.engine import connect, describe
from journeyman.stores.tables import METADATA
from journeyman.stores.traces.tables import create_search_and_triggers
from journeyman.stores.urls import is_nowhere

HEAD = "0003"
"""The step that this version of the code reads and writes. A test compares it with the newest file of `migrations`."""

_TWICE = "0002"
"""The last step at which attempts of runs kept their traces themselves."""

_LOCK = 5_061_726_177
"""Any number, as long as it is the same for all: whoever holds it on PostgreSQL migrates."""

_VERSION = """
create table alembic_version (version_num varchar(32) not null, constraint alembic_version_pkc primary key (version_num))
"""
"""As Alembic makes it."""


def current(connection: sa.Connection) -> str | None:
    """The step that the database is at; `None` when it has none of our tables."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.scalar(sa.text("select version_num from alembic_version"))
    return version


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
    at = current(connection)
    if at is None:
        _create(connection)
    elif at != HEAD:
        _migrate(connection, at, name)


def _create(connection: sa.Connection) -> None:
    METADATA.create_all(connection, checkfirst=False)
    create_search_and_triggers(connection)
    connection.execute(sa.text(_VERSION))
    connection.execute(sa.text("insert into alembic_version (version_num) values (:at)"), {"at": HEAD})


def _migrate(connection: sa.Connection, at: str, name: str) -> None:
    if at > HEAD:
        newer = f"step {at}, and this one knows steps up to {HEAD}"
        raise StoreError(f"{name} was written by a newer Journeyman ({newer}): pip install --upgrade journeyman")
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
    name, engine = connect(url)
    try:
        with engine.connect() as connection:
            return current(connection)
    except sa.exc.SQLAlchemyError as error:
        raise StoreError(f"{name}: {describe(error)}") from error
    finally:
        engine.dispose()
