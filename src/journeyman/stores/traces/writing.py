"""Adding traces: only what is new or changed is written."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple

import sqlalchemy as sa

from journeyman.core.errors import JourneymanError, Unkeepable
from journeyman.core.trace import MIRROR, Trace
from journeyman.stores.base import utc
from journeyman.stores.tables import ATTEMPTS, MIRRORED_CALLS, SERVED_CALLS, Micros
from journeyman.stores.traces import codec, fulltext, labels
from journeyman.stores.traces.base import SpanRow
from journeyman.stores.traces.tables import (
    CONTENTS,
    PARTS,
    SCOPES,
    SPAN_TRACES,
    SPANS,
    TRACE_CALLS,
    TRACE_CANDIDATES,
    TRACE_CONTENTS,
    TRACE_MODELS,
    TRACE_RESPONSES,
    TRACE_TOOLS,
    TRACES,
)

# Many rows at once, past what the statements of SQLAlchemy cost for each: the text is made once, the driver does the rest.

_MARKS = {"sqlite": "?", "postgresql": "%s"}

Process = Callable[[Any], Any] | None


def insert(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> int:
    """Add rows, all with the same columns, unless there is a row with the same key; how many were added.

    Raises:
        Unkeepable: A value has a type that its column cannot take.
    """
    names = tuple(rows[0]) if rows else ()
    return insert_tuples(connection, table, names, [tuple([row[name] for name in names]) for row in rows])


def insert_tuples(connection: sa.Connection, table: sa.Table, names: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> int:
    """The same of rows that are the values of these columns."""
    if not rows:
        return 0
    text, processes = _compiled(connection.dialect, table, names)
    try:
        # Column by column: of most columns nothing is to be done.
        pairs = zip(zip(*rows, strict=True), processes, strict=True)
        columns: list[Iterable[Any]] = [column if to is None else map(to, column) for column, to in pairs]
        return connection.exec_driver_sql(text, list(zip(*columns, strict=True))).rowcount
    except (TypeError, ValueError, OverflowError) as error:
        # The driver's own, which SQLAlchemy lets through.
        raise Unkeepable(f"what is to be kept in {table.name} has a value that cannot be: {error}") from error


@lru_cache(maxsize=64)
def _compiled(dialect: sa.Dialect, table: sa.Table, names: tuple[str, ...]) -> tuple[str, Sequence[Process]]:
    columns = ", ".join(dialect.identifier_preparer.quote(name) for name in names)
    marks = ", ".join([_MARKS[dialect.name]] * len(names))
    sql = f"insert into {table.name} ({columns}) values ({marks}) on conflict do nothing"  # noqa: S608 - our own names
    return sql, [table.c[name].type.dialect_impl(dialect).bind_processor(dialect) for name in names]


# The same calls, reported twice: by the gateway and by the agent's own instrumentation, say. One of the two counts.
#
# What is told twice went on at the same time. An answer that comes back at another time, with its id, was recorded and is
# played back: that is another attempt. And a gateway tells each call once: where two of its traces have one id, the server
# gives that to more than one answer, and it tells nothing.

_SHARED = 8
"""An id that more traces than this have tells nothing: some servers, and caches, give every answer the same."""


@dataclass(frozen=True, slots=True)
class _Found:
    seq: int
    steps: int
    responses: frozenset[str]
    """Empty where not every call has an id."""
    duplicate_of: int | None
    began: datetime
    seconds: float | None
    source: str


def place(connection: sa.Connection, changed: Mapping[int, frozenset[str]]) -> None:
    """Note the response ids of traces that are new or changed, and find anew which traces tell what another tells as well.

    A trace is a duplicate when another that went on at the same time has all its calls and at least as many steps; of two with
    the same calls it is the one with fewer steps, or else the later. Where it is not known when one ended, it may still go on.
    """
    before = _rows(connection, TRACE_RESPONSES.c.trace.in_(changed))
    touched = {id for ids in changed.values() for id in ids}.union(*before.values())
    if not touched:
        return
    holders = _holders(connection, touched)
    stale = [(trace, id) for trace, ids in before.items() for id in ids - changed[trace]]
    if stale:
        _forget(connection, stale)
    new = []
    for trace, ids in changed.items():
        for id in ids - before.get(trace, frozenset()):
            # One more than tells something is kept, so that the next one is known to be too many.
            if len(holders[id]) <= _SHARED:
                new.append({"trace": trace, "response_id": id})
            holders[id].add(trace)
    insert(connection, TRACE_RESPONSES, new)
    if stale or any(len(holders[id]) > 1 for id in touched):
        _mark(connection, {trace for id in touched for trace in holders[id]} | set(changed))


def _forget(connection: sa.Connection, rows: Iterable[tuple[int, str]]) -> None:
    this = sa.and_(TRACE_RESPONSES.c.trace == sa.bindparam("of"), TRACE_RESPONSES.c.response_id == sa.bindparam("id"))
    connection.execute(sa.delete(TRACE_RESPONSES).where(this), [{"of": trace, "id": id} for trace, id in rows])


def again(connection: sa.Connection, gone: Collection[int]) -> None:
    """Look again at the traces that count as duplicates of traces that are gone."""
    orphans = set(connection.scalars(sa.select(TRACES.c.seq).where(TRACES.c.duplicate_of.in_(gone))))
    if orphans:
        _mark(connection, orphans)


def _mark(connection: sa.Connection, affected: Collection[int]) -> None:
    traces = _found(connection, affected)
    holders = _holders(connection, {id for trace in traces.values() for id in trace.responses})
    others = {seq for ids in holders.values() for seq in ids} - traces.keys()
    everyone = traces | _found(connection, others)
    changes = []
    for trace in traces.values():
        keeper = _keeper(trace, holders, everyone)
        if keeper != trace.duplicate_of:
            changes.append({"of": trace.seq, "by": keeper})
    if changes:
        update = sa.update(TRACES).where(TRACES.c.seq == sa.bindparam("of")).values(duplicate_of=sa.bindparam("by"))
        connection.execute(update, changes)


def _keeper(trace: _Found, holders: Mapping[str, set[int]], everyone: Mapping[int, _Found]) -> int | None:
    if not trace.responses or any(len(holders[id]) > _SHARED for id in trace.responses):
        return None
    shared = set.intersection(*(holders[id] for id in trace.responses)) - {trace.seq}
    others = [other for seq in shared if (other := everyone.get(seq)) is not None and _together(other, trace)]
    if sum(each.source in ("gateway", MIRROR) for each in (trace, *others)) > 1:
        return None
    tellers = [other for other in others if _tells(other, trace)]
    best = max(tellers, key=lambda other: (len(other.responses), other.steps, -other.seq), default=None)
    return None if best is None else best.seq


def _tells(other: _Found, trace: _Found) -> bool:
    """Whether a trace that has all calls of another, and went on at the same time, makes it superfluous."""
    if other.responses == trace.responses:
        return (other.steps, -other.seq) > (trace.steps, -trace.seq)
    return other.steps >= trace.steps


def _together(one: _Found, other: _Found) -> bool:
    return _reaches(one, other.began) and _reaches(other, one.began)


def _reaches(trace: _Found, at: datetime) -> bool:
    """Whether a trace had not ended before."""
    return trace.seconds is None or at <= trace.began + timedelta(seconds=trace.seconds)


def _found(connection: sa.Connection, seqs: Collection[int]) -> dict[int, _Found]:
    if not seqs:
        return {}
    ids = _rows(connection, TRACE_RESPONSES.c.trace.in_(seqs))
    columns = [TRACES.c[name] for name in ("seq", "steps", "identified", "duplicate_of", "started_at", "seconds", "source")]
    found = {}
    for row in connection.execute(sa.select(*columns).where(TRACES.c.seq.in_(seqs))):
        # Where there are fewer than `identified`, one tells nothing.
        whole = of_trace if len(of_trace := ids.get(row.seq, frozenset())) == row.identified else frozenset()
        found[row.seq] = _Found(row.seq, row.steps, whole, row.duplicate_of, row.started_at, row.seconds, row.source)
    return found


def _holders(connection: sa.Connection, responses: Collection[str]) -> Mapping[str, set[int]]:
    holders: dict[str, set[int]] = defaultdict(set)
    if responses:
        wanted = sa.select(TRACE_RESPONSES.c.response_id, TRACE_RESPONSES.c.trace)
        for id, trace in connection.execute(wanted.where(TRACE_RESPONSES.c.response_id.in_(responses))):
            holders[id].add(trace)
    return holders


def _rows(connection: sa.Connection, where: sa.ColumnElement[bool]) -> Mapping[int, frozenset[str]]:
    found: dict[int, set[str]] = defaultdict(set)
    for trace, id in connection.execute(sa.select(TRACE_RESPONSES.c.trace, TRACE_RESPONSES.c.response_id).where(where)):
        found[trace].add(id)
    return {trace: frozenset(ids) for trace, ids in found.items()}


_BATCH = 500
_LOCK = 5_061_726_178
"""Any number other than that of the migrations, as long as it is the same for all."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PreparedTrace:
    """A trace as it goes into the tables."""

    row: Row
    parts: Sequence[codec.StoredPart]
    of_each: Mapping[sa.Table, Sequence[Row]]
    responses: frozenset[str]
    served: Sequence[Row]
    """The calls of sessions that a rollout put on an arm."""
    mirrored: Sequence[Row]
    """The calls of requests that were mirrored."""


