"""The index of the full-text search: SQLite's FTS5, or PostgreSQL's `tsvector` with a GIN index.

It knows which words stand where, and keeps no text. What it is told to forget it must be told word for word.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from journeyman.stores.traces import search
from journeyman.stores.traces.search import Phrase

PART_WORDS = sa.table("part_words", sa.column("rowid", sa.BigInteger), sa.column("words"))
"""The words of the parts of traces, without large contents. Its `rowid` is `place(trace, position)`."""
CONTENT_WORDS = sa.table("content_words", sa.column("rowid", sa.BigInteger), sa.column("words"))
"""The words of large contents. Its `rowid` is the `seq` of the content."""

POSITIONS = 20
"""Bits of a place that tell the position: `place >> POSITIONS` is the trace."""
MOST_PARTS = 1 << POSITIONS
"""Parts from this position on have no place, and are not found."""
_MOST = 250_000
"""Characters of one part or content that are indexed: PostgreSQL refuses more than 1 MiB of words."""


def place(trace: int, position: int) -> int:
    """Where a part stands, as one number that grows with the trace. The position is below `MOST_PARTS`."""
    return (trace << POSITIONS) | position


def add(connection: sa.Connection, table: sa.TableClause, texts: Sequence[tuple[int, str]]) -> None:
    """Index texts by their `rowid`, none of which is there yet."""
    if not texts:
        return
    if connection.dialect.name == "sqlite":
        rows: Any = [(rowid, searchable(text)) for rowid, text in texts]
        connection.exec_driver_sql(f"insert into {table.name} (rowid, words) values (?, ?)", rows)  # noqa: S608 - our own name
        return
    insert = sa.text(
        f"insert into {table.name} (rowid, words) values (:rowid, to_tsvector('simple', :words)) "  # noqa: S608 - our own name
        "on conflict (rowid) do update set words = excluded.words"
    )
    connection.execute(insert, [{"rowid": rowid, "words": searchable(text)} for rowid, text in texts])


def remove(connection: sa.Connection, table: sa.TableClause, texts: Sequence[tuple[int, str]]) -> None:
    """Forget texts, each given as it was added."""
    if not texts:
        return
    if connection.dialect.name == "sqlite":
        forget = f"insert into {table.name} ({table.name}, rowid, words) values ('delete', ?, ?)"  # noqa: S608 - our own name
        rows: Any = [(rowid, searchable(text)) for rowid, text in texts]
        connection.exec_driver_sql(forget, rows)
        return
    connection.execute(sa.delete(table).where(table.c.rowid.in_([rowid for rowid, _ in texts])))


def matching(dialect: str, table: sa.TableClause, phrase: Phrase) -> sa.Select[tuple[int]]:
    """The `rowid` of every text in which the words of a phrase stand one after the other. One word is a phrase as well."""
    if dialect == "sqlite":
        matches: sa.ColumnElement[bool] = sa.literal_column(table.name).op("match")(phrase.fts5)
    else:
        matches = table.c.words.op("@@")(sa.func.to_tsquery("simple", phrase.tsquery))
    return sa.select(table.c.rowid).where(matches)


def searchable(text: str) -> str:
    """What of a text is indexed: its words as we take them apart, so that both databases find the same."""
    return search.words(text[:_MOST])
