"""Where runs, attempts, candidates, evaluations and releases are kept, and the traces of agents that were watched.

memory:                            nothing is kept
sqlite:///.journeyman/journeyman.db   a file on this machine; a bare path means the same
postgresql://USER:PASSWORD@HOST/DATABASE   a server; needs the extra `postgres`
"""

from pathlib import Path

from journeyman.stores.base import AttemptRecord, EvaluationRecord, RunRecord, RunState, Store
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import TraceStore
from journeyman.stores.urls import MEMORY, as_url

__all__ = [
    "MEMORY",
    "AttemptRecord",
    "EvaluationRecord",
    "RunRecord",
    "RunState",
    "Store",
    "TraceStore",
    "open_store",
    "open_traces",
]


def open_store(url: str | Path, *, make: bool = True) -> Store:
    """The store at a URL or path, made when there is none, and brought up to date. Close it, or use it in a `with`.

    `memory:` is a store of its own each time, and is gone when it is closed.

    Args:
        make: Without it nothing is made where there is no store yet: what is opened then is empty, and in memory.

    Raises:
        InputError: The URL is not one of a store.
        StoreError: It cannot be reached, is not a database, or was written by a newer Journeyman.
        MissingExtra: The driver is not installed.
    """
    # SQLAlchemy takes a fifth of a second to load: only who opens a database pays for it.
    from journeyman.stores.sql import SqlStore

    return SqlStore(as_url(url), make=make)
