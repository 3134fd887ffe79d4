"""Texts in vector stores: what the real library wrote is read back equal, and not a byte of the store is changed."""

import hashlib
import json
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.document import Document
from journeyman.core.errors import InputError, MissingExtra
from journeyman.core.installation import installing
from journeyman.experiments.collecting import source
from journeyman.stores.documents import open_documents
from tests.support import postgres
from tests.tracing.sources.test_sources import Reading

TEXTS = {f"note-{number}": f"the note number {number} says\nwhat was learned of it" for number in range(1203)}
"""More than are read at once."""


def _told(id: str) -> dict[str, Any]:
    return {"number": int(id.removeprefix("note-")), "author": "Ada", "source": f"{id}.md"}


def _chroma(folder: Path, texts: dict[str, str | None]) -> str:
    chromadb = pytest.importorskip("chromadb", reason="needs the extra: pip install 'journeyman[vectors]'")
    settings = chromadb.config.Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(path=str(folder), settings=settings)
    made = client.create_collection("notes")
    more = {} if None in texts.values() else {"documents": list(texts.values())}
    made.add(ids=list(texts), embeddings=[[0.5, 1.0]] * len(texts), metadatas=list(map(_told, texts)), **more)
    client.create_collection("others").add(ids=["x"], embeddings=[[1.0]], documents=["what is not asked for"])
    client.close()
    return f"chroma:{folder}#notes"


def _qdrant(folder: Path, texts: dict[str, str | None]) -> str:
    qdrant = pytest.importorskip("qdrant_client", reason="qdrant-client, which writes the store, is not installed")
    client = qdrant.QdrantClient(path=str(folder))
    vectors = qdrant.models.VectorParams(size=2, distance=qdrant.models.Distance.COSINE)
    client.create_collection("notes", vectors_config=vectors)
    client.create_collection("others", vectors_config=vectors)
    points = [
        qdrant.models.PointStruct(id=number, vector=[0.5, 1.0], payload={**_told(id), "text": text, "id": id} if text else {})
        for number, (id, text) in enumerate(texts.items())
    ]
    client.upsert("notes", points)
    client.close()
    return f"qdrant:{folder}#notes"


def _lancedb(folder: Path, texts: dict[str, str | None]) -> str:
    lancedb = pytest.importorskip("lancedb", reason="needs the extra: pip install 'journeyman[vectors]'")
    rows = [{"id": id, "text": text, "vector": [0.5, 1.0], **_told(id)} for id, text in texts.items()]
    if None in texts.values():
        rows = [{"id": row["id"], "vector": row["vector"]} for row in rows]
    lancedb.connect(str(folder)).create_table("notes", rows)
    return f"lancedb:{folder}#notes"


