"""What a visit weighs: bytes as they are sent, requests, and nothing from elsewhere."""

import gzip
import re
from datetime import timedelta
from pathlib import Path

import pytest

from journeyman.serving.dashboard import routes
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.layout import Guard
from journeyman.stores.traces.base import TraceStore
from tests.support.furnished import NOT_FOUND, addresses, furnish, shown
from tests.support.pages import WHO, Visitor, visitor
from tests.support.watched import NOON, booking

FIRST, LATER = 60_000, 12_000
"""Compressed bytes of a first visit, all files included, and of each page later."""
REQUESTS = 10
NODES = 3_000
"""Elements of a page."""


@pytest.fixture
def project(tmp_path: Path) -> ProjectStores:
    furnish(tmp_path / "journeyman.db", tmp_path)
    return ProjectStores(tmp_path / "journeyman.db", folder=tmp_path)


@pytest.fixture
def pages(store: TraceStore, guard: Guard, project: ProjectStores) -> Visitor:
    words = "A table for {} people by the window in Oslo, please, and do not forget the high chair for the small one"
    store.add(
        booking(
            f"t{n:03}", asked=words.format(n), at=NOON + timedelta(hours=n), agent=f"agent-{n % 9}", session=f"visit {n // 2}"
        )
        for n in range(120)
    )
    store.add(shown())
    return visitor(store, guard, project=project)


def test_every_page_is_light_and_needs_nothing_from_elsewhere(
    pages: Visitor, store: TraceStore, project: ProjectStores
) -> None:
    for path in addresses(routes(store, who=WHO, project=project)):
        is_light(pages, path)


def test_months_and_years_weigh_no_more_than_days(pages: Visitor, store: TraceStore) -> None:
    # As many steps of time, agents, models, tools and days as are drawn and listed at most.
    store.add(
        booking(f"y{n}", at=NOON - timedelta(days=n), agent=f"a{n}", model=f"m{n % 30}", tool=f"tool{n % 90}", fails=n % 3 == 0)
        for n in range(400)
    )
    for since in ("", "?since=90d", f"?since={NOON - timedelta(days=39):%Y-%m-%d}", "?agent=a7", f"?until={NOON:%Y-%m-%d}"):
        is_light(pages, f"/performance{since}")
    for table in ("agent", "model", "tool", "day"):
        is_light(pages, f"/performance?table={table}")
    text = pages.read("/performance?table=agent&after=400")
    assert re.search(r"401 to (\d+) of \1<", text)


def is_light(pages: Visitor, path: str) -> None:
    answer = pages.client.get(path, headers={"accept": "text/html", "accept-encoding": "gzip"})
    assert answer.status_code == (404 if path == NOT_FOUND else 200)
    # What is short enough is sent as it is.
    assert len(answer.content) < 500 or answer.headers["content-encoding"] == "gzip"
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
