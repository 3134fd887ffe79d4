"""What turns texts into vectors, by name. An embedder's library is imported when its name is said, not before."""

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from journeyman.core.errors import InputError, MissingExtra

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


_EMBEDDERS = {
    "hashing": ("journeyman.models.embedders.hashing", "HashingEmbedder"),
    "sentence": ("journeyman.models.embedders.sentence", "SentenceEmbedder"),
}
"""Strings cost nothing until somebody asks. The extra has the name of the embedder."""


def load(name: str = "hashing") -> Embedder:
    """The embedder called `hashing`, `hashing:DIMENSIONS`, `sentence` or `sentence:MODEL`."""
    kind, _, rest = name.partition(":")
    if kind not in _EMBEDDERS:
        raise InputError(f"no embedder {kind!r}; there are {', '.join(sorted(_EMBEDDERS))}")
    module, made = _EMBEDDERS[kind]
    try:
        embedder: Embedder = getattr(import_module(module), made).named(rest)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[{kind}]'") from error
    return embedder