def prepare(traces: Iterable[Trace]) -> list[PreparedTrace]:
    """What can be done before the database is locked. Of one id the last holds.

    Raises:
        Unkeepable: A time has no zone, or something cannot be written as JSON.
    """
    return [_prepared(trace) for trace in {trace.id: trace for trace in traces}.values()]


def _prepared(trace: Trace) -> PreparedTrace:
    try:
        parts, row = codec.parts(trace), codec.line(trace)
    except (JourneymanError, TypeError, ValueError, RecursionError) as error:
        raise Unkeepable(f"the trace {trace.id!r} cannot be kept: {error}") from error
    others = [{"candidate_id": id} for id in dict.fromkeys(trace.other_candidates)]
    calls = trace.calls
    asked = [{"call_id": id} for id in dict.fromkeys(call.id for call in calls) if id != trace.id] if _passed(trace) else []
    of_each = {TRACE_MODELS: codec.of_models(calls), TRACE_TOOLS: codec.of_tools(trace), TRACE_CANDIDATES: others}
    of_each[TRACE_CALLS] = asked
    return PreparedTrace(row, parts, of_each, codec.responses(calls), codec.served(trace), codec.mirrored(trace))


def _passed(trace: Trace) -> bool:
    """Whether its calls went through the gateway, which told their ids to who made them."""
    return trace.source == "gateway"


