"""Four ways to tell from a request how its outcomes will differ from the average ones, as arrays.

Each gives (n, m + 1): how much easier than the average request, then for each of m workers how much better than the others it
does here than it does on average.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from journeyman.learn.router.features import Singles

MEMBERS = ("linear", "clusters", "neighbours", "network")
"""In the order of the weights."""
TRANSFER = ("linear", "network")
"""Those that say something of requests unlike past ones: means of what is near do not."""


class Member(Protocol):
    def __call__(self, full: Singles, near: Singles) -> Singles:
        """Of n points, (n, D) and along the axes alone (n, q): shape (n, m + 1)."""


@dataclass(frozen=True, kw_only=True)
class Linear:
    weights: Singles
    """(D, m + 1)."""
    bias: Singles

    def __call__(self, full: Singles, near: Singles) -> Singles:
        return np.asarray(full @ self.weights + self.bias)


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """Mean outcomes of clusters of requests (pseudo types), averaged over several clusterings."""

    centres: Singles
    """(r * c, q): c for each of r clusterings."""
    offsets: Singles
    """(r * c,): half of each centre's squared length; infinite where a clustering has fewer than c."""
    values: Singles
    """(r, c, m + 1)."""

    def assign(self, near: Singles) -> NDArray[np.int64]:
        """(n, r): the nearest centre of each clustering."""
        closeness = near @ self.centres.T - self.offsets
        return np.asarray(closeness.reshape(len(near), *self.values.shape[:2]).argmax(2))

    def __call__(self, full: Singles, near: Singles) -> Singles:
        found = self.values[np.arange(len(self.values)), self.assign(near)]
        return np.asarray(found.sum(1) * np.float32(1 / len(self.values)))


@dataclass(frozen=True, kw_only=True)
class NearestNeighbours:
    """Mean outcomes of the k nearest requests, shrunk towards 0."""

    points: Singles
    """(p, q)."""
    offsets: Singles
    """(p,): half of each point's squared length."""
    values: Singles
    """(p, m + 1), 0 where unknown."""
    known: Singles
    """(p, m + 1), 1 where known and 0 elsewhere."""
    k: int
    prior: Singles
    """(m + 1,): pseudo-observations at 0."""
    distances: Singles
    """Squared distances from one request of the past to the next, rising, at equally spaced ranks."""

    def __call__(self, full: Singles, near: Singles) -> Singles:
        return self.and_familiar(full, near)[0]

    def and_familiar(self, full: Singles, near: Singles) -> tuple[Singles, NDArray[np.float64]]:
        """The means, and what share of past requests were further from the next one: near 0 for what is unlike them all."""
        closeness = near @ self.points.T
        closeness -= self.offsets
        k = min(self.k, len(self.points))
        nearest = closeness.argpartition(len(self.points) - k, axis=1)[:, -k:]
        found = self.both.take(nearest, axis=0).sum(1)
        columns = self.values.shape[1]
        # Of the point itself, so that what lies off the axes counts as distance too.
        distances = (full * full).sum(1) - 2 * closeness.max(1)
        familiar = np.interp(distances, self.distances, self.ranks, right=0.0)
        return found[:, :columns] / (found[:, columns:] + self.prior), familiar

    @cached_property
    def both(self) -> Singles:
        """(p, 2 * (m + 1)): values, and beside them which are known."""
        return np.hstack([self.values, self.known])

    @cached_property
    def ranks(self) -> NDArray[np.float64]:
        """How familiar is what is as far away as `distances` say."""
        return np.linspace(1, 0, len(self.distances))


@dataclass(frozen=True, kw_only=True)
class Network:
    """One hidden layer of rectifiers; several networks of that kind side by side, averaged by the second layer."""

    first: Singles
    """(q, h)."""
    first_bias: Singles
    second: Singles
    """(h, m + 1)."""
    second_bias: Singles

    def __call__(self, full: Singles, near: Singles) -> Singles:
        hidden = near @ self.first + self.first_bias
        return np.asarray(np.maximum(hidden, 0, out=hidden) @ self.second + self.second_bias)
