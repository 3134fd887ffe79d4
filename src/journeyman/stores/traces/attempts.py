"""What runs attempted: traces like those of any other agent, found, read and searched with them, and kept once.

A row of the attempts points to its trace, and holds what of it had to be changed on the way there. What a run attempted goes
with the run; all other traces can be forgotten, with their spans, and with what was said of them.
"""

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import sqlalchemy as sa

from journeyman.core.errors import StoreError, boundary
from journeyman.core.feedback import TargetKind
from journeyman.core.score import Score
from journeyman.core.task import Split
from journeyman.core.trace import OWN, Trace
from journeyman.io.batch import BatchSize
from journeyman.stores.base import AttemptRecord, utc
from journeyman.stores.tables import ATTEMPTS, FEEDBACK
from journeyman.stores.traces import codec, fulltext, writing
from journeyman.stores.traces import labels as opinions
from journeyman.stores.traces.base import RECORDER, Pruned
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
from journeyman.stores.traces.writing import take_turn, unindex_all

if TYPE_CHECKING:
    from pydantic import TypeAdapter

# From the tables back to whole traces.

_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Pieces:
    """What traces are made of, as it was read from the tables."""

    bodies: Mapping[int, Sequence[bytes]]
    """The header and the steps of each trace, by its `seq`; one that is gone is not in it."""
    contents: Mapping[str, str]
    """Texts kept apart, by digest."""

    def trace(self, seq: int) -> Trace:
        """The trace as it came in, without what was said of it here.

        Raises:
            StoreError: It cannot be read.
        """
        with boundary(StoreError, f"trace number {seq} cannot be read"):
            return codec.trace(self.bodies[seq], self.contents)


def pieces(connection: sa.Connection, seqs: Sequence[int]) -> Pieces:
    bodies: dict[int, list[bytes]] = {}
    rows = sa.select(PARTS.c.trace, PARTS.c.body).where(PARTS.c.trace.in_(seqs)).order_by(PARTS.c.trace, PARTS.c.position)
    for seq, body in connection.execute(rows) if seqs else ():
        bodies.setdefault(seq, []).append(codec.unpack(body))
    digests = {digest for told in bodies.values() for body in told for digest in codec.references(body)}
    return Pieces(bodies, _contents(connection, digests))


def load(connection: sa.Connection, seqs: Sequence[int]) -> list[Trace]:
    """The whole traces with the labels and the rewards that hold, in the order asked for, without those that are gone."""
    whole = pieces(connection, seqs)
    listed = sa.select(TRACES.c.seq, TRACES.c.label, TRACES.c.labelled_by).where(TRACES.c.seq.in_(seqs))
    labels = {seq: (good, who) for seq, good, who in connection.execute(listed)}
    given = opinions.given(connection, seqs)
    found = []
    for seq in seqs:
        if seq in whole.bodies:
            trace = whole.trace(seq)
            rewards = codec.in_force(trace.rewards, given.get(seq, ()))
            good, who = labels[seq]
            by = trace.labelled_by if who == RECORDER else who
            found.append(replace(trace, label=good, labelled_by=by, rewards=rewards))
    return found


