"""What a visit weighs: bytes as they are sent, requests, and nothing from elsewhere."""

import gzip
import re
from datetime import timedelta
from pathlib import Path

import pytest

from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.layout import Guard
from journeyman.stores import open_store
from journeyman.stores.traces.base import TraceStore
from tests.support.pages import Visitor, visitor
from tests.support.projects import NEW, RUNS, learn, project
from tests.support.watched import NOON, booking

FIRST, LATER = 60_000, 12_000
"""Compressed bytes of a first visit, all files included, and of each page later."""
REQUESTS = 10
PAGES = (
    "/", "/alerts", "/system", "/documents", "/tasks", "/traces", "/traces/t001", "/sessions", "/performance", "/learn",
    "/runs", f"/runs/{RUNS[1]}",
    f"/runs/compare?a={RUNS[0]}&b={RUNS[1]}", "/evaluations", f"/evaluations/{RUNS[1]}?show=all", "/playbooks",
    f"/playbooks/{NEW.id}", "/releases", "/releases/context:desk%2Foslo", "/audit",
)  # fmt: skip
NODES = 3_000
"""Elements of a page."""


@pytest.fixture
def pages(store: TraceStore, guard: Guard, tmp_path: Path) -> Visitor:
    project(tmp_path / "journeyman.db")
    with open_store(tmp_path / "journeyman.db") as kept:
        learn(kept)
    words = "A table for {} people by the window in Oslo, please, and do not forget the high chair for the small one"
    store.add(
        booking(
            f"t{n:03}", asked=words.format(n), at=NOON + timedelta(hours=n), agent=f"agent-{n % 9}", session=f"visit {n // 2}"
        )
        for n in range(120)
    )
    return visitor(store, guard, project=ProjectStores(tmp_path / "journeyman.db"))


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_light_and_needs_nothing_from_elsewhere(pages: Visitor, path: str) -> None:
    answer = pages.client.get(path, headers={"accept": "text/html", "accept-encoding": "gzip"})
    assert answer.status_code == 200
    assert answer.headers["content-encoding"] == "gzip"
    page = answer.text
    # The client gives the text; compressed anew it is as long as it was, give or take the mask of the form's token.
    weight = len(gzip.compress(answer.content, 6))
    assert weight <= LATER, path
    assert len(re.findall(r"<[a-z]", page)) <= NODES, path
    files = set(re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="([^"]+)"', page))
    assert all(each.startswith("/static/") for each in files), files
    sent = [len(gzip.compress(pages.client.get(each).content, 6)) for each in files]
    assert 1 + len(files) <= REQUESTS
    assert weight + sum(sent) <= FIRST
