"""The small model that ships with the package: a real transformer that knows one job, the order desk.

It was trained from scratch by `python -m journeyman.pretrain`. It is a test bench and a first impression: it obeys rules in
its context and reads the desk's error messages, and knows nothing else.
"""

from pathlib import Path

from journeyman.errors import ModelRefused
from journeyman.models import WEIGHTS, embedded_sizes, split_adapter
from journeyman.models.base import Dialect
from journeyman.models.local import Local

REPLY_TOKENS = 96
"""The longest thing it has learned to say is two thirds of that."""


class Embedded(Local):
    """One of its sizes, with an adapter where one is named: `base+FOLDER`."""

    def __init__(self, named: str = "", *, weights: Path | None = None) -> None:
        size, adapter = split_adapter(named)
        self.size = size or "base"
        folder = weights or WEIGHTS / self.size
        if not (folder / "config.json").is_file():
            sizes = ", ".join(embedded_sizes()) or "none installed"
            raise ModelRefused(f"no embedded model {self.size!r}; there are: {sizes}")
        self._open(f"embedded:{self.size}{'+' * bool(adapter)}{adapter}", str(folder), adapter, REPLY_TOKENS)

    @property
    def dialect(self) -> Dialect:
        return "terse"

    @property
    def deterministic(self) -> bool:
        return True
