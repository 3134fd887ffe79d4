"""Where captured traces, their labels and their rewards are kept."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from journeyman.stores.traces.base import TraceStore
from journeyman.stores.urls import as_url


def open_traces(url: str | Path, *, make: bool = True, clock: Callable[[], datetime] | None = None) -> TraceStore:
    """The trace store at a URL or path, made when there is none, and brought up to date. Close it, or use it in a `with`.

    `memory:` is a store of its own each time, and is gone when it is closed.

    Args:
        make: Without it nothing is made where there is no store yet: what is opened then is empty, and in memory.
        clock: Tells when what is kept came here; the machine's where none is given.

    Raises:
        InputError: The URL is not one of a store.
        StoreError: It cannot be reached, is not a database, or was written by a newer Journeyman.
        MissingExtra: The driver is not installed.
    """
    # SQLAlchemy takes a fifth of a second to load: only who opens a database pays for it.
    from journeyman.stores.sql import SqlTraces

    return SqlTraces(as_url(url), make=make, clock=clock)
