"""What of a request is looked at: its embedding, and what can be counted in its text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log1p

import numpy as np
from numpy.typing import NDArray

from journeyman.models.embedders import Vectors
from journeyman.stats import Floats

Singles = NDArray[np.float32]

_NUMBERS = re.compile(r"[0-9]+")
_KINDS = tuple(map(re.compile, (r"[0-9]", r"[A-Z]", r"[-+*/=^<>$\\{}()\[\]_|]", r"[^\w\s]")))
"""Digits, capitals, signs, and what is neither a word nor a space."""
_ASCII = tuple(bytes(code for code in range(128) if kind.match(chr(code))) for kind in _KINDS)
"""The same as bytes: texts that are ASCII alone, which most are, are counted in without looking for matches."""
_READ = 4_000
"""Characters of a request that are counted in; its length is that of the whole."""

COUNTED = 10
"""How many numbers `counted` gives."""


def counted(requests: Sequence[str]) -> Floats:
    """Shape (n, `COUNTED`): lengths as logarithms, and shares of digits, signs, capitals and the like."""
    return np.array([count(request) for request in requests], np.float64).reshape(-1, COUNTED)


def count(request: str) -> tuple[float, ...]:
    """The `COUNTED` numbers of one request."""
    text = request[:_READ]
    size, words = len(text) + 1, text.count(" ") + text.count("\n") + 1
    kinds = _found(text)
    return (
        log1p(len(request)),
        *(found / size for found in kinds),
        log1p(text.count("\n")),
        log1p(text.count("?")),
        log1p(text.count(".")),
        log1p(len(_NUMBERS.findall(text)) if kinds[0] else 0),
        size / words,
    )


def _found(text: str) -> list[int]:
    """How many characters of each of the `_KINDS` there are."""
    if not text.isascii():
        return [len(kind.findall(text)) for kind in _KINDS]
    data = text.encode("ascii")
    return [len(data) - len(data.translate(None, kind)) for kind in _ASCII]


@dataclass(frozen=True, kw_only=True)
class Space:
    """Where requests are points: embedding and counts on one scale, and the directions in which they differ most."""

    mean: Singles
    """(d,), of the embeddings."""
    unit: float
    """What an embedding less the mean is multiplied by, so that its mean square length is 1."""
    counts_mean: Singles
    counts_scale: Singles
    """(`COUNTED`,): what a count less its mean is multiplied by."""
    axes: Singles
    """(d + `COUNTED`, q), orthonormal columns."""

    def points(self, vectors: Vectors, requests: Sequence[str]) -> tuple[Singles, Singles]:
        """Of n requests: shape (n, d + `COUNTED`), and the same along the axes alone, (n, q)."""
        full = self.full(vectors, counted(requests))
        return full, full @ self.axes

    def full(self, vectors: Vectors, counts: Floats) -> Singles:
        """(n, d + `COUNTED`), of embeddings and what `counted` gives."""
        full = np.empty((len(vectors), len(self.axes)), np.float32)
        d = len(self.mean)
        np.multiply(vectors - self.mean, np.float32(self.unit), out=full[:, :d])
        scaled = (counts - self.counts_mean) * self.counts_scale
        np.minimum(np.maximum(scaled, -_FAR), _FAR, out=full[:, d:], casting="same_kind")
        return full


_WEIGHT = 0.1
"""Length of one standard deviation of a count, beside embeddings of length 1. Chosen on training rows: see LOG.md."""
_FAR = 4 * _WEIGHT
"""A count further from its mean than four standard deviations says no more than that."""


def space(vectors: Vectors, requests: Sequence[str], most: int = 64) -> Space:
    """The space of these requests, with at most that many axes (principal components)."""
    mean = vectors.mean(0)
    spread = float(np.mean(np.sum(np.square(vectors - mean), 1)))
    counts = counted(requests)
    deviation = counts.std(0)
    found = Space(
        mean=mean.astype(np.float32),
        unit=float(np.float32(1 / np.sqrt(spread))) if spread > 1e-12 else 0.0,
        counts_mean=counts.mean(0).astype(np.float32),
        counts_scale=np.where(deviation > 1e-9, _WEIGHT / np.maximum(deviation, 1e-9), 0).astype(np.float32),
        axes=np.zeros((vectors.shape[1] + COUNTED, 0), np.float32),
    )
    full, _ = found.points(vectors, requests)
    centred = (full - full.mean(0)).astype(np.float64)
    _, axes = np.linalg.eigh(centred.T @ centred)
    kept = axes[:, ::-1][:, : max(1, min(most, len(requests) - 1))]
    # An axis has no direction of its own: the sign is fixed, so that the same rows give the same bytes.
    kept = kept * np.sign(kept[np.argmax(np.abs(kept), 0), np.arange(kept.shape[1])])
    return replace(found, axes=np.ascontiguousarray(kept, np.float32))
