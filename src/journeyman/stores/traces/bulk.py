"""Many rows at once, past what the statements of SQLAlchemy cost for each: the text is made once, the driver does the rest."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from journeyman.errors import Unkeepable

_MARKS = {"sqlite": "?", "postgresql": "%s"}

Process = Callable[[Any], Any] | None


def insert(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> int:
    """Add rows, all with the same columns, unless there is a row with the same key; how many were added.

    Raises:
        Unkeepable: A value has a type that its column cannot take.
    """
    if not rows:
        return 0
    text, processes = _compiled(connection.dialect, table, tuple(rows[0]))
    try:
        told = [tuple([row[name] if to is None else to(row[name]) for name, to in processes]) for row in rows]
        return connection.exec_driver_sql(text, told).rowcount
    except (TypeError, ValueError, OverflowError) as error:
        # The driver's own, which SQLAlchemy lets through.
        raise Unkeepable(f"what is to be kept in {table.name} has a value that cannot be: {error}") from error


@lru_cache(maxsize=64)
def _compiled(dialect: sa.Dialect, table: sa.Table, names: tuple[str, ...]) -> tuple[str, Sequence[tuple[str, Process]]]:
    columns = ", ".join(dialect.identifier_preparer.quote(name) for name in names)
    marks = ", ".join([_MARKS[dialect.name]] * len(names))
    sql = f"insert into {table.name} ({columns}) values ({marks}) on conflict do nothing"  # noqa: S608 - our own names
    return sql, [(name, table.c[name].type.dialect_impl(dialect).bind_processor(dialect)) for name in names]