def take_turn(connection: sa.Connection) -> None:
    """One writer at a time, on PostgreSQL as on SQLite: then nobody waits for another in a ring."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))


def keep(connection: sa.Connection, prepared: Iterable[PreparedTrace], now: datetime) -> int:
    """Write what is new or changed; how many traces that were. Whoever calls has taken their turn."""
    rest = iter(prepared)
    return sum(_keep(connection, batch, now) for batch in iter(lambda: list(islice(rest, _BATCH)), []))


def _keep(connection: sa.Connection, batch: Sequence[PreparedTrace], now: datetime) -> int:
    known = seqs(connection, [each.row["id"] for each in batch])
    before = _digests(connection, known.values())
    changed = [each for each in batch if not _same(each, before.get(known.get(each.row["id"], 0), {}))]
    changed = _without_attempts(connection, changed, known)
    if not changed:
        return 0
    new = [each.row for each in changed if each.row["id"] not in known]
    insert(connection, TRACES, new)
    old = [each.row for each in changed if each.row["id"] in known]
    if old:
        _update(connection, old)
    known |= seqs(connection, [row["id"] for row in new])
    placed = {known[each.row["id"]]: each for each in changed}
    _write_parts(connection, placed, before)
    _write_contents(connection, placed)
    _write_of_each(connection, placed, [known[row["id"]] for row in old])
    insert(connection, SERVED_CALLS, [row | {"recorded_at": now} for each in changed for row in each.served])
    insert(connection, MIRRORED_CALLS, [row for each in changed for row in each.mirrored])
    place(connection, {seq: each.responses for seq, each in placed.items()})
    asked = {row["call_id"]: seq for seq, each in placed.items() for row in each.of_each[TRACE_CALLS]}
    labels.join_feedback(connection, {each.row["id"]: seq for seq, each in placed.items()}, asked)
    labels.weigh(connection, [known[row["id"]] for row in old])
    return len(changed)


def _without_attempts(connection: sa.Connection, changed: list[PreparedTrace], known: Mapping[str, int]) -> list[PreparedTrace]:
    """Without other versions of what runs attempted: that is history, and stays as it was."""
    # The id of such a trace begins with the run's, and a colon.
    perhaps = [known[id] for each in changed if ":" in (id := each.row["id"]) and id in known]
    if not perhaps:
        return changed
    attempted = set(connection.scalars(sa.select(ATTEMPTS.c.trace).where(ATTEMPTS.c.trace.in_(perhaps))))
    return [each for each in changed if known.get(each.row["id"]) not in attempted]


def seqs(connection: sa.Connection, ids: Collection[str]) -> dict[str, int]:
    """The `seq` of each trace that is known."""
    if not ids:
        return {}
    return {id: seq for id, seq in connection.execute(sa.select(TRACES.c.id, TRACES.c.seq).where(TRACES.c.id.in_(ids)))}


def _digests(connection: sa.Connection, traces: Collection[int]) -> dict[int, dict[int, bytes]]:
    found: dict[int, dict[int, bytes]] = {}
    if traces:
        rows = sa.select(PARTS.c.trace, PARTS.c.position, PARTS.c.digest).where(PARTS.c.trace.in_(traces))
        for trace, position, digest in connection.execute(rows):
            found.setdefault(trace, {})[position] = digest
    return found


def _same(prepared: PreparedTrace, before: Mapping[int, bytes]) -> bool:
    return dict(enumerate(part.digest for part in prepared.parts)) == before


def _update(connection: sa.Connection, rows: Sequence[Row]) -> None:
    values: Row = {name: sa.bindparam(f"new_{name}") for name in rows[0] if name != "id"}
    update = sa.update(TRACES).where(TRACES.c.id == sa.bindparam("new_id")).values(values)
    connection.execute(update, [{f"new_{name}": value for name, value in row.items()} for row in rows])


def _write_parts(
    connection: sa.Connection, placed: Mapping[int, PreparedTrace], before: Mapping[int, Mapping[int, bytes]]
) -> None:
    rows: list[Row] = []
    stale: list[tuple[int, int]] = []
    found: list[tuple[int, str]] = []
    for seq, each in placed.items():
        old = before.get(seq, {})
        stale += [(seq, place) for place in old if place >= len(each.parts) or each.parts[place].digest != old[place]]
        for position, part in enumerate(each.parts):
            if old.get(position) == part.digest:
                continue
            rows.append({"trace": seq, "position": position, "digest": part.digest, "body": codec.pack(part.body)})
            if part.words and position < fulltext.MOST_PARTS:
                found.append((fulltext.place(seq, position), part.words))
    if stale:
        _remove_parts(connection, stale)
    insert(connection, PARTS, rows)
    fulltext.add(connection, fulltext.PART_WORDS, found)


def _remove_parts(connection: sa.Connection, stale: Collection[tuple[int, int]]) -> None:
    gone = set(stale)
    where = PARTS.c.trace.in_({trace for trace, _ in gone})
    rows = connection.execute(sa.select(PARTS.c.seq, PARTS.c.trace, PARTS.c.position, PARTS.c.body).where(where))
    found = [row for row in rows if (row.trace, row.position) in gone]
    unindex(connection, ((row.trace, row.position, row.body) for row in found))
    connection.execute(sa.delete(PARTS).where(PARTS.c.seq.in_([row.seq for row in found])))


def unindex(connection: sa.Connection, parts: Iterable[tuple[int, int, bytes]]) -> None:
    """Take parts (trace, position, body) out of the full-text index."""
    placed = [(trace, position, body) for trace, position, body in parts if position < fulltext.MOST_PARTS]
    told = ((fulltext.place(trace, position), codec.words_of(codec.unpack(body))) for trace, position, body in placed)
    fulltext.remove(connection, fulltext.PART_WORDS, [(place, text) for place, text in told if text])


def unindex_all(connection: sa.Connection, traces: Sequence[int]) -> None:
    """Take all parts of traces out of the full-text index. SQLite is told their words; PostgreSQL knows them by their place."""
    if connection.dialect.name == "sqlite":
        parts = connection.execute(sa.select(PARTS.c.trace, PARTS.c.position, PARTS.c.body).where(PARTS.c.trace.in_(traces)))
        unindex(connection, ((row.trace, row.position, row.body) for row in parts))
        return
    place = PARTS.c.trace * fulltext.MOST_PARTS + PARTS.c.position
    places = sa.select(place).where(PARTS.c.trace.in_(traces), PARTS.c.position < fulltext.MOST_PARTS)
    connection.execute(sa.delete(fulltext.PART_WORDS).where(fulltext.PART_WORDS.c.rowid.in_(places)))


def _write_contents(connection: sa.Connection, placed: Mapping[int, PreparedTrace]) -> None:
    needed = {seq: _apart(each) for seq, each in placed.items()}
    texts = {digest: told for apart in needed.values() for digest, told in apart.items()}
    links = sa.select(TRACE_CONTENTS.c.trace, TRACE_CONTENTS.c.content).where(TRACE_CONTENTS.c.trace.in_(placed))
    before = {(trace, content) for trace, content in connection.execute(links)}
    if not texts and not before:
        return
    kept = _contents(connection, texts)
    after = {(seq, kept[digest]) for seq, apart in needed.items() for digest in apart}
    for trace, content in before - after:
        this = sa.and_(TRACE_CONTENTS.c.trace == trace, TRACE_CONTENTS.c.content == content)
        connection.execute(sa.delete(TRACE_CONTENTS).where(this))
    if after - before:
        rows = [{"trace": trace, "content": content} for trace, content in sorted(after - before)]
        insert(connection, TRACE_CONTENTS, rows)


def _apart(prepared: PreparedTrace) -> dict[str, tuple[str, bool]]:
    found: dict[str, tuple[str, bool]] = {}
    for part in prepared.parts:
        for digest, (text, searched) in part.apart.items():
            found[digest] = (text, searched or (digest in found and found[digest][1]))
    return found


def _contents(connection: sa.Connection, texts: Mapping[str, tuple[str, bool]]) -> dict[str, int]:
    """The `seq` of each text by its digest; those that are new are written."""
    wanted = sa.select(CONTENTS.c.digest, CONTENTS.c.seq, CONTENTS.c.indexed).where(CONTENTS.c.digest.in_(texts))
    known = {row.digest: row for row in connection.execute(wanted)}
    rows = [_content(digest, *told) for digest, told in texts.items() if digest not in known]
    if rows:
        insert(connection, CONTENTS, rows)
    # Another writer may have kept one of them meanwhile.
    kept = {row.digest: row.seq for row in (connection.execute(wanted) if rows else known.values())}
    late = [digest for digest, row in known.items() if texts[digest][1] and not row.indexed]
    if late:
        connection.execute(sa.update(CONTENTS).where(CONTENTS.c.digest.in_(late)).values(indexed=True))
    searched = [row["digest"] for row in rows if row["indexed"]] + late
    fulltext.add(connection, fulltext.CONTENT_WORDS, [(kept[digest], texts[digest][0]) for digest in searched])
    return kept


def _content(digest: str, text: str, searched: bool) -> Row:
    body = codec.pack_text(text)
    return {"digest": digest, "size": len(body), "indexed": searched, "body": body}


def _write_of_each(connection: sa.Connection, placed: Mapping[int, PreparedTrace], old: Collection[int]) -> None:
    for table in (TRACE_MODELS, TRACE_TOOLS, TRACE_CANDIDATES):
        if old:
            connection.execute(sa.delete(table).where(table.c.trace.in_(old)))
        rows = [{"trace": seq, **row} for seq, each in placed.items() for row in each.of_each[table]]
        insert(connection, table, rows)
    # Calls are added to a trace, and never leave it.
    insert(
        connection, TRACE_CALLS, [{"trace": seq, **row} for seq, each in placed.items() for row in each.of_each[TRACE_CALLS]]
    )


# Raw spans: kept as they came, found by their trace, and counted, so that it is known which traces are to be made anew.

SPANS_AT_ONCE = 10_000
"""Rows that one statement may speak of: PostgreSQL takes 65,535 values."""
PENDING = SPAN_TRACES.c.kept > SPAN_TRACES.c.read


class PreparedSpan(NamedTuple):
    """A span as it goes into the tables."""

    trace_id: str
    span_id: str
    at: datetime
    scope: bytes
    body: bytes
    """Compressed."""


def prepare_spans(spans: Sequence[SpanRow]) -> list[PreparedSpan]:
    """What can be done before the database is locked.

    Raises:
        StoreError: A time has no zone.
    """
    return [
        PreparedSpan(each.trace_id, each.span_id, utc(each.at), each.scope, each.packed or codec.pack(each.body))
        for each in spans
    ]


def keep_spans(connection: sa.Connection, prepared: Sequence[PreparedSpan], now: datetime) -> None:
    """Write the spans that are not there yet. Whoever calls has taken their turn."""
    for begin in range(0, len(prepared), SPANS_AT_ONCE):
        _keep_spans(connection, prepared[begin : begin + SPANS_AT_ONCE], now)


def _keep_spans(connection: sa.Connection, prepared: Sequence[PreparedSpan], now: datetime) -> None:
    began: dict[str, datetime] = {}
    for trace_id, _, at, _, _ in prepared:
        began[trace_id] = min(at, began.get(trace_id, at))
    traces = _noted(connection, began, now)
    scopes = _scope_numbers(connection, {scope for *_, scope, _ in prepared})
    rows = [(traces[id], span_id, at, scopes[scope], body) for id, span_id, at, scope, body in prepared]
    if insert_tuples(connection, SPANS, ("trace", "span_id", "at", "scope", "body"), rows) == len(rows):
        new: Mapping[int, int] = Counter(trace for trace, *_ in rows)
        _write_counts(connection, SPAN_TRACES.c.kept + sa.bindparam("n"), new, now)
    else:
        # Some were there already: redelivered, or twice in one batch.
        _write_counts(connection, sa.bindparam("n"), _spans_counted(connection, traces.values()), now)


def _noted(connection: sa.Connection, began: Mapping[str, datetime], now: datetime) -> dict[str, int]:
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


def _scope_numbers(connection: sa.Connection, bodies: Collection[bytes]) -> dict[bytes, int]:
    digests = {blake2b(body, digest_size=16).hexdigest(): body for body in bodies}
    select = sa.select(SCOPES.c.digest, SCOPES.c.seq).where(SCOPES.c.digest.in_(digests))
    known = {digest: seq for digest, seq in connection.execute(select)}
    new = [{"digest": digest, "body": codec.pack(body)} for digest, body in digests.items() if digest not in known]
    if new:
        connection.execute(sa.insert(SCOPES), new)
        known = {digest: seq for digest, seq in connection.execute(select)}
    return {digests[digest]: seq for digest, seq in known.items()}


def _spans_counted(connection: sa.Connection, traces: Collection[int]) -> dict[int, int]:
    counts = sa.select(SPANS.c.trace, sa.func.count()).where(SPANS.c.trace.in_(traces)).group_by(SPANS.c.trace)
    return {trace: count for trace, count in connection.execute(counts)}


def _write_counts(connection: sa.Connection, kept: sa.ColumnElement[int], counts: Mapping[int, int], now: datetime) -> None:
    """Write how many there are. A trace that was settled waits from now on."""
    since = sa.case((PENDING, SPAN_TRACES.c.since), else_=sa.literal(now, Micros()))
    update = sa.update(SPAN_TRACES).where(SPAN_TRACES.c.seq == sa.bindparam("of"), SPAN_TRACES.c.kept != kept)
    connection.execute(update.values(kept=kept, since=since), [{"of": seq, "n": n} for seq, n in counts.items()])


def settle_spans(connection: sa.Connection, read: Mapping[str, int]) -> None:
    """Note of how many spans each trace was made."""
    if read:
        update = sa.update(SPAN_TRACES).where(SPAN_TRACES.c.id == sa.bindparam("of")).values(read=sa.bindparam("n"))
        connection.execute(update, [{"of": id, "n": n} for id, n in read.items()])


def rebuild_from_spans(connection: sa.Connection, now: datetime) -> int:
    """Let every trace that has spans wait again; how many there are."""
    return connection.execute(sa.update(SPAN_TRACES).where(SPAN_TRACES.c.kept > 0).values(read=0, since=now)).rowcount
