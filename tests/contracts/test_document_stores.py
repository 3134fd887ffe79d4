"""What the store promises of documents and of how far sources were read, in each database."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.document import Document
from journeyman.core.errors import InputError, Unkeepable
from journeyman.core.trace import ModelCall, Trace
from journeyman.stores.documents import DocumentQuery, DocumentStore, SourceBatch, open_documents
from journeyman.stores.traces.base import Query
from tests.support import postgres

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DocumentStore]:
    if request.param == "postgres":
        with postgres.database() as url, open_documents(url) as opened:
            yield opened
    else:
        with open_documents("memory:" if request.param == "memory" else tmp_path / "journeyman.db") as opened:
            yield opened


def document(key: str = "a", text: str = "the build is green again", **more: Any) -> Document:
    return Document(**{"source": "devlogs", "kind": "devlog", "where": "/logs", "at": NOON, **more}, key=key, text=text)


def trace(id: str, **more: Any) -> Trace:
    call = ModelCall(model="m", prompt="user: Hi", reply="Hello", **more)
    return Trace(id=id, task_id=id, candidate_id="base", started_at=NOON, steps=(call,), source="codex")


def found(store: DocumentStore, **query: Any) -> list[str]:
    lines, _ = store.document_page(DocumentQuery(**query))
    return [line.key for line in lines]


def test_what_was_read_and_how_far_are_kept_together_and_once(store: DocumentStore) -> None:
    batch = SourceBatch(source="devlogs", traces=[trace("t")], documents=[document()], states={"/logs/a": {"size": 3}})
    assert store.keep(batch) == (1, 1)
    assert store.keep(batch) == (0, 0)
    assert store.states("devlogs") == {"/logs/a": {"size": 3}}
    assert store.document(document().id) == document()
    assert [each.id for each in store.traces(Query())] == ["t"]
    store.keep(replace(batch, traces=(), documents=(), states={"/logs/a": {"size": 4}, "/logs/b": {}}))
    assert store.states("devlogs") == {"/logs/a": {"size": 4}, "/logs/b": {}}
    store.keep(SourceBatch(source="devlogs", states={"/logs/b": None}))
    assert set(store.states("devlogs")) == {"/logs/a"}
    assert (store.states("git"), set(store.last_read())) == ({}, {"devlogs"})
    assert store.forget_states("devlogs") == 1


def test_a_batch_of_which_something_cannot_be_kept_leaves_nothing_behind(store: DocumentStore) -> None:
    bad = trace("bad", input_tokens=2**70)
    with pytest.raises(Unkeepable):
        store.keep(SourceBatch(source="devlogs", traces=[bad], documents=[document()], states={"x": {}}))
    assert (store.states("devlogs"), found(store)) == ({}, [])


def test_a_later_text_under_a_key_is_what_holds_and_the_earlier_stays_to_be_read(store: DocumentStore) -> None:
    first, second = document(), document(text="the build is red once more")
    for each in (first, second):
        store.keep(SourceBatch(source="devlogs", documents=[each]))
    lines, _ = store.document_page()
    assert [line.id for line in lines] == [second.id]
    assert [line.id for line in store.revisions(second)] == [second.id, first.id]
    assert found(store, text="green") == []
    # It says again what it said at first.
    assert store.keep(SourceBatch(source="devlogs", documents=[first])) == (0, 1)
    assert [line.id for line in store.document_page()[0]] == [first.id]
    assert found(store, text="green") == ["a"]
    assert list(store.documents()) == [second, first]


def test_documents_are_found_by_their_words_and_by_what_they_are(store: DocumentStore) -> None:
    some = [
        document("a", "Größe der Tabelle angepasst", title="Schema", author="ada"),
        document("b", "moved the table of orders", kind="status", at=NOON + timedelta(days=1)),
        document("c", "\x00 odd \ud800 text of no use", source="git", at=None),
    ]
    for each in some:
        store.keep(SourceBatch(source=each.source, documents=[each]))
    assert found(store) == ["c", "b", "a"]
    assert found(store, text="grosse tabelle") == ["a"]
    assert found(store, text='"table of orders"') == ["b"]
    assert found(store, text="schema ada") == ["a"]
    assert (found(store, text="!!!"), found(store, text="nothing")) == ([], [])
    assert (found(store, source="git"), found(store, kind="status"), found(store, author="ada")) == (["c"], ["b"], ["a"])
    assert (found(store, since=NOON + timedelta(hours=1)), found(store, until=NOON + timedelta(hours=1))) == (["b"], ["a"])
    assert store.document(some[2].id) == some[2]
    assert store.document_counts() == {("devlogs", "devlog"): 1, ("devlogs", "status"): 1, ("git", "devlog"): 1}
    assert store.documents_starting(some[0].id[:10]) == [some[0].id]


def test_a_list_goes_on_where_a_page_ended(store: DocumentStore) -> None:
    store.keep(SourceBatch(source="devlogs", documents=[document(f"{number}", f"note number {number}") for number in range(7)]))
    keys: list[str] = []
    after: str | None = None
    for _ in range(4):
        lines, after = store.document_page(limit=2, after=after)
        keys += [line.key for line in lines]
    assert (keys, after) == ([str(number) for number in reversed(range(7))], None)
    with pytest.raises(InputError):
        store.document_page(after="x")


def test_what_is_rewritten_or_forgotten_is_gone_and_its_words_too(store: DocumentStore) -> None:
    old, later = document(text="the secret word is swordfish"), document(text="a later word of it")
    for each in (old, later):
        store.keep(SourceBatch(source="devlogs", documents=[each]))
    assert store.rewrite({old.id: replace(old, text="the secret word is [redacted]")}) == 1
    assert store.document(old.id) is None
    # What holds is what held before.
    assert [line.id for line in store.document_page()[0]] == [later.id]
    assert store.forget_documents([later.id, "none"]) == 1
    assert (found(store, text="swordfish"), found(store, text="later"), found(store, text="redacted")) == ([], [], ["a"])
