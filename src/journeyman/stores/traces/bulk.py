"""Many rows at once, past what the statements of SQLAlchemy cost for each: the text is made once, the driver does the rest."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

_INTO = {
    "sqlite": ("?", "insert or ignore into {} ({}) values ({})"),
    "postgresql": ("%s", "insert into {} ({}) values ({}) on conflict do nothing"),
}

Process = Callable[[Any], Any] | None


def insert(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> int:
    """Add rows, all with the same columns, unless there is a row with the same key; how many were added."""
    if not rows:
        return 0
    text, processes = _compiled(connection.dialect, table, tuple(rows[0]))
    told = [tuple([row[name] if to is None else to(row[name]) for name, to in processes]) for row in rows]
    return connection.exec_driver_sql(text, told).rowcount


@lru_cache(maxsize=64)
def _compiled(dialect: sa.Dialect, table: sa.Table, names: tuple[str, ...]) -> tuple[str, Sequence[tuple[str, Process]]]:
    mark, text = _INTO[dialect.name]
    quoted = [dialect.identifier_preparer.quote(name) for name in names]
    sql = text.format(table.name, ", ".join(quoted), ", ".join([mark] * len(names)))
    return sql, [(name, table.c[name].type.dialect_impl(dialect).bind_processor(dialect)) for name in names]
