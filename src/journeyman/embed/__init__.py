"""What turns texts into vectors, by name. An embedder's library is imported when its name is said, not before."""

from importlib import import_module

from journeyman.embed.base import Embedder, Vectors
from journeyman.errors import InputError, MissingExtra

__all__ = ["Embedder", "Vectors", "load"]

_EMBEDDERS = {
    "hashing": ("journeyman.embed.hashing", "HashingEmbedder"),
    "sentence": ("journeyman.embed.sentence", "SentenceEmbedder"),
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
