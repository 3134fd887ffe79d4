"""Forgetting: traces, the spans they were made of, what was said of them, and what then nothing refers to."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import sqlalchemy as sa

from journeyman.core.feedback import TargetKind
from journeyman.stores.base import utc
from journeyman.stores.engine import Database
from journeyman.stores.tables import ATTEMPTS, FEEDBACK
from journeyman.stores.traces import codec, fulltext, writing
from journeyman.stores.traces.base import Pruned
from journeyman.stores.traces.query import labelled_by_person
from journeyman.stores.traces.tables import (
    CONTENTS,
    PARTS,
    SCOPES,
    SPAN_TRACES,
    SPANS,
    TRACE_CALLS,
    TRACE_CONTENTS,
    TRACES,
)
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
            found = delete(connection, batch, old)
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


def forget(database: Database, trace_ids: Iterable[str], *, dry_run: bool) -> Pruned:
    ids = list(dict.fromkeys(trace_ids))
    if dry_run:
        with database.read() as connection:
            return _would_be_forgotten(connection, ids)
    traces = spans = kept = 0
    for begin in range(0, len(ids), _BATCH):
        with database.write() as connection:
            take_turn(connection)
            some = ids[begin : begin + _BATCH]
            meant, staying = _meant(connection, some)
            _forget_words(connection, some, meant)
            found = delete(connection, meant)
            alone = _forget_spans(connection, sa.and_(SPAN_TRACES.c.id.in_(some), _made_into_none()))
            traces, spans, kept = traces + found[0], spans + found[1] + alone, kept + staying
    with database.write() as connection:
        take_turn(connection)
        return Pruned(traces=traces, spans=spans, bytes=forget_contents(connection), kept=kept)


def _would_be_forgotten(connection: sa.Connection, ids: Sequence[str]) -> Pruned:
    gone, kept, spans = set[int](), 0, 0
    for begin in range(0, len(ids), _BATCH):
        meant, staying = _meant(connection, ids[begin : begin + _BATCH])
        gone, kept = gone | set(meant), kept + staying
        named = SPAN_TRACES.c.id.in_(sa.select(TRACES.c.id).where(TRACES.c.seq.in_(meant)))
        theirs = SPANS.c.trace.in_(sa.select(SPAN_TRACES.c.seq).where(named))
        spans += int(connection.scalar(sa.select(sa.func.count()).select_from(SPANS).where(theirs)) or 0)
    return Pruned(traces=len(gone), spans=spans, bytes=0, kept=kept)


def _meant(connection: sa.Connection, ids: Sequence[str]) -> tuple[list[int], int]:
    """The `seq`s of traces by their ids, with those that tell the same; and how many stay as a run attempted them."""
    named = connection.execute(sa.select(TRACES.c.seq, TRACES.c.duplicate_of).where(TRACES.c.id.in_(ids))).all()
    told = {row.duplicate_of or row.seq for row in named} | {row.seq for row in named}
    # What was reported twice would else be found again by what is left of it.
    told |= set(connection.scalars(sa.select(TRACES.c.seq).where(TRACES.c.duplicate_of.in_(told))))
    attempted = set(connection.scalars(sa.select(ATTEMPTS.c.trace).where(ATTEMPTS.c.trace.in_(told))))
    return sorted(told - attempted), len(attempted)


def _forget_words(connection: sa.Connection, ids: Sequence[str], seqs: Sequence[int]) -> None:
    """Forget what was said of traces and of the requests in them, before or after they came; and of a session all of whose
    traces go."""
    rows = connection.execute(sa.select(TRACES.c.id, TRACES.c.session).where(TRACES.c.seq.in_(seqs))).all()
    calls = connection.scalars(sa.select(TRACE_CALLS.c.call_id).where(TRACE_CALLS.c.trace.in_(seqs)))
    known = set(connection.scalars(sa.select(TRACES.c.id).where(TRACES.c.id.in_(ids))))
    _unsay(connection, (TargetKind.TRACE, TargetKind.REQUEST), {*(row.id for row in rows), *calls, *(set(ids) - known)})
    sessions = {row.session for row in rows if row.session is not None}
    left = sa.select(TRACES.c.session).where(TRACES.c.session.in_(sessions), TRACES.c.seq.not_in(seqs))
    _unsay(connection, (TargetKind.SESSION,), sessions - set(connection.scalars(left)))


def _unsay(connection: sa.Connection, kinds: Sequence[TargetKind], targets: Iterable[str]) -> None:
    ordered = sorted(targets)
    for begin in range(0, len(ordered), _BATCH):
        said = (
            FEEDBACK.c.target_kind.in_([kind.value for kind in kinds]),
            FEEDBACK.c.target.in_(ordered[begin : begin + _BATCH]),
        )
        connection.execute(sa.delete(FEEDBACK).where(*said))


def delete(connection: sa.Connection, seqs: Sequence[int], which: Sequence[sa.ColumnElement[bool]] = ()) -> tuple[int, int]:
    """Forget traces; how many, and how many spans. One for which `which` does not hold any more is kept."""
    rows = connection.execute(sa.select(TRACES.c.seq, TRACES.c.id).where(TRACES.c.seq.in_(seqs), *which)).all()
    gone = [row.seq for row in rows]
    parts = connection.execute(sa.select(PARTS.c.trace, PARTS.c.position, PARTS.c.body).where(PARTS.c.trace.in_(gone)))
    unindex(connection, ((row.trace, row.position, row.body) for row in parts))
    spans = _forget_spans(connection, SPAN_TRACES.c.id.in_([row.id for row in rows]))
    connection.execute(sa.delete(TRACES).where(TRACES.c.seq.in_(gone)))
    writing.again(connection, gone)
    return len(gone), spans


def _without_trace(before: datetime) -> sa.ColumnElement[bool]:
    return sa.and_(SPAN_TRACES.c.began < utc(before), _made_into_none())


def _made_into_none() -> sa.ColumnElement[bool]:
    """Spans of which no trace was made, or none that is left."""
    return SPAN_TRACES.c.id.not_in(sa.select(TRACES.c.id))


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
        fulltext.remove(connection, fulltext.CONTENT_WORDS, texts)
        connection.execute(sa.delete(CONTENTS).where(CONTENTS.c.seq.in_([row.seq for row in rows])))
    connection.execute(sa.delete(SCOPES).where(~sa.exists().where(SPANS.c.scope == SCOPES.c.seq)))
    return bytes_
