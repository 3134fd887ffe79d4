"""A shelf for playbooks far past 100,000 bullets: `Index(FaissShelf)`. Needs the extra `faiss`.

Approximate (a navigable small-world graph, Malkov and Yashunin, 2018): a near bullet may be missed now and then, so that a
duplicate stays. Exact search is the default for a reason.
"""

from collections.abc import Sequence

import numpy as np

from journeyman.core.errors import MissingExtra
from journeyman.models.embedders import Vectors
from journeyman.optimizers.playbook.index import Hit

try:
    import faiss
except ModuleNotFoundError as error:
    raise MissingExtra("faiss is missing: pip install 'journeyman[faiss]'") from error

_LINKS = 32
_SPARE = 4
"""Times k that are asked for, because some of the answers were removed or replaced since."""


class FaissShelf:
    """A graph over the vectors. Rows are never taken out of it; removed ones are passed over."""

    def __init__(self) -> None:
        self._graph: faiss.IndexHNSWFlat | None = None
        self._ids: list[str] = []
        self._rows: dict[str, int] = {}

    def put(self, ids: Sequence[str], vectors: Vectors) -> None:
        if not len(ids):
            return
        if self._graph is None:
            self._graph = faiss.IndexHNSWFlat(vectors.shape[1], _LINKS, faiss.METRIC_INNER_PRODUCT)
        self.remove(ids)
        self._rows.update((id, row) for row, id in enumerate(ids, start=len(self._ids)))
        self._ids.extend(ids)
        self._graph.add(np.ascontiguousarray(vectors, np.float32))

    def remove(self, ids: Sequence[str]) -> None:
        for id in ids:
            row = self._rows.pop(id, None)
            if row is not None:
                self._ids[row] = ""

    def search(self, new: Vectors, threshold: float, k: int) -> list[list[Hit]]:
        if self._graph is None or not len(new):
            return [[] for _ in new]
        asked = min(k * _SPARE, len(self._ids))
        self._graph.hnsw.efSearch = max(64, 2 * asked)
        likeness, rows = self._graph.search(np.ascontiguousarray(new, np.float32), asked)
        return [
            [
                (self._ids[row], float(value))
                for row, value in zip(*found, strict=True)
                if row >= 0 and self._ids[row] and value >= threshold
            ][:k]
            for found in zip(rows.tolist(), likeness.tolist(), strict=True)
        ]
