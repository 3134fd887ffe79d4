"""Texts in vector stores: Chroma, Qdrant and LanceDB on disk, a FAISS index with its texts beside it, a table of PostgreSQL.

A document is a text with its id and what is told of it; vectors are left where they are. Databases are read from a copy, and no
pickle is loaded: those of Qdrant are read as data.
"""

import json
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from journeyman.core.document import Document
from journeyman.core.errors import InputError, JourneymanError, MissingExtra
from journeyman.tracing import fields
from journeyman.tracing.importers.source import JsonRecord, JsonSource, Problem, copied_database
from journeyman.tracing.pickles import read_pickle
from journeyman.tracing.sources.base import Bookmark, Item, SourceFinding, State
from journeyman.tracing.sources.files import FileUnit, finding

KIND = "vectors"
_FORMS = "chroma:PATH#COLLECTION, qdrant:PATH#NAME, lancedb:PATH#TABLE, faiss:INDEX#TEXTS or postgresql://…#TABLE"
_TEXTS = ("text", "document", "page_content", "content", "chunk", "body")
"""What the text of a vector is called, the more usual first."""
_IDS = ("id", "uuid", "_id", "key")
_AT_ONCE = 500
_PICKLE = b"\x80"
_NO_TEXT = frozenset({"real[]", "double precision[]", "numeric[]", "vector", "halfvec", "sparsevec", "bytea"})
"""Types of PostgreSQL's columns that hold vectors, or no text."""
_NO_TEXT_OF_LANCE = ("fixed_size_list", "list<item: float", "list<item: double", "binary", "large_binary")


@dataclass(frozen=True, slots=True)
class _Entry:
    """What a store tells of a vector."""

    id: str
    text: str
    raw: Mapping[str, Any]


class VectorStore:
    """One collection, table or index."""

    kind = KIND

    def __init__(self, path: Path | str | None = None) -> None:
        """
        Raises:
            InputError: Nothing says which collection of what store.
        """
        said = "" if path is None else str(path)
        kind = said.partition(":")[0]
        if kind not in _STORES:
            raise InputError(f"vectors are named as {_FORMS}{f', not as {place_of(said)}' if said else ''}")
        behind = said if kind in _SERVERS else said.partition(":")[2]
        self._where, _, self._name = behind.rpartition("#") if "#" in behind else (behind, "", "")
        self._read = _STORES[kind]
        self._root = None if kind in _SERVERS else Path(self._where).expanduser().absolute()
        self._place = place_of(said) if self._root is None else f"{kind}:{self._root}#{self._name}"

    @staticmethod
    def below(root: Path, said: str) -> str:
        """A place that settings name, from the folder that they are of."""
        kind, _, rest = said.partition(":")
        return said if kind in _SERVERS or kind not in _STORES else f"{kind}:{root / Path(rest).expanduser()}"

    def find(self) -> SourceFinding | None:
        unit = None if self._root is None or not self._root.exists() else self._unit(self._root)
        return None if unit is None or self._root is None else finding(self._root, [unit])

    def people(self) -> Iterable[str]:
        return ()

    def watched(self) -> Sequence[Path]:
        return [] if self._root is None else [self._root]

    def read(self, states: Mapping[str, State]) -> Iterator[Item]:
        """
        Raises:
            InputError: There is no such store or collection, it cannot be read, or none of its vectors has a text.
            MissingExtra: The library that reads it is not installed.
        """
        before, now = states.get(self._place, {}), self._signature()
        goes_on = now.items() <= before.items()
        if goes_on and before.get("whole"):
            return
        begin, count, texts = int(before.get("read", 0)) if goes_on else 0, 0, 0
        for one in self._entries():
            if isinstance(one, Problem):
                yield one
                continue
            count, texts = count + 1, texts + bool(one.text.strip())
            if count > begin:
                yield _document(one, self._place)
                yield Bookmark(self._place, {**now, "read": count})
        if count and not texts:
            raise InputError(f"{self._place}: {count:,} vectors have no text; nothing to learn from")
        yield Bookmark(self._place, {**now, "read": count, "whole": True})

    def _entries(self) -> Iterator[_Entry | Problem]:
        with self._opened():
            yield from self._read(self._where if self._root is None else self._root, self._name)

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """Makes a sentence of what goes wrong: each library has errors of its own, and somebody's file may raise any."""
        try:
            yield
        except ModuleNotFoundError as error:
            raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[vectors]'") from error
        except JourneymanError:
            raise
        except Exception as error:
            raise InputError(f"{self._place} could not be read: {' '.join(f'{error!s:.300}'.split())}") from error

    def _signature(self) -> State:
        """What changes when something in it does."""
        if self._root is None:
            with self._opened():
                return _rows_written(self._where, self._name)
        if not self._root.exists():
            raise InputError(f"there is nothing at {self._root}")
        if (unit := self._unit(self._root)) is None:
            raise InputError(f"there is nothing in {self._root}")
        return unit.signature()

    def _unit(self, root: Path) -> FileUnit | None:
        files = sorted(
            path for path in (root.rglob("*") if root.is_dir() else (root, root.parent / self._name)) if path.is_file()
        )
        return FileUnit(files[0], tuple(files)) if files else None


