"""A store in a file, and the pages over it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman.serving.dashboard.layout import Guard
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import TraceStore
from tests.support.pages import Serve, Visitor, servers, visitor


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TraceStore]:
    with open_traces(tmp_path / "journeyman.db") as opened:
        yield opened


@pytest.fixture
def guard() -> Guard:
    return Guard()


@pytest.fixture
def pages(store: TraceStore, guard: Guard) -> Visitor:
    return visitor(store, guard)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve the pages on a port of loopback until the test is over; gives the address."""
    with servers() as start:
        yield start
