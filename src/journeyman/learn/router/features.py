"""What of a request is looked at: its embedding, and what can be counted in its text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log1p

import numpy as np
from numpy.typing import NDArray

from journeyman.embed.base import Vectors
from journeyman.learn.router.table import Floats

Singles = NDArray[np.float32]

_DIGITS = re.compile(r"[0-9]")
_NUMBERS = re.compile(r"[0-9]+")
_CAPITALS = re.compile(r"[A-Z]")
_SIGNS = re.compile(r"[-+*/=^<>$\\{}()\[\]_|]")
_OTHER = re.compile(r"[^\w\s]")
_READ = 4_000
"""Characters of a request that are counted in; its length is that of the whole."""

COUNTED = 10
"""How many numbers `counted` gives."""


def counted(requests: Sequence[str]) -> Floats:
    """Shape (n, `COUNTED`): lengths as logarithms, and shares of digits, signs, capitals and the like."""
    return np.array([_count(request) for request in requests], np.float64).reshape(-1, COUNTED)


def _count(request: str) -> tuple[float, ...]:
    text = request[:_READ]
    size, words = len(text) + 1, text.count(" ") + text.count("\n") + 1
    return (
        log1p(len(request)),
        len(_DIGITS.findall(text)) / size,
        len(_CAPITALS.findall(text)) / size,
        len(_SIGNS.findall(text)) / size,
        len(_OTHER.findall(text)) / size,
        log1p(text.count("\n")),
        log1p(text.count("?")),
        log1p(text.count(".")),
        log1p(len(_NUMBERS.findall(text))),
        size / words,
    )


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
        counts = (counted(requests) - self.counts_mean) * self.counts_scale
        full = np.empty((len(requests), len(self.axes)), np.float32)
        d = len(self.mean)
        np.multiply(vectors - self.mean, np.float32(self.unit), out=full[:, :d])
        np.minimum(np.maximum(counts, -_FAR), _FAR, out=full[:, d:], casting="same_kind")
        return full, full @ self.axes


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
