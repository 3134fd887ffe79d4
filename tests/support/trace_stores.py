"""A trace store of each kind to test with."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import TraceStore
from tests.support import postgres

KINDS = ("memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres))


@contextmanager
def opened(kind: str, folder: Path) -> Iterator[TraceStore]:
    """An empty store, gone afterwards. Skips where it is PostgreSQL and there is none to test with."""
    if kind == "memory":
        with open_traces("memory:") as store:
            yield store
    elif kind == "sqlite":
        with open_traces(folder / "traces.db") as store:
            yield store
    else:
        with postgres.database() as url, open_traces(url) as store:
            yield store
