"""The candidate's end: imports the code that is being checked, and does what the checker asks of it."""

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .peer import Peer

_MOST_PRINTED = 64 * 1024


class _Candidate(Peer):
    def __init__(self, exchange: Callable[[str], str]) -> None:
        super().__init__(exchange)
        self.printed = io.StringIO()

    def heard(self) -> str:
        text = self.printed.getvalue()[:_MOST_PRINTED]
        self.printed.seek(0)
        self.printed.truncate()
        return text


def load(module: str, name: str = "") -> Any:
    """A module of the candidate, or what it has under a name."""
    found = importlib.import_module(module)
    if not name:
        return found
    try:
        return getattr(found, name)
    except AttributeError:
        raise NameError(f"name {name!r} is not defined in {module}") from None


def serve(exchange: Callable[[str], str]) -> None:
    """Answer until the checker has seen enough. What the code prints goes with the answers."""
    end = os._exit
    # What answers deeply nested values must go deeper than the code that made them.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 3000))
    peer = _Candidate(exchange)
    peer.lend(load)
    sys.path.insert(0, str(Path.cwd()))
    sys.stdin = io.StringIO()
    with contextlib.redirect_stdout(peer.printed):
        peer.serve_until_the_end("")
    end(0)