def _contents(connection: sa.Connection, digests: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    ordered = sorted(digests)
    for begin in range(0, len(ordered), _AT_ONCE):
        some = ordered[begin : begin + _AT_ONCE]
        rows = connection.execute(sa.select(CONTENTS.c.digest, CONTENTS.c.body).where(CONTENTS.c.digest.in_(some)))
        found.update((digest, codec.unpack_text(body)) for digest, body in rows)
    return found


_OF_RUN = ("run_id", "split")
"""What the `raw` of a trace says of the run that it is of."""
_OTHERWISE = " (as attempted)"
"""Ends the id of an attempt's trace where somebody else has put another one under its id."""
_BEFORE = sa.table("attempts", *(sa.column(name) for name in ("seq", "run_id", "id", "split", "told", "score")))
"""The attempts before step 0003, which held their traces themselves."""
_TOLD, _SCORED = (sa.cast(_BEFORE.c[name], sa.Text).label(name) for name in ("told", "score"))

Row = dict[str, Any]
_Kept = TypeVar("_Kept")


@cache
def _reader(kind: type[_Kept]) -> "TypeAdapter[_Kept]":
    """Checks what was kept. To load and make it takes longer than a list of traces does, so only who reads attempts does."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def as_trace(attempt: AttemptRecord) -> Trace:
    """The attempt as a trace of the run, with its rewards. What was tried on held-out tasks says so in `raw["split"]`."""
    trace = attempt.trace
    return replace(
        trace,
        id=f"{attempt.run_id}:{trace.id}",
        source=OWN,
        rewards=(*trace.rewards, *attempt.score.rewards),
        raw={**trace.raw, "run_id": attempt.run_id, "split": attempt.split.value},
    )


def _changed(trace: Trace) -> Row | None:
    """What `as_trace` says in other words; `None` where there was nothing."""
    from pydantic_core import to_jsonable_python

    raw = {name: to_jsonable_python(trace.raw[name], fallback=str) for name in _OF_RUN if name in trace.raw}
    return ({"source": trace.source} if trace.source else {}) | ({"raw": raw} if raw else {}) or None


def _as_attempted(trace: Trace, row: sa.Row[Any], score: Score) -> Trace:
    """`as_trace`, undone."""
    changed: Mapping[str, Any] = row.changed or {}
    raw = {name: value for name, value in trace.raw.items() if name not in _OF_RUN} | changed.get("raw", {})
    own = trace.rewards[: len(trace.rewards) - len(score.rewards)]
    return replace(trace, id=row.id, source=changed.get("source", ""), rewards=own, raw=raw)


def add(connection: sa.Connection, attempts: Sequence[AttemptRecord]) -> None:
    """Add attempts that are not there yet: of one id the first stays. Whoever calls has taken their turn."""
    wanted = {(attempt.run_id, attempt.id): attempt for attempt in reversed(attempts)}
    keys = sa.select(ATTEMPTS.c.run_id, ATTEMPTS.c.id).where(
        ATTEMPTS.c.run_id.in_({run_id for run_id, _ in wanted}), ATTEMPTS.c.id.in_({id for _, id in wanted})
    )
    for run_id, id in connection.execute(keys).all():
        wanted.pop((run_id, id), None)
    new = list(wanted.values())[::-1]
    writing.insert(connection, ATTEMPTS, [_row(each, seq) for each, seq in zip(new, _place(connection, new), strict=True)])


def _row(attempt: AttemptRecord, seq: int) -> Row:
    trace = attempt.trace
    return {
        "run_id": attempt.run_id,
        "id": attempt.id,
        "task_id": trace.task_id,
        "candidate_id": trace.candidate_id,
        "domain": trace.domain,
        "split": attempt.split.value,
        "total": attempt.score.total,
        "tokens": attempt.tokens,
        "cost": trace.cost,
        "started_at": utc(trace.started_at),
        "trace": seq,
        "changed": _changed(trace),
        "score": _reader(Score).dump_python(attempt.score, mode="json"),
    }


def _place(connection: sa.Connection, attempts: Sequence[AttemptRecord]) -> list[int]:
    """The `seq` of the trace of each attempt; those that are not among the traces yet are added."""
    traces = [as_trace(attempt) for attempt in attempts]
    known = writing.seqs(connection, [trace.id for trace in traces])
    there = pieces(connection, list(known.values()))
    for place, trace in enumerate(traces):
        if trace.id in known and there.trace(known[trace.id]) != trace:
            traces[place] = replace(trace, id=trace.id + _OTHERWISE)
    writing.keep(connection, writing.prepare(trace for trace in traces if trace.id not in known), datetime.now(UTC))
    placed = writing.seqs(connection, [trace.id for trace in traces])
    return [placed[trace.id] for trace in traces]


def read(connection: sa.Connection, rows: Sequence[sa.Row[Any]]) -> Iterator[AttemptRecord]:
    """The attempts of these rows. What is needed of the database is read when the first is asked for.

    Raises:
        StoreError: One cannot be read.
    """
    found = pieces(connection, [row.trace for row in rows if row.trace is not None])
    return (_read(row, found) for row in rows)


def _read(row: sa.Row[Any], found: Pieces) -> AttemptRecord:
    with boundary(StoreError, f"attempt {row.id} of run {row.run_id} cannot be read"):
        score = _reader(Score).validate_python(row.score)
        trace = _reader(Trace).validate_python(row.unread) if row.trace is None else found.trace(row.trace)
        whole = trace if row.trace is None else _as_attempted(trace, row, score)
    return AttemptRecord(run_id=row.run_id, split=Split(row.split), trace=whole, score=score)


def move(connection: sa.Connection) -> None:
    """Put the traces of attempts among the traces, in a store of before each trace was kept once; what cannot be read stays."""
    seq = 0
    while True:
        columns = (_BEFORE.c.seq, _BEFORE.c.run_id, _BEFORE.c.split, _TOLD, _SCORED)
        page = sa.select(*columns).where(_BEFORE.c.seq > seq).order_by(_BEFORE.c.seq).limit(_AT_ONCE)
        rows = connection.execute(page).all()
        if not rows:
            break
        _move(connection, rows)
        seq = rows[-1].seq
    connection.execute(sa.text("alter table attempts drop column told"))


def _json(text: str) -> object:
    """What a text says, or the text itself where it is no JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _move(connection: sa.Connection, rows: Sequence[sa.Row[Any]]) -> None:
    found: dict[int, AttemptRecord] = {}
    for row in rows:
        try:
            trace = _reader(Trace).validate_python(json.loads(row.told))
            score = _reader(Score).validate_python(json.loads(row.score))
        except ValueError:
            # Whoever lists the attempts is told of it; the store can be opened.
            continue
        found[row.seq] = AttemptRecord(run_id=row.run_id, split=Split(row.split), trace=trace, score=score)
    placed = dict(zip(found, _place(connection, list(found.values())), strict=True))
    update = sa.update(ATTEMPTS).where(ATTEMPTS.c.seq == sa.bindparam("of"))
    values: Row = {name: sa.bindparam(f"new_{name}") for name in ("trace", "changed", "unread")}
    moved: list[Row] = []
    for row in rows:
        changed = _changed(found[row.seq].trace) if row.seq in found else None
        unread = None if row.seq in found else _json(row.told)
        moved.append({"of": row.seq, "new_trace": placed.get(row.seq), "new_changed": changed, "new_unread": unread})
    connection.execute(update.values(values), moved)


# Forgetting: traces, the spans they were made of, what was said of them, and what then nothing refers to.


class _Database(Protocol):
    """What forgetting needs of a database."""

    def read(self) -> AbstractContextManager[sa.Connection]: ...

    def write(self) -> AbstractContextManager[sa.Connection]: ...


_BATCH = 200
"""Traces forgotten at once, to begin with: others want to write in between, and an interruption leaves whole traces."""
_SMALLEST, _LARGEST = 50, 5_000
_MOMENT = 0.5
"""Seconds that others wait for their turn, about."""


def prune(
    database: _Database,
    before: datetime,
    *,
    keep_labelled: bool,
    dry_run: bool,
    told: Callable[[int], None] = lambda _: None,
) -> Pruned:
    # What a run attempted goes with the run.
    old = [TRACES.c.started_at < utc(before), ~sa.exists().where(ATTEMPTS.c.trace == TRACES.c.seq)]
    if keep_labelled:
        old.append(sa.not_(labelled_by_person()))
    if dry_run:
        with database.read() as connection:
            return _would_go(connection, old, before)
    traces = spans = bytes_ = 0

    def forgotten(connection: sa.Connection, seqs: Sequence[int]) -> None:
        nonlocal traces, spans
        found = delete(connection, seqs)
        traces, spans = traces + found[0], spans + found[1]

    def alone(connection: sa.Connection, seqs: Sequence[int]) -> None:
        nonlocal spans
        spans += _forget_spans(connection, SPAN_TRACES.c.seq.in_(seqs))

    def unused(connection: sa.Connection, seqs: Sequence[int]) -> None:
        nonlocal bytes_
        bytes_ += _forget_contents(connection, seqs)

    _by_batches(database, TRACES.c.seq, old, forgotten, then=lambda: told(traces))
    _by_batches(database, SPAN_TRACES.c.seq, [_without_trace(before)], alone)
    _by_batches(database, CONTENTS.c.seq, [_UNUSED], unused)
    with database.write() as connection:
        take_turn(connection)
        _forget_scopes(connection)
    return Pruned(traces=traces, spans=spans, bytes=bytes_)


def _would_go(connection: sa.Connection, old: Sequence[sa.ColumnElement[bool]], before: datetime) -> Pruned:
    gone = sa.select(TRACES.c.seq).where(*old)
    theirs = sa.or_(SPAN_TRACES.c.id.in_(sa.select(TRACES.c.id).where(*old)), _without_trace(before))
    spans = sa.select(sa.func.count()).where(SPANS.c.trace.in_(sa.select(SPAN_TRACES.c.seq).where(theirs)))
    stays = sa.exists().where(TRACE_CONTENTS.c.content == CONTENTS.c.seq, TRACE_CONTENTS.c.trace.not_in(gone))
    size = sa.select(sa.func.coalesce(sa.func.sum(CONTENTS.c.size), 0)).where(~stays)
    count = sa.select(sa.func.count()).select_from(gone.subquery())
    traces, spans_, bytes_ = (int(connection.scalar(each) or 0) for each in (count, spans, size))
    return Pruned(traces=traces, spans=spans_, bytes=bytes_)


def _by_batches(
    database: _Database,
    seq: sa.Column[int],
    which: Sequence[sa.ColumnElement[bool]],
    forget: Callable[[sa.Connection, Sequence[int]], None],
    then: Callable[[], None] = lambda: None,
) -> None:
    """Forget rows by their `seq`, each batch in a transaction of its own and as large as is forgotten in a moment: others write
    in between, and who breaks off keeps what was done. What is found once is not looked for again, so this ends."""
    last, batch = 0, BatchSize(size=_BATCH, seconds=_MOMENT, smallest=_SMALLEST, largest=_LARGEST)
    while True:
        size = batch.size
        with database.write() as connection:
            take_turn(connection)
            began = time.monotonic()
            found = list(connection.scalars(sa.select(seq).where(*which, seq > last).order_by(seq).limit(size)))
            if found:
                forget(connection, found)
        then()
        if len(found) < size:
            return
        last, took = found[-1], time.monotonic() - began
        # Who waits for SQLite looks again every tenth of a second at most, and would find it taken each time.
        time.sleep(min(0.1, took / 4))
        batch.learn(size, took)


def forget(database: _Database, trace_ids: Iterable[str], *, dry_run: bool) -> Pruned:
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


def delete(connection: sa.Connection, seqs: Sequence[int]) -> tuple[int, int]:
    """Forget traces; how many, and how many spans."""
    rows = connection.execute(sa.select(TRACES.c.seq, TRACES.c.id).where(TRACES.c.seq.in_(seqs))).all()
    gone = [row.seq for row in rows]
    unindex_all(connection, gone)
    spans = _forget_spans(connection, SPAN_TRACES.c.id.in_([row.id for row in rows]))
    connection.execute(sa.delete(TRACES).where(TRACES.c.seq.in_(gone)))
    writing.again(connection, gone)
    return len(gone), spans


def _without_trace(before: datetime) -> sa.ColumnElement[bool]:
    return sa.and_(SPAN_TRACES.c.began < utc(before), _made_into_none())


def _made_into_none() -> sa.ColumnElement[bool]:
    """Spans of which no trace was made, or none that is left."""
    return ~sa.exists().where(TRACES.c.id == SPAN_TRACES.c.id)


def _forget_spans(connection: sa.Connection, which: sa.ColumnElement[bool]) -> int:
    theirs = SPANS.c.trace.in_(sa.select(SPAN_TRACES.c.seq).where(which))
    count = int(connection.scalar(sa.select(sa.func.count()).select_from(SPANS).where(theirs)) or 0)
    connection.execute(sa.delete(SPANS).where(theirs))
    connection.execute(sa.delete(SPAN_TRACES).where(which))
    return count


_UNUSED = ~sa.exists().where(TRACE_CONTENTS.c.content == CONTENTS.c.seq)


def forget_contents(connection: sa.Connection) -> int:
    """Forget what nothing refers to; its bytes."""
    bytes_ = last = 0
    unused = sa.select(CONTENTS.c.seq).where(_UNUSED).order_by(CONTENTS.c.seq).limit(_BATCH)
    while seqs := list(connection.scalars(unused.where(CONTENTS.c.seq > last))):
        last = seqs[-1]
        bytes_ += _forget_contents(connection, seqs)
    _forget_scopes(connection)
    return bytes_


def _forget_contents(connection: sa.Connection, seqs: Sequence[int]) -> int:
    which = CONTENTS.c.seq.in_(seqs)
    bytes_ = int(connection.scalar(sa.select(sa.func.sum(CONTENTS.c.size)).where(which)) or 0)
    if connection.dialect.name == "sqlite":
        # It is told word for word what to forget.
        rows = connection.execute(sa.select(CONTENTS.c.seq, CONTENTS.c.body).where(which, CONTENTS.c.indexed)).all()
        fulltext.remove(connection, fulltext.CONTENT_WORDS, [(row.seq, codec.unpack_text(row.body)) for row in rows])
    else:
        connection.execute(sa.delete(fulltext.CONTENT_WORDS).where(fulltext.CONTENT_WORDS.c.rowid.in_(seqs)))
    connection.execute(sa.delete(CONTENTS).where(which))
    return bytes_


def _forget_scopes(connection: sa.Connection) -> None:
    connection.execute(sa.delete(SCOPES).where(~sa.exists().where(SPANS.c.scope == SCOPES.c.seq)))