def _faiss(folder: Path, texts: dict[str, str | None]) -> str:
    faiss = pytest.importorskip("faiss", reason="needs the extra: pip install 'journeyman[faiss]'")
    import numpy as np

    folder.mkdir()
    index = faiss.IndexFlatL2(2)
    index.add(np.ones((len(texts), 2), dtype="float32"))
    faiss.write_index(index, str(folder / "notes.index"))
    rows = ({"id": id, "text": text, **_told(id)} if text else {"id": id} for id, text in texts.items())
    (folder / "notes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"faiss:{folder / 'notes.index'}#notes.jsonl"


WRITERS: dict[str, Callable[[Path, dict[str, str | None]], str]] = {
    "chroma": _chroma,
    "qdrant": _qdrant,
    "lancedb": _lancedb,
    "faiss": _faiss,
}
pytestmark = pytest.mark.slow


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("name", WRITERS)
def test_what_the_library_wrote_is_read_back_equal_and_the_store_is_as_it_was(name: str, tmp_path: Path) -> None:
    named = WRITERS[name](tmp_path / "store", dict(TEXTS))
    before = _digests(tmp_path)
    reading = Reading(source("vectors", named))
    found: list[Document] = reading.on()
    assert reading.problems == []
    assert len(found) == len(TEXTS)
    by_text = {document.text: document for document in found}
    assert by_text.keys() == set(TEXTS.values())
    for number, (id, text) in enumerate(TEXTS.items()):
        document = by_text[text]
        # In Qdrant an id is a number, and what the payload calls so is a part of it.
        told = {**_told(id), "id": id} if name == "qdrant" else _told(id)
        assert (document.key, document.raw) == (str(number) if name == "qdrant" else id, told)
        assert (document.source, document.kind, document.title) == ("vectors", "text", f"{id}.md")
    assert {document.where for document in found} == {named}
    assert reading.on() == []
    assert _digests(tmp_path) == before


@pytest.mark.parametrize("name", WRITERS)
def test_vectors_without_texts_are_nothing_to_learn_from(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    named = WRITERS[name](tmp_path / "store", dict.fromkeys(list(TEXTS)[:3]))
    for _ in range(2):
        assert main(["collect", "vectors", named]) == 2
        assert "3 vectors have no text; nothing to learn from" in capsys.readouterr().err


@pytest.mark.parametrize("name", WRITERS)
def test_a_collection_that_is_not_there_is_one_sentence(name: str, tmp_path: Path) -> None:
    named = WRITERS[name](tmp_path / "store", {"note-1": "the first of them"})
    with pytest.raises(
        InputError, match="no collection 'other'; there are notes" if name != "faiss" else "there is no .*other"
    ):
        list(source("vectors", named.rpartition("#")[0] + "#other").read({}))
    with pytest.raises(InputError, match="there is nothing at"):
        list(source("vectors", f"{name}:{tmp_path}/none#notes").read({}))


def test_a_store_goes_in_and_a_part_of_it_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {id: f"{text}, says ada@example.org" for id, text in list(TEXTS.items())[:50]}
    named = _faiss(tmp_path / "store", dict(texts))
    Path("journeyman.toml").write_text(
        '[collect.sources.notes]\nkind = "vectors"\npath = "faiss:store/notes.index#notes.jsonl"\n'
    )
    for arguments, stored in (
        (["vectors", named, "--max-samples", "30"], 30),
        (["all", "--max-samples", "30"], 20),
        (["all"], 0),
    ):
        assert main(["collect", *arguments, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["stored"] == stored
    with open_documents(".journeyman/journeyman.db") as store:
        kept = list(store.documents())
    assert len(kept) == 50
    assert not any("ada@" in document.text for document in kept)


def test_texts_beside_an_index_may_be_lists_texts_by_id_or_rows_and_never_pickles(tmp_path: Path) -> None:
    named = _faiss(tmp_path / "store", {"note-1": "one of them", "note-2": "two of them"}).rpartition("#")[0]
    folder = tmp_path / "store"
    (folder / "list.json").write_text(json.dumps(["one of them", "two of them"]))
    (folder / "by_id.json").write_text(json.dumps({"a": "one of them", "b": "two of them"}))
    keys = {}
    for file in ("list.json", "by_id.json"):
        keys[file] = [document.key for document in Reading(source("vectors", f"{named}#{file}")).on()]
    assert keys == {"list.json": ["0", "1"], "by_id.json": ["a", "b"]}
    (folder / "fewer.json").write_text(json.dumps(["one of them"]))
    reading = Reading(source("vectors", f"{named}#fewer.json"))
    assert len(reading.on()) == 1
    assert [problem.rpartition(": ")[2] for problem in reading.problems] == ["has 1 texts, and notes.index 2 vectors"]
    (folder / "index.pkl").write_bytes(pickle.dumps(["one of them"]))
    with pytest.raises(InputError, match="is a pickle, which is not loaded"):
        Reading(source("vectors", f"{named}#index.pkl")).on()


class _Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("ran"),))


def test_a_point_of_qdrant_is_read_as_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    import sqlite3

    folder = tmp_path / "store" / "collection" / "notes"
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "storage.sqlite") as database:
        database.execute("create table points (id text primary key, point blob)")
        database.execute("insert into points values ('a', ?)", (pickle.dumps(_Trap()),))
    database.close()
    with pytest.raises(InputError, match="have no text"):
        list(source("vectors", f"qdrant:{tmp_path}/store#notes").read({}))
    assert not Path("ran").exists()


@pytest.mark.parametrize("name", ["chroma", "lancedb", "faiss"])
def test_a_library_that_is_missing_is_named_and_what_to_type(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, {"chroma": "chromadb"}.get(name, name), None)
    (tmp_path / "chroma.sqlite3").touch()
    with pytest.raises(MissingExtra, match=re.escape(f"is missing: {installing('vectors')}")):
        list(source("vectors", f"{name}:{tmp_path}#notes").read({}))


def test_what_names_no_store_is_one_sentence() -> None:
    for said in (None, "notes", "milvus:store#notes"):
        with pytest.raises(InputError, match="vectors are named as chroma:PATH#COLLECTION"):
            source("vectors", said)


# A table of PostgreSQL.


@pytest.mark.postgres
def test_a_table_of_postgresql_is_read_without_its_vectors_and_again_when_it_changed(tmp_path: Path) -> None:
    import psycopg

    with postgres.database() as url, psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(
            'create table "Notes" '
            "(id uuid primary key default gen_random_uuid(), document text, cmetadata jsonb, embedding real[])"
        )
        for id, text in TEXTS.items():
            told = (text, json.dumps(_told(id)), [0.5, 1.0])
            connection.execute('insert into "Notes" (document, cmetadata, embedding) values (%s, %s, %s)', told)
        reading = Reading(source("vectors", f"{url}#Notes"))
        found: list[Document] = reading.on()
        assert {document.text: document.raw for document in found} == {
            text: {"cmetadata": _told(id)} for id, text in TEXTS.items()
        }
        assert {document.key for document in found} == {
            str(id) for (id,) in connection.execute('select id from "Notes"').fetchall()
        }
        assert all("@" not in document.where and document.where.endswith("#Notes") for document in found)
        assert "@" not in json.dumps(reading.states)
        assert reading.on() == []
        connection.execute("update \"Notes\" set document = 'this was said anew' where document = %s", (TEXTS["note-7"],))
        assert "this was said anew" in {document.text for document in reading.on()}
        with pytest.raises(InputError, match='relation "None" does not exist'):
            list(source("vectors", f"{url}#None").read({}))
        connection.execute("create table bare (id serial, embedding real[])")
        connection.execute("insert into bare (embedding) values ('{1,2}'), ('{3,4}')")
        with pytest.raises(InputError, match="2 vectors have no text; nothing to learn from"):
            list(source("vectors", f"{url}#bare").read({}))


def test_a_server_that_is_not_there_is_one_sentence_without_its_password() -> None:
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    with pytest.raises(InputError, match=r"postgresql://127\.0\.0\.1:9/shop#notes could not be read") as raised:
        list(source("vectors", "postgresql://kim:hidden@127.0.0.1:9/shop#notes").read({}))
    assert "hidden" not in str(raised.value)
