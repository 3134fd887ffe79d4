"""What a team wrote is found by its words, and read with where it came from."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from journeyman.core.document import Document
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.layout import Guard
from journeyman.stores.documents import DocumentStore, SourceBatch, open_documents
from journeyman.stores.traces.base import TraceStore
from tests.serving.dashboard.test_pages import words_of
from tests.serving.dashboard.test_project_pages import title
from tests.support.pages import Visitor, visitor

AT = datetime(2026, 3, 5, 14, 30, tzinfo=UTC)
COMMIT = Document(
    source="git",
    key="abc123",
    kind="commit",
    title="Retry on a lost connection",
    text="Retry on a lost connection\n\nThe importer gave up <at once>.",
    author="PERSON_1",
    at=AT,
    where="shop",
)
NOTE = Document(source="devlogs", key="notes/monday.md", kind="devlog", text="The importer was slow today, nobody knows why.")


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[DocumentStore]:
    with open_documents(tmp_path / "journeyman.db") as opened:
        opened.keep(SourceBatch(source="git", documents=[COMMIT]))
        opened.keep(SourceBatch(source="devlogs", documents=[NOTE]))
        yield opened


@pytest.fixture
def pages(store: TraceStore, guard: Guard, tmp_path: Path) -> Visitor:
    return visitor(store, guard, project=ProjectStores(tmp_path / "journeyman.db"))


def test_without_documents_the_page_says_how_some_come_in(pages: Visitor) -> None:
    text = words_of(pages.read("/documents"))
    assert "No documents yet." in text
    assert "journeyman collect git" in text


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ("", {"Retry on a lost connection", "notes/monday.md"}),
        ("?q=importer", {"Retry on a lost connection", "notes/monday.md"}),
        ("?q=importer+lost", {"Retry on a lost connection"}),
        ("?kind=devlog", {"notes/monday.md"}),
        ("?source=git&author=PERSON_1", {"Retry on a lost connection"}),
        ("?author=nobody", set()),
    ],
)
def test_documents_are_found_by_words_and_where_they_came_from(
    kept: DocumentStore, pages: Visitor, filters: str, found: set[str]
) -> None:
    text = words_of(pages.read(f"/documents{filters}"))
    assert {each for each in ("Retry on a lost connection", "notes/monday.md") if each in text} == found
    if not found:
        assert "No document is like this." in text


def test_a_document_is_read_with_where_it_came_from_and_what_stood_there(kept: DocumentStore, pages: Visitor) -> None:
    page = pages.read(f"/documents/{COMMIT.id}")
    assert title(page).startswith("Retry on a lost connection")
    assert "The importer gave up &lt;at once&gt;." in page
    text = words_of(page)
    assert all(
        each in text for each in ("commit", "git", "shop", "abc123", "PERSON_1", f"journeyman documents show {COMMIT.id}")
    )
    assert "What stood there" not in text
    later = Document(
        **{**{name: getattr(NOTE, name) for name in ("source", "key", "kind")}, "text": "It was the index that was gone."}
    )
    kept.keep(SourceBatch(source="devlogs", documents=[later]))
    page = pages.read(f"/documents/{later.id}")
    assert "nobody says" in words_of(page)
    assert f'href="/documents/{NOTE.id}"' in page


def test_a_document_that_is_not_there_is_said_to_be_gone(pages: Visitor) -> None:
    answer = pages.client.get("/documents/none", headers={"accept": "text/html"})
    assert answer.status_code == 404
    assert "There is no such document" in answer.text
