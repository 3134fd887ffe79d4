"""A trace store of each kind to test with."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import TraceStore
from tests.support import postgres

KINDS = ("memory", "sqlite", "postgres")


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
        yield from _postgres(postgres.url())


def _postgres(url: str) -> Iterator[TraceStore]:
    """A schema of its own, so that nothing is left and tests may run side by side."""
    sa = pytest.importorskip("sqlalchemy")
    name = f"test_{uuid.uuid4().hex}"
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(sa.text(f"create schema {name}"))
    try:
        with open_traces(f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{name}") as store:
            yield store
    finally:
        with engine.begin() as connection:
            connection.execute(sa.text(f"drop schema {name} cascade"))
        engine.dispose()
