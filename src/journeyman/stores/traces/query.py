"""From a `Query` to conditions on the table of traces, and from its rows to lines and pages."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from journeyman.core.errors import InputError
from journeyman.core.trace import MIRROR, OWN
from journeyman.stores.base import utc
from journeyman.stores.traces.base import AGENTS, AUTO, USERS, Query, TraceSummary
from journeyman.stores.traces.fulltext import CONTENT_WORDS, PART_WORDS, POSITIONS, Phrase, matching, phrases, place
from journeyman.stores.traces.tables import TRACE_CANDIDATES, TRACE_CONTENTS, TRACE_MODELS, TRACE_TOOLS, TRACES

Condition = sa.ColumnElement[bool]
Place = tuple[int, int]
"""Where a trace stands in a list: when it began, in microseconds since 1970, and its `seq`."""

NEWEST_FIRST = (TRACES.c.started_at.desc(), TRACES.c.seq.desc())
OLDEST_FIRST = (TRACES.c.started_at, TRACES.c.seq)
SEQ = sa.literal_column("+traces.seq", sa.BigInteger)
"""The plus keeps SQLite from walking the found rows one by one and sorting them: it is to walk the list, and look each up."""
_COMMON = 20_000
"""A phrase that stands in more texts than this is looked for trace by trace from the top of a list, which soon is full; of a
rarer one all places are read at once. With 100,000 traces both take a few milliseconds at the border."""
_FEW = 1000
"""So many traces are found one by one and sorted sooner than a list is walked until all of them are met."""
_AT_ONCE = 1000
"""Values in one `IN`; databases take some thousands."""


def conditions(connection: sa.Connection, query: Query, *, lazily: bool = False) -> list[Condition]:
    """What holds for the traces that are meant.

    Args:
        lazily: Few of them will be read, from one end of the list.
    """
    return [
        TRACES.c.duplicate_of.is_(None),
        *_of_source(query.source),
        *_plain(query),
        *_elsewhere(connection, query),
        *_text(connection, query.text, lazily=lazily),
    ]


def _of_source(source: str | None) -> list[Condition]:
    if source is None:
        return [TRACES.c.source != MIRROR]
    return [TRACES.c.source.not_in((MIRROR, OWN)) if source == AGENTS else TRACES.c.source == source]


def _plain(query: Query) -> Iterator[Condition]:
    for name in ("agent", "session", "task_id", "domain", "label", "failed"):
        if (value := getattr(query, name)) is not None:
            named = TRACES.c[name] == value
            yield sa.or_(named, TRACES.c.agent.is_(None)) if name == "agent" and not value else named
    if query.ended_in_error:
        # The index knows who failed at all, and the rest is read of those alone.
        yield sa.and_(TRACES.c.failed, TRACES.c.error.is_not(None))
    elif query.ended_in_error is not None:
        yield TRACES.c.error.is_(None)
    if query.scored is not None:
        yield TRACES.c.reward.is_not(None) if query.scored else TRACES.c.reward.is_(None)
    if query.min_reward is not None:
        yield TRACES.c.reward >= query.min_reward
    if query.max_reward is not None:
        yield TRACES.c.reward <= query.max_reward
    if query.since is not None:
        yield TRACES.c.started_at >= utc(query.since)
    if query.until is not None:
        yield TRACES.c.started_at < utc(query.until)


def _elsewhere(connection: sa.Connection, query: Query) -> Iterator[Condition]:
    if query.labelled is not None:
        yield labelled_by_person() if query.labelled else sa.not_(labelled_by_person())
    if query.model is not None:
        yield _one_of(connection, sa.select(TRACE_MODELS.c.trace).where(TRACE_MODELS.c.model == query.model))
    if query.tool is not None:
        yield _one_of(connection, sa.select(TRACE_TOOLS.c.trace).where(TRACE_TOOLS.c.tool == query.tool))
    if (candidate := query.candidate_id) is not None:
        others = sa.select(TRACE_CANDIDATES.c.trace).where(TRACE_CANDIDATES.c.candidate_id == candidate)
        yield sa.or_(TRACES.c.candidate_id == candidate, SEQ.in_(others))


def _one_of(connection: sa.Connection, traces: sa.Select[tuple[int]]) -> Condition:
    if connection.dialect.name != "sqlite":
        return TRACES.c.seq.in_(traces)
    found = connection.scalar(sa.select(sa.func.count()).select_from(traces.limit(_FEW + 1).subquery())) or 0
    return (SEQ if found > _FEW else TRACES.c.seq).in_(traces)


def labelled_by_person() -> Condition:
    """What a recorder says is a person's word, too, given elsewhere."""
    return sa.and_(TRACES.c.label.is_not(None), sa.func.coalesce(TRACES.c.labelled_by, "").not_in((AUTO, *USERS)))


