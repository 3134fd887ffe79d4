"""Raw spans: kept as they came, found by their trace, and counted, so that it is known which traces are to be made anew."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any

import sqlalchemy as sa

from journeyman.stores.base import utc
from journeyman.stores.traces import codec, writing
from journeyman.stores.traces.base import SpanRow
from journeyman.stores.traces.tables import SCOPES, SPAN_TRACES, SPANS, Micros

_AT_ONCE = 10_000
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
    for begin in range(0, len(prepared), _AT_ONCE):
        _keep(connection, prepared[begin : begin + _AT_ONCE], now)


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
