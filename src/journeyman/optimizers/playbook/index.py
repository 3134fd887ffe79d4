"""Which bullets are near a text: exact inner products, one BLAS product a batch.

Nothing is approximated. Up to 100,000 bullets an index structure buys nothing over the bare product; past that,
`Index(approximate.FaissShelf)` trades exactness for time.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from journeyman.models.embedders import Vectors

Hit = tuple[str, float]
"""A bullet's id and its likeness."""

_Pairs = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]

_BLOCK = 4096
"""Rows of a shelf that are compared at a time: the products stay in the cache instead of filling the memory."""
_SLACK = 1e-5
"""A float32 product depends, in its last digits, on what else was multiplied. Likeness is compared without them."""


class Shelf(Protocol):
    """The vectors of one domain."""

    def put(self, ids: Sequence[str], vectors: Vectors) -> None:
        """Add rows, or give known ids new vectors."""

    def remove(self, ids: Sequence[str]) -> None:
        """Unknown ids are no error."""

    def search(self, new: Vectors, threshold: float, k: int) -> list[list[Hit]]:
        """For each new row its nearest at or above the threshold, at most k, best first, older first where equal."""


class MatrixShelf:
    """A growing matrix. Exact."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        """In the order of the rows. Empty where a row was removed."""
        self._rows: dict[str, int] = {}
        self._removed: list[int] = []
        self._matrix: Vectors = np.zeros((0, 0), np.float32)

    @property
    def vectors(self) -> Vectors:
        """The rows in use, contiguous, not copied. Removed ones are 0."""
        return self._matrix[: len(self.ids)]

    def put(self, ids: Sequence[str], vectors: Vectors) -> None:
        self._grow(len(self.ids) + len(ids), vectors.shape[1])
        for id, vector in zip(ids, vectors, strict=True):
            row = self._rows.setdefault(id, len(self.ids))
            if row == len(self.ids):
                self.ids.append(id)
            self._matrix[row] = vector

    def remove(self, ids: Sequence[str]) -> None:
        for id in ids:
            row = self._rows.pop(id, None)
            if row is not None:
                self._removed.append(row)
                self.ids[row] = ""
                self._matrix[row] = 0

    def search(self, new: Vectors, threshold: float, k: int) -> list[list[Hit]]:
        parts = [_best(pairs, k) for pairs in self._near(np.ascontiguousarray(new), threshold - _SLACK)]
        found: list[list[Hit]] = [[] for _ in new]
        if parts:
            rows, columns, likeness = _best(_joined(parts), k)
            for row, column, value in zip(rows.tolist(), columns.tolist(), likeness.tolist(), strict=True):
                found[row].append((self.ids[column], value))
        return found

    def top(
        self, query: Vectors, k: int, weights: NDArray[np.floating] | None = None, without: Sequence[int] = ()
    ) -> list[Hit]:
        """The k rows with the greatest likeness to one vector, times a weight for each row of `ids` if they are given.

        Rows in `without`, none of them removed, are passed over.
        """
        k = min(k, len(self._rows) - len(without))
        if not k:
            return []
        scores = self.vectors @ query
        if weights is not None:
            scores = scores * weights
        scores[[*self._removed, *without]] = -np.inf
        best = np.argpartition(scores, -k)[-k:]
        best = best[np.lexsort((best, -scores[best]))]
        return [(self.ids[row], float(scores[row])) for row in best.tolist()]

    def _near(self, new: Vectors, least: float) -> Iterator[_Pairs]:
        """Row of `new`, row of the shelf and likeness of every pair that is near, a block at a time."""
        products = np.empty((len(new), _BLOCK), np.float32)
        for start in range(0, len(self.ids), _BLOCK):
            block = self.vectors[start : start + _BLOCK]
            near = np.matmul(new, block.T, out=products[:, : len(block)])
            # Most blocks hold nothing near, and the greatest of a row is found faster than all that pass.
            some = np.flatnonzero(near.max(axis=1) >= least)
            if len(some):
                rows, columns = np.nonzero(near[some] >= least)
                yield some[rows], columns + start, near[some[rows], columns]

    def _grow(self, rows: int, dimensions: int) -> None:
        """Room is doubled, so that adding one at a time costs no more than adding them at once."""
        if rows > len(self._matrix):
            grown = np.zeros((max(rows, 2 * len(self._matrix), 64), dimensions), np.float32)
            if self.ids:
                grown[: len(self.ids)] = self.vectors
            self._matrix = grown


def _joined(parts: Sequence[_Pairs]) -> _Pairs:
    rows, columns, likeness = zip(*parts, strict=True)
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(likeness)


def _best(pairs: _Pairs, k: int) -> _Pairs:
    """The k nearest of each row, nearest first, older first where equal."""
    rows, columns, likeness = pairs
    order = np.lexsort((columns, -np.round(likeness, 5), rows))
    rows = rows[order]
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
    kept = order[rank < k]
    return rows[rank < k], columns[kept], likeness[kept]


class Index:
    """A shelf for each domain: nothing is ever compared with another domain's."""

    def __init__(self, shelf: Callable[[], Shelf] = MatrixShelf) -> None:
        self._shelves: defaultdict[str, Shelf] = defaultdict(shelf)

    def put(self, domain: str, ids: Sequence[str], vectors: Vectors) -> None:
        self._shelves[domain].put(ids, vectors)

    def remove(self, domain: str, ids: Sequence[str]) -> None:
        self._shelves[domain].remove(ids)

    def search(self, domain: str, new: Vectors, threshold: float, k: int = 8) -> list[list[Hit]]:
        """For each new row the nearest bullets of its domain, best first."""
        return self._shelves[domain].search(new, threshold, k)


def alike(vectors: Vectors, threshold: float) -> list[list[int]]:
    """For each row the earlier rows that are near it, nearest first: duplicates within a batch."""
    near: list[list[int]] = []
    for start in range(0, len(vectors), _BLOCK):
        products = np.round(vectors[start : start + _BLOCK] @ vectors[: start + _BLOCK].T, 5)
        for row, likeness in enumerate(products, start=start):
            earlier = np.flatnonzero(likeness[:row] >= threshold - _SLACK)
            near.append(earlier[np.argsort(-likeness[earlier], kind="stable")].tolist())
    return near
