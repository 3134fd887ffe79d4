"""Documents that a team wrote, and how far each source was read: kept with the traces that come of the same reading."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from journeyman.core.document import Document
from journeyman.core.trace import Trace
from journeyman.stores.base import utc
from journeyman.stores.engine import starting
from journeyman.stores.sql import SqlTraces
from journeyman.stores.tables import DOCUMENTS, SOURCE_STATES, escaped
from journeyman.stores.traces import codec, fulltext, writing
from journeyman.stores.traces.query import place_of
from journeyman.stores.urls import as_url

State = Mapping[str, Any]
"""How far something was read, in the words of its source."""
_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBatch:
    """What was read of a source, and how far it then had been read."""

    source: str
    traces: Sequence[Trace] = ()
    documents: Sequence[Document] = ()
    states: Mapping[str, State | None] = field(default_factory=dict)
    """By key; `None` for what is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentQuery:
    """Which documents are meant: those for which everything that is named holds."""

    source: str | None = None
    kind: str | None = None
    author: str | None = None
    text: str | None = None
    """Words that all stand in it, as in `traces.base.Query`."""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSummary:
    """A document as a list shows it."""

    id: str
    source: str
    kind: str
    title: str
    author: str | None
    at: datetime | None
    place: str
    key: str
    collected_at: datetime


class DocumentStore(SqlTraces):
    """Keeps documents in the database of the traces. May be used by several threads and processes at once."""

    def keep(self, batch: SourceBatch) -> tuple[int, int]:
        """Keep all of it or none, with how far the source was read; how many traces and documents were new or changed."""
        prepared = writing.prepare(batch.traces)
        now = self._clock()
        with self._turn() as connection:
            traces = writing.keep(connection, prepared, now)
            documents = _add(connection, batch.documents, now)
            _note(connection, batch, now)
        return traces, documents

    def states(self, source: str) -> dict[str, State]:
        """How far what stands under each key of a source was read."""
        rows = sa.select(SOURCE_STATES.c.key, SOURCE_STATES.c.state).where(SOURCE_STATES.c.source == source)
        with self._database.read() as connection:
            return {key: state for key, state in connection.execute(rows)}

    def last_read(self) -> Mapping[str, datetime]:
        """When each source was read last."""
        latest = sa.select(SOURCE_STATES.c.source, sa.func.max(SOURCE_STATES.c.at))
        with self._database.read() as connection:
            return {source: at for source, at in connection.execute(latest.group_by(SOURCE_STATES.c.source))}

    def forget_states(self, source: str) -> int:
        """Let a source be read from its beginning the next time; how many keys it had."""
        with self._turn() as connection:
            return connection.execute(sa.delete(SOURCE_STATES).where(SOURCE_STATES.c.source == source)).rowcount

    def document(self, id: str) -> Document | None:
        with self._database.read() as connection:
            row = connection.execute(sa.select(DOCUMENTS).where(DOCUMENTS.c.id == id)).first()
        return None if row is None else _document(row)

    def revisions(self, document: Document) -> Sequence[DocumentSummary]:
        """What stood under its key, the latest first; itself among them."""
        same = [DOCUMENTS.c.source == document.source, DOCUMENTS.c.place == document.where, DOCUMENTS.c.key == document.key]
        with self._database.read() as connection:
            rows = connection.execute(sa.select(*_COLUMNS).where(*same).order_by(DOCUMENTS.c.seq.desc()).limit(_AT_ONCE)).all()
        return [DocumentSummary(**row._asdict()) for row in rows]

    def documents_starting(self, prefix: str, *, limit: int = 2) -> Sequence[str]:
        """The ids that begin so."""
        with self._database.read() as connection:
            return starting(connection, DOCUMENTS.c.id, escaped(prefix), limit)

    def document_page(
        self,
        query: DocumentQuery = DocumentQuery(),
        *,
        limit: int = 50,
        after: str | None = None,
    ) -> tuple[Sequence[DocumentSummary], str | None]:
        """Documents as they are now, what came last first, and where the next page begins."""
        with self._database.read() as connection:
            where = _conditions(connection, query)
            if after is not None:
                where.append(DOCUMENTS.c.seq < place_of(f"0.{after}")[1])
            found = sa.select(DOCUMENTS.c.seq, *_COLUMNS).where(*where).order_by(DOCUMENTS.c.seq.desc()).limit(limit + 1)
            rows = connection.execute(found).all()
        lines = [DocumentSummary(**{name: value for name, value in row._mapping.items() if name != "seq"}) for row in rows]
        return lines[:limit], str(rows[limit - 1].seq) if len(rows) > limit else None

    def documents(self, query: DocumentQuery = DocumentQuery()) -> Iterable[Document]:
        """The whole documents, what came first at first; with those that were revised since."""
        last = 0
        while True:
            with self._database.read() as connection:
                where = [*_conditions(connection, query, revised=True), DOCUMENTS.c.seq > last]
                rows = connection.execute(sa.select(DOCUMENTS).where(*where).order_by(DOCUMENTS.c.seq).limit(_AT_ONCE)).all()
            yield from map(_document, rows)
            if len(rows) < _AT_ONCE:
                return
            last = rows[-1].seq

    def document_counts(self) -> Mapping[tuple[str, str], int]:
        """How many there are now, by source and kind."""
        with self._database.read() as connection:
            count = sa.select(DOCUMENTS.c.source, DOCUMENTS.c.kind, sa.func.count()).where(
                *_conditions(connection, DocumentQuery())
            )
            rows = connection.execute(count.group_by(DOCUMENTS.c.source, DOCUMENTS.c.kind).order_by(DOCUMENTS.c.source)).all()
        return {(source, kind): number for source, kind, number in rows}

    def rewrite(self, documents: Mapping[str, Document]) -> int:
        """Put documents in the places of others, by the ids of these, of which nothing stays; how many there were."""
        with self._turn() as connection:
            rows = connection.execute(sa.select(DOCUMENTS).where(DOCUMENTS.c.id.in_(documents))).all()
            _remove(connection, rows)
            for row in rows:
                _insert(connection, [_row(documents[row.id], row.collected_at) | {"seq": row.seq}])
        return len(rows)

    def forget_documents(self, ids: Iterable[str]) -> int:
        """Forget documents by their ids; how many there were."""
        gone = 0
        with self._turn() as connection:
            for some in _in_parts(ids):
                rows = connection.execute(sa.select(DOCUMENTS).where(DOCUMENTS.c.id.in_(some))).all()
                _remove(connection, rows)
                gone += len(rows)
        return gone


