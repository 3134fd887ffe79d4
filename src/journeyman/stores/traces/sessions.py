"""Traces that belong together, the latest first."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from journeyman.stores.traces.base import Session
from journeyman.stores.traces.query import place_of
from journeyman.stores.traces.tables import TRACES, escaped, unescaped
from journeyman.trace import total

_COLUMNS = tuple(
    TRACES.c[name] for name in ("session", "title", "agent", "started_at", "input_tokens", "output_tokens", "cost", "error")
)
_LISTED = (TRACES.c.session.is_not(None), TRACES.c.duplicate_of.is_(None))


def page(connection: sa.Connection, limit: int, after: str | None) -> tuple[Sequence[Session], str | None]:
    # Walked as a list is, from the latest on: the first trace that is met of a session is its last.
    name, began = sa.type_coerce(TRACES.c.session, sa.Text), sa.type_coerce(TRACES.c.started_at, sa.BigInteger)
    later = TRACES.alias("later")
    goes_on = sa.exists().where(
        later.c.session == TRACES.c.session, later.c.started_at > TRACES.c.started_at, later.c.duplicate_of.is_(None)
    )
    found = sa.select(name, began).distinct().where(*_LISTED, ~goes_on)
    if after is not None:
        last, session = _place(after)
        found = found.where(sa.or_(began < last, sa.and_(began == last, name < session)), began <= last)
    rows = connection.execute(found.order_by(began.desc(), name.desc()).limit(limit + 1)).all()
    listed = rows[:limit]
    more = f"{listed[-1][1]}.{unescaped(listed[-1][0])}" if len(rows) > limit else None
    return _sessions(connection, [unescaped(row[0]) for row in listed]), more


def _place(after: str) -> tuple[int, str]:
    began, _, session = after.partition(".")
    return place_of(f"{began}.0")[0], escaped(session)


def _sessions(connection: sa.Connection, ids: Sequence[str]) -> Sequence[Session]:
    rows = connection.execute(
        sa.select(*_COLUMNS)
        .where(TRACES.c.session.in_(ids), *_LISTED)
        .order_by(TRACES.c.session, TRACES.c.started_at, TRACES.c.seq)
    )
    found = {id: _session(id, list(members)) for id, members in groupby(rows, key=lambda row: row.session)}
    return [found[id] for id in ids if id in found]


def _session(id: str, rows: Sequence[sa.Row[Any]]) -> Session:
    return Session(
        id=id,
        title=rows[0].title,
        traces=len(rows),
        agents=tuple(dict.fromkeys(row.agent for row in rows if row.agent is not None)),
        started_at=rows[0].started_at,
        last_at=rows[-1].started_at,
        input_tokens=total(row.input_tokens for row in rows),
        output_tokens=total(row.output_tokens for row in rows),
        cost=total(row.cost for row in rows),
        errors=sum(row.error is not None for row in rows),
    )
