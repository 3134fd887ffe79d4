"""What turns texts into vectors, by name. An embedder's library is imported when its name is said, not before."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from journeyman.core import registry
from journeyman.core.errors import MissingExtra

__all__ = ["Embedder", "Vectors", "load"]

# What turns texts into vectors.

Vectors = NDArray[np.float32]


class Embedder(Protocol):
    """Text in, unit vectors out: the inner product of two is their cosine."""

    @property
    def name(self) -> str:
        """Part of the cache's key: vectors of two embedders never meet."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Shape (len(texts), d), float32, each row of length 1 (or 0 for a text with nothing in it)."""


def load(name: str = "hashing") -> Embedder:
    """The embedder called `hashing`, `hashing:DIMENSIONS`, `sentence` or `sentence:MODEL`, or a class: `module:Class`.

    A class of one's own is made without arguments, or of the text behind it: `module:Class:TEXT`.

    Raises:
        InputError: There is none of that name.
        MissingExtra: What it needs is not installed.
    """
    kind, rest = registry.taken_apart("embedders", name)
    made = registry.load("embedders", kind)
    try:
        if registry.known("embedders", kind) and hasattr(made, "named"):
            embedder: Embedder = made.named(rest)
        else:
            embedder = made(rest) if rest else made()
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[{kind}]'") from error
    return embedder
