"""Forgetting: traces, the spans they were made of, and what then nothing refers to."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import sqlalchemy as sa

from journeyman.stores.base import utc
from journeyman.stores.database import Database
from journeyman.stores.tables import ATTEMPTS
from journeyman.stores.traces import codec, duplicates, words
from journeyman.stores.traces.base import Pruned
from journeyman.stores.traces.query import labelled_by_person
from journeyman.stores.traces.tables import CONTENTS, PARTS, SCOPES, SPAN_TRACES, SPANS, TRACE_CONTENTS, TRACES
from journeyman.stores.traces.writing import take_turn, unindex

_BATCH = 200
"""Traces forgotten at once: others want to write in between, and an interruption leaves whole traces."""


def prune(database: Database, before: datetime, *, keep_labelled: bool, dry_run: bool) -> Pruned:
    # What a run attempted goes with the run.
    old = [TRACES.c.started_at < utc(before), ~sa.exists().where(ATTEMPTS.c.trace == TRACES.c.seq)]
    if keep_labelled:
        old.append(sa.not_(labelled_by_person()))
    if dry_run:
        with database.read() as connection:
            return _would_go(connection, old, before)
    traces = spans = 0
    for batch in _batches(database, old):
        with database.write() as connection:
            take_turn(connection)
            found = forget(connection, batch, old)
            traces, spans = traces + found[0], spans + found[1]
    with database.write() as connection:
        take_turn(connection)
        spans += _forget_spans(connection, _without_trace(before))
        return Pruned(traces=traces, spans=spans, bytes=forget_contents(connection))


def _would_go(connection: sa.Connection, old: Sequence[sa.ColumnElement[bool]], before: datetime) -> Pruned:
    gone = sa.select(TRACES.c.seq).where(*old)
    theirs = sa.or_(SPAN_TRACES.c.id.in_(sa.select(TRACES.c.id).where(*old)), _without_trace(before))
    spans = sa.select(sa.func.count()).where(SPANS.c.trace.in_(sa.select(SPAN_TRACES.c.seq).where(theirs)))
    stays = sa.exists().where(TRACE_CONTENTS.c.content == CONTENTS.c.seq, TRACE_CONTENTS.c.trace.not_in(gone))
    size = sa.select(sa.func.coalesce(sa.func.sum(CONTENTS.c.size), 0)).where(~stays)
    count = sa.select(sa.func.count()).select_from(gone.subquery())
    traces, spans_, bytes_ = (int(connection.scalar(each) or 0) for each in (count, spans, size))
    return Pruned(traces=traces, spans=spans_, bytes=bytes_)


def _batches(database: Database, old: Sequence[sa.ColumnElement[bool]]) -> Iterator[Sequence[int]]:
    """The `seq`s of the traces that are to go. What is found once is not looked for again, so this ends."""
    last = 0
    while True:
        with database.read() as connection:
            some = sa.select(TRACES.c.seq).where(*old, TRACES.c.seq > last).order_by(TRACES.c.seq).limit(_BATCH)
            found = list(connection.scalars(some))
        if found:
            yield found
        if len(found) < _BATCH:
            return
        last = found[-1]


def forget(connection: sa.Connection, seqs: Sequence[int], which: Sequence[sa.ColumnElement[bool]] = ()) -> tuple[int, int]:
    """Forget traces; how many, and how many spans. One for which `which` does not hold any more is kept."""
    rows = connection.execute(sa.select(TRACES.c.seq, TRACES.c.id).where(TRACES.c.seq.in_(seqs), *which)).all()
    gone = [row.seq for row in rows]
    parts = connection.execute(sa.select(PARTS.c.trace, PARTS.c.position, PARTS.c.body).where(PARTS.c.trace.in_(gone)))
    unindex(connection, ((row.trace, row.position, row.body) for row in parts))
    spans = _forget_spans(connection, SPAN_TRACES.c.id.in_([row.id for row in rows]))
    connection.execute(sa.delete(TRACES).where(TRACES.c.seq.in_(gone)))
    duplicates.again(connection, gone)
    return len(gone), spans


def _without_trace(before: datetime) -> sa.ColumnElement[bool]:
    """Spans that began before, and of which no trace was made, or none that is left."""
    return sa.and_(SPAN_TRACES.c.began < utc(before), SPAN_TRACES.c.id.not_in(sa.select(TRACES.c.id)))


def _forget_spans(connection: sa.Connection, which: sa.ColumnElement[bool]) -> int:
    theirs = SPANS.c.trace.in_(sa.select(SPAN_TRACES.c.seq).where(which))
    count = int(connection.scalar(sa.select(sa.func.count()).select_from(SPANS).where(theirs)) or 0)
    connection.execute(sa.delete(SPANS).where(theirs))
    connection.execute(sa.delete(SPAN_TRACES).where(which))
    return count


def forget_contents(connection: sa.Connection) -> int:
    """Forget what nothing refers to; its bytes."""
    bytes_ = last = 0
    unused = ~sa.exists().where(TRACE_CONTENTS.c.content == CONTENTS.c.seq)
    while True:
        some = sa.select(CONTENTS).where(CONTENTS.c.seq > last, unused).order_by(CONTENTS.c.seq).limit(_BATCH)
        rows = connection.execute(some).all()
        if not rows:
            break
        last = rows[-1].seq
        bytes_ += sum(row.size for row in rows)
        texts = [(row.seq, codec.unpack_text(row.body)) for row in rows if row.indexed]
        words.remove(connection, words.CONTENT_WORDS, texts)
        connection.execute(sa.delete(CONTENTS).where(CONTENTS.c.seq.in_([row.seq for row in rows])))
    connection.execute(sa.delete(SCOPES).where(~sa.exists().where(SPANS.c.scope == SCOPES.c.seq)))
    return bytes_
