"""Digests of a store's traces: what statistics add up, column by column and kept ready.

Of a hundred thousand traces it is read in milliseconds. Traces lie in blocks by their `seq`. A trigger throws the digest of a
block away when one of its traces is added, changed or forgotten; it is made anew when statistics are next asked for. The newest
block, which grows, is read from the tables each time.

A digest holds every number, no summary of them: sums, medians and filters come out as they would from the tables. Whoever asks
again in the same process reads only the digests that were made since, which their stamps tell.
"""

import json
import math
import secrets
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import sqlalchemy as sa

from journeyman.core.errors import StoreError
from journeyman.stores.engine import Database
from journeyman.stores.tables import unescaped
from journeyman.stores.traces.query import labelled_by_person
from journeyman.stores.traces.tables import (
    DIGEST_BLOCK,
    TRACE_CANDIDATES,
    TRACE_DIGESTS,
    TRACE_MODELS,
    TRACE_TOOLS,
    TRACES,
)
from journeyman.stores.traces.writing import take_turn

# Whoever records makes them, too, and need not load NumPy for it.

Name = str | None

_FORMAT = 3
"""Of the bodies; another number, and they are made anew. To be raised with every change of what follows."""
_STAMP_BITS, _FORMAT_BITS = 47, 8
"""The column `format` ends in bits of the format; before them is a stamp, a number that no other body of a block has."""
_TRACE = {
    **dict.fromkeys(("seq", "at"), "<i8"),
    **dict.fromkeys(("agent", "domain", "source", "tool_calls", "failed_tool_calls"), "<i4"),
    **dict.fromkeys(("label", "person", "failed", "error"), "i1"),
    **dict.fromkeys(("reward", "seconds"), "<f8"),
}
"""`label` is 1, 0, or -1 where there is none; `person`: a person gave it. NaN is unknown."""
_MODEL = {
    **{"trace": "<i8", "model": "<i4", "cost": "<f8", "seconds": "<f8"},
    **dict.fromkeys(("calls", "input_tokens", "output_tokens", "uncounted", "unpriced"), "<i8"),
}
_TOOL = {"trace": "<i8", "tool": "<i4", "calls": "<i4", "failures": "<i4", "timed": "<i4", "seconds": "<f8"}
_LABEL = sa.case((TRACES.c.label.is_(True), 1), (TRACES.c.label.is_(False), 0), else_=-1)
_COLUMNS: Mapping[str, sa.ColumnElement[Any]] = {
    "at": sa.type_coerce(TRACES.c.started_at, sa.BigInteger),
    "label": _LABEL,
    "person": sa.case((labelled_by_person(), 1), else_=0),
    "failed": sa.case((TRACES.c.failed, 1), else_=0),
    "error": sa.case((TRACES.c.error.is_not(None), 1), else_=0),
}
_CANDIDATE = {"trace": "<i8", "candidate_id": "<i4"}
_IN_FORCE = sa.union_all(
    sa.select(TRACES.c.seq.label("trace"), TRACES.c.candidate_id),
    sa.select(TRACE_CANDIDATES.c.trace, TRACE_CANDIDATES.c.candidate_id),
).subquery()
"""What was released to each trace: the first candidate stands in `traces`."""
DIGESTED: Sequence[tuple[sa.FromClause, Mapping[str, str]]] = (
    (TRACES, _TRACE), (TRACE_MODELS, _MODEL), (TRACE_TOOLS, _TOOL), (_IN_FORCE, _CANDIDATE),
)  # fmt: skip
_CODES = {"<i8": "q", "<i4": "i", "i1": "b", "<f8": "d"}
"""Of `array`, for each type of a column."""
NAMED = ("agent", "domain", "source", "model", "tool", "candidate_id")
"""Columns that hold the place of a name among the `names`."""


def make(database: Database) -> None:
    """Make the digests that are missing, each in a short transaction. Where the store can only be read, there are none."""
    with database.read() as connection:
        full = blocks_of(connection)[:-1]
        kept = {block for block, _ in connection.execute(kept_digests(TRACE_DIGESTS.c.format))}
    make_blocks(database, [block for block in full if block not in kept])


