"""The first traces of a list that are meant. Words are looked for among the newest traces first: mostly that is enough."""

from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa

from journeyman.stores.traces.base import Query
from journeyman.stores.traces.query import NEWEST_FIRST, SEQ, Condition, Place, conditions, seqs, standing_in
from journeyman.stores.traces.search import Phrase, phrases
from journeyman.stores.traces.tables import TRACES

_FEWEST = 1024
"""Traces looked through first, or twice as many as are wanted."""
_MORE = 16
"""How many times as many are looked through next."""
_SCATTERED = 4
"""Where the traces of a stretch of the list have come in among more than this many times as many others, looking from the top
saves nothing: the full-text index is in the order of arrival."""


def first(connection: sa.Connection, query: Query, limit: int, after: Sequence[Condition] = ()) -> list[Place]:
    """The places of the newest traces that are meant, `limit` at most.

    Args:
        after: Where in the list to begin.
    """
    wanted = phrases(query.text or "")
    if wanted and connection.dialect.name == "sqlite":
        rest = [*conditions(connection, replace(query, text=None)), *after]
        found = _from_the_top(connection, rest, wanted, limit)
        if found is not None:
            return found
    return seqs(connection, [*conditions(connection, query, lazily=True), *after], NEWEST_FIRST, limit)


def count(connection: sa.Connection, query: Query, most: int) -> int:
    """How many traces are meant; counting stops at `most`."""
    wanted = phrases(query.text or "")
    if wanted and connection.dialect.name == "sqlite":
        rest = conditions(connection, replace(query, text=None))
        found = _from_the_top(connection, rest, wanted, most)
        if found is not None:
            return len(found)
        if len(wanted) == 1:
            return _counted(connection, _met(rest, wanted[0]).limit(most))
    return _counted(connection, sa.select(TRACES.c.seq).where(*conditions(connection, query)).limit(most))


def _counted(connection: sa.Connection, found: sa.Select[tuple[int]]) -> int:
    return int(connection.scalar(sa.select(sa.func.count()).select_from(found.subquery())) or 0)


def _met(where: Sequence[Condition], phrase: Phrase) -> sa.Select[tuple[int]]:
    """The traces as the full-text index meets them, which may be left off at any time."""
    texts = standing_in("sqlite", phrase).subquery()
    trace = next(iter(texts.c))
    meant = sa.exists().where(TRACES.c.seq == trace, *where)
    return sa.select(trace).distinct().where(meant)


def _from_the_top(
    connection: sa.Connection, where: Sequence[Condition], wanted: Sequence[Phrase], limit: int
) -> list[Place] | None:
    """`None` where too many traces would have to be looked through."""
    size = max(_FEWEST, 2 * limit)
    for _ in range(2):
        began = sa.type_coerce(TRACES.c.started_at, sa.BigInteger).label("began")
        top = sa.select(began, TRACES.c.seq).where(*where).order_by(*NEWEST_FIRST).limit(size).subquery()
        of_top = sa.select(sa.func.count(), *(end(top.c.seq) for end in (sa.func.min, sa.func.max)), sa.func.min(top.c.began))
        count, first, last, oldest = connection.execute(of_top).one()
        if not count:
            return []
        if last - first > _SCATTERED * size:
            return None
        # Others that began with the oldest of these may not be among them.
        among = [] if count < size else [began > oldest]
        texts = (SEQ.in_(standing_in("sqlite", phrase, within=(first, last))) for phrase in wanted)
        found = seqs(connection, [*where, *among, *texts], NEWEST_FIRST, limit)
        if len(found) == limit or count < size:
            return found
        if len(found) * _MORE < limit:
            return None
        size *= _MORE
    return None
