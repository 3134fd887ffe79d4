"""What statistics add up, column by column and kept ready: of a hundred thousand traces it is read in milliseconds.

Traces lie in blocks by their `seq`. A trigger throws the digest of a block away when one of its traces is added, changed or
forgotten; it is made anew when statistics are next asked for. The newest block, which grows, is read from the tables each time.
A digest holds every number, no summary of them: sums, medians and filters come out as they would from the tables.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from journeyman.errors import StoreError
from journeyman.stores.database import Database
from journeyman.stores.traces.query import labelled_by_person
from journeyman.stores.traces.tables import DIGEST_BLOCK, TRACE_DIGESTS, TRACE_MODELS, TRACE_TOOLS, TRACES, unescaped
from journeyman.stores.traces.writing import take_turn

Column = npt.NDArray[Any]
Table = dict[str, Column]
"""Columns of one length, by name."""
Name = str | None

_FORMAT = 1
"""Of the bodies; another number, and they are made anew. To be raised with every change of what follows."""
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
_TABLES = ((TRACES, _TRACE), (TRACE_MODELS, _MODEL), (TRACE_TOOLS, _TOOL))
_NAMED = ("agent", "domain", "source", "model", "tool")
"""Columns that hold the place of a name among the `names`."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Traces that are listed, in the order of their `seq`, with what each model and each tool did in them."""

    traces: Table
    models: Table
    tools: Table
    names: Mapping[str, Sequence[Name]]

    @property
    def tables(self) -> tuple[Table, Table, Table]:
        return self.traces, self.models, self.tools


def read(connection: sa.Connection) -> Columns:
    """Of every trace: from the digests, and where there is none from the tables."""
    rows = sa.select(TRACE_DIGESTS.c.block, TRACE_DIGESTS.c.body).where(TRACE_DIGESTS.c.format == _FORMAT)
    kept: dict[int, bytes] = {block: body for block, body in connection.execute(rows)}
    blocks = _blocks(connection)
    return _together([_unpacked(kept[block]) if block in kept else _looked_up(connection, block) for block in blocks])


def make(database: Database) -> None:
    """Make the digests that are missing, each in a short transaction. Where the store can only be read, there are none."""
    with database.read() as connection:
        full = _blocks(connection)[:-1]
        kept = list(connection.scalars(_kept()))
    try:
        for block in full:
            if block not in kept:
                _make(database, block)
    except StoreError:
        return


def _make(database: Database, block: int) -> None:
    with database.write() as connection:
        # While it is our turn nobody writes, so what is looked up is what holds when it is kept.
        take_turn(connection)
        if connection.scalar(_kept().where(TRACE_DIGESTS.c.block == block)) is not None:
            return
        connection.execute(sa.delete(TRACE_DIGESTS).where(TRACE_DIGESTS.c.block == block))
        body = _packed(_looked_up(connection, block))
        connection.execute(sa.insert(TRACE_DIGESTS).values(block=block, format=_FORMAT, body=body))


def _kept() -> sa.Select[Any]:
    return sa.select(TRACE_DIGESTS.c.block).where(TRACE_DIGESTS.c.format == _FORMAT)


def _blocks(connection: sa.Connection) -> range:
    first, last = (connection.scalar(sa.select(end(TRACES.c.seq))) for end in (sa.func.min, sa.func.max))
    return range(0) if first is None or last is None else range(first >> DIGEST_BLOCK, (last >> DIGEST_BLOCK) + 1)


def _looked_up(connection: sa.Connection, block: int) -> Columns:
    names: dict[str, dict[Name, int]] = {name: {} for name in _NAMED}
    first = block << DIGEST_BLOCK
    found: list[Table] = []
    for table, columns in _TABLES:
        seq = table.c.seq if table is TRACES else table.c.trace
        where = [seq.between(first, first + (1 << DIGEST_BLOCK) - 1)]
        if table is TRACES:
            where.append(TRACES.c.duplicate_of.is_(None))
        wanted = (_COLUMNS[name] if name in _COLUMNS else _as_kept(table, name) for name in columns)
        found.append(_table(connection.execute(sa.select(*wanted).where(*where).order_by(seq)).all(), columns, names))
    traces, models, tools = found
    models, tools = (only(rows, np.isin(rows["trace"], traces["seq"])) for rows in (models, tools))
    return Columns(traces, models, tools, {name: [_read(each) for each in known] for name, known in names.items()})


def _as_kept(table: sa.Table, name: str) -> sa.ColumnElement[Any]:
    """Names are read as they are kept: there are thousands, and few different ones."""
    return sa.type_coerce(table.c[name], sa.Text) if name in _NAMED else table.c[name]


def _read(name: Name) -> Name:
    return None if name is None else unescaped(name)


def only(table: Table, which: Column) -> Table:
    """The rows of a table that a mask lets through, or that stand at these places."""
    return {name: column[which] for name, column in table.items()}


def _table(rows: Sequence[Any], columns: Mapping[str, str], names: Mapping[str, dict[Name, int]]) -> Table:
    found: Table = {}
    for name, values in zip(columns, zip(*rows, strict=True) if rows else ((),) * len(columns), strict=True):
        if name in names:
            known = names[name]
            values = tuple([known.setdefault(value, len(known)) for value in values])
        found[name] = np.array(values, columns[name])
    return found


def _packed(columns: Columns) -> bytes:
    counts = [len(next(iter(table.values()))) for table in columns.tables]
    head = json.dumps({"names": columns.names, "rows": counts}).encode()
    return b"\n".join((head, b"".join(column.tobytes() for table in columns.tables for column in table.values())))


def _unpacked(body: bytes) -> Columns:
    at = body.index(b"\n") + 1
    head = json.loads(body[:at])
    found: list[Table] = []
    for (_, columns), count in zip(_TABLES, head["rows"], strict=True):
        table: Table = {}
        for name, kind in columns.items():
            table[name] = np.frombuffer(body, kind, count, at)
            at += table[name].nbytes
        found.append(table)
    traces, models, tools = found
    return Columns(traces, models, tools, head["names"])


def _together(blocks: Sequence[Columns]) -> Columns:
    names: dict[str, dict[Name, int]] = {name: {} for name in _NAMED}
    places = [_places(block.names, names) for block in blocks]
    found: list[Table] = []
    for at, (_, columns) in enumerate(_TABLES):
        table: Table = {}
        for name, kind in columns.items():
            parts = [block.tables[at][name] for block in blocks]
            if name in names:
                parts = [place[name][part] for place, part in zip(places, parts, strict=True)]
            table[name] = np.concatenate([np.zeros(0, kind), *parts])
        found.append(table)
    traces, models, tools = found
    return Columns(traces, models, tools, {name: list(known) for name, known in names.items()})


def _places(names: Mapping[str, Sequence[Name]], into: Mapping[str, dict[Name, int]]) -> Mapping[str, Column]:
    """Where the names of one block stand among those of all."""
    return {
        kind: np.array([into[kind].setdefault(name, len(into[kind])) for name in some], "<i4") for kind, some in names.items()
    }