def open_documents(url: str | Path, *, make: bool = True) -> DocumentStore:
    """The documents of the store at a URL or path, as `open_traces` opens it."""
    return DocumentStore(as_url(url), make=make)


_COLUMNS = tuple(DOCUMENTS.c[name] for name in DocumentSummary.__dataclass_fields__)


def _in_parts(values: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(values)
    return iter(lambda: list(islice(rest, _AT_ONCE)), [])


def _add(connection: sa.Connection, documents: Sequence[Document], now: datetime) -> int:
    """Write those that are not what holds already; how many these were."""
    named = {each.id: each for each in documents}
    added = 0
    for ids in _in_parts(named):
        rows = connection.execute(sa.select(DOCUMENTS).where(DOCUMENTS.c.id.in_(ids), ~_is_latest())).all()
        # What says again what it said before something else comes last anew.
        _remove(connection, rows)
        known = set(connection.scalars(sa.select(DOCUMENTS.c.id).where(DOCUMENTS.c.id.in_(ids))))
        new = [_row(named[id], now) for id in ids if id not in known]
        _insert(connection, new)
        added += len(new)
    return added


def _insert(connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> None:
    writing.insert(connection, DOCUMENTS, rows)
    kept = sa.select(DOCUMENTS).where(DOCUMENTS.c.id.in_([row["id"] for row in rows]))
    words = [(row.seq, _words(_document(row))) for row in connection.execute(kept)]
    fulltext.add(connection, fulltext.DOCUMENT_WORDS, words)


def _remove(connection: sa.Connection, rows: Sequence[sa.Row[Any]]) -> None:
    fulltext.remove(connection, fulltext.DOCUMENT_WORDS, [(row.seq, _words(_document(row))) for row in rows])
    connection.execute(sa.delete(DOCUMENTS).where(DOCUMENTS.c.seq.in_([row.seq for row in rows])))


def _is_latest() -> sa.ColumnElement[bool]:
    later = DOCUMENTS.alias("later")
    same = (later.c[name] == DOCUMENTS.c[name] for name in ("source", "place", "key"))
    return ~sa.exists().where(*same, later.c.seq > DOCUMENTS.c.seq)


def _note(connection: sa.Connection, batch: SourceBatch, now: datetime) -> None:
    """Write how far was read. What was noted before for a key goes."""
    for keys in _in_parts(batch.states):
        stale = sa.and_(SOURCE_STATES.c.source == batch.source, SOURCE_STATES.c.key.in_(keys))
        connection.execute(sa.delete(SOURCE_STATES).where(stale))
        told = [(key, state) for key in keys if (state := batch.states[key]) is not None]
        rows = [{"source": batch.source, "key": key, "state": dict(state), "at": utc(now)} for key, state in told]
        writing.insert(connection, SOURCE_STATES, rows)


def _row(document: Document, now: datetime) -> dict[str, Any]:
    return {
        "id": document.id,
        "source": document.source,
        "place": document.where,
        "key": document.key,
        "kind": document.kind,
        "title": document.title,
        "author": document.author,
        "at": None if document.at is None else utc(document.at),
        "raw": dict(document.raw),
        "body": codec.pack_text(document.text),
        "collected_at": utc(now),
    }


def _document(row: sa.Row[Any]) -> Document:
    told = {name: getattr(row, name) for name in ("source", "key", "kind", "title", "author", "at", "raw")}
    return Document(**told, where=row.place, text=codec.unpack_text(row.body))


def _words(document: Document) -> str:
    return "\n".join(filter(None, (document.title, document.author, document.text)))


def _conditions(connection: sa.Connection, query: DocumentQuery, *, revised: bool = False) -> list[sa.ColumnElement[bool]]:
    where = [DOCUMENTS.c[name] == value for name in ("source", "kind", "author") if (value := getattr(query, name)) is not None]
    if query.since is not None:
        where.append(DOCUMENTS.c.at >= utc(query.since))
    if query.until is not None:
        where.append(DOCUMENTS.c.at < utc(query.until))
    if not revised:
        where.append(_is_latest())
    if query.text is not None and query.text.strip():
        wanted = fulltext.phrases(query.text)
        found = (fulltext.matching(connection.dialect.name, fulltext.DOCUMENT_WORDS, phrase) for phrase in wanted)
        where += [DOCUMENTS.c.seq.in_(each) for each in found] or [sa.false()]
    return where
