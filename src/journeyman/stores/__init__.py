"""Where runs, attempts, candidates, evaluations and releases are kept, and the traces of agents that were watched.

memory:                            nothing is kept
sqlite:///.journeyman/journeyman.db   a file on this machine; a bare path means the same
postgresql://USER:PASSWORD@HOST/DATABASE   a server; needs the extra `postgres`
"""

from pathlib import Path

from journeyman.core.errors import StoreUnreachable
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
    "make_ready",
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


_AWAY = 75
_MAKE = f"""
import sys
from journeyman.core.errors import StoreUnreachable
from journeyman.stores import open_traces
try:
    open_traces(sys.stdin.read()).close()
except StoreUnreachable as error:
    print(error, end="")
    sys.exit({_AWAY})
"""


def make_ready(url: str) -> None:
    """Make the store when it is new, and bring it up to date, in a process that ends: whoever serves for days need not carry
    what migrations take with them.

    Raises:
        StoreUnreachable: Its server does not answer.
        JourneymanError: As `open_traces` does.
    """
    import subprocess
    import sys

    if url == MEMORY:
        return
    # Not on the command line, which everybody can read: the URL may hold a password.
    done = subprocess.run([sys.executable, "-c", _MAKE], input=url.encode(), capture_output=True)
    if done.returncode == _AWAY:
        raise StoreUnreachable(done.stdout.decode())
    if done.returncode:
        # Once more, to be told why.
        open_traces(url).close()