def _text(connection: sa.Connection, text: str | None, *, lazily: bool) -> Iterator[Condition]:
    if text is None or not text.strip():
        return
    wanted = phrases(text)
    if not wanted:
        # Asked for, and nowhere to be found: `!!!`.
        yield sa.false()
    for phrase in wanted:
        # PostgreSQL decides by itself what to read first.
        # Of a beginning FTS5 would put the places of all its words together for each trace anew.
        if lazily and not phrase.begins and connection.dialect.name == "sqlite" and _is_common(connection, phrase):
            yield _stands_in_this(phrase)
        else:
            yield SEQ.in_(standing_in(connection.dialect.name, phrase))


def _is_common(connection: sa.Connection, phrase: Phrase) -> bool:
    rows = matching("sqlite", PART_WORDS, phrase).limit(_COMMON + 1).subquery()
    return (connection.scalar(sa.select(sa.func.count()).select_from(rows)) or 0) > _COMMON


def standing_in(dialect: str, phrase: Phrase, *, within: tuple[int, int] | None = None) -> sa.CompoundSelect[Any]:
    """The `seq` of every trace that a phrase stands in; of some, several times. `within`: from one `seq` to another alone."""
    parts = matching(dialect, PART_WORDS, phrase)
    linked: Condition = TRACE_CONTENTS.c.content.in_(matching(dialect, CONTENT_WORDS, phrase))
    if within is not None:
        first, last = within
        parts = parts.where(PART_WORDS.c.rowid.between(place(first, 0), place(last + 1, 0) - 1))
        linked = sa.and_(linked, TRACE_CONTENTS.c.trace.between(first, last))
    return sa.union_all(
        sa.select(parts.subquery().c.rowid.op(">>")(sa.literal_column(str(POSITIONS)))),
        sa.select(TRACE_CONTENTS.c.trace).where(linked),
    )


def _stands_in_this(phrase: Phrase) -> Condition:
    first = TRACES.c.seq.op("<<")(POSITIONS)
    here = PART_WORDS.c.rowid.between(first, first + ((1 << POSITIONS) - 1))
    part = matching("sqlite", PART_WORDS, phrase).where(here).correlate(TRACES)
    content = (
        matching("sqlite", CONTENT_WORDS, phrase)
        .join(TRACE_CONTENTS, TRACE_CONTENTS.c.content == CONTENT_WORDS.c.rowid)
        .where(TRACE_CONTENTS.c.trace == TRACES.c.seq)
        .correlate(TRACES)
    )
    return sa.or_(part.exists(), content.exists())


def beyond(place: Place, *, newer: bool = False) -> Condition:
    """What stands after a place in a list with the newest first, or else before it."""
    here = sa.tuple_(TRACES.c.started_at, TRACES.c.seq)
    there = sa.tuple_(sa.literal(place[0], sa.BigInteger), sa.literal(place[1], sa.BigInteger))
    return here > there if newer else here < there


def seqs(connection: sa.Connection, where: Sequence[Condition], order: Sequence[Any], limit: int) -> list[Place]:
    """The places of the traces for which everything holds, the first `limit` of them."""
    began = sa.type_coerce(TRACES.c.started_at, sa.BigInteger)
    rows = connection.execute(sa.select(began, TRACES.c.seq).where(*where).order_by(*order).limit(limit))
    return [(int(at), int(seq)) for at, seq in rows]


def lines(connection: sa.Connection, places: Sequence[Place]) -> tuple[TraceSummary, ...]:
    """The traces at these places, in their order."""
    found: dict[int, TraceSummary] = {}
    for first in range(0, len(places), _AT_ONCE):
        some = [seq for _, seq in places[first : first + _AT_ONCE]]
        found |= {row.seq: _line(row) for row in connection.execute(sa.select(*_COLUMNS).where(TRACES.c.seq.in_(some)))}
    return tuple(found[seq] for _, seq in places if seq in found)


_FIELDS = tuple(name for name in TraceSummary.__dataclass_fields__ if name != "models")
_COLUMNS = (TRACES.c.seq, TRACES.c.models, *(TRACES.c[name] for name in _FIELDS))


def _line(row: sa.Row[Any]) -> TraceSummary:
    return TraceSummary(**{name: getattr(row, name) for name in _FIELDS}, models=tuple(row.models))


def mark(place: Place) -> str:
    """A place as `Page.next` says it."""
    return f"{place[0]}.{place[1]}"


def place_of(mark: str) -> Place:
    """
    Raises:
        InputError: It is none that a page has given.
    """
    began, _, seq = mark.partition(".")
    try:
        found = int(began), int(seq)
    except ValueError:
        found = (1 << 63, 0)
    if any(abs(number) >= 1 << 63 for number in found):
        raise InputError(f"{mark[:40]!r} is not where a page begins; take the `next` of the page before")
    return found


# The first traces of a list that are meant. Words are looked for among the newest traces first: mostly that is enough.

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