def place_of(said: str) -> str:
    """A place as it is kept and told: of a URL, the server, the database and the table, without who asks and how."""
    if "://" not in said:
        return said
    parts = urlsplit(said)
    server = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{server}{parts.path}" + (f"#{parts.fragment}" if parts.fragment else "")


def _document(entry: _Entry, place: str) -> Document:
    title = fields.first(entry.raw, "title", "source", "file_name", "url")
    at = fields.first(entry.raw, "created_at", "timestamp", "date")
    return Document(
        source=KIND, key=entry.id, kind="text", text=entry.text, where=place, at=fields.time(at), raw=entry.raw,
        title=title[:200] if isinstance(title, str) else entry.text.lstrip().partition("\n")[0][:200],
    )  # fmt: skip


def _entry(row: Mapping[str, Any], id: Any, *, named: bool = False) -> _Entry:
    """A row or payload: its text by the name of the column, or the only text that it has.

    Args:
        id: What it is called where none of its columns says so, or, where it is `named`, in any case.
    """
    key = None if named else next((each for each in _IDS if row.get(each) not in (None, "")), None)
    words = [each for each, value in row.items() if isinstance(value, str) and each != key]
    name = next((each for each in _TEXTS if each in words), words[0] if len(words) == 1 else None)
    raw = {each: value for each, value in row.items() if each not in (name, key) and value is not None}
    told: dict[str, Any] = json.loads(json.dumps(raw, default=str))
    return _Entry(str(row[key] if key else id), row[name] if name else "", told)


def _chosen(name: str, names: Sequence[str], place: Path) -> str:
    """
    Raises:
        InputError: There is none of that name, or none was named and there are several.
    """
    there = f"there are {', '.join(sorted(names))}" if names else "there is none"
    if not name and len(names) == 1:
        return names[0]
    if name not in names:
        said = f"no collection {name!r}" if name else "which collection is meant must be said behind a #"
        raise InputError(f"{place}: {said}; {there}")
    return name


def _chroma(root: Any, name: str) -> Iterator[_Entry]:
    import chromadb
    from chromadb.config import Settings

    with tempfile.TemporaryDirectory(prefix="journeyman-") as folder:
        # Whoever opens it migrates it. The texts stand in the database, the files beside it hold the vectors.
        copied_database(_there(root / "chroma.sqlite3"), Path(folder, "chroma.sqlite3"))
        client = chromadb.PersistentClient(path=folder, settings=Settings(anonymized_telemetry=False))
        try:
            found: Any = client.get_collection(_chosen(name, [each.name for each in client.list_collections()], root), None)
            for at in range(0, found.count(), _AT_ONCE):
                some = found.get(include=["documents", "metadatas"], limit=_AT_ONCE, offset=at)
                for id, text, told in zip(some["ids"], some["documents"], some["metadatas"], strict=True):
                    yield _Entry(id, text or "", dict(told or {}))
        finally:
            client.close()


def _qdrant(root: Any, name: str) -> Iterator[_Entry]:
    held = sorted(root.glob("collection/*/storage.sqlite"))
    path = root / "collection" / _chosen(name, [each.parent.name for each in held], root) / "storage.sqlite"
    with tempfile.TemporaryDirectory(prefix="journeyman-") as folder:
        copy = copied_database(path, Path(folder, "copy.db"))
        with closing(sqlite3.connect(copy)) as database:
            for number, point in database.execute("select rowid, point from points order by rowid"):
                # Its own library would unpickle them.
                object = fields.mapping(read_pickle(point, f"{path} row {number}"))
                told = fields.mapping(object.get("__dict__")) or object
                payload = fields.mapping(told.get("payload"))
                yield _entry(payload, told.get("id", number), named="id" in told)


