"""Every number that leads somewhere leads to exactly what it counts."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import pytest

from journeyman.serving.dashboard import routes
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.layout import Guard
from journeyman.stores.traces.base import TraceStore
from tests.support.furnished import NOT_FOUND, addresses, furnish, shown
from tests.support.pages import WHO, Visitor, visitor
from tests.support.watched import booking

LINK = re.compile(r"<a\b([^>]*)>([^<]*)")
NUMBER = re.compile(r"\d[\d,]*")
HERE = re.compile(r'data-count="(\d+)"')
MORE = ("/performance?agent=hotel", "/performance?error=yes&since=3000d", "/performance?table=agent")


@pytest.fixture
def project(tmp_path: Path) -> ProjectStores:
    furnish(tmp_path / "journeyman.db", tmp_path)
    return ProjectStores(tmp_path / "journeyman.db", folder=tmp_path)


@pytest.fixture
def pages(store: TraceStore, guard: Guard, project: ProjectStores) -> Visitor:
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
    store.add([*shown(), booking("t001")])
    return visitor(store, guard, project=project)


def links(page: str, base: str) -> Iterator[tuple[str, int]]:
    """Links that say of how many things they are: in words of their own, or as `data-n`."""
    for given, said in LINK.findall(page):
        told = re.search(r'data-n="(\d+)"', given)
        href = re.search(r'href="([^"]*)"', given)
        if href and (told or NUMBER.fullmatch(said.strip())):
            yield urljoin(base, unescape(href[1])), int(told[1] if told else said.strip().replace(",", ""))


@pytest.mark.slow
def test_every_number_leads_to_exactly_what_it_counts(pages: Visitor, store: TraceStore, project: ProjectStores) -> None:
    followed = dict[str, int]()

    @cache
    def counted(target: str) -> int:
        there = HERE.search(pages.read(target))
        # An empty list says so in words.
        return int(there[1] if there else 0)

    for path in (*addresses(routes(store, who=WHO, project=project)), *MORE):
        if path == NOT_FOUND:
            continue
        for target, count in links(pages.read(path), path):
            assert counted(target) == count, f"{path}: {target}"
            followed[path] = followed.get(path, 0) + 1
    assert sum(followed.values()) > 150
    assert {"/", "/performance", "/runs", "/tasks", "/tasks/ours.jsonl"} <= followed.keys()


def test_the_first_page_is_of_what_agents_did_and_of_trainings_only_where_there_is_nothing_else(
    store: TraceStore, project: ProjectStores
) -> None:
    now = datetime.now(UTC)
    tried = (replace(booking(f"r{n}", at=now - timedelta(hours=1), reward=0.0), source="run") for n in range(7))
    store.add(tried)
    looked = visitor(store, project=project)
    alone = looked.read("/")
    assert "these are attempts of trainings and examinations" in alone
    assert ('data-n="7"><b>7</b> Traces this week') in alone
    store.add(booking(f"d{n}", at=now - timedelta(hours=1), reward=1.0) for n in range(3))
    page = visitor(store, project=project).read("/")
    assert ('data-n="3"><b>3</b> Traces this week') in page
    assert "3 scored" in page
    assert "these are attempts of trainings" not in page


def test_where_nothing_is_scored_the_first_page_says_what_people_said(store: TraceStore, project: ProjectStores) -> None:
    now = datetime.now(UTC)
    store.add(booking(f"d{n}", at=now - timedelta(hours=1), reward=None) for n in range(3))
    store.label("d0", True, who="ada", at=now)
    store.label("d1", False, who="ada", at=now)
    assert "nothing is scored · 1 good, 1 bad by label" in visitor(store, project=project).read("/")


def test_a_server_that_was_told_its_playbook_does_not_say_that_nothing_is_served(store: TraceStore, tmp_path: Path) -> None:
    fixed = {"playbook": "mine.json", "candidate": "abc123"}
    told = ProjectStores(tmp_path / "journeyman.db", folder=tmp_path, fixed=fixed)
    for path in ("/", "/releases"):
        page = visitor(store, project=told).read(path)
        assert "This server puts mine.json" in page
        assert "abc123" in page
    assert "This server puts" not in visitor(store, project=ProjectStores(tmp_path / "journeyman.db")).read("/releases")