def make_blocks(database: Database, blocks: Iterable[int]) -> None:
    """Make the digests of full blocks that have none."""
    with suppress(StoreError):
        for block in blocks:
            _make(database, block)


def _make(database: Database, block: int) -> None:
    with database.write() as connection:
        # While it is our turn nobody writes, so what is looked up is what holds when it is kept.
        take_turn(connection)
        if connection.scalar(kept_digests(TRACE_DIGESTS.c.format).where(TRACE_DIGESTS.c.block == block)) is not None:
            return
        connection.execute(sa.delete(TRACE_DIGESTS).where(TRACE_DIGESTS.c.block == block))
        body = body_of(connection, block)
        stamped = secrets.randbits(_STAMP_BITS) << _FORMAT_BITS | _FORMAT
        connection.execute(sa.insert(TRACE_DIGESTS).values(block=block, format=stamped, body=body))


def kept_digests(what: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Each block that has a digest which can be read, and something of it."""
    return sa.select(TRACE_DIGESTS.c.block, what).where(TRACE_DIGESTS.c.format % (1 << _FORMAT_BITS) == _FORMAT)


def blocks_of(connection: sa.Connection) -> range:
    first, last = (connection.scalar(sa.select(end(TRACES.c.seq))) for end in (sa.func.min, sa.func.max))
    return range(0) if first is None or last is None else range(first >> DIGEST_BLOCK, (last >> DIGEST_BLOCK) + 1)


def body_of(connection: sa.Connection, block: int) -> bytes:
    """The digest of a block, from the tables: names and numbers of rows as a line of JSON, then one column behind the other."""
    names: dict[str, dict[Name, int]] = {name: {} for name in NAMED}
    first = block << DIGEST_BLOCK
    listed: frozenset[int] = frozenset()
    counts: list[int] = []
    bodies: list[bytes] = []
    for table, columns in DIGESTED:
        seq = table.c.seq if table is TRACES else table.c.trace
        where = [seq.between(first, first + (1 << DIGEST_BLOCK) - 1)]
        if table is TRACES:
            where.append(TRACES.c.duplicate_of.is_(None))
        wanted = (_COLUMNS[name] if name in _COLUMNS else _as_kept(table, name) for name in columns)
        rows: Sequence[Any] = connection.execute(sa.select(*wanted).where(*where).order_by(seq)).all()
        if table is TRACES:
            listed = frozenset(row.seq for row in rows)
        else:
            rows = [row for row in rows if row.trace in listed]
        counts.append(len(rows))
        bodies += _columns(rows, columns, names)
    read = {name: [_read(each) for each in known] for name, known in names.items()}
    return b"\n".join((json.dumps({"names": read, "rows": counts}).encode(), b"".join(bodies)))


def _as_kept(table: sa.FromClause, name: str) -> sa.ColumnElement[Any]:
    """Names are read as they are kept: there are thousands, and few different ones."""
    return sa.type_coerce(table.c[name], sa.Text) if name in NAMED else table.c[name]


def _read(name: Name) -> Name:
    return None if name is None else unescaped(name)


def _columns(rows: Sequence[Any], columns: Mapping[str, str], names: Mapping[str, dict[Name, int]]) -> list[bytes]:
    found = []
    by_column: Iterable[tuple[Any, ...]] = zip(*rows, strict=True) if rows else ((),) * len(columns)
    for (name, kind), values in zip(columns.items(), by_column, strict=True):
        column = array(_CODES[kind], _numbers(values, kind, names.get(name)))
        if sys.byteorder == "big":
            column.byteswap()
        found.append(column.tobytes())
    return found


def _numbers(values: Iterable[Any], kind: str, known: dict[Name, int] | None) -> Iterable[Any]:
    if known is not None:
        return [known.setdefault(value, len(known)) for value in values]
    return [math.nan if value is None else value for value in values] if kind == "<f8" else values
