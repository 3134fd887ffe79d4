"""Vectors made by hashing words and parts of words: no model, no download, the same on every machine.

Near duplicates come out near, which is what merging a playbook needs. Synonyms do not: `sentence` knows them.
The features are hashed with a sign (Weinberger et al., Feature Hashing for Large Scale Multitask Learning, 2009).
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from journeyman.core.errors import InputError
from journeyman.models.embedders import Vectors

_WORD = re.compile(r"\w+(?:[.,:/'-]\w+)*")
_GRAMS = (3, 4, 5)
_BLOCK = 1024
"""Texts that are counted together, which bounds the memory."""


class HashingEmbedder:
    """Words and pairs of words, and the 3- to 5-letter parts of words, each weighted by 1 + log of its count."""

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
