"""Every number that leads somewhere leads to exactly what it counts."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import pytest

from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.layout import Guard
from journeyman.stores.traces.base import TraceStore
from tests.support.pages import Visitor, visitor
from tests.support.projects import NEW, RUNS, project
from tests.support.watched import booking

LINK = re.compile(r"<a\b[^>]*\bdata-n=\"(\d+)\"[^>]*>")
HERE = re.compile(r'data-count="(\d+)"')
PAGES = (
    "/", "/performance", "/performance?agent=hotel", "/performance?error=yes&since=3000d", "/evaluations",
    "/playbooks", "/releases",
    f"/evaluations/{RUNS[1]}", f"/playbooks/{NEW.id}", f"/runs/{RUNS[1]}",
)  # fmt: skip


@pytest.fixture
def pages(store: TraceStore, guard: Guard, tmp_path: Path) -> Visitor:
    rollout = project(tmp_path / "journeyman.db")
    now = datetime.now(UTC)
    agents = ("hotel", "flights", None)
    store.add(
        booking(f"b{n}", at=now - timedelta(days=n % 12, hours=1), agent=agents[n % 3], reward=(None, 0.0, 1.0)[n % 3])
        for n in range(40)
    )
    broken = (booking(f"e{n}", at=now - timedelta(hours=n + 1), fails=n > 1) for n in range(4))
    store.add(replace(each, error="ModelBusy: overloaded") if each.id != "e3" else each for each in broken)
    for n in range(0, 40, 5):
        store.label(f"b{n}", n % 2 == 0, who="ada", at=now)
    assert rollout
    return visitor(store, guard, project=ProjectStores(tmp_path / "journeyman.db"))


def links(page: str, base: str) -> Iterator[tuple[str, int]]:
    for found in LINK.finditer(page):
        href = re.search(r'href="([^"]*)"', found[0])
        assert href, found[0]
        yield urljoin(base, unescape(href[1])), int(found[1])


def test_every_number_leads_to_exactly_what_it_counts(pages: Visitor) -> None:
    followed = 0
    for path in PAGES:
        for target, count in links(pages.read(path), path):
            there = HERE.search(pages.read(target))
            # An empty list says so in words.
            assert int(there[1] if there else 0) == count, f"{path}: {target}"
            followed += 1
    assert followed > 100
