"""The small model that ships with the package: a real transformer that knows one job, the order desk.

It was trained from scratch by `python -m journeyman.experiments.pretrain`. It is a test bench and a first impression: it
obeys rules in its context and reads the desk's error messages, and knows nothing else.
"""

from pathlib import Path

from journeyman.models import embedded_weights, split_adapter
from journeyman.models.local import Local

REPLY_TOKENS = 96
"""The longest thing it has learned to say is two thirds of that."""


class Embedded(Local):
    """One of its sizes, with an adapter where one is named: `base+FOLDER`."""

    def __init__(self, named: str = "", *, weights: Path | None = None) -> None:
        size, adapter = split_adapter(named)
        self.size = size or "base"
        folder = weights or embedded_weights(self.size)
        self._open(f"embedded:{self.size}{'+' * bool(adapter)}{adapter}", str(folder), adapter, REPLY_TOKENS)
