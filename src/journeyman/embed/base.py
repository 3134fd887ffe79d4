"""What turns texts into vectors."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


class Embedder(Protocol):
    """Text in, unit vectors out: the inner product of two is their cosine."""

    @property
    def name(self) -> str:
        """Part of the cache's key: vectors of two embedders never meet."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Shape (len(texts), d), float32, each row of length 1 (or 0 for a text with nothing in it)."""