def _lancedb(root: Any, name: str) -> Iterator[_Entry]:
    import lancedb

    names = [path.stem for path in root.glob("*.lance")]
    table: Any = lancedb.connect(str(root)).open_table(_chosen(name, names, root))
    columns = [
        each.name for each in table.schema if not str(each.type).startswith(("fixed_size_list", "list<", "large_binary"))
    ]
    number = 0
    for batch in table.search().select(columns).to_batches(_AT_ONCE):
        for row in batch.to_pylist():
            yield _entry(row, number)
            number += 1


def _faiss(path: Any, name: str) -> Iterator[_Entry | Problem]:
    import faiss

    if not name:
        raise InputError(f"{path}: an index holds no texts; the file with them is named behind a #, and lies beside it")
    texts = _there(path.parent / name)
    index: Any = faiss.read_index(str(path))
    ids = faiss.vector_to_array(index.id_map).tolist() if hasattr(index, "id_map") else range(index.ntotal)
    count = 0
    for id, one in _beside(texts):
        row = {"text": one} if isinstance(one, str) else one
        if isinstance(row, dict):
            yield _entry(row, ids[count] if id is None and count < len(ids) else id or count, named=id is not None)
            count += 1
        else:
            yield one if isinstance(one, Problem) else Problem(f"{texts} item {count + 1}", "is neither a text nor an object")
    if count != index.ntotal:
        yield Problem(str(texts), f"has {count:,} texts, and {path.name} {index.ntotal:,} vectors")


def _beside(path: Path) -> Iterator[tuple[str | None, Any]]:
    """The texts beside an index: strings or objects in lines, in a list, or by their ids; or rows of a Parquet file."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(_AT_ONCE):
            yield from ((None, row) for row in batch.to_pylist())
        return
    with JsonSource(path) as source:
        if source.head(1) == _PICKLE or path.suffix in (".pkl", ".pickle"):
            raise InputError(f"{path} is a pickle, which is not loaded: write the texts as JSON Lines beside the index")
        found = list(source.records())
    if len(found) == 1 and isinstance(found[0], JsonRecord) and isinstance(found[0].value, dict) and not found[0].in_list:
        told = found[0].value
        by_id = all(isinstance(value, str | dict) for value in told.values()) and not set(told) & {*_TEXTS, *_IDS}
        yield from told.items() if by_id else [(None, told)]
        return
    yield from ((None, each if isinstance(each, Problem) else each.value) for each in found)


@contextmanager
def _table(url: str, name: str) -> Iterator[tuple[Any, Any, Any]]:
    """A connection that only reads, a table, and the module that puts names into statements."""
    import psycopg
    from psycopg import sql

    if not name:
        raise InputError(f"{place_of(url)}: which table is meant must be said behind a #")
    with psycopg.connect(re.sub(r"^[a-z+]+:", "postgresql:", url), connect_timeout=10) as connection:
        connection.read_only = True
        yield connection, sql.Identifier(*name.split(".")), sql


def _rows_written(url: str, name: str) -> State:
    """How many rows there are, and which transactions wrote them."""
    with _table(url, name) as (connection, table, sql):
        asked = sql.SQL("select count(*), coalesce(sum(xmin::text::bigint), 0) from {}").format(table)
        count, written = connection.execute(asked).fetchone()
    return {"rows": count, "written": str(written)}


def _postgres(url: Any, name: str) -> Iterator[_Entry]:
    from psycopg.rows import dict_row

    with _table(url, name) as (connection, table, sql):
        asked = "select attname, format_type(atttypid, null) from pg_attribute where attrelid = %s::regclass and attnum > 0"
        columns = connection.execute(f"{asked} and not attisdropped order by attnum", (table.as_string(connection),)).fetchall()
        wanted = sql.SQL(", ").join(sql.Identifier(column) for column, type in columns if type not in _NO_TEXT)
        with connection.cursor("journeyman", row_factory=dict_row) as cursor:
            cursor.itersize = _AT_ONCE
            cursor.execute(sql.SQL("select {} from {} order by ctid").format(wanted, table))
            for number, row in enumerate(cursor):
                yield _entry(row, number)


def _there(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"there is no {path}")
    return path


_STORES: Mapping[str, Callable[[Any, str], Iterator[_Entry | Problem]]] = {
    "chroma": _chroma,
    "qdrant": _qdrant,
    "lancedb": _lancedb,
    "faiss": _faiss,
    "postgresql": _postgres,
    "postgresql+psycopg": _postgres,
    "postgres": _postgres,
}
_SERVERS = frozenset({"postgresql", "postgresql+psycopg", "postgres"})
