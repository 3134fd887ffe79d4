"""Adding traces: only what is new or changed is written."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import sqlalchemy as sa

from journeyman.errors import JourneymanError, Unkeepable
from journeyman.stores.tables import ATTEMPTS
from journeyman.stores.traces import bulk, codec, duplicates, lines, opinions, words
from journeyman.stores.traces.tables import (
    CONTENTS,
    PARTS,
    TRACE_CANDIDATES,
    TRACE_CONTENTS,
    TRACE_MODELS,
    TRACE_TOOLS,
    TRACES,
)
from journeyman.trace import Trace

_BATCH = 500
_LOCK = 5_061_726_178
"""Any number other than that of the migrations, as long as it is the same for all."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A trace as it goes into the tables."""

    row: Row
    parts: Sequence[codec.Part]
    of_each: Mapping[sa.Table, Sequence[Row]]
    responses: frozenset[str]


def prepare(traces: Iterable[Trace]) -> list[Prepared]:
    """What can be done before the database is locked. Of one id the last holds.

    Raises:
        Unkeepable: A time has no zone, or something cannot be written as JSON.
    """
    return [_prepared(trace) for trace in {trace.id: trace for trace in traces}.values()]


def _prepared(trace: Trace) -> Prepared:
    try:
        parts, row = codec.parts(trace), lines.line(trace)
    except (JourneymanError, TypeError, ValueError, RecursionError) as error:
        raise Unkeepable(f"the trace {trace.id!r} cannot be kept: {error}") from error
    others = [{"candidate_id": id} for id in dict.fromkeys(trace.other_candidates)]
    calls = trace.calls
    of_each = {TRACE_MODELS: lines.of_models(calls), TRACE_TOOLS: lines.of_tools(trace), TRACE_CANDIDATES: others}
    return Prepared(row, parts, of_each, lines.responses(calls))


def take_turn(connection: sa.Connection) -> None:
    """One writer at a time, on PostgreSQL as on SQLite: then nobody waits for another in a ring."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))


def keep(connection: sa.Connection, prepared: Iterable[Prepared]) -> int:
    """Write what is new or changed; how many traces that were. Whoever calls has taken their turn."""
    rest = iter(prepared)
    return sum(_keep(connection, batch) for batch in iter(lambda: list(islice(rest, _BATCH)), []))


def _keep(connection: sa.Connection, batch: Sequence[Prepared]) -> int:
    known = seqs(connection, [each.row["id"] for each in batch])
    before = _digests(connection, known.values())
    changed = [each for each in batch if not _same(each, before.get(known.get(each.row["id"], 0), {}))]
    changed = _without_attempts(connection, changed, known)
    if not changed:
        return 0
    new = [each.row for each in changed if each.row["id"] not in known]
    bulk.insert(connection, TRACES, new)
    old = [each.row for each in changed if each.row["id"] in known]
    if old:
        _update(connection, old)
    known |= seqs(connection, [row["id"] for row in new])
    placed = {known[each.row["id"]]: each for each in changed}
    _write_parts(connection, placed, before)
    _write_contents(connection, placed)
    _write_of_each(connection, placed, [known[row["id"]] for row in old])
    duplicates.place(connection, {seq: each.responses for seq, each in placed.items()})
    opinions.weigh(connection, [known[row["id"]] for row in old])
    return len(changed)


def _without_attempts(connection: sa.Connection, changed: list[Prepared], known: Mapping[str, int]) -> list[Prepared]:
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


def _same(prepared: Prepared, before: Mapping[int, bytes]) -> bool:
    return dict(enumerate(part.digest for part in prepared.parts)) == before


def _update(connection: sa.Connection, rows: Sequence[Row]) -> None:
    values: Row = {name: sa.bindparam(f"new_{name}") for name in rows[0] if name != "id"}
    update = sa.update(TRACES).where(TRACES.c.id == sa.bindparam("new_id")).values(values)
    connection.execute(update, [{f"new_{name}": value for name, value in row.items()} for row in rows])


def _write_parts(connection: sa.Connection, placed: Mapping[int, Prepared], before: Mapping[int, Mapping[int, bytes]]) -> None:
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
            if part.words and position < words.MOST_PARTS:
                found.append((words.place(seq, position), part.words))
    if stale:
        _remove_parts(connection, stale)
    bulk.insert(connection, PARTS, rows)
    words.add(connection, words.PART_WORDS, found)


def _remove_parts(connection: sa.Connection, stale: Collection[tuple[int, int]]) -> None:
    gone = set(stale)
    where = PARTS.c.trace.in_({trace for trace, _ in gone})
    rows = connection.execute(sa.select(PARTS.c.seq, PARTS.c.trace, PARTS.c.position, PARTS.c.body).where(where))
    found = [row for row in rows if (row.trace, row.position) in gone]
    unindex(connection, ((row.trace, row.position, row.body) for row in found))
    connection.execute(sa.delete(PARTS).where(PARTS.c.seq.in_([row.seq for row in found])))


def unindex(connection: sa.Connection, parts: Iterable[tuple[int, int, bytes]]) -> None:
    """Take parts (trace, position, body) out of the full-text index."""
    placed = [(trace, position, body) for trace, position, body in parts if position < words.MOST_PARTS]
    told = ((words.place(trace, position), codec.words_of(codec.unpack(body))) for trace, position, body in placed)
    words.remove(connection, words.PART_WORDS, [(place, text) for place, text in told if text])


def _write_contents(connection: sa.Connection, placed: Mapping[int, Prepared]) -> None:
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
        bulk.insert(connection, TRACE_CONTENTS, rows)


def _apart(prepared: Prepared) -> dict[str, tuple[str, bool]]:
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
    bulk.insert(connection, CONTENTS, rows)
    kept = {digest: seq for digest, seq, _ in connection.execute(wanted)}
    late = [digest for digest, row in known.items() if texts[digest][1] and not row.indexed]
    if late:
        connection.execute(sa.update(CONTENTS).where(CONTENTS.c.digest.in_(late)).values(indexed=True))
    searched = [row["digest"] for row in rows if row["indexed"]] + late
    words.add(connection, words.CONTENT_WORDS, [(kept[digest], texts[digest][0]) for digest in searched])
    return kept


def _content(digest: str, text: str, searched: bool) -> Row:
    body = codec.pack_text(text)
    return {"digest": digest, "size": len(body), "indexed": searched, "body": body}


def _write_of_each(connection: sa.Connection, placed: Mapping[int, Prepared], old: Collection[int]) -> None:
    for table in (TRACE_MODELS, TRACE_TOOLS, TRACE_CANDIDATES):
        if old:
            connection.execute(sa.delete(table).where(table.c.trace.in_(old)))
        rows = [{"trace": seq, **row} for seq, each in placed.items() for row in each.of_each[table]]
        bulk.insert(connection, table, rows)
