"""The trace store: SQLite in a file or in memory, or PostgreSQL by URL, from the same statements."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from journeyman.core.reward import Reward
from journeyman.core.trace import Trace, total
from journeyman.stores.base import utc
from journeyman.stores.engine import Database, OnDatabase, starting
from journeyman.stores.tables import ATTEMPTS
from journeyman.stores.traces import attempts, codec, fulltext, writing
from journeyman.stores.traces import labels as opinions
from journeyman.stores.traces import query as finding
from journeyman.stores.traces import query as queries
from journeyman.stores.traces.base import Given, Label, Page, Pruned, Query, SpanRow, Statistics, TraceSession, TraceSummary
from journeyman.stores.traces.query import (
    NEWEST_FIRST,
    OLDEST_FIRST,
    beyond,
    conditions,
    labelled_by_person,
    lines,
    mark,
    place_of,
    seqs,
)
from journeyman.stores.traces.tables import (
    CONTENTS,
    PARTS,
    SCOPES,
    SPAN_TRACES,
    SPANS,
    TRACE_CONTENTS,
    TRACE_LABELS,
    TRACE_REWARDS,
    TRACES,
    Micros,
    escaped,
    unescaped,
)
from journeyman.stores.traces.writing import take_turn, unindex

# Raw spans: kept as they came, found by their trace, and counted, so that it is known which traces are to be made anew.

_SPANS_AT_ONCE = 10_000
"""Rows that one statement may speak of: PostgreSQL takes 65,535 values."""
_PENDING = SPAN_TRACES.c.kept > SPAN_TRACES.c.read


def prepare(spans: Sequence[SpanRow]) -> list[tuple[str, str, datetime, bytes, bytes]]:
    """What can be done before the database is locked.

    Raises:
        StoreError: A time has no zone.
    """
    return [(span.trace_id, span.span_id, utc(span.at), span.scope, codec.pack(span.body)) for span in spans]


def keep(connection: sa.Connection, prepared: Sequence[tuple[str, str, datetime, bytes, bytes]], now: datetime) -> None:
    """Write the spans that are not there yet. Whoever calls has taken their turn."""
    for begin in range(0, len(prepared), _SPANS_AT_ONCE):
        _keep(connection, prepared[begin : begin + _SPANS_AT_ONCE], now)


def _keep(connection: sa.Connection, prepared: Sequence[tuple[str, str, datetime, bytes, bytes]], now: datetime) -> None:
    began: dict[str, datetime] = {}
    for trace_id, _, at, _, _ in prepared:
        began[trace_id] = min(at, began.get(trace_id, at))
    traces = _traces(connection, began, now)
    scopes = _scopes(connection, {scope for *_, scope, _ in prepared})
    rows: list[dict[str, Any]] = [
        {"trace": traces[id], "span_id": span_id, "at": at, "scope": scopes[scope], "body": body}
        for id, span_id, at, scope, body in prepared
    ]
    if writing.insert(connection, SPANS, rows) == len(rows):
        new: Mapping[int, int] = Counter(row["trace"] for row in rows)
        _count(connection, SPAN_TRACES.c.kept + sa.bindparam("n"), new, now)
    else:
        # Some were there already: redelivered, or twice in one batch.
        _count(connection, sa.bindparam("n"), _counted(connection, traces.values()), now)


def _traces(connection: sa.Connection, began: Mapping[str, datetime], now: datetime) -> dict[str, int]:
    """The number of each trace; those that are new are noted, and an earlier beginning is."""
    table = SPAN_TRACES
    select = sa.select(table.c.id, table.c.seq, table.c.began).where(table.c.id.in_(began))
    known = {row.id: row for row in connection.execute(select)}
    new = [{"id": id, "kept": 0, "read": 0, "began": at, "since": now} for id, at in began.items() if id not in known]
    if new:
        connection.execute(sa.insert(table), new)
    earlier = [{"of": row.seq, "at": began[id]} for id, row in known.items() if began[id] < row.began]
    if earlier:
        update = sa.update(table).where(table.c.seq == sa.bindparam("of")).values(began=sa.bindparam("at"))
        connection.execute(update, earlier)
    if not new:
        return {id: row.seq for id, row in known.items()}
    return {row.id: row.seq for row in connection.execute(select)}


def _scopes(connection: sa.Connection, bodies: Collection[bytes]) -> dict[bytes, int]:
    digests = {blake2b(body, digest_size=16).hexdigest(): body for body in bodies}
    select = sa.select(SCOPES.c.digest, SCOPES.c.seq).where(SCOPES.c.digest.in_(digests))
    known = {digest: seq for digest, seq in connection.execute(select)}
    new = [{"digest": digest, "body": codec.pack(body)} for digest, body in digests.items() if digest not in known]
    if new:
        connection.execute(sa.insert(SCOPES), new)
        known = {digest: seq for digest, seq in connection.execute(select)}
    return {digests[digest]: seq for digest, seq in known.items()}


def _counted(connection: sa.Connection, traces: Collection[int]) -> dict[int, int]:
    counts = sa.select(SPANS.c.trace, sa.func.count()).where(SPANS.c.trace.in_(traces)).group_by(SPANS.c.trace)
    return {trace: count for trace, count in connection.execute(counts)}


def _count(connection: sa.Connection, kept: sa.ColumnElement[int], counts: Mapping[int, int], now: datetime) -> None:
    """Write how many there are. A trace that was settled waits from now on."""
    since = sa.case((_PENDING, SPAN_TRACES.c.since), else_=sa.literal(now, Micros()))
    update = sa.update(SPAN_TRACES).where(SPAN_TRACES.c.seq == sa.bindparam("of"), SPAN_TRACES.c.kept != kept)
    connection.execute(update.values(kept=kept, since=since), [{"of": seq, "n": n} for seq, n in counts.items()])


def pending(connection: sa.Connection, limit: int) -> list[str]:
    waiting = sa.select(SPAN_TRACES.c.id).where(_PENDING).order_by(SPAN_TRACES.c.since, SPAN_TRACES.c.seq).limit(limit)
    return list(connection.scalars(waiting))


def of_traces(connection: sa.Connection, trace_ids: Sequence[str]) -> Mapping[str, Sequence[SpanRow]]:
    """The spans of each trace that is known, in the order of their time."""
    numbers = sa.select(SPAN_TRACES.c.seq, SPAN_TRACES.c.id).where(SPAN_TRACES.c.id.in_(trace_ids))
    ids = {seq: id for seq, id in connection.execute(numbers)}
    columns = (SPANS.c.trace, SPANS.c.span_id, SPANS.c.at, SPANS.c.body, SPANS.c.scope)
    rows = connection.execute(sa.select(*columns).where(SPANS.c.trace.in_(ids)).order_by(SPANS.c.at, SPANS.c.seq)).all()
    used = sa.select(SCOPES.c.seq, SCOPES.c.body).where(SCOPES.c.seq.in_({row.scope for row in rows}))
    scopes = {seq: codec.unpack(body) for seq, body in connection.execute(used)}
    found: dict[str, list[SpanRow]] = {id: [] for id in ids.values()}
    for trace, span_id, at, body, scope in rows:
        span = SpanRow(trace_id=ids[trace], span_id=span_id, at=at, body=codec.unpack(body), scope=scopes[scope])
        found[span.trace_id].append(span)
    return found


def settle(connection: sa.Connection, read: Mapping[str, int]) -> None:
    """Note of how many spans each trace was made."""
    if read:
        update = sa.update(SPAN_TRACES).where(SPAN_TRACES.c.id == sa.bindparam("of")).values(read=sa.bindparam("n"))
        connection.execute(update, [{"of": id, "n": n} for id, n in read.items()])


def rebuild(connection: sa.Connection, now: datetime) -> int:
    """Let every trace that has spans wait again; how many there are."""
    return connection.execute(sa.update(SPAN_TRACES).where(SPAN_TRACES.c.kept > 0).values(read=0, since=now)).rowcount


# Traces that belong together, the latest first.

_COLUMNS = tuple(
    TRACES.c[name] for name in ("session", "title", "agent", "started_at", "input_tokens", "output_tokens", "cost", "error")
)
_LISTED = (TRACES.c.session.is_not(None), TRACES.c.duplicate_of.is_(None))


def page(connection: sa.Connection, limit: int, after: str | None) -> tuple[Sequence[TraceSession], str | None]:
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


def _sessions(connection: sa.Connection, ids: Sequence[str]) -> Sequence[TraceSession]:
    rows = connection.execute(
        sa.select(*_COLUMNS)
        .where(TRACES.c.session.in_(ids), *_LISTED)
        .order_by(TRACES.c.session, TRACES.c.started_at, TRACES.c.seq)
    )
    found = {id: _session(id, list(members)) for id, members in groupby(rows, key=lambda row: row.session)}
    return [found[id] for id in ids if id in found]


def _session(id: str, rows: Sequence[sa.Row[Any]]) -> TraceSession:
    return TraceSession(
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


# Forgetting: traces, the spans they were made of, and what then nothing refers to.

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
    writing.again(connection, gone)
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
        fulltext.remove(connection, fulltext.CONTENT_WORDS, texts)
        connection.execute(sa.delete(CONTENTS).where(CONTENTS.c.seq.in_([row.seq for row in rows])))
    connection.execute(sa.delete(SCOPES).where(~sa.exists().where(SPANS.c.scope == SCOPES.c.seq)))
    return bytes_


_AT_ONCE = 100
"""Whole traces read at a time."""


class SqlTraces(OnDatabase):
    """Keeps traces in one database. May be used by several threads and processes at once; writers take turns."""

    def add(self, traces: Iterable[Trace]) -> int:
        prepared = writing.prepare(traces)
        with self._turn() as connection:
            return writing.keep(connection, prepared)

    def add_spans(self, spans_: Sequence[SpanRow]) -> None:
        prepared = prepare(spans_)
        if prepared:
            with self._turn() as connection:
                keep(connection, prepared, _now())

    def pending(self, limit: int = 100) -> Sequence[str]:
        with self._database.read() as connection:
            return pending(connection, limit)

    def spans(self, trace_ids: Sequence[str]) -> Mapping[str, Sequence[SpanRow]]:
        with self._database.read() as connection:
            return of_traces(connection, trace_ids)

    def settle(self, read: Mapping[str, int], traces: Iterable[Trace]) -> None:
        prepared = writing.prepare(traces)
        with self._turn() as connection:
            writing.keep(connection, prepared)
            settle(connection, read)

    def rebuild(self) -> int:
        with self._turn() as connection:
            return rebuild(connection, _now())

    def label(self, trace_id: str, good: bool | None, *, who: str, at: datetime, probability: float | None = None) -> None:
        said = {"good": good, "who": who, "at": utc(at), "probability": probability}
        with self._turn() as connection:
            opinions.add_label(connection, trace_id, said)

    def reward(self, trace_id: str, rewards: Iterable[Reward], *, by: str, at: datetime) -> None:
        with self._turn() as connection:
            opinions.add_rewards(connection, trace_id, rewards, by=by, at=at)

    def get(self, trace_id: str) -> Trace | None:
        with self._database.read() as connection:
            known = writing.seqs(connection, [trace_id])
            return next(iter(attempts.load(connection, list(known.values()))), None)

    def line(self, trace_id: str) -> TraceSummary | None:
        with self._database.read() as connection:
            places = seqs(connection, [TRACES.c.id == trace_id], NEWEST_FIRST, 1)
            return next(iter(lines(connection, places)), None)

    def starting(self, prefix: str, *, limit: int = 2) -> Sequence[str]:
        with self._database.read() as connection:
            return starting(connection, TRACES.c.id, escaped(prefix), limit)

    def page(self, query: Query, *, limit: int = 50, after: str | None = None) -> Page:
        with self._database.read() as connection:
            begin = () if after is None else (beyond(place_of(after)),)
            places = finding.first(connection, query, limit + 1, begin)
            more = mark(places[limit - 1]) if len(places) > limit else None
            return Page(lines=lines(connection, places[:limit]), next=more)

    def count(self, query: Query, *, most: int = 10_000) -> int:
        with self._database.read() as connection:
            return finding.count(connection, query, most)

    def traces(self, query: Query = Query()) -> Iterator[Trace]:  # noqa: B008 - frozen
        last: queries.Place | None = None
        while True:
            with self._database.read() as connection:
                where = conditions(connection, query)
                if last is not None:
                    where.append(beyond(last, newer=True))
                places = seqs(connection, where, OLDEST_FIRST, _AT_ONCE)
                found = attempts.load(connection, [seq for _, seq in places])
            yield from found
            if len(places) < _AT_ONCE:
                return
            last = places[-1]

    def neighbours(self, trace_id: str, query: Query) -> tuple[str | None, str | None]:
        with self._database.read() as connection:
            here = next(iter(seqs(connection, (TRACES.c.id == trace_id,), OLDEST_FIRST, 1)), None)
            if here is None:
                return None, None
            where = conditions(connection, query, lazily=True)
            ids = sa.select(TRACES.c.id).limit(1)
            newer = ids.where(*where, beyond(here, newer=True)).order_by(*OLDEST_FIRST)
            older = ids.where(*where, beyond(here)).order_by(*NEWEST_FIRST)
            return connection.scalar(newer), connection.scalar(older)

    def labels(self, trace_id: str | None = None) -> Sequence[Label]:
        told = sa.select(TRACES.c.id, TRACE_LABELS).join(TRACES, TRACES.c.seq == TRACE_LABELS.c.trace)
        if trace_id is not None:
            told = told.where(TRACES.c.id == trace_id)
        with self._database.read() as connection:
            rows = connection.execute(told.order_by(TRACE_LABELS.c.at, TRACE_LABELS.c.seq)).all()
        return [Label(trace_id=row.id, good=row.good, who=row.who, at=row.at, probability=row.probability) for row in rows]

    def rewards(self, trace_id: str) -> Sequence[Given]:
        told = sa.select(TRACE_REWARDS).join(TRACES, TRACES.c.seq == TRACE_REWARDS.c.trace).where(TRACES.c.id == trace_id)
        with self._database.read() as connection:
            rows = connection.execute(told.order_by(TRACE_REWARDS.c.at, TRACE_REWARDS.c.seq)).all()
        return [Given(reward=opinions.reward_of(row), by=row.by, at=row.at) for row in rows]

    def unlabelled(self, limit: int, query: Query = Query()) -> Sequence[TraceSummary]:  # noqa: B008 - frozen
        return self.page(replace(query, labelled=False), limit=limit).lines

    def sessions(self, *, limit: int = 50, after: str | None = None) -> tuple[Sequence[TraceSession], str | None]:

        with self._database.read() as connection:
            return page(connection, limit, after)

    def statistics(self, query: Query = Query()) -> Statistics:  # noqa: B008 - frozen
        # NumPy takes a tenth of a second to load, and nothing else here needs it.
        from journeyman.stores.traces import statistics

        return statistics.statistics(self._database, query)

    def prune(self, *, before: datetime, keep_labelled: bool, dry_run: bool = False) -> Pruned:
        return prune(self._database, before, keep_labelled=keep_labelled, dry_run=dry_run)

    @contextmanager
    def _turn(self) -> Iterator[sa.Connection]:
        """A transaction to write in, in which nobody else writes."""
        with self._database.write() as connection:
            writing.take_turn(connection)
            yield connection


def _now() -> datetime:
    return datetime.now(UTC)
